package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const installTimeout = 30 * time.Second

// Install applies kustomizations or files and returns when what they define is in force:
// custom resource definitions are established and, where the project's admission policies
// are among them, the API server enforces them, which it starts to do a second or two after
// they are stored.
func (a *Access) Install(ctx context.Context, paths ...string) error {
	for _, path := range paths {
		if err := a.Apply(ctx, path); err != nil {
			return fmt.Errorf("installing %s: %w", path, err)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	crds, err := a.Kubectl(ctx, "get", "crd", "--output=name")
	if err != nil {
		return err
	}
	if strings.TrimSpace(crds) != "" {
		if _, err := a.Kubectl(ctx, "wait", "crd", "--all", "--for=condition=Established", "--timeout="+installTimeout.String()); err != nil {
			return err
		}
	}
	policies, err := a.Kubectl(ctx, "get", "validatingadmissionpolicies,mutatingadmissionpolicies", "--output=name")
	if err != nil {
		return err
	}
	if !strings.Contains(policies, "pawl.run") {
		return nil
	}
	return a.waitForAdmission(ctx)
}

// waitForAdmission tries, without storing anything, what each kind of policy has to prevent
// or to add. All policies take effect together, at the API server's next look for changes.
func (a *Access) waitForAdmission(ctx context.Context) error {
	api, err := client.New(a.admin, client.Options{})
	if err != nil {
		return fmt.Errorf("waiting for the admission policies: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, installTimeout, true, func(ctx context.Context) (bool, error) {
		last = probeAdmission(ctx, api)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the admission policies: %w: %w", err, last)
	}
	return nil
}

func probeAdmission(ctx context.Context, api client.Client) error {
	journal := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: "pawl-journal-probe"}}
	if err := api.Create(ctx, journal, client.DryRunAll); !apierrors.IsForbidden(err) {
		return fmt.Errorf("the name of a journal is not refused: %w", err)
	}
	run := probeRun()
	run.SetAnnotations(map[string]string{"pawl.run/approve-by": "somebody"})
	if err := api.Create(ctx, run, client.DryRunAll); !apierrors.IsForbidden(err) {
		return fmt.Errorf("a forged stamp is not refused: %w", err)
	}
	run = probeRun()
	if err := api.Create(ctx, run, client.DryRunAll); err != nil {
		return fmt.Errorf("creating a run: %w", err)
	}
	if run.GetAnnotations()["pawl.run/created-by"] == "" {
		return errors.New("a run is not stamped with its creator")
	}
	return nil
}

func probeRun() *unstructured.Unstructured {
	run := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"modelRef": map[string]any{"name": "probe"}, "prompt": "probe"},
	}}
	run.SetAPIVersion("pawl.run/v1alpha1")
	run.SetKind("AgentRun")
	run.SetNamespace(corev1.NamespaceDefault)
	run.SetName("probe")
	return run
}
