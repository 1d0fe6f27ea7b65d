// Package callee writes the objects that calls are: Jobs and child runs.
package callee

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool/object"
)

// maxReasonBytes bounds what is quoted of the API server's reason to refuse an object.
const maxReasonBytes = 300

// Found is what a name turned out to stand for.
type Found struct {
	// There is true where it stands for something, and Ours where that is the call's own.
	There, Ours bool
}

// Create creates an object, or finds that very object. The error is an *object.RefusedError
// where the API server has refused it for good. Look says what its name stands for, read live.
func Create(ctx context.Context, writer client.Writer, wanted client.Object, noun string, look func() (Found, error)) error {
	err := writer.Create(ctx, wanted)
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		found, err := look()
		switch {
		case err != nil || found.Ours:
			return err
		case found.There:
			return &object.RefusedError{Text: "another " + noun + " has its name"}
		default:
			return fmt.Errorf("the %s was there and is gone", noun)
		}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsRequestEntityTooLargeError(err):
		return &object.RefusedError{Text: strictjson.Preview([]byte(err.Error()), maxReasonBytes)}
	default:
		return fmt.Errorf("creating the %s: %w", noun, err)
	}
}

// Read reads an object live into the one given, and says whether it is there.
func Read(ctx context.Context, live client.Reader, key client.ObjectKey, into client.Object, noun string) (bool, error) {
	err := live.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the %s: %w", noun, err)
	}
	return true, nil
}

// LetGo takes a finalizer off the object that is held, unless that was done or it is gone.
// Fresh, of the same kind, is what it is read into.
func LetGo(ctx context.Context, live client.Reader, writer client.Writer, held, fresh client.Object, finalizer, noun string) error {
	if err := live.Get(ctx, client.ObjectKeyFromObject(held), fresh); err != nil {
		return client.IgnoreNotFound(err)
	}
	if fresh.GetUID() != held.GetUID() || !controllerutil.ContainsFinalizer(fresh, finalizer) {
		return nil
	}
	before, ok := fresh.DeepCopyObject().(client.Object)
	if !ok {
		return errors.New("the copy of an object is none")
	}
	// The lock keeps what others have put into the list meanwhile.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	controllerutil.RemoveFinalizer(fresh, finalizer)
	if err := client.IgnoreNotFound(writer.Patch(ctx, fresh, patch)); err != nil {
		return fmt.Errorf("releasing the %s: %w", noun, err)
	}
	return nil
}
