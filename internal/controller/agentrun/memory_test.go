package agentrun

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

func TestSinceRemembersTheFirst(t *testing.T) {
	var first time.Time
	began := time.Unix(100, 0)
	since(&first, began)
	if got := since(&first, began.Add(time.Minute)); got != began {
		t.Errorf("since %s, want %s", got, began)
	}
}

func TestMemoryTellsARunThatWasCreatedAgain(t *testing.T) {
	var m memory
	if _, known := m.lookup(runKey); known {
		t.Error("a name is known that nobody has had")
	}
	m.learn(runKey, "one")
	m.learn(runKey, "two")
	if uid, known := m.lookup(runKey); !known || uid != "two" {
		t.Errorf("known %v, %q", known, uid)
	}
	m.of("two").problem = "x"
	m.hold(&session{uid: "two", key: runKey})
	if busy := m.busy(); len(busy) != 1 {
		t.Errorf("busy with %v", busy)
	}
	m.forget("two")
	if m.session("two") != nil || m.of("two").problem != "" {
		t.Error("something of a run that is gone is kept")
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
