package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	jobtool "github.com/pawl-run/pawl/internal/tool/job"
)

func TestStateOf(t *testing.T) {
	for name, tc := range map[string]struct {
		job, pod string
		want     jobtool.State
	}{
		"no pod yet":       {"", "", jobtool.State{Phase: jobtool.Running}},
		"pending":          {"", "phase: Pending", jobtool.State{Phase: jobtool.Running}},
		"no image":         {"", "{phase: Pending, containerStatuses: [{name: first, state: {waiting: {reason: ErrImagePull}}}]}", jobtool.State{Phase: jobtool.NoImage}},
		"no image to init": {"", "{phase: Pending, initContainerStatuses: [{name: i, state: {waiting: {reason: InvalidImageName}}}]}", jobtool.State{Phase: jobtool.NoImage}},
		"no image after init": {"", "{phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 0}}}], containerStatuses: [{name: first, state: {waiting: {reason: ImagePullBackOff}}}]}",
			jobtool.State{Phase: jobtool.Running, Started: true}},
		"creating":         {"", "{phase: Pending, containerStatuses: [{name: first, state: {waiting: {reason: ContainerCreating}}}]}", jobtool.State{Phase: jobtool.Running}},
		"running":          {"", "{phase: Running, containerStatuses: [{name: first, state: {running: {}}}]}", jobtool.State{Phase: jobtool.Running, Started: true}},
		"first ended only": {"", "{phase: Running, containerStatuses: [{name: first, state: {terminated: {exitCode: 0, message: m}}}]}", jobtool.State{Phase: jobtool.Running, Started: true, Read: true, Message: []byte("m")}},
		"succeeded": {"", "{phase: Succeeded, containerStatuses: [{name: first, state: {terminated: {exitCode: 0, reason: Completed, message: m}}}]}",
			jobtool.State{Phase: jobtool.Succeeded, Started: true, Read: true, Message: []byte("m"), Reason: "Completed"}},
		"succeeded, pod gone": {"{succeeded: 1, conditions: [{type: Complete, status: 'True'}]}", "", jobtool.State{Phase: jobtool.Succeeded, Started: true}},
		"exited": {"", "{phase: Failed, containerStatuses: [{name: beside, state: {terminated: {exitCode: 9}}}, {name: first, state: {terminated: {exitCode: 3, reason: Error, message: m}}}]}",
			jobtool.State{Phase: jobtool.Exited, Started: true, Read: true, ExitCode: 3, Message: []byte("m"), Reason: "Error"}},
		"evicted": {"{conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}", "{phase: Failed, reason: Evicted}",
			jobtool.State{Phase: jobtool.Lost, Started: true, Reason: "Evicted"}},
		"deadline":      {"{failed: 1, conditions: [{type: Failed, status: 'True', reason: DeadlineExceeded}]}", "", jobtool.State{Phase: jobtool.Deadline, Started: true}},
		"about to fail": {"{conditions: [{type: FailureTarget, status: 'True', reason: DeadlineExceeded}, {type: Failed, status: 'False'}]}", "phase: Running", jobtool.State{Phase: jobtool.Running, Started: true}},
		"failed, gone":  {"{failed: 1, conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}", "", jobtool.State{Phase: jobtool.Lost, Started: true}},
	} {
		live := &batchv1.Job{}
		var pods []corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(tc.job), &live.Status); err != nil {
			t.Fatal(name, err)
		}
		if tc.pod != "" {
			pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "first"}, {Name: "beside"}}}}
			if err := yaml.UnmarshalStrict([]byte(tc.pod), &pod.Status); err != nil {
				t.Fatal(name, err)
			}
			pods = append(pods, pod)
		}
		if diff := cmp.Diff(tc.want, StateOf(live, pods)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
