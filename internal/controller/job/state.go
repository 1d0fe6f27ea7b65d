package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	jobtool "github.com/pawl-run/pawl/internal/tool/job"
)

// noImage are the reasons of a container that waits for an image in vain.
var noImage = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}

// ours says whether a Job is the one of a call, and not another of the same name.
func ours(live *batchv1.Job, wanted jobtool.Job) bool {
	owned := slices.ContainsFunc(live.OwnerReferences, func(owner metav1.OwnerReference) bool { return string(owner.UID) == wanted.RunUID })
	return owned && live.Annotations[v1alpha1.AnnotationEffectKey] == wanted.EffectKey
}

// StateOf says how a Job stands. Pods are those of the Job, at most one by its spec; of a
// pod that is gone only the Job's own word is left.
func StateOf(live *batchv1.Job, pods []corev1.Pod) jobtool.State {
	var pod *corev1.Pod
	if len(pods) > 0 {
		pod = &pods[0]
	}
	state := jobtool.State{Phase: jobtool.Running, Started: started(live, pod)}
	if pod != nil {
		readPod(&state, pod)
	}
	if state.Phase == jobtool.Succeeded || state.Phase == jobtool.Exited || state.Phase == jobtool.NoImage {
		return state
	}
	switch {
	case condition(live, batchv1.JobComplete) != nil:
		state.Phase = jobtool.Succeeded
	case condition(live, batchv1.JobFailed) != nil:
		if state.Phase = jobtool.Lost; condition(live, batchv1.JobFailed).Reason == batchv1.JobReasonDeadlineExceeded {
			state.Phase = jobtool.Deadline
		}
	case pod == nil && live.DeletionTimestamp != nil:
		state.Phase = jobtool.Lost // and nothing of it runs any more
	}
	return state
}

func condition(live *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range live.Status.Conditions {
		if c := &live.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// started says whether a container may have run.
func started(live *batchv1.Job, pod *corev1.Pod) bool {
	if pod == nil {
		return live.Status.Succeeded+live.Status.Failed > 0
	}
	for _, c := range statuses(pod) {
		if c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil {
			return true
		}
	}
	return pod.Status.Phase != corev1.PodPending && pod.Status.Phase != ""
}

func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...)
}

// readPod takes from a pod what it says. Only one that has ended as a whole says how.
func readPod(state *jobtool.State, pod *corev1.Pod) {
	first := firstStatus(pod)
	if first != nil && first.State.Terminated != nil {
		ended := first.State.Terminated
		state.Message, state.Read, state.ExitCode, state.Reason = []byte(ended.Message), true, ended.ExitCode, ended.Reason
	}
	if pod.Status.Reason != "" {
		state.Reason = pod.Status.Reason
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		state.Phase = jobtool.Succeeded
	case pod.Status.Phase == corev1.PodFailed && state.Read:
		state.Phase = jobtool.Exited
	case pod.Status.Phase == corev1.PodFailed:
		state.Phase = jobtool.Lost
	case !state.Started && waitsForImage(pod):
		state.Phase = jobtool.NoImage
	}
}

func firstStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	if len(pod.Spec.Containers) == 0 {
		return nil
	}
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Name == pod.Spec.Containers[0].Name {
			return c
		}
	}
	return nil
}

func waitsForImage(pod *corev1.Pod) bool {
	return slices.ContainsFunc(statuses(pod), func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && slices.Contains(noImage, c.State.Waiting.Reason)
	})
}
