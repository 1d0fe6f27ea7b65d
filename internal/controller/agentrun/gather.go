package agentrun

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/controller/job"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/run"
)

// rules are the live policies of a run. Exactly one of set and problem is there;
// invalid says that the problem can't heal.
type rules struct {
	set      *policy.Set
	policies []*policy.Policy
	problem  string
	invalid  bool
}

// facts are everything that the turn machine may know.
func (r *Reconciler) facts(object *v1alpha1.AgentRun, s *session, rules rules) run.Facts {
	now := r.clock.Now()
	if s.wish.desired == "" {
		s.wish = ownWish(object)
	}
	air := r.flights.underWay(s.uid, s.settled)
	return run.Facts{
		Now:             now,
		State:           s.draft.State,
		Desired:         s.wish.desired,
		Because:         s.wish.because,
		Verdicts:        verdictsOf(object),
		Configuration:   s.configuration,
		Policies:        rules.set,
		PoliciesProblem: rules.problem,
		Active:          s.active(now, r.members.Identity()),
		Checked:         r.memory.of(s.uid).checked,
		Checking:        air.checks,
		Polled:          r.memory.of(s.uid).polled,
		Polling:         air.inquiries,
		Recalled:        r.memory.of(s.uid).recalled,
		ChildWaits:      s.childWaits,
		Stirred:         r.memory.isStirred(s.uid),
		ModelInFlight:   air.model,
		InFlight:        air.calls,
		Closed:          s.closed,
		Throttled:       s.throttled,
		Fetched:         s.fetched,
	}
}

// desired is what people want: deleting a run cancels it.
func desired(object *v1alpha1.AgentRun) run.Desired {
	if !object.DeletionTimestamp.IsZero() {
		return run.Cancelled
	}
	return run.Desired(object.Spec.State)
}

// gatherRules compiles the policies that the run refers to, as they are now.
func (r *Reconciler) gatherRules(ctx context.Context, object *v1alpha1.AgentRun, _ *session) (rules, error) {
	var compiled []*policy.Policy
	for _, ref := range object.Spec.ToolPolicyRefs {
		found := &v1alpha1.ToolPolicy{}
		key := client.ObjectKey{Namespace: object.Namespace, Name: ref.Name}
		err := r.client.Get(ctx, key, found)
		if apierrors.IsNotFound(err) {
			r.policies.forget(key)
			return rules{problem: fmt.Sprintf("ToolPolicy %s does not exist", ref.Name)}, nil
		}
		if err != nil {
			return rules{}, fmt.Errorf("reading ToolPolicy %s: %w", ref.Name, err)
		}
		one, problems := r.policies.compile(found)
		if len(problems) > 0 {
			return rules{problem: fmt.Sprintf("ToolPolicy %s is not ready: %s", ref.Name, problems[0].String())}, nil
		}
		compiled = append(compiled, one)
	}
	set, err := policy.NewSet(compiled)
	var duplicate *policy.DuplicateServerError
	if errors.As(err, &duplicate) {
		return rules{problem: err.Error(), invalid: true}, nil
	}
	if err != nil {
		return rules{}, fmt.Errorf("joining policies: %w", err)
	}
	return rules{set: set, policies: compiled}, nil
}

// policyCache keeps the newest compiled form of each policy.
type policyCache struct {
	mu       sync.Mutex
	compiled map[client.ObjectKey]compiledPolicy
}

type compiledPolicy struct {
	uid        types.UID
	generation int64
	policy     *policy.Policy
	problems   []policy.Problem
}

func (c *policyCache) compile(object *v1alpha1.ToolPolicy) (*policy.Policy, []policy.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := client.ObjectKeyFromObject(object)
	if known, ok := c.compiled[key]; ok && known.uid == object.UID && known.generation == object.Generation {
		return known.policy, known.problems
	}
	if c.compiled == nil {
		c.compiled = map[client.ObjectKey]compiledPolicy{}
	}
	one, problems := policy.Compile(object.Name, object.Spec)
	problems = append(problems, job.Problems(object.Spec)...)
	c.compiled[key] = compiledPolicy{uid: object.UID, generation: object.Generation, policy: one, problems: problems}
	return one, problems
}

func (c *policyCache) forget(key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.compiled, key)
}

// splitTool parts a full name into server and the server's own name of the tool.
func splitTool(fullName string) (server, name string) {
	server, name, _ = strings.Cut(fullName, ".")
	return server, name
}
