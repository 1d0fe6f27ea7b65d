package job

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	jobtool "github.com/pawl-run/pawl/internal/tool/job"
	"github.com/pawl-run/pawl/internal/tool/object"
)

const good = `{"containers":[{"name":"a","image":"b"}]}`

// stand is a fake API server with a Cluster on it.
type stand struct {
	client.Client
	cluster *Cluster
	// fails is what the next writes fail with.
	fails error
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{}
	s.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithStatusSubresource(&batchv1.Job{}, &corev1.Pod{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if s.fails != nil {
					return s.fails
				}
				return c.Create(ctx, o, options...)
			},
			Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
				return errors.New("the operator has no right to update Jobs")
			},
		}).Build()
	s.cluster = NewCluster(s.Client, s.Client, kubefake.NewClientset().CoreV1())
	return s
}

func (s *stand) jobs(t *testing.T) []batchv1.Job {
	t.Helper()
	var list batchv1.JobList
	if err := s.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func (s *stand) phase(t *testing.T, job jobtool.Job) jobtool.State {
	t.Helper()
	state, err := s.cluster.Look(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestCreateIsIdempotent(t *testing.T) {
	s := newStand(t)
	for range 3 {
		if err := s.cluster.Create(t.Context(), anOrder(good)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.jobs(t)); n != 1 {
		t.Errorf("%d Jobs", n)
	}
	if state := s.phase(t, anOrder(good).Job); state.Phase != jobtool.Running {
		t.Errorf("state %+v", state)
	}
}

func TestOnlyTheCallsOwnJob(t *testing.T) {
	order := anOrder(good)
	for name, other := range map[string]jobtool.Order{
		"of another run":  {Job: jobtool.Job{Namespace: "shop", Name: "pawl-1", RunUID: "uid-0", EffectKey: "pawl-1"}, Template: order.Template},
		"of another call": {Job: jobtool.Job{Namespace: "shop", Name: "pawl-1", RunUID: "uid-1", EffectKey: "pawl-2"}, Template: order.Template},
	} {
		s := newStand(t)
		if err := s.cluster.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		var refused *object.RefusedError
		if err := s.cluster.Create(t.Context(), order); !errors.As(err, &refused) {
			t.Errorf("%s: Create = %v", name, err)
		}
		if state := s.phase(t, order.Job); state.Phase != jobtool.Foreign {
			t.Errorf("%s: %+v", name, state)
		}
		if err := s.cluster.Delete(t.Context(), order.Job); err != nil || s.jobs(t)[0].DeletionTimestamp != nil {
			t.Errorf("%s: it was deleted, %v", name, err)
		}
	}
}

// What the API server refuses did not happen; what it does not answer may have.
func TestRefusals(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	for name, tc := range map[string]struct {
		fails   error
		refused bool
	}{
		"forbidden": {apierrors.NewForbidden(jobs, "x", errors.New("exceeded quota")), true},
		"invalid":   {apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "x", nil), true},
		"timeout":   {apierrors.NewServerTimeout(jobs, "create", 1), false},
		"internal":  {apierrors.NewInternalError(errors.New("a webhook failed")), false},
		"cut off":   {errors.New("EOF"), false},
	} {
		s := newStand(t)
		s.fails = tc.fails
		var refused *object.RefusedError
		err := s.cluster.Create(t.Context(), anOrder(good))
		if err == nil || errors.As(err, &refused) != tc.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLookReadsThePod(t *testing.T) {
	s := newStand(t)
	order := anOrder(good)
	if state := s.phase(t, order.Job); state.Phase != jobtool.Missing {
		t.Fatalf("state %+v", state)
	}
	if err := s.cluster.Create(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	job := s.jobs(t)[0]
	for _, uid := range []string{"another", string(job.UID)} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-" + uid, Labels: map[string]string{batchv1.ControllerUidLabel: uid}},
			Spec:       job.Spec.Template.Spec,
			Status:     corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{Name: "a", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Message: uid}}}}},
		}
		if err := s.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	want := jobtool.State{Phase: jobtool.Exited, Started: true, Read: true, ExitCode: 2, Message: []byte(job.UID), Logs: []byte("fake logs")}
	if diff := cmp.Diff(want, s.phase(t, order.Job)); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

// A deleted Job is held until it is released.
func TestRelease(t *testing.T) {
	for name, deleted := range map[string]bool{"as it is": false, "deleted before": true} {
		s := newStand(t)
		order := anOrder(good)
		if err := s.cluster.Create(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		if deleted {
			for range 2 {
				if err := s.cluster.Delete(t.Context(), order.Job); err != nil {
					t.Fatal(err)
				}
			}
		}
		if jobs := s.jobs(t); len(jobs) != 1 || (jobs[0].DeletionTimestamp != nil) != deleted {
			t.Fatalf("%s: %d Jobs", name, len(jobs))
		}
		held := &metav1.PartialObjectMetadata{}
		held.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
		if err := s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "pawl-1"}, held); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.cluster.Release(t.Context(), held.DeepCopy()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := len(s.jobs(t)); n != 0 {
			t.Errorf("%s: %d Jobs are left", name, n)
		}
	}
}
