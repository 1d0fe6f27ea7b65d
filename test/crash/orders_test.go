package crash

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/runs"
)

// orderKey is what both the model and the tool want to see.
const orderKey = "a-key-that-only-the-secret-has"

// pieces are the objects of a run that needs all of them, by kind.
var pieces = map[string]string{
	"Secret": `
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {model: KEY, tools: KEY}`,
	"Model": `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec: {provider: OpenAI, model: test-model, endpoint: MODELS, credentialsSecretRef: {name: keys, key: model}}`,
	"ToolPolicy": `
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: policy}
spec:
  servers:
  - name: calc
    http:
      url: TOOLS/calc
      headersFrom: [{name: X-Tools-Key, secretKeyRef: {name: keys, key: tools}}]
      tools: [{name: add, inputSchema: {type: object, required: [a, b], properties: {a: {type: integer}, b: {type: integer}}}}]
  tools: [{match: ["calc.*"], effect: ReadOnly}]
  rules: [{name: everything, match: ["*"], action: Allow}]`,
	"AgentRun": `
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: policy}], prompt: Add 2 and 3.}`,
}

// permutations are all orders of a list.
func permutations(list []string) [][]string {
	if len(list) < 2 {
		return [][]string{list}
	}
	var all [][]string
	for i, first := range list {
		rest := append(append([]string{}, list[:i]...), list[i+1:]...)
		for _, order := range permutations(rest) {
			all = append(all, append([]string{first}, order...))
		}
	}
	return all
}

var _ = Describe("Objects that come in any order", func() {
	It("end in the same answer, and meanwhile the run says what is missing", func(ctx SpecContext) {
		model, err := fakemodel.Start(fakemodel.Options{Key: orderKey, RequireOfferedCalls: true, Answer: func(request fakemodel.Request) fakemodel.Answer {
			if request.Last().Role == "user" {
				return fakemodel.Propose(fakemodel.Call{Name: "add", Arguments: `{"a":2,"b":3}`})
			}
			return fakemodel.Text("The sum is " + request.Last().Text + ".")
		}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(model.Close()).To(Succeed()) })
		tools.require("X-Tools-Key", orderKey)
		DeferCleanup(func() { tools.require("", "") })

		orders := permutations([]string{"Model", "ToolPolicy", "Secret", "AgentRun"})
		Expect(orders).To(HaveLen(24))
		var all sync.WaitGroup
		for i, order := range orders {
			world := runs.New(ctx, env, fmt.Sprintf("order-%d", i))
			all.Go(func() {
				defer GinkgoRecover()
				applyInOrder(ctx, world, order, "MODELS", model.Endpoint(fakemodel.Chat), "TOOLS", tools.URL, "KEY", orderKey)
				run := world.Await(ctx, "run", v1alpha1.ReasonCompleted)
				Expect(run.Status.Result.Text).To(Equal("The sum is 5."), fmt.Sprint(order))
				Expect(run.Status.Turns).To(BeEquivalentTo(2))
			})
		}
		all.Wait()
		Expect(model.Refusals()).To(BeEmpty())
		Expect(tools.refused()).To(BeZero())
	}, NodeTimeout(2*time.Minute))
})

// applyInOrder applies one object after the other. Once the run is there, it waits
// until the run names one of those that are still missing.
func applyInOrder(ctx context.Context, world *runs.World, order []string, replacements ...string) {
	GinkgoHelper()
	for i, kind := range order {
		world.Apply(ctx, pieces[kind], replacements...)
		if !strings.Contains(strings.Join(order[:i+1], " "), "AgentRun") || i == len(order)-1 {
			continue
		}
		var names []string
		for _, missing := range order[i+1:] {
			names = append(names, missing+" "+map[string]string{"Model": "model", "ToolPolicy": "policy", "Secret": "keys"}[missing]+" does not exist")
		}
		Eventually(ctx, func() metav1.Condition { return runs.Succeeded(world.Get(ctx, "run")) }).
			WithTimeout(20*time.Second).WithPolling(50*time.Millisecond).Should(And(
			HaveField("Reason", BeEquivalentTo(v1alpha1.ReasonConfigurationNotReady)),
			HaveField("Message", BeElementOf(names)),
		), fmt.Sprint(order, " up to ", kind))
	}
}
