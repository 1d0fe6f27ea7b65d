package store

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/journal"
)

// contentKey is the only key of an artifact's objects.
const contentKey = "content"

// ArtifactName is the name of the n-th object that holds an artifact of a run, counted
// from 1. It follows from the content, so that whoever stores the same again finds it there,
// and nobody finds anything else.
func ArtifactName(uid, digest string, n int) string {
	digest = strings.TrimPrefix(digest, "sha256:")
	return fmt.Sprintf("pawl-artifact-%s-%s-%04d", uid, digest[:min(len(digest), 16)], n)
}

// Keep stores an artifact whole, before the event that names it: what a crash in between
// leaves behind is what the next attempt would write, or goes with its run.
func (s *Store) Keep(ctx context.Context, run *v1alpha1.AgentRun, artifact journal.Artifact, content string) error {
	for i, piece := range journal.ArtifactPieces(content) {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       run.Namespace,
				Name:            ArtifactName(string(run.UID), artifact.Digest, i+1),
				Labels:          Labels(run.Name, string(run.UID)),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(run, v1alpha1.GroupVersion.WithKind("AgentRun"))},
			},
			Data:      map[string]string{contentKey: piece},
			Immutable: ptr.To(true),
		}
		if err := s.keepPiece(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// keepPiece creates one object. Whatever the answer was, it is stored where the API server
// has it exactly so.
func (s *Store) keepPiece(ctx context.Context, object *corev1.ConfigMap) error {
	wanted := object.DeepCopy()
	err := s.client.Create(ctx, object)
	switch {
	case err == nil, canary.Is(canary.ExistsIsSuccess) && apierrors.IsAlreadyExists(err):
		return nil
	case refused(err):
		return &RefusedError{Segment: wanted.Name, Err: err}
	}
	live := &corev1.ConfigMap{}
	if readErr := s.client.Get(ctx, client.ObjectKeyFromObject(wanted), live); readErr != nil {
		return fmt.Errorf("storing artifact %s: %w", wanted.Name, err)
	}
	if !ptr.Deref(live.Immutable, false) || live.Labels[v1alpha1.LabelRunUID] != wanted.Labels[v1alpha1.LabelRunUID] ||
		!maps.Equal(live.Data, wanted.Data) || len(live.BinaryData) > 0 {
		return &CorruptError{Place: wanted.Name, Problem: "something else stands where a result is to be stored"}
	}
	return nil
}

// Fetch reads an artifact. The problem says in plain words why there is none any more; an
// error means that it is not known whether there is.
func (s *Store) Fetch(ctx context.Context, run *v1alpha1.AgentRun, artifact journal.Artifact) (content, problem string, err error) {
	var text strings.Builder
	for n := 1; n <= int(artifact.Pieces); n++ {
		object := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: run.Namespace, Name: ArtifactName(string(run.UID), artifact.Digest, n)}
		err := s.client.Get(ctx, key, object)
		if apierrors.IsNotFound(err) {
			return "", "the rest of the result is gone: go on without it, or make the call again if that is safe", nil
		}
		if err != nil {
			return "", "", fmt.Errorf("reading artifact %s: %w", key.Name, err)
		}
		text.WriteString(object.Data[contentKey])
	}
	if !artifact.Holds(text.String()) {
		return "", "the rest of the result is not what was stored: go on without it, or make the call again if that is safe", nil
	}
	return text.String(), "", nil
}
