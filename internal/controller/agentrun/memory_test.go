package agentrun

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

func TestProblemsAreSaidOnce(t *testing.T) {
	var p problems
	for i, step := range []struct {
		problem string
		want    bool
	}{{"a", true}, {"a", false}, {"b", true}, {"a", true}} {
		if got := p.fresh("uid", step.problem); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
	p.clear("uid")
	if !p.fresh("uid", "a") {
		t.Error("a problem that came back is not said")
	}
}

func TestRefusalsRememberTheFirst(t *testing.T) {
	var r refusals
	began := time.Unix(100, 0)
	r.note("uid", began)
	if since := r.note("uid", began.Add(time.Minute)); since != began {
		t.Errorf("refused since %s", since)
	}
	r.clear("uid")
	if since := r.note("uid", began.Add(time.Hour)); since != began.Add(time.Hour) {
		t.Errorf("refused since %s after a write that was accepted", since)
	}
}

func TestPoliciesAreCompiledOnce(t *testing.T) {
	var c policyCache
	object := samplePolicy("http://127.0.0.1:1")
	first, _ := c.compile(object)
	if again, _ := c.compile(object.DeepCopy()); again != first {
		t.Error("compiled again without need")
	}
	changed := object.DeepCopy()
	changed.Generation++
	second, _ := c.compile(changed)
	if second == first {
		t.Error("an old form is used for a new generation")
	}
	replaced := changed.DeepCopy()
	replaced.UID = "another"
	if third, _ := c.compile(replaced); third == second {
		t.Error("the form of a policy that is gone is used for one of the same name")
	}
	broken := object.DeepCopy()
	broken.Generation += 2
	broken.Spec.Rules = []v1alpha1.ToolRule{{Name: "r", Match: []string{"*"}, When: "args.", Action: v1alpha1.ActionAllow}}
	if _, problems := c.compile(broken); len(problems) == 0 {
		t.Error("a rule that does not compile is no problem")
	}
	c.forget(client.ObjectKeyFromObject(object))
	if len(c.compiled) != 0 {
		t.Error("something of a policy that is gone is kept")
	}
}
