package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

func TestEvaluate(t *testing.T) {
	set := setOf(t, support())
	stranger := call("billing.refund", `{"amount": 5}`)
	stranger.Run.Labels = nil
	tests := map[string]struct {
		in     Input
		action v1alpha1.Action
		reason Reason
		rule   string
	}{
		"allowed":                {call("crm.get_customer", `{}`), v1alpha1.ActionAllow, ReasonRule, "reads"},
		"first rule wins":        {call("crm.secrets", `{}`), v1alpha1.ActionDeny, ReasonRule, "secrets"},
		"dots in the tool":       {call("crm.v1.get", `{}`), v1alpha1.ActionAllow, ReasonRule, "reads"},
		"condition holds":        {call("billing.refund", `{"amount": 100}`), v1alpha1.ActionAllow, ReasonRule, "small-refunds"},
		"condition, float":       {call("billing.refund", `{"amount": 1e2}`), v1alpha1.ActionAllow, ReasonRule, "small-refunds"},
		"condition is false":     {call("billing.refund", `{"amount": 100.01}`), v1alpha1.ActionAsk, ReasonRule, "refunds"},
		"condition, label":       {stranger, v1alpha1.ActionDeny, ReasonRuleFailed, "small-refunds"},
		"missing argument":       {call("billing.refund", `{}`), v1alpha1.ActionDeny, ReasonRuleFailed, "small-refunds"},
		"no arguments at all":    {call("billing.refund", `null`), v1alpha1.ActionDeny, ReasonRuleFailed, "small-refunds"},
		"argument of other type": {call("billing.refund", `{"amount": "5"}`), v1alpha1.ActionDeny, ReasonRuleFailed, "small-refunds"},
		"too large a number":     {call("billing.refund", `{"amount": 123456789012345678901234567890}`), v1alpha1.ActionDeny, ReasonRuleFailed, "small-refunds"},
		"no rule":                {call("billing.status", `{}`), v1alpha1.ActionDeny, ReasonNoRule, ""},
		"unknown tool":           {call("billing.delete", `{}`), v1alpha1.ActionDeny, ReasonUnknownTool, ""},
		"unknown server":         {call("erp.get", `{}`), v1alpha1.ActionDeny, ReasonUnknownServer, ""},
		"no dot":                 {call("crm", `{}`), v1alpha1.ActionDeny, ReasonUnknownServer, ""},
		"empty":                  {call("", `{}`), v1alpha1.ActionDeny, ReasonUnknownServer, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := set.Evaluate(tt.in)
			if got.Action != tt.action || got.Reason != tt.reason || got.Rule != tt.rule {
				t.Errorf("got %s, %s by rule %q; want %s, %s by rule %q", got.Action, got.Reason, got.Rule, tt.action, tt.reason, tt.rule)
			}
			if (got.Rule == "") != (got.RuleDigest == "") || (got.Policy == "") != (got.PolicyDigest == "") {
				t.Errorf("a name without a digest, or a digest without a name: %+v", got)
			}
			if got.Message == "" || len(got.Message) > 512 {
				t.Errorf("message %q", got.Message)
			}
		})
	}
}

func TestVerdictConsequences(t *testing.T) {
	set := setOf(t, support())
	if got := set.Evaluate(call("crm.secret", `{}`)); got.OnDeny != v1alpha1.ConsequenceEnd {
		t.Errorf("a Deny rule with onDeny End gives %s", got.OnDeny)
	}
	if got := set.Evaluate(call("billing.status", `{}`)); got.OnDeny != v1alpha1.ConsequenceReturnToModel {
		t.Errorf("a call without rule gives %s", got.OnDeny)
	}
	want := Approval{
		TimeoutSeconds: 86400, OnTimeout: v1alpha1.ConsequenceEnd, OnDeny: v1alpha1.ConsequenceReturnToModel,
		Message: "Refund over 100",
	}
	if diff := cmp.Diff(want, set.Evaluate(call("billing.refund", `{"amount": 500}`)).Approval); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a rule may look at has to reach it as documented.
func TestVariables(t *testing.T) {
	spec := support()
	spec.Rules = []v1alpha1.ToolRule{when(allow("all", "billing.refund"), strings.Join([]string{
		`tool.name == "billing.refund"`, `tool.server == "billing"`, `tool.effect == "Idempotent"`,
		`call.id == "c2"`, `call.position == 1`, `call.batchSize == 3`,
		`run.namespace == "support"`, `run.name == "order-17"`, `run.labels.team == "support"`, `run.createdBy == "jane"`,
		`run.turn == 4`, `run.usage.totalTokens == 30`, `run.usage.inputTokens == 20`, `run.usage.outputTokens == 10`,
	}, " && "))}
	in := call("billing.refund", `{}`)
	in.Call = Call{ID: "c2", Position: 1, BatchSize: 3}
	in.Run.Turn = 4
	in.Run.Usage = v1alpha1.Usage{TotalTokens: 30, InputTokens: 20, OutputTokens: 10}
	if got := setOf(t, spec).Evaluate(in); got.Action != v1alpha1.ActionAllow {
		t.Errorf("got %+v", got)
	}
}

func TestMessagesHoldNothingOfTheCall(t *testing.T) {
	set := setOf(t, support())
	const secret = "s3cr3t"
	for _, in := range []Input{
		call("erp."+secret, `{}`), call("billing."+secret, `{}`), call("crm.secret"+secret, `{}`),
		call("billing.refund", `{"amount": "`+secret+`"}`), call("billing.refund", `{"`+secret+`": 1}`),
	} {
		if got := set.Evaluate(in); strings.Contains(got.Message, secret) {
			t.Errorf("%s: %q", in.Tool, got.Message)
		}
	}
}

func TestArgumentsAreNotChanged(t *testing.T) {
	in, untouched := call("billing.refund", `{"amount": 1, "a": [1, {"b": 2.0}]}`), call("billing.refund", `{"amount": 1, "a": [1, {"b": 2.0}]}`)
	set := setOf(t, support())
	set.Evaluate(in)
	if _, _, err := set.ConflictKey(in.Tool, in.Arguments); err == nil {
		t.Error("want an error for the missing order_id")
	}
	if diff := cmp.Diff(untouched, in); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

func TestNewSetRefusesTheSameServerTwice(t *testing.T) {
	a, b := compiled(t, "a", servers(mcp("crm"), mcp("erp"))), compiled(t, "b", servers(mcp("erp"), mcp("crm")))
	c := compiled(t, "c", servers(mcp("other")))
	var messages []string
	for _, policies := range [][]*Policy{{a, b, c}, {c, b, a}, {b, c, a}} {
		_, err := NewSet(policies)
		var duplicate *DuplicateServerError
		if !errors.As(err, &duplicate) {
			t.Fatalf("got %v", err)
		}
		if duplicate.Server != "crm" || duplicate.Policies != [2]string{"a", "b"} {
			t.Errorf("got %+v", duplicate)
		}
		messages = append(messages, err.Error())
	}
	if messages[0] != messages[1] || messages[1] != messages[2] {
		t.Errorf("the error depends on the order: %q", messages)
	}
	if _, err := NewSet([]*Policy{a, c}); err != nil {
		t.Error(err)
	}
}

func TestSetServers(t *testing.T) {
	set := setOf(t, servers(mcp("z"), mcp("a")), servers(web("m", "get")))
	var names []string
	for _, s := range set.Servers() {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"a", "m", "z"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRulesOfOtherPoliciesDoNotApply(t *testing.T) {
	open := servers(mcp("crm"))
	open.Rules = []v1alpha1.ToolRule{allow("all", "*")}
	closed := servers(mcp("erp"))
	set := setOf(t, open, closed)
	if got := set.Evaluate(call("erp.get", `{}`)); got.Action != v1alpha1.ActionDeny || got.Policy != "policy-b" {
		t.Errorf("got %+v", got)
	}
}

func TestProperties(t *testing.T) {
	spec := support()
	spec.Tools[0].BinaryContent, spec.Tools[0].Redact = v1alpha1.BinaryContentInclude, []string{"$.customer.email"}
	set := setOf(t, spec)
	careful := Properties{
		Effect: v1alpha1.EffectNonIdempotent, Execution: v1alpha1.ExecutionSequential,
		TimeoutSeconds: 30, MaxResultBytes: 65536, MaxAttempts: 1,
	}
	tests := map[string]Properties{
		"billing.status": careful,
		"crm.update":     careful,
		"unknown.tool":   careful,
		"crm.get_order": {
			Entry: "policy-a: tools[0]", Effect: v1alpha1.EffectReadOnly, Execution: v1alpha1.ExecutionParallel,
			TimeoutSeconds: 10, MaxResultBytes: 65536, IncludeBinary: true, MaxAttempts: 3, Redact: []string{"$.customer.email"},
		},
		"billing.refund": {
			Entry: "policy-a: tools[1]", Effect: v1alpha1.EffectIdempotent, Execution: v1alpha1.ExecutionSequential,
			TimeoutSeconds: 30, MaxResultBytes: 65536, MaxAttempts: 3, MaxCallsPerRun: 3, RequestsPerMinute: 30,
			IdempotencyKeyLifetimeSeconds: 86400, HasConflictKey: true,
		},
	}
	for tool, want := range tests {
		if diff := cmp.Diff(want, set.Properties(tool)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tool, diff)
		}
	}
}

func TestOwner(t *testing.T) {
	set := setOf(t, servers(mcp("crm")), servers(mcp("erp")))
	for tool, want := range map[string]string{"crm.get": "policy-a", "erp.get.more": "policy-b", "other.get": "", "crm": "", "": ""} {
		if got := set.Owner(tool); got != want {
			t.Errorf("%q belongs to %q, want %q", tool, got, want)
		}
	}
}

func TestConflictKey(t *testing.T) {
	spec := servers(mcp("crm"))
	spec.Tools = []v1alpha1.ToolProperties{{Match: []string{"crm.set"}, ConflictKey: "args.id"}}
	set := setOf(t, spec)
	key := func(args string) string {
		t.Helper()
		key, has, err := set.ConflictKey("crm.set", call("", args).Arguments)
		if err != nil || !has {
			t.Fatalf("%s: %v, %v", args, has, err)
		}
		return key
	}
	for _, same := range [][2]string{
		{`{"id": 1}`, `{"id": 1.0}`}, {`{"id": 1e2}`, `{"id": 100}`}, {`{"id": "a"}`, `{"id": "\u0061"}`},
		{`{"id": {"a": 1, "b": [2.0]}}`, `{"id": {"b": [2], "a": 1}}`}, {`{"id": 0}`, `{"id": -0.0}`},
	} {
		if key(same[0]) != key(same[1]) {
			t.Errorf("%s and %s have different keys", same[0], same[1])
		}
	}
	for _, different := range [][2]string{
		{`{"id": 1}`, `{"id": "1"}`}, {`{"id": null}`, `{"id": "null"}`}, {`{"id": []}`, `{"id": {}}`},
		{`{"id": "` + strings.Repeat("a", 500) + `"}`, `{"id": "` + strings.Repeat("a", 499) + `b"}`},
	} {
		if key(different[0]) == key(different[1]) {
			t.Errorf("%s and %s have the same key", different[0], different[1])
		}
	}
	if long := key(`{"id": "` + strings.Repeat("a", 5000) + `"}`); len(long) > maxConflictKey {
		t.Errorf("a key of %d bytes", len(long))
	}
	if _, has, err := set.ConflictKey("crm.set", nil); !has || err == nil {
		t.Errorf("without id: %v, %v; want an error", has, err)
	}
	if key, has, err := set.ConflictKey("crm.get", nil); has || err != nil || key != "" {
		t.Errorf("without conflictKey: %q, %v, %v", key, has, err)
	}
}
