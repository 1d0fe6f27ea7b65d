package job

import (
	"context"
	"errors"
	"fmt"
	"io"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/strictjson"
	jobtool "github.com/pawl-run/pawl/internal/tool/job"
	"github.com/pawl-run/pawl/internal/tool/object"
)

// Bounds of what is read of the logs of a Job that failed; the adapter keeps the end.
const (
	logLines    = 50
	maxLogBytes = 16 << 10
)

// maxReasonBytes bounds what is quoted of the API server's reason to refuse a Job.
const maxReasonBytes = 300

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
	err = c.writer.Create(ctx, wanted)
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		live, err := c.get(ctx, order.Job)
		if err == nil && live != nil && !ours(live, order.Job) {
			return &object.RefusedError{Text: "another Job has its name"}
		}
		if err == nil && live == nil {
			return errors.New("the Job was there and is gone")
		}
		return err
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsRequestEntityTooLargeError(err):
		return &object.RefusedError{Text: strictjson.Preview([]byte(err.Error()), maxReasonBytes)}
	default:
		return fmt.Errorf("creating the Job: %w", err)
	}
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
	err := c.live.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: job.Name}, live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Job: %w", err)
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
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(held), fresh); err != nil {
		return client.IgnoreNotFound(err)
	}
	if fresh.UID != held.GetUID() || !controllerutil.ContainsFinalizer(fresh, v1alpha1.FinalizerEffects) {
		return nil
	}
	// The lock keeps what others have put into the list meanwhile.
	patch := client.MergeFromWithOptions(fresh.DeepCopy(), client.MergeFromWithOptimisticLock{})
	controllerutil.RemoveFinalizer(fresh, v1alpha1.FinalizerEffects)
	if err := client.IgnoreNotFound(c.writer.Patch(ctx, fresh, patch)); err != nil {
		return fmt.Errorf("releasing the Job: %w", err)
	}
	return nil
}
