package schema

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// patience is how long the operator may take to report.
const patience = 20 * time.Second

var _ = Describe("What the schema can't see", func() {
	DescribeTable("in a ToolPolicy is reported in Ready", func(ctx SpecContext, at, value string, want ...string) {
		object := example("toolpolicy")
		wrapped := parse("{apiVersion: v1, kind: Any, value: " + value + "}")
		parsePath(at).set(object.Object, wrapped.Object["value"])
		object = stored(ctx, object)
		policy := &v1alpha1.ToolPolicy{}
		condition := reported(ctx, client.ObjectKeyFromObject(object), policy, func() []metav1.Condition { return policy.Status.Conditions })
		Expect(condition.Status).To(Equal(metav1.ConditionFalse))
		Expect(condition.Reason).To(Equal(v1alpha1.ReadyReasonInvalid))
		for _, words := range want {
			Expect(condition.Message).To(ContainSubstring(words))
		}
		Expect(policy.Status.Tools).To(BeEmpty())
	},
		Entry("a rule that does not parse", "spec.rules[1].when", `"args.order_id == == 1"`, `rules[1] "small-refunds": when: column 18: syntax error`),
		Entry("a rule with a name that is not there", "spec.rules[1].when", `"args.order_id != '0' && arg.x"`, `rules[1] "small-refunds": when: column 25: undeclared reference to 'arg'`, "use args, tool, call, run"),
		Entry("a rule with a member that is not there", "spec.rules[1].when", `"run.nam == 'a'"`, `rules[1] "small-refunds": when: column 4: undefined field 'nam'`, "the members are"),
		Entry("a rule that gives no verdict", "spec.rules[1].when", `"1 + 1"`, `rules[1] "small-refunds": when: the expression gives int: it must give true or false`),
		Entry("a rule that costs too much", "spec.rules[1].when", `"run.labels.all(a, run.labels.all(b, run.labels.all(c, run.labels.all(d, a == b))))"`, `rules[1] "small-refunds": when`),
		Entry("a conflict key that does not parse", "spec.tools[1].conflictKey", `"args."`, "tools[1]: conflictKey: column"),
		Entry("an input schema of another type", "spec.servers[1].http.tools[0].inputSchema", "{type: array}", `servers[1] "billing": http.tools[0] "refund": inputSchema`, "object"),
		Entry("an input schema that is none", "spec.servers[1].http.tools[0].inputSchema", "{type: object, properties: {a: {type: nonsense}}}", `servers[1] "billing": http.tools[0] "refund": inputSchema`, "/properties/a/type"),
		Entry("an input schema without end", "spec.servers[1].http.tools[0].inputSchema", `{type: object, $ref: "#"}`, `servers[1] "billing": http.tools[0] "refund": inputSchema`),
		Entry("a template that is no pod's", "spec.servers[2].job.tools[0].template.spec", "{containers: [{name: a, image: b, imagge: c}]}", `servers[2] "ci": job.tools[0] "run_tests": template.spec: it is not the spec of a pod: unknown field "imagge"`),
		Entry("a template that starts twice", "spec.servers[2].job.tools[0].template.spec", "{restartPolicy: OnFailure, containers: [{name: a, image: b}]}", `job.tools[0] "run_tests": template.spec: restartPolicy`),
		Entry("a template with a volume of Pawl's", "spec.servers[2].job.tools[0].template.spec", "{containers: [{name: a, image: b}], volumes: [{name: pawl-arguments, emptyDir: {}}]}", `job.tools[0] "run_tests": template.spec: volume "pawl-arguments"`),
		Entry("a pattern of no tool", "spec.rules[1].match", `["biling.*"]`, `rules[1] "small-refunds": match[0] "biling.*"`, "the servers are crm, billing, ci"),
		Entry("a header twice, in capitals", "spec.servers[0].mcp.headersFrom", `[{name: X-Key, secretKeyRef: {name: a, key: b}}, {name: x-key, secretKeyRef: {name: a, key: b}}]`, `servers[0] "crm": mcp.headersFrom[1] "x-key"`, "another entry sets the same header"),
	)

	It("in a good ToolPolicy is nothing", func(ctx SpecContext) {
		object := stored(ctx, example("toolpolicy"))
		policy := &v1alpha1.ToolPolicy{}
		condition := reported(ctx, client.ObjectKeyFromObject(object), policy, func() []metav1.Condition { return policy.Status.Conditions })
		Expect(condition.Status).To(Equal(metav1.ConditionTrue), condition.Message)
		Expect(policy.Status.Tools).To(HaveLen(3))
		Expect(policy.Status.Tools[2].Name).To(Equal("team.research"))
		Expect(policy.Status.Tools[1].Name).To(Equal("ci.run_tests"))
		Expect(policy.Status.Tools[0].Name).To(Equal("billing.refund"))
		Expect(policy.Status.Tools[0].Effect).To(Equal(v1alpha1.EffectIdempotent))
	})

	DescribeTable("in a Model is reported in Ready", func(ctx SpecContext, name, at, value string, want ...string) {
		object := example(name)
		wrapped := parse("{apiVersion: v1, kind: Any, value: " + value + "}")
		parsePath(at).set(object.Object, wrapped.Object["value"])
		object = stored(ctx, object)
		model := &v1alpha1.Model{}
		condition := reported(ctx, client.ObjectKeyFromObject(object), model, func() []metav1.Condition { return model.Status.Conditions })
		Expect(condition.Status).To(Equal(metav1.ConditionFalse))
		Expect(condition.Reason).To(Equal(v1alpha1.ReadyReasonInvalid))
		for _, words := range want {
			Expect(condition.Message).To(ContainSubstring(words))
		}
	},
		Entry("a parameter that Pawl sets", "model-openai", "spec.parameters", "{messages: []}", "parameters", "messages"),
		Entry("a parameter that would change the answer's form", "model-openai", "spec.parameters", "{stream: true}", "parameters", "stream"),
		Entry("a final expression that does not parse", "model-scripted", "spec.script[5].finalExpression", `"results["`, "script[5]: finalExpression: column"),
		Entry("a final expression with a name that is not there", "model-scripted", "spec.script[5].finalExpression", `"result[0]"`, "script[5]: finalExpression: column 1: undeclared reference to 'result'", "use results"),
	)

	DescribeTable("in a good Model is nothing", func(ctx SpecContext, name string) {
		object := stored(ctx, example(name))
		model := &v1alpha1.Model{}
		condition := reported(ctx, client.ObjectKeyFromObject(object), model, func() []metav1.Condition { return model.Status.Conditions })
		Expect(condition.Status).To(Equal(metav1.ConditionTrue), condition.Message)
	},
		Entry("with a network", "model-openai"),
		Entry("with a script", "model-scripted"),
	)

	DescribeTable("in an AgentRun ends it as InvalidConfiguration", func(ctx SpecContext, change string, want ...string) {
		model := stored(ctx, example("model-scripted"))
		run := stored(ctx, parse("{apiVersion: pawl.run/v1alpha1, kind: AgentRun, metadata: {namespace: default}, spec: {modelRef: {name: "+model.GetName()+"}, prompt: Go., "+change+"}}"))
		found := &v1alpha1.AgentRun{}
		var condition *metav1.Condition
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(run), found)).To(Succeed())
			condition = meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionSucceeded)
			g.Expect(condition).NotTo(BeNil())
			g.Expect(condition.Status).NotTo(Equal(metav1.ConditionUnknown), condition.Message)
		}).WithContext(ctx).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(Succeed())
		Expect(condition.Reason).To(Equal(string(v1alpha1.ReasonInvalidConfiguration)))
		for _, words := range want {
			Expect(condition.Message).To(ContainSubstring(words))
		}
	},
		Entry("a progress expression that does not parse", `progress: {expression: "results["}`, "spec.progress.expression", "column"),
		Entry("an output schema that is none", "output: {schema: {type: nonsense}}", "spec.output.schema", "type"),
		Entry("an output schema that reaches outside", `output: {schema: {$ref: "http://elsewhere/schema"}}`, "spec.output.schema"),
		Entry("a validation of another type", `output: {validations: [{expression: "1", message: m}]}`, "spec.output.validations[0].expression", "it must give true or false"),
		Entry("a validation with a name that is not there", `output: {validations: [{expression: "anser == ''", message: m}]}`, "spec.output.validations[0].expression", "column 1", "undeclared reference to 'anser'"),
	)
})

// reported waits until the operator has looked at an object and gives its Ready.
func reported(ctx context.Context, key client.ObjectKey, object client.Object, conditions func() []metav1.Condition) metav1.Condition {
	GinkgoHelper()
	var found *metav1.Condition
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, key, object)).To(Succeed())
		found = meta.FindStatusCondition(conditions(), v1alpha1.ConditionReady)
		g.Expect(found).NotTo(BeNil())
		g.Expect(found.ObservedGeneration).To(Equal(object.GetGeneration()))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(Succeed())
	return *found
}
