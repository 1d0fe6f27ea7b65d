package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

const confidential = "ada@example.com"

// register answers with what nobody may keep.
func register() string {
	mux := http.NewServeMux()
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	mux.HandleFunc("POST /get", answer(200, `{"customer": {"email": "`+confidential+`", "id": 7}}`))
	mux.HandleFunc("POST /refuse", answer(422, `{"customer": {"email": "`+confidential+`"}, "error": "blocked"}`))
	mux.HandleFunc("POST /tell", answer(200, "Her address is "+confidential))
	server := httptest.NewServer(mux)
	DeferCleanup(server.Close)
	return server.URL
}

// everything is what the API server holds of a namespace that a run could have written to.
func everything(ctx context.Context, w world) string {
	GinkgoHelper()
	text := ""
	for _, list := range []client.ObjectList{&v1alpha1.AgentRunList{}, &corev1.ConfigMapList{}, &corev1.EventList{}} {
		Expect(env.Admin.List(ctx, list, client.InNamespace(w.namespace))).To(Succeed())
		data, err := json.Marshal(list)
		Expect(err).NotTo(HaveOccurred())
		text += string(data)
	}
	return text
}

var _ = Describe("Results with what the policy redacts", func() {
	It("are stored and shown without it, and what can't be looked into is withheld", func(ctx SpecContext) {
		w := newWorld(ctx, "redacted")
		key := w.start(ctx, "ask", fmt.Sprintf(`
model: {script: [{toolCalls: [{tool: register.get}, {tool: register.refuse}, {tool: register.tell}]}, {finalExpression: '"id " + string(results[0].customer.id) + ", " + results[0].customer.email + ", " + string(results[1] == null) + ", " + results[2]'}]}
policy:
  servers: [{name: register, http: {url: %q, tools: [{name: get, inputSchema: {type: object, properties: {}}}, {name: refuse, inputSchema: {type: object, properties: {}}}, {name: tell, inputSchema: {type: object, properties: {}}}]}}]
  tools: [{match: ["register.*"], effect: ReadOnly, redact: ["$..email"]}]
`, register()))
		run := awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(HavePrefix("id 7, [redacted], true, [withheld: "))
		_, state := journalOf(ctx, run)
		Expect(string(results(state, 1)[1].Value)).To(Equal(`{"customer":{"email":"[redacted]"},"error":"blocked"}`))
		stored := everything(ctx, w)
		Expect(stored).To(ContainSubstring("[redacted]"))
		Expect(stored).NotTo(ContainSubstring(confidential))
	})

	It("need paths that can be read: the policy says which can't", func(ctx SpecContext) {
		w := newWorld(ctx, "unreadable")
		key := w.start(ctx, "ask", `
model: {script: [{final: Done.}]}
policy: {tools: [{match: ["status.*"], redact: ["$.status", "customer[", "$..a..b"]}]}
`)
		awaitOpen(ctx, key, v1alpha1.ReasonConfigurationNotReady)
		policy := &v1alpha1.ToolPolicy{}
		Expect(env.Admin.Get(ctx, key, policy)).To(Succeed())
		message := ""
		for _, c := range policy.Status.Conditions {
			message += c.Message
		}
		Expect(message).To(And(
			ContainSubstring(`tools[0]: redact[1] "customer[": it is not a JSONPath`),
			ContainSubstring(`tools[0]: redact[2] "$..a..b": it has '..' more than once`)))
	})
})

var _ = Describe("Results that are larger than an event may hold", func() {
	// library answers with one text of many lines.
	library := func() (url, text string) {
		var b strings.Builder
		for n := range 20_000 {
			fmt.Fprintf(&b, "line %d: größer\n", n)
		}
		text = b.String()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write([]byte(text))
		}))
		DeferCleanup(server.Close)
		return server.URL, text
	}

	It("are kept beside the journal, and the model pages through them", func(ctx SpecContext) {
		w := newWorld(ctx, "large")
		url, text := library()
		offset := strings.Index(text, "line 19000")
		key := w.start(ctx, "read", fmt.Sprintf(`
model: {script: [{toolCalls: [{tool: library.get}]}, {toolCalls: [{tool: read_result, arguments: {call: call_1_0, offset: %d}}]}, {finalExpression: 'results[0]'}]}
policy:
  servers: [{name: library, http: {url: %q, tools: [{name: get, inputSchema: {type: object, properties: {}}}]}}]
  tools: [{match: ["library.*"], effect: ReadOnly, maxResultBytes: 1048576}]
`, offset, url))
		run := awaitCompleted(ctx, key)
		Expect(run.Status.Result.Text).To(ContainSubstring("\nline 19000: größer\n"))
		_, state := journalOf(ctx, run)
		kept := results(state, 1)[0]
		Expect(kept.Artifact).NotTo(BeNil())
		Expect(kept.Artifact.Holds(text)).To(BeTrue())
		Expect(len(kept.Value)).To(BeNumerically("<", 20<<10))

		pieces := &corev1.ConfigMapList{}
		Expect(env.Admin.List(ctx, pieces, client.InNamespace(w.namespace), client.MatchingLabels{v1alpha1.LabelRunUID: string(run.UID)})).To(Succeed())
		stored := ""
		for _, piece := range pieces.Items {
			if strings.HasPrefix(piece.Name, "pawl-artifact-") {
				stored += piece.Data["content"]
			} else {
				Expect(piece.Size()).To(BeNumerically("<", 100<<10), piece.Name)
			}
		}
		Expect(stored).To(Equal(text))

		By("going with their run")
		Expect(env.Admin.Delete(ctx, run)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.List(ctx, pieces, client.InNamespace(w.namespace), client.MatchingLabels{v1alpha1.LabelRunUID: string(run.UID)})).To(Succeed())
			g.Expect(pieces.Items).To(BeEmpty())
		}).WithTimeout(30 * time.Second).Should(Succeed())
	})
})
