package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// observer sees every status that the operator writes and checks what has to hold for
// all of them, whatever the spec is about.
type observer struct {
	watch apiwatch.Interface
	ended chan struct{}

	mu     sync.Mutex
	last   map[types.UID]*v1alpha1.AgentRun
	found  []string
	seen   map[state]*v1alpha1.AgentRun
	closed bool
}

// state is what a run's condition Succeeded says.
type state struct {
	reason v1alpha1.Reason
	status metav1.ConditionStatus
}

func startObserver() *observer {
	api := must(client.NewWithWatch(env.Plane.Config(), client.Options{Scheme: env.Admin.Scheme()}))
	o := &observer{
		ended: make(chan struct{}),
		last:  map[types.UID]*v1alpha1.AgentRun{},
		seen:  map[state]*v1alpha1.AgentRun{},
	}
	o.watch = must(api.Watch(context.Background(), &v1alpha1.AgentRunList{}))
	go o.listen()
	return o
}

func (o *observer) listen() {
	defer close(o.ended)
	for event := range o.watch.ResultChan() {
		run, ok := event.Object.(*v1alpha1.AgentRun)
		if !ok || event.Type == apiwatch.Deleted {
			continue
		}
		o.mu.Lock()
		o.look(run)
		o.mu.Unlock()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.found = append(o.found, "the watch has ended")
	}
}

func (o *observer) stop() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.watch.Stop()
	<-o.ended
}

// problems are what was found since the last time.
func (o *observer) problems() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := o.found
	o.found = nil
	return found
}

// example is some run that was seen in a state.
func (o *observer) example(s state) *v1alpha1.AgentRun {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen[s]
}

// lastOf is a run as it was seen last, also when it is gone by now.
func (o *observer) lastOf(key client.ObjectKey) *v1alpha1.AgentRun {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, run := range o.last {
		if client.ObjectKeyFromObject(run) == key {
			return run
		}
	}
	return nil
}

func (o *observer) look(run *v1alpha1.AgentRun) {
	previous := o.last[run.UID]
	o.last[run.UID] = run
	if len(run.Status.Conditions) == 0 {
		return
	}
	succeeded := condition(run, v1alpha1.ConditionSucceeded)
	o.seen[state{v1alpha1.Reason(succeeded.Reason), succeeded.Status}] = run
	problems := slices.Concat(wrongAlone(run), wrongTogether(run))
	if previous != nil && len(previous.Status.Conditions) > 0 {
		problems = append(problems, wrongAfter(previous, run)...)
	}
	for _, problem := range problems {
		o.found = append(o.found, fmt.Sprintf("%s/%s (%s, resourceVersion %s): %s", run.Namespace, run.Name, succeeded.Reason, run.ResourceVersion, problem))
	}
}

var conditionTypes = []string{
	v1alpha1.ConditionSucceeded, v1alpha1.ConditionFinished, v1alpha1.ConditionApprovalRequired,
	v1alpha1.ConditionInputRequired, v1alpha1.ConditionOutcomeUnknown, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled,
}

// wrongAlone checks the conditions one by one.
func wrongAlone(run *v1alpha1.AgentRun) []string {
	var problems []string
	var present []string
	for _, c := range run.Status.Conditions {
		present = append(present, c.Type)
		switch {
		case c.ObservedGeneration != run.Status.ObservedGeneration:
			problems = append(problems, c.Type+" speaks of another generation than status")
		case c.LastTransitionTime.IsZero():
			problems = append(problems, c.Type+" has no transition time")
		case c.Message == "" || len(c.Message) > 1200 || strings.ContainsAny(c.Message, "\n\r\t"):
			problems = append(problems, fmt.Sprintf("%s has the message %q", c.Type, c.Message))
		}
	}
	if run.Status.ObservedGeneration > run.Generation || run.Status.ObservedGeneration < 1 {
		problems = append(problems, fmt.Sprintf("observedGeneration is %d, generation %d", run.Status.ObservedGeneration, run.Generation))
	}
	slices.Sort(present)
	if want := slices.Sorted(slices.Values(conditionTypes)); !slices.Equal(present, want) {
		problems = append(problems, fmt.Sprintf("the conditions are %v", present))
	}
	succeeded := condition(run, v1alpha1.ConditionSucceeded)
	if !slices.ContainsFunc(v1alpha1.AllReasons(), func(info v1alpha1.ReasonInfo) bool {
		return string(info.Reason) == succeeded.Reason && info.Status == succeeded.Status
	}) {
		problems = append(problems, fmt.Sprintf("Succeeded is %s with reason %s", succeeded.Status, succeeded.Reason))
	}
	return problems
}

// wrongTogether checks what parts of status say about each other.
func wrongTogether(run *v1alpha1.AgentRun) []string {
	var problems []string
	succeeded := condition(run, v1alpha1.ConditionSucceeded).Status
	for _, pair := range []struct {
		what      string
		got, want bool
	}{
		{"Reconciling and Stalled are both True", isTrue(run, v1alpha1.ConditionReconciling) && isTrue(run, v1alpha1.ConditionStalled), false},
		{"Reconciling is True exactly while the run is open", isTrue(run, v1alpha1.ConditionReconciling), succeeded == metav1.ConditionUnknown},
		{"Finished is True exactly when the run has ended", isTrue(run, v1alpha1.ConditionFinished), succeeded != metav1.ConditionUnknown},
		{"Stalled is True exactly when Succeeded is False", isTrue(run, v1alpha1.ConditionStalled), succeeded == metav1.ConditionFalse},
		{"completionTime is set exactly when the run has ended", run.Status.CompletionTime != nil, succeeded != metav1.ConditionUnknown},
		{"pending goes with ApprovalRequired", ownPending(run) || childWaits(run, v1alpha1.ReasonApprovalRequired), isTrue(run, v1alpha1.ConditionApprovalRequired)},
		{"question goes with InputRequired", run.Status.Question != nil || childWaits(run, v1alpha1.ReasonInputRequired), isTrue(run, v1alpha1.ConditionInputRequired)},
		{"unknownEffects go with OutcomeUnknown", len(run.Status.UnknownEffects) > 0, isTrue(run, v1alpha1.ConditionOutcomeUnknown)},
		{"a result goes with Succeeded=True", run.Status.Result != nil, succeeded == metav1.ConditionTrue},
	} {
		if pair.got != pair.want {
			problems = append(problems, "not so: "+pair.what)
		}
	}
	want := map[metav1.ConditionStatus]string{
		metav1.ConditionUnknown: "InProgress", metav1.ConditionTrue: "Current", metav1.ConditionFalse: "Failed",
	}[succeeded]
	if got := kstatus(run); run.Status.ObservedGeneration == run.Generation && got != want {
		problems = append(problems, fmt.Sprintf("kstatus makes it %s, want %s", got, want))
	}
	return problems
}

func ownPending(run *v1alpha1.AgentRun) bool {
	return run.Status.Pending != nil && run.Status.Pending.Digest != ""
}

// childWaits says whether a run below one waits for people.
func childWaits(run *v1alpha1.AgentRun, reason v1alpha1.Reason) bool {
	return run.Status.Pending != nil && slices.ContainsFunc(run.Status.Pending.Children, func(c v1alpha1.PendingChild) bool { return c.Reason == string(reason) })
}

// wrongAfter checks a status against the one before.
func wrongAfter(previous, run *v1alpha1.AgentRun) []string {
	var problems []string
	before, after := condition(previous, v1alpha1.ConditionSucceeded), condition(run, v1alpha1.ConditionSucceeded)
	if before.Status != metav1.ConditionUnknown && (after.Status != before.Status || after.Reason != before.Reason) {
		problems = append(problems, fmt.Sprintf("the ending %s became %s", before.Reason, after.Reason))
	}
	if after.Reason == string(v1alpha1.ReasonPending) && before.Reason != after.Reason && before.Reason != string(v1alpha1.ReasonSuspended) {
		problems = append(problems, before.Reason+" went back to Pending")
	}
	if old, now := previous.Status.Journal, run.Status.Journal; old != nil && (now == nil || now.Events < old.Events) {
		problems = append(problems, "the journal became shorter")
	}
	if run.Status.ObservedGeneration < previous.Status.ObservedGeneration {
		problems = append(problems, "observedGeneration went back")
	}
	for _, c := range run.Status.Conditions {
		old := meta.FindStatusCondition(previous.Status.Conditions, c.Type)
		if old != nil && old.Status == c.Status && !old.LastTransitionTime.Equal(&c.LastTransitionTime) {
			problems = append(problems, c.Type+" has another transition time with the same status")
		}
	}
	return problems
}

// kstatus computes what tools that use the library of this name make of an object: the
// generation first, then whichever of Reconciling and Stalled comes first and is True.
func kstatus(run *v1alpha1.AgentRun) string {
	if run.Status.ObservedGeneration != run.Generation {
		return "InProgress"
	}
	for _, c := range run.Status.Conditions {
		switch {
		case c.Type == v1alpha1.ConditionReconciling && c.Status == metav1.ConditionTrue:
			return "InProgress"
		case c.Type == v1alpha1.ConditionStalled && c.Status == metav1.ConditionTrue:
			return "Failed"
		}
	}
	return "Current"
}

func condition(run *v1alpha1.AgentRun, conditionType string) metav1.Condition {
	if c := meta.FindStatusCondition(run.Status.Conditions, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionUnknown}
}

func isTrue(run *v1alpha1.AgentRun, conditionType string) bool {
	return condition(run, conditionType).Status == metav1.ConditionTrue
}

// expectCurrent checks that status speaks of the run as it is now.
func expectCurrent(run *v1alpha1.AgentRun) {
	Expect(run.Status.ObservedGeneration).To(Equal(run.Generation), "observedGeneration")
}
