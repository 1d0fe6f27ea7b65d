package integration

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// throttler is a service that refuses most requests for now, and says when to come back.
type throttler struct {
	*httptest.Server
	// most is how often a run is refused at most, from least on.
	least, most int

	mu       sync.Mutex
	refused  map[string]int
	notUntil map[string]time.Time
	served   map[string]int
	keys     map[string]string
	// refusals and early count answers 429, and requests that came before their time.
	refusals, early int
	complaints      []string
}

func startThrottler(least, most int) *throttler {
	s := &throttler{least: least, most: most, refused: map[string]int{}, notUntil: map[string]time.Time{}, served: map[string]int{}, keys: map[string]string{}}
	s.Server = httptest.NewServer(s)
	DeferCleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler. A run is refused as often as its name says. A request
// that comes back before its time is refused once more, and so is every one after it.
func (s *throttler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	name, key := r.Header.Get("Pawl-Run"), r.Header.Get("Idempotency-Key")
	if owner, known := s.keys[key]; key == "" || known && owner != name {
		s.complaints = append(s.complaints, fmt.Sprintf("%s comes with key %q of %q", name, key, owner))
	}
	s.keys[key] = name
	if now.Before(s.notUntil[key]) {
		s.early++
		s.refuse(w, key, now)
		return
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name))
	if s.refused[name] < s.least+int(sum.Sum32())%(s.most-s.least+1) {
		s.refused[name]++
		s.refuse(w, key, now)
		return
	}
	s.served[name]++
	_, _ = fmt.Fprintf(w, `{"run":%q}`, name)
}

func (s *throttler) refuse(w http.ResponseWriter, key string, now time.Time) {
	const seconds = 1
	s.refusals++
	s.notUntil[key] = now.Add(seconds * time.Second)
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = w.Write([]byte(`{"error":"slow down"}`))
}

// persistent is a model that calls the tool until it has its result, and gives it as answer.
func persistent() string {
	server := must(fakemodel.Start(fakemodel.Options{RequireOfferedCalls: true, Answer: func(r fakemodel.Request) fakemodel.Answer {
		last := r.Last()
		if last.Role == "tool" && !strings.Contains(last.Text, `"class":"throttled"`) {
			return fakemodel.Text(last.Text)
		}
		return fakemodel.Propose(fakemodel.Call{Name: "take"})
	}}))
	DeferCleanup(server.Close)
	return fmt.Sprintf("model: {provider: OpenAI, model: test-model, endpoint: %q}\n", server.Endpoint(fakemodel.Chat))
}

var _ = Describe("Fifty runs against a service that answers 429 with Retry-After most of the time", func() {
	It("complete, all of them, and come back no sooner than they were told", func(ctx SpecContext) {
		w := newWorld(ctx, "throttled")
		begin := time.Now()
		policy := func(s *throttler, properties string) string {
			return fmt.Sprintf("policy:\n  servers: [{name: desk, http: {url: %q, tools: [{name: take, inputSchema: {type: object, properties: {}}}]}}]\n  tools: [{match: [\"desk.*\"], %s}]\n", s.URL, properties)
		}
		kinds := []struct {
			name    string
			runs    int
			service *throttler
			text    string
		}{
			// The operator alone waits and tries again.
			{"read", 15, startThrottler(2, 4), `model: {script: [{toolCalls: [{tool: desk.take}]}, {finalExpression: '"{\"run\":\"" + results[0].run + "\"}"'}]}` + "\n"},
			// Its attempts run out, and the model asks once more.
			{"again", 15, startThrottler(2, 4), persistent()},
			// Each attempt is a call of its own, which the model decides on.
			{"once", 20, startThrottler(1, 2), persistent()},
		}
		properties := map[string]string{
			"read":  "effect: ReadOnly, maxAttempts: 5",
			"again": "effect: Idempotent",
			"once":  "effect: NonIdempotent",
		}
		for _, kind := range kinds {
			w.createSome(ctx, kind.name, kind.text+policy(kind.service, properties[kind.name]), kind.runs)
		}
		runs, refusals, served := 0, 0, 0
		for _, kind := range kinds {
			for n := range kind.runs {
				key := w.key(fmt.Sprintf("%s-%d", kind.name, n))
				var run *v1alpha1.AgentRun
				Eventually(ctx, func() string {
					run = &v1alpha1.AgentRun{}
					Expect(env.Admin.Get(ctx, key, run)).To(Succeed())
					return condition(run, v1alpha1.ConditionSucceeded).Reason
				}).WithTimeout(2*time.Minute).Should(Equal(string(v1alpha1.ReasonCompleted)), key.Name)
				Expect(run.Status.Result.Text).To(MatchJSON(fmt.Sprintf(`{"run":%q}`, key.String())))
				runs++
			}
			s := kind.service
			s.mu.Lock()
			Expect(s.early).To(BeZero(), "requests of %s that came before their time", kind.name)
			Expect(s.complaints).To(BeEmpty())
			Expect(s.served).To(HaveLen(kind.runs))
			for name, times := range s.served {
				Expect(times).To(Equal(1), name)
				served++
			}
			refusals += s.refusals
			s.mu.Unlock()
		}
		Expect(runs).To(Equal(50))
		Expect(refusals).To(BeNumerically(">", served), "most answers are 429")
		AddReportEntry(fmt.Sprintf("%d runs completed in %s; %d requests, %d of them answered 429", runs, time.Since(begin).Round(time.Second), refusals+served, refusals), ReportEntryVisibilityAlways)
	}, NodeTimeout(4*time.Minute))
})
