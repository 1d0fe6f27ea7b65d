package child

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/internal/tool"
	agentruntool "github.com/pawl-run/pawl/internal/tool/agentrun"
	"github.com/pawl-run/pawl/internal/tool/object"
)

// stand is a fake API server with a Cluster on it.
type stand struct {
	client.Client
	cluster *Cluster
	store   *store.Store
	// fails is what the next creates of runs fail with.
	fails error
}

func newStand(t *testing.T) *stand {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	s := &stand{}
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.AgentRun{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, isRun := object.(*v1alpha1.AgentRun); isRun {
				if s.fails != nil {
					return s.fails
				}
				object.SetUID(types.UID("uid-of-" + object.GetName()))
			}
			return c.Create(ctx, object, options...)
		},
	}).Build()
	nonce := 0
	s.store = store.New(s.Client, func() string { nonce++; return fmt.Sprint(nonce) })
	s.cluster = NewCluster(s.Client, s.Client, s.store)
	return s
}

func anOrder() agentruntool.Order {
	return agentruntool.Order{
		Child:  agentruntool.Child{Namespace: "shop", Name: "pawl-1", ParentUID: "uid-0", EffectKey: "pawl-1"},
		Parent: "order", CallID: "call-1", Prompt: "Find 7.",
		Template:  []byte(`{"modelRef":{"name":"m"},"limits":{"maxTurns":3,"maxTokens":500,"maxCost":"0.1"},"humanInput":"Disabled"}`),
		Inherited: tool.Child{Tokens: 100, Cost: "0.5", ActiveSeconds: 60, DeadlineSeconds: 90, Depth: 3, Root: "top", RootUID: "uid-top", CreatedBy: "ann"},
	}
}

func (s *stand) run(t *testing.T) *v1alpha1.AgentRun {
	t.Helper()
	run := &v1alpha1.AgentRun{}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "pawl-1"}, run); err != nil {
		t.Fatal(err)
	}
	return run
}

func (s *stand) look(t *testing.T) agentruntool.State {
	t.Helper()
	state, err := s.cluster.Look(t.Context(), anOrder().Child)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestTheTemplateHasWhatARunHas checks that a field which is new on runs is not forgotten.
func TestTheTemplateHasWhatARunHas(t *testing.T) {
	own := map[string]bool{"Prompt": true, "State": true}
	spec, template := reflect.TypeFor[v1alpha1.AgentRunSpec](), reflect.TypeFor[v1alpha1.AgentRunTemplate]()
	for i := range spec.NumField() {
		field := spec.Field(i)
		twin, there := template.FieldByName(field.Name)
		if there == own[field.Name] || there && (twin.Type != field.Type || twin.Tag.Get("json") != field.Tag.Get("json")) {
			t.Errorf("%s of a run and of a template do not match", field.Name)
		}
	}
	if template.NumField() != spec.NumField()-len(own) {
		t.Error("the template has fields of its own")
	}
}

func TestBuild(t *testing.T) {
	got, err := Build(anOrder())
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.AgentRunSpec{
		ModelRef: v1alpha1.LocalReference{Name: "m"}, Prompt: "Find 7.", HumanInput: v1alpha1.HumanInputDisabled,
		Limits: v1alpha1.Limits{MaxTurns: 3, MaxTokens: 100, MaxCost: "0.1", ActiveDeadlineSeconds: 60, DeadlineSeconds: 90},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	lineage, err := LineageOf(got)
	if diff := cmp.Diff(&journal.Lineage{Parent: "order", ParentUID: "uid-0", Root: "top", RootUID: "uid-top", Depth: 3}, lineage); diff != "" || err != nil {
		t.Errorf("lineage (-want +got), %v:\n%s", err, diff)
	}
	if owner := metav1.GetControllerOf(got); owner == nil || owner.UID != "uid-0" || owner.Kind != "AgentRun" || got.Annotations[v1alpha1.AnnotationCreatedBy] != "ann" {
		t.Errorf("owner %v, annotations %v", owner, got.Annotations)
	}
}

func TestLineagesThatCantBe(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.AgentRun){
		"no depth":    func(r *v1alpha1.AgentRun) { delete(r.Annotations, v1alpha1.AnnotationDepth) },
		"too deep":    func(r *v1alpha1.AgentRun) { r.Annotations[v1alpha1.AnnotationDepth] = "4" },
		"not a depth": func(r *v1alpha1.AgentRun) { r.Annotations[v1alpha1.AnnotationDepth] = "deep" },
		"the top":     func(r *v1alpha1.AgentRun) { r.Annotations[v1alpha1.AnnotationDepth] = "1" },
		"no parent":   func(r *v1alpha1.AgentRun) { delete(r.Labels, v1alpha1.LabelParentUID) },
		"no root":     func(r *v1alpha1.AgentRun) { delete(r.Annotations, v1alpha1.AnnotationRoot) },
	} {
		run, err := Build(anOrder())
		if err != nil {
			t.Fatal(err)
		}
		change(run)
		if _, err := LineageOf(run); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
	if lineage, err := LineageOf(&v1alpha1.AgentRun{}); lineage != nil || err != nil {
		t.Errorf("a run that is no child: %v, %v", lineage, err)
	}
}

func TestCreateIsIdempotent(t *testing.T) {
	s := newStand(t)
	for range 3 {
		if err := s.cluster.Create(t.Context(), anOrder()); err != nil {
			t.Fatal(err)
		}
	}
	if state := s.look(t); state.Phase != agentruntool.Open {
		t.Errorf("state %+v", state)
	}
}

func TestOnlyTheCallsOwnChild(t *testing.T) {
	for name, change := range map[string]func(*agentruntool.Order){
		"of another run":  func(o *agentruntool.Order) { o.ParentUID = "uid-9" },
		"of another call": func(o *agentruntool.Order) { o.EffectKey = "pawl-2" },
	} {
		s, other := newStand(t), anOrder()
		change(&other)
		if err := s.cluster.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		var refused *object.RefusedError
		if err := s.cluster.Create(t.Context(), anOrder()); !errors.As(err, &refused) {
			t.Errorf("%s: Create = %v", name, err)
		}
		if state := s.look(t); state.Phase != agentruntool.Foreign {
			t.Errorf("%s: %+v", name, state)
		}
		if err := s.cluster.Cancel(t.Context(), anOrder().Child); err != nil || s.run(t).Spec.State == v1alpha1.StateCancelled {
			t.Errorf("%s: it was cancelled, %v", name, err)
		}
	}
}

// What the API server refuses did not happen; what it does not answer may have.
func TestRefusals(t *testing.T) {
	runs := schema.GroupResource{Group: "pawl.run", Resource: "agentruns"}
	for name, tc := range map[string]struct {
		fails   error
		refused bool
	}{
		"forbidden": {apierrors.NewForbidden(runs, "x", errors.New("exceeded quota")), true},
		"invalid":   {apierrors.NewInvalid(schema.GroupKind{Group: "pawl.run", Kind: "AgentRun"}, "x", nil), true},
		"timeout":   {apierrors.NewServerTimeout(runs, "create", 1), false},
		"cut off":   {errors.New("EOF"), false},
	} {
		s := newStand(t)
		s.fails = tc.fails
		var refused *object.RefusedError
		if err := s.cluster.Create(t.Context(), anOrder()); err == nil || errors.As(err, &refused) != tc.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// end writes a journal that ends the child, and its status.
func (s *stand) end(t *testing.T, reason v1alpha1.Reason, answer *string) {
	t.Helper()
	child := s.run(t)
	log, _, err := s.store.Load(t.Context(), child)
	if err != nil {
		t.Fatal(err)
	}
	draft := journal.Draft{State: journal.NewState(string(child.UID))}
	for _, payload := range []journal.Payload{
		journal.Claimed{Worker: "w"},
		journal.RunStarted{Model: journal.Model{Prices: &journal.Prices{Input: "1", Output: "2"}}},
		journal.DecisionMade{Kind: journal.DecisionFinal, Text: "x", Usage: journal.Usage{InputTokens: 10, OutputTokens: 3}},
		journal.Finished{Reason: string(reason), Message: "so it ended", Answer: answer},
	} {
		if err := draft.Add(payload, journal.Meta{Time: time.Unix(1_800_000_000, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.store.Append(t.Context(), log, draft.Records, false); err != nil {
		t.Fatal(err)
	}
	s.show(t, reason, draft.State.Events)
}

// show writes the status of a run that has ended.
func (s *stand) show(t *testing.T, reason v1alpha1.Reason, events int64) {
	t.Helper()
	child := s.run(t)
	child.Status.CompletionTime = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonCompleted {
		status = metav1.ConditionTrue
	}
	child.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Status: status, Reason: string(reason), Message: "so it ended"}}
	child.Status.Journal = &v1alpha1.Journal{Events: events}
	child.Status.Usage = &v1alpha1.Usage{InputTokens: 9, OutputTokens: 2, TotalTokens: 11, Cost: "0.5"}
	if err := s.Status().Update(t.Context(), child); err != nil {
		t.Fatal(err)
	}
}

func TestLookReadsTheJournal(t *testing.T) {
	answer := "42"
	spent := &tool.Spent{InputTokens: 10, OutputTokens: 3, CostPicos: 16_000_000}
	byStatus := &tool.Spent{InputTokens: 9, OutputTokens: 2, CostPicos: 500_000_000_000, Estimated: true}
	for name, tc := range map[string]struct {
		end  func(*stand)
		want agentruntool.State
	}{
		"an answer": {func(s *stand) { s.end(t, v1alpha1.ReasonCompleted, &answer) },
			agentruntool.State{Phase: agentruntool.Completed, Began: true, Answer: "42", Reason: "Completed", Message: "so it ended", Spent: spent}},
		"another end": {func(s *stand) { s.end(t, v1alpha1.ReasonMaxTurns, nil) },
			agentruntool.State{Phase: agentruntool.Failed, Began: true, Reason: "MaxTurns", Message: "so it ended", Spent: spent}},
		"an end that only status knows": {func(s *stand) { s.show(t, v1alpha1.ReasonCheckpointFailed, 7) },
			agentruntool.State{Phase: agentruntool.Failed, Began: true, Reason: "CheckpointFailed", Message: "so it ended", Spent: byStatus}},
		"a journal that is gone": {func(s *stand) { s.show(t, v1alpha1.ReasonCompleted, 7) },
			agentruntool.State{Phase: agentruntool.Lost, Began: true, Spent: byStatus}},
	} {
		s := newStand(t)
		if err := s.cluster.Create(t.Context(), anOrder()); err != nil {
			t.Fatal(err)
		}
		tc.end(s)
		if diff := cmp.Diff(tc.want, s.look(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAChildThatGoesAway(t *testing.T) {
	s := newStand(t)
	if state := s.look(t); state.Phase != agentruntool.Missing {
		t.Errorf("state %+v", state)
	}
	if err := s.cluster.Create(t.Context(), anOrder()); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), s.run(t)); err != nil {
		t.Fatal(err)
	}
	if state := s.look(t); state.Phase != agentruntool.Open {
		t.Errorf("it is not waited for: %+v", state)
	}
	child := s.run(t)
	child.Finalizers = []string{v1alpha1.FinalizerParent}
	if err := s.Update(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	if state := s.look(t); state.Phase != agentruntool.Lost {
		t.Errorf("it is waited for: %+v", state)
	}
	for range 2 {
		if err := s.cluster.Release(t.Context(), child); err != nil {
			t.Fatal(err)
		}
	}
	if state := s.look(t); state.Phase != agentruntool.Missing {
		t.Errorf("it is still there: %+v", state)
	}
}

func TestCancel(t *testing.T) {
	s := newStand(t)
	if err := s.cluster.Cancel(t.Context(), anOrder().Child); err != nil {
		t.Fatalf("a child that is gone: %v", err)
	}
	if err := s.cluster.Create(t.Context(), anOrder()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.cluster.Cancel(t.Context(), anOrder().Child); err != nil || s.run(t).Spec.State != v1alpha1.StateCancelled {
			t.Errorf("state %q, %v", s.run(t).Spec.State, err)
		}
	}
}
