package job

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	jobtool "github.com/pawl-run/pawl/internal/tool/job"
	"github.com/pawl-run/pawl/internal/tool/object"
)

func anOrder(template string) jobtool.Order {
	return jobtool.Order{
		Job:     jobtool.Job{Namespace: "shop", Name: "pawl-1", RunUID: "uid-1", EffectKey: "pawl-1"},
		RunName: "order", CallID: "call-1", Arguments: []byte(`{"a":1}`), Template: []byte(template), Timeout: 90 * time.Second,
	}
}

func build(t *testing.T, template string) *batchv1.Job {
	t.Helper()
	built, err := Build(anOrder(template))
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// What the template does not say is careful.
func TestBuildFillsIn(t *testing.T) {
	want := &batchv1.Job{}
	if err := yaml.UnmarshalStrict([]byte(`
metadata:
  namespace: shop
  name: pawl-1
  labels: {pawl.run/run: order, pawl.run/run-uid: uid-1}
  annotations: {pawl.run/call-id: call-1, pawl.run/effect-key: pawl-1}
  finalizers: [pawl.run/effects]
  ownerReferences: [{apiVersion: pawl.run/v1alpha1, kind: AgentRun, name: order, uid: uid-1, controller: true, blockOwnerDeletion: true}]
spec:
  backoffLimit: 0
  podReplacementPolicy: Failed
  activeDeadlineSeconds: 90
  template:
    metadata:
      labels: {pawl.run/run: order, pawl.run/run-uid: uid-1}
      annotations: {pawl.run/call-id: call-1, pawl.run/effect-key: pawl-1, pawl.run/arguments: '{"a":1}'}
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      enableServiceLinks: false
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      volumes:
      - {name: pawl-arguments, downwardAPI: {items: [{path: arguments.json, fieldRef: {fieldPath: "metadata.annotations['pawl.run/arguments']"}}]}}
      containers:
      - name: a
        image: b
        terminationMessagePolicy: File
        env: [{name: PAWL_EFFECT_KEY, value: pawl-1}, {name: PAWL_CALL_ID, value: call-1}]
        volumeMounts: [{name: pawl-arguments, mountPath: /pawl, readOnly: true}]
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
        resources: {requests: {cpu: 100m, memory: 128Mi, ephemeral-storage: 64Mi}, limits: {cpu: "1", memory: 512Mi, ephemeral-storage: 1Gi}}
`), want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, build(t, `{"containers":[{"name":"a","image":"b"}]}`)); diff != "" {
		t.Errorf("Job (-want +got):\n%s", diff)
	}
}

// What it says is left as it is.
func TestBuildLeaves(t *testing.T) {
	spec := build(t, `{"automountServiceAccountToken":true,"securityContext":{"runAsNonRoot":false,"seccompProfile":{"type":"Unconfined"}},"containers":[
		{"name":"a","image":"b","securityContext":{"privileged":true,"readOnlyRootFilesystem":false,"capabilities":{}},
		 "resources":{"requests":{"cpu":"2","memory":"1Mi"},"limits":{"ephemeral-storage":"5Mi"}}}]}`).Spec.Template.Spec
	c := spec.Containers[0]
	if !*spec.AutomountServiceAccountToken || *spec.SecurityContext.RunAsNonRoot || spec.SecurityContext.RunAsUser != nil || spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeUnconfined {
		t.Errorf("pod %+v", spec.SecurityContext)
	}
	if !ptr.Deref(c.SecurityContext.Privileged, false) || c.SecurityContext.AllowPrivilegeEscalation != nil || *c.SecurityContext.ReadOnlyRootFilesystem || c.SecurityContext.Capabilities.Drop != nil {
		t.Errorf("container %+v", c.SecurityContext)
	}
	for name, want := range map[corev1.ResourceName][2]string{"cpu": {"2", "2"}, "memory": {"1Mi", "512Mi"}, "ephemeral-storage": {"5Mi", "5Mi"}} {
		request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
		if request.String() != want[0] || limit.String() != want[1] {
			t.Errorf("%s: %s of %s, want %v", name, request.String(), limit.String(), want)
		}
	}
}

func TestABrokenTemplateIsRefused(t *testing.T) {
	var refused *object.RefusedError
	if _, err := Build(anOrder(`{"containers":[]}`)); !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
}
