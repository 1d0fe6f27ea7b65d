package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

func TestCompileReportsEveryProblem(t *testing.T) {
	spec := servers(mcp("crm"), web("billing", "refund", "refund"), mcp("crm"), v1alpha1.ToolServer{Name: "none"})
	spec.Servers[0].MCP.HeadersFrom = []v1alpha1.HeaderFromSecret{{Name: "X-Key"}, {Name: "x-key"}}
	spec.Servers[1].HTTP.Tools[0].InputSchema = runtime.RawExtension{Raw: []byte(`{"type": "array"}`)}
	spec.Tools = []v1alpha1.ToolProperties{
		{Match: []string{"erp.*", "billing.delete"}, ConflictKey: "args.a +", MaxAttempts: 3},
		{Match: []string{"crm.get_?"}, Effect: v1alpha1.EffectReadOnly, IdempotencyKeyLifetimeSeconds: 600, Redact: []string{"$.customer.email", "customer.email"}},
	}
	both := ask("reads", "crm.*")
	both.OnDeny = v1alpha1.ConsequenceEnd
	wrong := allow("wrong")
	wrong.Action, wrong.Approval = "Maybe", &v1alpha1.Approval{}
	spec.Rules = []v1alpha1.ToolRule{
		when(allow("reads", "crm.*"), `run.nmae == "x" && arg.x == 1`),
		both,
		wrong,
	}
	policy, problems := Compile("p", spec)
	if policy != nil {
		t.Error("a policy with problems must not be usable")
	}
	want := []string{
		`servers[0] "crm": mcp.headersFrom[1] "x-key": another entry sets the same header`,
		`servers[1] "billing": http.tools[0] "refund": inputSchema: `,
		`servers[1] "billing": http.tools[1] "refund": another tool of this server has the same name`,
		`servers[2] "crm": another server has the same name`,
		`servers[3] "none": set exactly one of mcp, http, job and agentRun`,
		`tools[0]: match[0] "erp.*": it matches no tool of this policy's servers: a full name is <server>.<tool>, and the servers are crm, billing`,
		`tools[0]: match[1] "billing.delete": it matches no tool`,
		`tools[0]: conflictKey: column `,
		`tools[0]: maxAttempts: a NonIdempotent call is sent at most once`,
		`tools[1]: match[0] "crm.get_?": only * is special`,
		`tools[1]: idempotencyKeyLifetimeSeconds: only effect Idempotent`,
		`tools[1]: redact[1] "customer.email": it is not a JSONPath`,
		`rules[0] "reads": when: column 4: undefined field 'nmae': the members are `,
		`rules[0] "reads": when: column 20: undeclared reference to 'arg'`,
		`rules[1] "reads": each rule needs a name of its own`,
		`rules[1] "reads": onDeny: it belongs to action Deny`,
		`rules[2] "wrong": match: an empty list matches nothing`,
		`rules[2] "wrong": action: set one of Allow, Ask and Deny`,
		`rules[2] "wrong": approval: it belongs to action Ask`,
	}
	got := problems
	for _, prefix := range want {
		if len(got) == 0 || !strings.HasPrefix(got[0].String(), prefix) {
			t.Fatalf("want a problem %q next, got %q", prefix, got)
		}
		got = got[1:]
	}
	if len(got) > 0 {
		t.Errorf("more problems than expected: %q", got)
	}
}

func TestCompileEmpty(t *testing.T) {
	if _, problems := Compile("p", v1alpha1.ToolPolicySpec{}); len(problems) != 1 {
		t.Errorf("got %q, want one problem", problems)
	}
}

func TestCompileKeepsItsOwnCopy(t *testing.T) {
	spec := support()
	policy := compiled(t, "p", spec)
	digest := policy.Digest()
	spec.Rules[0].Match[0] = "*"
	spec.Servers[1].HTTP.Tools[0].InputSchema.Raw[0] = 'x'
	if diff := cmp.Diff(compiled(t, "p", support()).Tools(), policy.Tools()); diff != "" {
		t.Errorf("the policy changed with its argument:\n%s", diff)
	}
	if policy.Digest() != digest {
		t.Error("the digest changed")
	}
}

func TestDigests(t *testing.T) {
	a := compiled(t, "a", support())
	if b := compiled(t, "b", support()); a.Digest() != b.Digest() {
		t.Error("the same spec has two digests")
	}
	changed := support()
	changed.Rules[3].Approval.Message = "Refund over 200"
	b := compiled(t, "a", changed)
	if a.Digest() == b.Digest() {
		t.Error("a change of a rule leaves the policy's digest as it was")
	}
	for i := range a.rules {
		if same := a.rules[i].digest == b.rules[i].digest; same != (i != 3) {
			t.Errorf("rule %d: digests equal = %v", i, same)
		}
	}
}

func TestTools(t *testing.T) {
	tools := compiled(t, "p", support()).Tools()
	if len(tools) != 2 || tools[0].Name != "billing.refund" || tools[1].Name != "billing.status" {
		t.Fatalf("got %+v", tools)
	}
	if tools[0].Effect != v1alpha1.EffectIdempotent || tools[1].Effect != v1alpha1.EffectNonIdempotent {
		t.Errorf("effects are %s and %s", tools[0].Effect, tools[1].Effect)
	}
	if tools[0].Digest == tools[1].Digest {
		t.Error("two tools share a digest")
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("crm", "crm.*", "args.amount <= 100", "args.id", []byte(objectSchema))
	f.Add("", "*", "run.nmae", "", []byte("{"))
	f.Add("a.b", "[", "true", "1", []byte(`{"$ref": "#"}`))
	f.Fuzz(func(t *testing.T, server, pattern, condition, key string, schema []byte) {
		spec := servers(web(server, "get"))
		spec.Servers[0].HTTP.Tools[0].InputSchema.Raw = schema
		spec.Tools = []v1alpha1.ToolProperties{{Match: []string{pattern}, ConflictKey: key}}
		spec.Rules = []v1alpha1.ToolRule{when(allow("r", pattern), condition)}
		policy, problems := Compile("p", spec)
		if (policy == nil) != (len(problems) > 0) {
			t.Fatalf("policy %v with problems %v", policy, problems)
		}
		if policy == nil {
			return
		}
		set, err := NewSet([]*Policy{policy})
		if err != nil {
			t.Fatal(err)
		}
		verdict := set.Evaluate(call(server+".get", `{"amount": 1, "id": "x"}`))
		if verdict.Action != v1alpha1.ActionAllow && verdict.Action != v1alpha1.ActionDeny {
			t.Fatalf("verdict %+v", verdict)
		}
	})
}
