package job

import (
	"context"
	"fmt"
	"io"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/controller/callee"
	jobtool "github.com/pawl-run/pawl/internal/tool/job"
)

// Bounds of what is read of the logs of a Job that failed; the adapter keeps the end.
const (
	logLines    = 50
	maxLogBytes = 16 << 10
)

// Cluster is the jobtool.Cluster of a real one. It reads live: a cache that lags behind
// would take a Job that was just created for one that is gone.
type Cluster struct {
	writer client.Writer
	live   client.Reader
	pods   typedcorev1.PodsGetter
}

var _ jobtool.Cluster = (*Cluster)(nil)

// NewCluster makes a Cluster that writes through writer, reads through live, which must be
// no cache, and gets logs through pods.
func NewCluster(writer client.Writer, live client.Reader, pods typedcorev1.PodsGetter) *Cluster {
	return &Cluster{writer: writer, live: live, pods: pods}
}

// Create implements jobtool.Cluster.
func (c *Cluster) Create(ctx context.Context, order jobtool.Order) error {
	wanted, err := Build(order)
	if err != nil {
		return err
	}
	return callee.Create(ctx, c.writer, wanted, "Job", func() (callee.Found, error) {
		live, err := c.get(ctx, order.Job)
		return callee.Found{There: live != nil, Ours: live != nil && ours(live, order.Job)}, err
	})
}

// Look implements jobtool.Cluster.
func (c *Cluster) Look(ctx context.Context, job jobtool.Job) (jobtool.State, error) {
	live, err := c.get(ctx, job)
	switch {
	case err != nil:
		return jobtool.State{}, err
	case live == nil:
		return jobtool.State{Phase: jobtool.Missing}, nil
	case !ours(live, job):
		return jobtool.State{Phase: jobtool.Foreign}, nil
	}
	var pods corev1.PodList
	err = c.live.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(live.UID)})
	if err != nil {
		return jobtool.State{}, fmt.Errorf("listing the Job's pods: %w", err)
	}
	state := StateOf(live, pods.Items)
	if state.Phase == jobtool.Exited || state.Phase == jobtool.Lost || state.Phase == jobtool.Deadline {
		state.Logs = c.logs(ctx, pods.Items)
	}
	return state, nil
}

// get reads a Job, nil for none.
func (c *Cluster) get(ctx context.Context, job jobtool.Job) (*batchv1.Job, error) {
	live := &batchv1.Job{}
	there, err := callee.Read(ctx, c.live, client.ObjectKey{Namespace: job.Namespace, Name: job.Name}, live, "Job")
	if err != nil || !there {
		return nil, err
	}
	return live, nil
}

// logs reads the end of what the first container wrote, where it is still there.
func (c *Cluster) logs(ctx context.Context, pods []corev1.Pod) []byte {
	if len(pods) == 0 || len(pods[0].Spec.Containers) == 0 {
		return nil
	}
	pod := &pods[0]
	stream, err := c.pods.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: pod.Spec.Containers[0].Name, TailLines: ptr.To(int64(logLines)), LimitBytes: ptr.To(int64(maxLogBytes)),
	}).Stream(ctx)
	if err != nil {
		return nil // evidence that is not there
	}
	defer func() { _ = stream.Close() }()
	logs, err := io.ReadAll(io.LimitReader(stream, maxLogBytes))
	if err != nil {
		return nil
	}
	return logs
}

// Delete implements jobtool.Cluster. The Job's finalizer keeps what is left of it until the
// call's outcome is recorded.
func (c *Cluster) Delete(ctx context.Context, job jobtool.Job) error {
	live, err := c.get(ctx, job)
	if err != nil || live == nil || !ours(live, job) || live.DeletionTimestamp != nil {
		return err
	}
	return deleteJob(ctx, c.writer, live)
}

// deleteJob deletes exactly this Job, and its pods before it.
func deleteJob(ctx context.Context, writer client.Writer, live client.Object) error {
	err := writer.Delete(ctx, live, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: ptr.To(live.GetUID())})
	if err := client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting the Job: %w", err)
	}
	return nil
}

// Release deletes a Job that nobody needs any more, and lets go of it.
func (c *Cluster) Release(ctx context.Context, held client.Object) error {
	if held.GetDeletionTimestamp() == nil {
		if err := deleteJob(ctx, c.writer, held); err != nil {
			return err
		}
	}
	fresh := &metav1.PartialObjectMetadata{}
	fresh.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	return callee.LetGo(ctx, c.live, c.writer, held, fresh, v1alpha1.FinalizerEffects, "Job")
}
