package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// large takes three objects, and begins characters where they are cut.
var large = strings.Repeat("ö", journal.ArtifactPieceBytes/2-1) + "x" + strings.Repeat("äx", journal.ArtifactPieceBytes/2)

func (c *cluster) pieces() []corev1.ConfigMap {
	c.t.Helper()
	var list corev1.ConfigMapList
	if err := c.client.List(context.Background(), &list); err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

func TestArtifactsAreKeptAndFetched(t *testing.T) {
	ctx, c := context.Background(), newCluster(t)
	artifact := journal.NewArtifact(large)
	for _, process := range []string{"a", "b"} { // the second one finds what the first one left
		if err := c.store(process).Keep(ctx, c.run, artifact, large); err != nil {
			t.Fatal(err)
		}
	}
	pieces := c.pieces()
	if len(pieces) != 3 || artifact.Pieces != 3 {
		t.Fatalf("%d objects for %d pieces", len(pieces), artifact.Pieces)
	}
	for _, piece := range pieces {
		owner := piece.OwnerReferences[0]
		if !ptr.Deref(piece.Immutable, false) || piece.Labels[v1alpha1.LabelRunUID] != uid || string(owner.UID) != uid || !ptr.Deref(owner.Controller, false) {
			t.Errorf("object %+v", piece.ObjectMeta)
		}
		if !strings.HasPrefix(piece.Name, "pawl-artifact-"+uid+"-") || len(piece.Data["content"]) > journal.ArtifactPieceBytes {
			t.Errorf("%s holds %d bytes", piece.Name, len(piece.Data["content"]))
		}
	}
	content, problem, err := c.store("c").Fetch(ctx, c.run, artifact)
	if err != nil || problem != "" || content != large {
		t.Errorf("%d bytes, %q, %v", len(content), problem, err)
	}
}

// Whatever becomes of a create, the artifact is whole or the caller knows that it isn't.
func TestKeepingWithoutAClearAnswer(t *testing.T) {
	lost := errors.New("connection lost")
	for name, tc := range map[string]struct {
		create func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error
		kept   bool
	}{
		"the answer is lost": {func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := api.Create(ctx, object, options...); err != nil {
				return err
			}
			return lost
		}, true},
		"the request is lost": {func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return lost }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.on = interceptor.Funcs{Create: tc.create}
			err := c.store("a").Keep(context.Background(), c.run, journal.NewArtifact(large), large)
			if (err == nil) != tc.kept {
				t.Fatalf("error %v", err)
			}
			if n := len(c.pieces()); tc.kept && n != 3 || !tc.kept && n != 0 {
				t.Errorf("%d objects", n)
			}
		})
	}
}

func TestRefusedArtifacts(t *testing.T) {
	c := newCluster(t)
	c.on.Create = func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
		return apierrors.NewForbidden(corev1.Resource("configmaps"), object.GetName(), errors.New("exceeded quota"))
	}
	var refused *RefusedError
	if err := c.store("a").Keep(context.Background(), c.run, journal.NewArtifact("x"), "x"); !errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
}

func TestForeignArtifacts(t *testing.T) {
	for name, change := range map[string]func(*corev1.ConfigMap){
		"other content":     func(o *corev1.ConfigMap) { o.Data["content"] = "y" },
		"more content":      func(o *corev1.ConfigMap) { o.Data["more"] = "y" },
		"bytes beside":      func(o *corev1.ConfigMap) { o.BinaryData = map[string][]byte{"b": {1}} },
		"of another run":    func(o *corev1.ConfigMap) { o.Labels[v1alpha1.LabelRunUID] = "other" },
		"open to be edited": func(o *corev1.ConfigMap) { o.Immutable = nil },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, c := context.Background(), newCluster(t)
			artifact := journal.NewArtifact("x")
			if err := c.store("a").Keep(ctx, c.run, artifact, "x"); err != nil {
				t.Fatal(err)
			}
			object := c.pieces()[0]
			if err := c.client.Delete(ctx, object.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			object.ResourceVersion = ""
			change(&object)
			if err := c.client.Create(ctx, &object); err != nil {
				t.Fatal(err)
			}
			var corrupt *CorruptError
			if err := c.store("b").Keep(ctx, c.run, artifact, "x"); !errors.As(err, &corrupt) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestFetchingChecksTheDigest(t *testing.T) {
	ctx, c := context.Background(), newCluster(t)
	artifact := journal.NewArtifact(large)
	if err := c.store("a").Keep(ctx, c.run, artifact, large); err != nil {
		t.Fatal(err)
	}
	last := c.pieces()[2]
	if err := c.client.Delete(ctx, last.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if content, problem, err := c.store("b").Fetch(ctx, c.run, artifact); err != nil || content != "" || !strings.Contains(problem, "gone") {
		t.Errorf("%d bytes, %q, %v", len(content), problem, err)
	}
	last.ResourceVersion, last.Data["content"] = "", strings.ToUpper(last.Data["content"])
	if err := c.client.Create(ctx, &last); err != nil {
		t.Fatal(err)
	}
	if content, problem, err := c.store("b").Fetch(ctx, c.run, artifact); err != nil || content != "" || !strings.Contains(problem, "not what was stored") {
		t.Errorf("%d bytes, %q, %v", len(content), problem, err)
	}
	c.on.Get = func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("connection lost")
	}
	if _, problem, err := c.store("c").Fetch(ctx, c.run, artifact); err == nil || problem != "" {
		t.Errorf("%q, %v", problem, err)
	}
}
