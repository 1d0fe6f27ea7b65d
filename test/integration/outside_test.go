package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// slowService accepts each call and has its result once it was asked so many times.
type slowService struct {
	*httptest.Server
	accepted, asked atomic.Int64
}

func startSlowService(questions int64) *slowService {
	s := &slowService{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /print", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Location", fmt.Sprintf("/jobs/%d", s.accepted.Add(1)))
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET /jobs/{id}", func(w http.ResponseWriter, _ *http.Request) {
		if s.asked.Add(1) < questions {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		_, _ = w.Write([]byte("3 pages"))
	})
	s.Server = httptest.NewServer(mux)
	DeferCleanup(s.Close)
	return s
}

// printing is a scenario whose one call goes on at a service.
func printing(s *slowService, timeout int) string {
	return fmt.Sprintf(`
model: {script: [{toolCalls: [{tool: printer.print}]}, {finalExpression: 'results[0] == null ? "nothing" : string(results[0])'}]}
policy:
  servers: [{name: printer, http: {url: %q, tools: [{name: print, inputSchema: {type: object, properties: {}}}]}}]
  tools: [{match: ["printer.*"], timeoutSeconds: %d}]
`, s.URL, timeout)
}

var _ = Describe("A call that a service answers later", func() {
	It("is waited for without a worker, and asked about without a write", func(ctx SpecContext) {
		service, w := startSlowService(4), newWorld(ctx, "later")
		key := w.start(ctx, "print", printing(service, 60))
		run := awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool)
		Expect(run.Status.Owner).To(BeNil())
		length := run.Status.Journal.Events
		Eventually(service.asked.Load).WithTimeout(10 * time.Second).Should(BeNumerically(">=", 2))
		Expect(env.Admin.Get(ctx, key, run)).To(Succeed())
		Expect(run.Status.Journal.Events).To(Equal(length))

		run = awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(ContainSubstring("3"))
		Expect(service.accepted.Load()).To(BeEquivalentTo(1), "asking is not sending")
		records, _ := journalOf(ctx, run)
		Expect(events[journal.CallDeferred](records)).To(HaveLen(1))
	})

	It("may be completed from outside, by whoever may", func(ctx SpecContext) {
		service, w := startSlowService(1<<40), newWorld(ctx, "completed")
		key := w.start(ctx, "print", printing(service, 600))
		run := awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool)
		_, state := journalOf(ctx, run)
		id := state.OpenTurn().Calls[0].Call.ID
		Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationComplete: fmt.Sprintf(`{%q: "all printed"}`, id)})).To(Succeed())
		Expect(awaitCompleted(ctx, key).Status.Result.Text).To(Equal("all printed"))
		records, _ := journalOf(ctx, run)
		for _, r := range records {
			if r.Event.Type == journal.TypeCallCompleted {
				Expect(r.Event.By).NotTo(BeEmpty(), "who delivered it")
			}
		}
	})

	It("is unknown once its time is over and nobody can say", func(ctx SpecContext) {
		service, w := startSlowService(1<<40), newWorld(ctx, "overdue")
		key := w.start(ctx, "print", printing(service, 3))
		run := awaitOpen(ctx, key, v1alpha1.ReasonOutcomeUnknown)
		Expect(run.Status.UnknownEffects).To(HaveLen(1))
		Expect(service.accepted.Load()).To(BeEquivalentTo(1), "it is never sent again")
	})

	It("ends with its run", func(ctx SpecContext) {
		service, w := startSlowService(1<<40), newWorld(ctx, "cancelled")
		key := w.start(ctx, "print", printing(service, 600))
		awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool)
		setState(ctx, key, v1alpha1.StateCancelled)
		run := awaitEnd(ctx, key, v1alpha1.ReasonCancelled)
		Expect(run.Status.UnknownEffects).To(HaveLen(1), "the service was not told")
	})
})

// taskServer is an MCP server of the current revision that makes a task of each call, which
// is done once it was asked about so many times, or was cancelled.
func taskServer(questions int64) (url string, asked, cancelled *atomic.Int64) {
	asked, cancelled = &atomic.Int64{}, &atomic.Int64{}
	const task = `"taskId":"task-1","createdAt":"2026-12-01T10:00:00Z","lastUpdatedAt":"2026-12-01T10:00:00Z","ttlMs":null,"pollIntervalMs":1000,"status":`
	results := map[string]func() string{
		"tools/list": func() string {
			return `"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[{"name":"bake","inputSchema":{"type":"object"}}]`
		},
		"tools/call": func() string { return `"resultType":"task",` + task + `"working"` },
		"tasks/get": func() string {
			switch {
			case cancelled.Load() > 0:
				return `"resultType":"complete",` + task + `"cancelled"`
			case asked.Add(1) < questions:
				return `"resultType":"complete",` + task + `"working"`
			default:
				return `"resultType":"complete",` + task + `"completed","result":{"content":[{"type":"text","text":"a loaf"}]}`
			}
		},
		"tasks/cancel": func() string { cancelled.Add(1); return `"resultType":"complete"` },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.NewDecoder(r.Body).Decode(&request)
		w.Header().Set("Content-Type", "application/json")
		result, known := results[request.Method]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, request.ID)
			return
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, request.ID, result())
	}))
	DeferCleanup(server.Close)
	return server.URL, asked, cancelled
}

// askingTask is an MCP server that makes a task of each call, which wants to know something
// before it ends. It hears what it was told once it was told twice.
func askingTask() (url string, told *atomic.Int64) {
	told = &atomic.Int64{}
	const task = `"resultType":"complete","taskId":"task-1","createdAt":"2026-12-01T10:00:00Z","lastUpdatedAt":"2026-12-01T10:00:00Z","ttlMs":null,"pollIntervalMs":1000,"status":`
	var said atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Responses json.RawMessage `json:"inputResponses"`
			} `json:"params"`
		}
		_ = json.NewDecoder(r.Body).Decode(&request)
		result := `"resultType":"complete"`
		switch request.Method {
		case "tools/list":
			result = `"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[{"name":"bake","inputSchema":{"type":"object"}}]`
		case "tools/call":
			result = strings.Replace(task, "complete", "task", 1) + `"working"`
		case "tasks/update":
			said.Store(string(request.Params.Responses))
			told.Add(1)
		case "tasks/get":
			result = task + `"input_required","inputRequests":{"flour":{"method":"elicitation/create","params":{"message":"Which flour?","requestedSchema":{"type":"object","properties":{"flour":{"type":"string"}}}}}}`
			if told.Load() >= 2 {
				result = task + fmt.Sprintf(`"completed","result":{"content":[{"type":"text","text":%q}]}`, said.Load())
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, request.ID, result)
	}))
	DeferCleanup(server.Close)
	return server.URL, told
}

func baking(url string) string {
	return fmt.Sprintf(`
model: {script: [{toolCalls: [{tool: oven.bake}]}, {finalExpression: 'results[0] == null ? "nothing" : string(results[0])'}]}
policy:
  servers: [{name: oven, mcp: {url: %q}}]
  tools: [{match: ["oven.*"], timeoutSeconds: 600}]
`, url)
}

var _ = Describe("A call that an MCP server makes a task of", func() {
	It("is waited for without a worker", func(ctx SpecContext) {
		url, asked, _ := taskServer(3)
		w := newWorld(ctx, "task")
		key := w.start(ctx, "bake", baking(url))
		Expect(awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool).Status.Owner).To(BeNil())
		Expect(awaitCompleted(ctx, key).Status.Result.Text).To(Equal("a loaf"))
		Expect(asked.Load()).To(BeEquivalentTo(3))
	})

	It("may ask people, and is told until it hears", func(ctx SpecContext) {
		url, told := askingTask()
		w := newWorld(ctx, "task-asks")
		key := w.start(ctx, "bake", baking(url))
		run := awaitOpen(ctx, key, v1alpha1.ReasonInputRequired)
		Expect(run.Status.Owner).To(BeNil())
		Expect(run.Status.Question.Tool).To(Equal("oven.bake"))
		Expect(told.Load()).To(BeZero())
		Expect(dana.annotate(ctx, key, map[string]string{v1alpha1.AnnotationAnswer: fmt.Sprintf(`{%q: "rye"}`, run.Status.Question.ID)})).To(Succeed())
		Expect(awaitCompleted(ctx, key).Status.Result.Text).To(Equal(`{"flour":{"action":"accept","content":{"flour":"rye"}}}`))
		records, _ := journalOf(ctx, run)
		Expect(events[journal.QuestionAsked](records)).To(HaveLen(1))
	})

	It("is cancelled with its run", func(ctx SpecContext) {
		url, _, cancelled := taskServer(1 << 40)
		w := newWorld(ctx, "task-cancelled")
		key := w.start(ctx, "bake", baking(url))
		awaitOpen(ctx, key, v1alpha1.ReasonWaitingForTool)
		setState(ctx, key, v1alpha1.StateCancelled)
		awaitEnd(ctx, key, v1alpha1.ReasonCancelled)
		Expect(cancelled.Load()).To(BeNumerically(">=", 1))
	})
})
