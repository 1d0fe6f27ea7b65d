package policy

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// conditions for rules; some of them fail on some arguments.
var conditions = []string{
	"", "true", "false", "args.amount <= 10", "args.a.b == 1", "1 / args.amount > 0", "run.turn > 2", "args.amount < args.order_id",
	"has(args.amount)", "args.amount <= 10 || args.order_id == 'x'",
}

func anyRule(t *rapid.T, i int, server string) v1alpha1.ToolRule {
	pattern := rapid.SampledFrom([]string{server + ".*", server + ".get", server + ".g*", "*", "*.set"}).Draw(t, "pattern")
	rule := v1alpha1.ToolRule{
		Name:   fmt.Sprintf("r%d", i),
		Match:  []string{pattern},
		When:   rapid.SampledFrom(conditions).Draw(t, "when"),
		Action: rapid.SampledFrom([]v1alpha1.Action{v1alpha1.ActionAllow, v1alpha1.ActionAsk, v1alpha1.ActionDeny}).Draw(t, "action"),
	}
	switch rule.Action {
	case v1alpha1.ActionAllow:
	case v1alpha1.ActionAsk:
		rule.Approval = &v1alpha1.Approval{TimeoutSeconds: rapid.Int32Range(1, 9).Draw(t, "timeout")}
	case v1alpha1.ActionDeny:
		rule.OnDeny = rapid.SampledFrom([]v1alpha1.Consequence{"", v1alpha1.ConsequenceEnd}).Draw(t, "onDeny")
	}
	return rule
}

func anySpec(t *rapid.T, server string) v1alpha1.ToolPolicySpec {
	spec := servers(mcp(server))
	for i := range rapid.IntRange(0, 5).Draw(t, "rules") {
		spec.Rules = append(spec.Rules, anyRule(t, i, server))
	}
	return spec
}

func anyCall(t *rapid.T) Input {
	tool := rapid.SampledFrom([]string{"s0.get", "s1.get", "s2.set", "s0.a.b", "s9.get", "s0", "", "*"}).Draw(t, "tool")
	args := rapid.SampledFrom([]string{
		`{}`, `{"amount": 5}`, `{"amount": 0}`, `{"amount": "x", "order_id": "x"}`, `{"a": {"b": 1.0}, "amount": 50}`, `{"amount": 1e30}`,
	}).Draw(t, "args")
	in := call(tool, args)
	in.Run.Turn = rapid.IntRange(1, 4).Draw(t, "turn")
	return in
}

func anySet(t *rapid.T) ([]v1alpha1.ToolPolicySpec, []*Policy) {
	var specs []v1alpha1.ToolPolicySpec
	var policies []*Policy
	for i := range rapid.IntRange(0, 3).Draw(t, "policies") {
		spec := anySpec(t, fmt.Sprintf("s%d", i))
		policy, problems := Compile(fmt.Sprintf("p%d", i), spec)
		if len(problems) > 0 {
			t.Fatalf("Compile: %v", problems)
		}
		specs, policies = append(specs, spec), append(policies, policy)
	}
	return specs, policies
}

func join(t *rapid.T, policies []*Policy) *Set {
	set, err := NewSet(policies)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestEvaluationIsDeterministicAndOrderOfPoliciesMeansNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		specs, policies := anySet(t)
		in := anyCall(t)
		want := join(t, policies).Evaluate(in)
		for range 3 {
			rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed"))).Shuffle(len(policies), func(i, j int) {
				policies[i], policies[j] = policies[j], policies[i]
			})
			if diff := cmp.Diff(want, join(t, policies).Evaluate(in)); diff != "" {
				t.Fatalf("specs %v: -first +again:\n%s", specs, diff)
			}
		}
	})
}

// Rule by rule, each in a policy of its own: the first that has a verdict is the one
// that decides among all, and where none has one the call is denied.
func TestFirstMatchWinsAndTheRestIsDenied(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		specs, policies := anySet(t)
		in := anyCall(t)
		got := join(t, policies).Evaluate(in)
		for i, spec := range specs {
			for _, rule := range spec.Rules {
				if !matchesByRegexp(fmt.Sprintf("s%d.*", i), in.Tool) || !matchesByRegexp(rule.Match[0], in.Tool) {
					continue
				}
				alone := spec
				alone.Rules = []v1alpha1.ToolRule{rule}
				policy, problems := Compile(fmt.Sprintf("p%d", i), alone)
				if len(problems) > 0 {
					t.Fatal(problems)
				}
				verdict := join(t, []*Policy{policy}).Evaluate(in)
				if verdict.Reason == ReasonNoRule {
					continue
				}
				// The policy's digest covers all its rules, so it differs.
				verdict.PolicyDigest = got.PolicyDigest
				if diff := cmp.Diff(verdict, got); diff != "" {
					t.Fatalf("rule %+v should have decided on %+v: -want +got:\n%s", rule, in, diff)
				}
				return
			}
		}
		if got.Action != v1alpha1.ActionDeny || got.Reason == ReasonRule {
			t.Fatalf("no rule matches %+v, but the verdict is %+v", in, got)
		}
	})
}

func TestAFailingExpressionNeverAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := anySpec(t, "s0")
		bad := anyRule(t, 99, "s0")
		bad.Match = []string{"*"}
		bad.When = rapid.SampledFrom([]string{"args.nothing == 1", "1 / 0 > 0", "args.text < 1", "args.text", "int(args.text) > 0"}).Draw(t, "bad")
		spec.Rules = append([]v1alpha1.ToolRule{bad}, spec.Rules...)
		policy, problems := Compile("p", spec)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		got := join(t, []*Policy{policy}).Evaluate(call("s0.get", `{"text": "abc", "amount": 1}`))
		if got.Action != v1alpha1.ActionDeny || got.Reason != ReasonRuleFailed || got.Rule != "r99" {
			t.Fatalf("%q gives %+v", bad.When, got)
		}
	})
}
