package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal/store"
	jobtool "github.com/pawl-run/pawl/internal/tool/job"
	"github.com/pawl-run/pawl/internal/tool/object"
)

// user is whom containers run as where the template does not say: nobody.
const user = 65532

// Build makes the Job of an order. Its arguments are an annotation of its pod, mounted as a
// file: so one write creates the whole, and nothing is left over when it does not come
// about.
func Build(order jobtool.Order) (*batchv1.Job, error) {
	spec, err := Parse(order.Template)
	if err != nil {
		return nil, &object.RefusedError{Text: "the tool's template can't be used: " + err.Error()}
	}
	complete(spec, order)
	run := &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Name: order.RunName, UID: types.UID(order.RunUID)}}
	labels := store.Labels(order.RunName, order.RunUID)
	about := map[string]string{v1alpha1.AnnotationCallID: order.CallID, v1alpha1.AnnotationEffectKey: order.EffectKey}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: order.Namespace, Name: order.Name, Labels: labels, Annotations: about,
			Finalizers:      []string{v1alpha1.FinalizerEffects},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(run, v1alpha1.GroupVersion.WithKind("AgentRun"))},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:          ptr.To(int32(0)),
			PodReplacementPolicy:  ptr.To(batchv1.Failed),
			ActiveDeadlineSeconds: ptr.To(max(int64(order.Timeout/time.Second), 1)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
					v1alpha1.AnnotationCallID: order.CallID, v1alpha1.AnnotationEffectKey: order.EffectKey,
					v1alpha1.AnnotationArguments: string(order.Arguments),
				}},
				Spec: *spec,
			},
		},
	}, nil
}

// complete adds what every pod has, and what is careful where the template says nothing.
func complete(spec *corev1.PodSpec, order jobtool.Order) {
	spec.RestartPolicy = corev1.RestartPolicyNever
	if spec.AutomountServiceAccountToken == nil {
		spec.AutomountServiceAccountToken = ptr.To(false)
	}
	if spec.EnableServiceLinks == nil {
		spec.EnableServiceLinks = ptr.To(false)
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	c := spec.SecurityContext
	if c.RunAsNonRoot == nil {
		c.RunAsNonRoot = ptr.To(true)
		if c.RunAsUser == nil {
			c.RunAsUser = ptr.To(int64(user))
		}
	}
	if c.SeccompProfile == nil {
		c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volumeName, VolumeSource: corev1.VolumeSource{
		DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{
			Path: argumentsFile, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + v1alpha1.AnnotationArguments + "']"},
		}}},
	}})
	for i := range spec.InitContainers {
		completeContainer(&spec.InitContainers[i], order)
	}
	for i := range spec.Containers {
		completeContainer(&spec.Containers[i], order)
	}
}

func completeContainer(c *corev1.Container, order jobtool.Order) {
	c.Env = append(c.Env, corev1.EnvVar{Name: envEffectKey, Value: order.EffectKey}, corev1.EnvVar{Name: envCallID, Value: order.CallID})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeName, MountPath: mountPath, ReadOnly: true})
	c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	s := c.SecurityContext
	if s.AllowPrivilegeEscalation == nil && !ptr.Deref(s.Privileged, false) {
		s.AllowPrivilegeEscalation = ptr.To(false)
	}
	if s.ReadOnlyRootFilesystem == nil {
		s.ReadOnlyRootFilesystem = ptr.To(true)
	}
	if s.Capabilities == nil {
		s.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
	limit(&c.Resources)
}

// limit fills in resources: where only one of request and limit is there, it is both.
func limit(r *corev1.ResourceRequirements) {
	defaults := []struct {
		name           corev1.ResourceName
		request, limit string
	}{
		{corev1.ResourceCPU, "100m", "1"},
		{corev1.ResourceMemory, "128Mi", "512Mi"},
		{corev1.ResourceEphemeralStorage, "64Mi", "1Gi"},
	}
	for _, d := range defaults {
		request, requested := r.Requests[d.name]
		ceiling, limited := r.Limits[d.name]
		switch {
		case requested && !limited:
			ceiling = resource.MustParse(d.limit)
			if ceiling.Cmp(request) < 0 {
				ceiling = request
			}
		case !requested && limited:
			request = ceiling
		case !requested && !limited:
			request, ceiling = resource.MustParse(d.request), resource.MustParse(d.limit)
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Requests[d.name], r.Limits[d.name] = request, ceiling
	}
}
