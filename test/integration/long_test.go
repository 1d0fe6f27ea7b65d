package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/openai"
	"github.com/pawl-run/pawl/internal/model/wire"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/test/fakemodel"
)

const (
	longCalls       = 100
	longResultBytes = 5 << 10
	// longContext is small enough for the conversation to be shortened many times.
	longContext = 16000
)

// libraryOf serves pages of so many bytes, each another.
func libraryOf(bytes int) *httptest.Server {
	var page atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		text := fmt.Sprintf("page %d: ", page.Add(1))
		_ = json.NewEncoder(w).Encode(text + strings.Repeat("lorem ipsum ", bytes/12)[:bytes-len(text)])
	}))
}

var _ = Describe("A run of 100 calls with results of 5 KB", Ordered, func() {
	var (
		server  *fakemodel.Server
		run     *v1alpha1.AgentRun
		records []journal.Record
	)

	BeforeAll(func(ctx SpecContext) {
		library := libraryOf(longResultBytes)
		DeferCleanup(library.Close)
		var asked atomic.Int64
		server = must(fakemodel.Start(fakemodel.Options{Answer: func(r fakemodel.Request) fakemodel.Answer {
			n := asked.Load() + 1
			switch {
			case len(r.Tools) == 0:
				return fakemodel.Text("Read so far: all pages before this one.")
			case n > longCalls:
				return fakemodel.Text("Read.")
			}
			asked.Add(1)
			return fakemodel.Propose(fakemodel.Call{Name: "page", Arguments: fmt.Sprintf(`{"number":%d}`, n)})
		}}))
		DeferCleanup(server.Close)
		w := newWorld(ctx, "long")
		key := w.start(ctx, "long", fmt.Sprintf(`
model: {provider: OpenAI, model: test-model, endpoint: %q}
policy:
  servers: [{name: library, http: {url: %q, tools: [{name: page, inputSchema: {type: object, required: [number], properties: {number: {type: integer}}}}]}}]
  tools: [{match: ["library.*"], effect: ReadOnly}]
run:
  limits: {maxTurns: 200, maxToolCalls: 200, maxTokens: 100000000}
  context: {maxTokens: %d}
`, server.Endpoint(fakemodel.Chat), library.URL, longContext))
		run = awaitWithin(ctx, 3*time.Minute, key, v1alpha1.ReasonCompleted, metav1.ConditionTrue)
		records, _ = journalOf(ctx, run)
	}, NodeTimeout(4*time.Minute))

	It("completes, in requests that a strict provider accepts", func() {
		expectStrict(server)
		Expect(run.Status.ToolCalls).To(BeEquivalentTo(longCalls))
		Expect(run.Status.Turns).To(BeEquivalentTo(longCalls + 1))
	})

	It("asks for no more than context.maxTokens at a time", func() {
		for i, request := range server.Requests() {
			Expect(len(request.Body)/4).To(BeNumerically("<", longContext*5/4), "request %d", i+1)
		}
		Expect(events[journal.ContextReduced](records)).NotTo(BeEmpty())
	})

	It("has a journal below 2 MiB that grows by the same for every turn", func() {
		sizes := bytesByTurn(records)
		Expect(run.Status.Journal.Bytes).To(BeNumerically("<", 2<<20))
		early, late := mean(sizes[1:11]), mean(sizes[longCalls-10:longCalls])
		AddReportEntry(fmt.Sprintf("%d bytes in %d events and %d segments; %.0f bytes a turn at first, %.0f at last",
			run.Status.Journal.Bytes, run.Status.Journal.Events, run.Status.Journal.Segments, early, late), ReportEntryVisibilityAlways)
		Expect(late / early).To(BeNumerically("<", 1.2))
		if file := os.Getenv("PAWL_GROWTH"); file != "" {
			Expect(os.WriteFile(file, []byte(growth(run, sizes, server.Requests())), 0o600)).To(Succeed())
		}
	})

	It("has a journal from which each request can be rebuilt, byte for byte", func() {
		client := must(openai.New(wire.Config{Endpoint: server.Endpoint(fakemodel.Chat), Model: "test-model"}))
		bodies := rebuilt(records, run, client)
		requests := server.Requests()
		Expect(bodies).To(HaveLen(len(requests)))
		for i, body := range bodies {
			Expect(string(body)).To(Equal(string(requests[i].Body)), "request %d", i+1)
		}
	})
})

// encoder is a model client that says what it would send.
type encoder interface {
	Encode(request model.Request) ([]byte, error)
}

// rebuilt are the bodies of all requests that the journal has an answer to.
func rebuilt(records []journal.Record, run *v1alpha1.AgentRun, client encoder) [][]byte {
	GinkgoHelper()
	state := journal.NewState(string(run.UID))
	var bodies [][]byte
	for _, record := range records {
		var answer journal.Payload
		switch record.Event.Type {
		case journal.TypeDecisionMade:
			answer = decodePayload[journal.DecisionMade](record)
		case journal.TypeContextSummarised:
			answer = decodePayload[journal.ContextSummarised](record)
		default:
		}
		if answer != nil {
			request, ok := prompt.Rebuild(state, answer)
			Expect(ok).To(BeTrue())
			bodies = append(bodies, must(client.Encode(request)))
		}
		Expect(state.Apply(record)).To(Succeed())
	}
	return bodies
}

func decodePayload[P journal.Payload](record journal.Record) P {
	GinkgoHelper()
	var payload P
	Expect(json.Unmarshal(record.Event.Data, &payload)).To(Succeed())
	return payload
}

// bytesByTurn are the bytes that the journal has for each turn, the first at 0.
func bytesByTurn(records []journal.Record) []float64 {
	var sizes []float64
	for _, r := range records {
		turn := max(int(r.Event.Turn), 1)
		for len(sizes) < turn {
			sizes = append(sizes, 0)
		}
		sizes[turn-1] += float64(r.Size())
	}
	return sizes
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// growth is docs/journal-growth.md.
func growth(run *v1alpha1.AgentRun, sizes []float64, requests []fakemodel.Request) string {
	var b strings.Builder
	b.WriteString("# How a journal grows\n\n<!-- Written by `make journal-growth`. -->\n\n")
	fmt.Fprintf(&b, "One run of %d calls, one a turn, with results of %d bytes each and\n`context.maxTokens: %d`. ", longCalls, longResultBytes, longContext)
	fmt.Fprintf(&b, "Its journal has %d bytes in %d events and %d segments. ", run.Status.Journal.Bytes, run.Status.Journal.Events, run.Status.Journal.Segments)
	b.WriteString("A turn\ncosts the same whether it is the tenth or the ninetieth; what the model is sent stays below the bound, since older results are reduced to their beginnings.\n\n")
	b.WriteString("| turns | journal bytes a turn | request bytes, mean | journal so far |\n|---|---:|---:|---:|\n")
	total, perTurn := 0.0, decisions(requests)
	for from := 0; from < longCalls; from += 10 {
		part := sizes[from : from+10]
		total += mean(part) * 10
		fmt.Fprintf(&b, "| %d-%d | %.0f | %.0f | %.0f |\n", from+1, from+10, mean(part), mean(perTurn[from:from+10]), total)
	}
	return b.String()
}

// decisions are the sizes of the requests for decisions, leaving out summaries.
func decisions(requests []fakemodel.Request) []float64 {
	var sizes []float64
	for _, r := range requests {
		if len(r.Tools) > 0 {
			sizes = append(sizes, float64(len(r.Body)))
		}
	}
	return sizes
}
