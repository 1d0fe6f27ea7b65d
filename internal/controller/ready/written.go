package ready

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// conflictDelay is how long to wait for the cache to show what another replica wrote.
const conflictDelay = 500 * time.Millisecond

// Written says what follows a write of status. Every replica reports on every object,
// so that a conflict is usual: somebody else has just said the same.
func Written(err error) (reconcile.Result, error) {
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	default:
		return reconcile.Result{}, fmt.Errorf("writing status: %w", err)
	}
}
