package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

const objectSchema = `{"type": "object", "properties": {"amount": {"type": "number"}, "order_id": {"type": "string"}}}`

func mcp(name string) v1alpha1.ToolServer {
	return v1alpha1.ToolServer{Name: name, MCP: &v1alpha1.MCPServer{URL: "http://" + name + ".tools.svc/mcp"}}
}

func web(name string, tools ...string) v1alpha1.ToolServer {
	server := &v1alpha1.HTTPServer{URL: "https://" + name + ".internal"}
	for _, tool := range tools {
		server.Tools = append(server.Tools, v1alpha1.HTTPTool{
			Name: tool, Description: tool, InputSchema: runtime.RawExtension{Raw: []byte(objectSchema)},
		})
	}
	return v1alpha1.ToolServer{Name: name, HTTP: server}
}

func servers(servers ...v1alpha1.ToolServer) v1alpha1.ToolPolicySpec {
	return v1alpha1.ToolPolicySpec{Servers: servers}
}

func allow(name string, match ...string) v1alpha1.ToolRule {
	return v1alpha1.ToolRule{Name: name, Match: match, Action: v1alpha1.ActionAllow}
}

func ask(name string, match ...string) v1alpha1.ToolRule {
	return v1alpha1.ToolRule{Name: name, Match: match, Action: v1alpha1.ActionAsk}
}

func deny(name string, match ...string) v1alpha1.ToolRule {
	return v1alpha1.ToolRule{Name: name, Match: match, Action: v1alpha1.ActionDeny}
}

func when(rule v1alpha1.ToolRule, expression string) v1alpha1.ToolRule {
	rule.When = expression
	return rule
}

// support is the policy that the documentation shows.
func support() v1alpha1.ToolPolicySpec {
	spec := servers(mcp("crm"), web("billing", "refund", "status"))
	spec.Tools = []v1alpha1.ToolProperties{
		{Match: []string{"crm.get_*", "crm.search_*"}, Effect: v1alpha1.EffectReadOnly, Execution: v1alpha1.ExecutionParallel, TimeoutSeconds: 10},
		{Match: []string{"billing.refund"}, Effect: v1alpha1.EffectIdempotent, ConflictKey: "args.order_id", MaxCallsPerRun: 3, MaxAttempts: 3, RequestsPerMinute: 30},
	}
	refunds := ask("refunds", "billing.refund")
	refunds.Approval = &v1alpha1.Approval{Message: "Refund over 100"}
	secrets := deny("secrets", "crm.secret*")
	secrets.OnDeny = v1alpha1.ConsequenceEnd
	spec.Rules = []v1alpha1.ToolRule{
		secrets,
		allow("reads", "crm.*"),
		when(allow("small-refunds", "billing.refund"), "args.amount <= 100.0 && run.labels.team == 'support'"),
		refunds,
	}
	return spec
}

func compiled(t testing.TB, name string, spec v1alpha1.ToolPolicySpec) *Policy {
	t.Helper()
	policy, problems := Compile(name, spec)
	if len(problems) > 0 {
		t.Fatalf("Compile: %v", problems)
	}
	return policy
}

func setOf(t testing.TB, specs ...v1alpha1.ToolPolicySpec) *Set {
	t.Helper()
	var policies []*Policy
	for i, spec := range specs {
		policies = append(policies, compiled(t, "policy-"+string(rune('a'+i)), spec))
	}
	set, err := NewSet(policies)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func call(tool, args string) Input {
	decoder := json.NewDecoder(strings.NewReader(args))
	decoder.UseNumber()
	in := Input{Tool: tool, Call: Call{ID: "c1", BatchSize: 1}, Run: Run{
		Namespace: "support", Name: "order-17", Labels: map[string]string{"team": "support"}, CreatedBy: "jane", Turn: 1,
	}}
	if err := decoder.Decode(&in.Arguments); err != nil {
		panic(err)
	}
	return in
}
