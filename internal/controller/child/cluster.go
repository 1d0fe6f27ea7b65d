package child

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/controller/callee"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
	agentruntool "github.com/pawl-run/pawl/internal/tool/agentrun"
)

// Cluster is the agentruntool.Cluster of a real one. It reads live: a cache that lags behind
// would take a child that was just created for one that is gone.
type Cluster struct {
	writer client.Writer
	live   client.Reader
	store  *store.Store
}

var _ agentruntool.Cluster = (*Cluster)(nil)

// NewCluster makes a Cluster that writes through writer and reads through live, which must
// be no cache, and journals through the store.
func NewCluster(writer client.Writer, live client.Reader, journals *store.Store) *Cluster {
	return &Cluster{writer: writer, live: live, store: journals}
}

// Create implements agentruntool.Cluster.
func (c *Cluster) Create(ctx context.Context, order agentruntool.Order) error {
	wanted, err := Build(order)
	if err != nil {
		return err
	}
	return callee.Create(ctx, c.writer, wanted, "run", func() (callee.Found, error) {
		live, err := c.get(ctx, order.Child)
		return callee.Found{There: live != nil, Ours: live != nil && ours(live, order.Child)}, err
	})
}

// Look implements agentruntool.Cluster.
func (c *Cluster) Look(ctx context.Context, child agentruntool.Child) (agentruntool.State, error) {
	live, err := c.get(ctx, child)
	switch {
	case err != nil:
		return agentruntool.State{}, err
	case live == nil:
		return agentruntool.State{Phase: agentruntool.Missing}, nil
	case !ours(live, child):
		return agentruntool.State{Phase: agentruntool.Foreign}, nil
	case live.Status.CompletionTime == nil && !abandoned(live):
		return agentruntool.State{Phase: agentruntool.Open}, nil
	}
	state, err := c.read(ctx, live)
	if err != nil {
		return agentruntool.State{}, err
	}
	return StateOf(live, state), nil
}

// read folds a child's journal, nil for one that can't be relied on, however often it is
// read.
func (c *Cluster) read(ctx context.Context, live *v1alpha1.AgentRun) (*journal.State, error) {
	_, records, err := c.store.Load(ctx, live)
	var broken *store.CorruptError
	if errors.As(err, &broken) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the child's journal: %w", err)
	}
	state, err := journal.Fold(string(live.UID), records)
	if shown := live.Status.Journal; err != nil || shown != nil && state.Events < shown.Events {
		return nil, nil //nolint:nilerror // then there is only status
	}
	return state, nil
}

// get reads a run, nil for none.
func (c *Cluster) get(ctx context.Context, child agentruntool.Child) (*v1alpha1.AgentRun, error) {
	live := &v1alpha1.AgentRun{}
	there, err := callee.Read(ctx, c.live, client.ObjectKey{Namespace: child.Namespace, Name: child.Name}, live, "run")
	if err != nil || !there {
		return nil, err
	}
	return live, nil
}

// Cancel implements agentruntool.Cluster.
func (c *Cluster) Cancel(ctx context.Context, child agentruntool.Child) error {
	live, err := c.get(ctx, child)
	if err != nil || live == nil || !ours(live, child) || live.Status.CompletionTime != nil || live.Spec.State == v1alpha1.StateCancelled {
		return err
	}
	before := live.DeepCopy()
	live.Spec.State = v1alpha1.StateCancelled
	if err := client.IgnoreNotFound(c.writer.Patch(ctx, live, client.MergeFrom(before))); err != nil {
		return fmt.Errorf("cancelling the child: %w", err)
	}
	return nil
}

// Release lets go of a child that its parent needs no more.
func (c *Cluster) Release(ctx context.Context, held client.Object) error {
	fresh := &v1alpha1.AgentRun{}
	return callee.LetGo(ctx, c.live, c.writer, held, fresh, v1alpha1.FinalizerParent, "run")
}

// ours says whether a run is the child of a call, and not another of the same name.
func ours(live *v1alpha1.AgentRun, wanted agentruntool.Child) bool {
	return live.Labels[v1alpha1.LabelParentUID] == wanted.ParentUID && live.Annotations[v1alpha1.AnnotationEffectKey] == wanted.EffectKey
}
