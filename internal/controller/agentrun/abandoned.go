package agentrun

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// abandonedEffects counts deleted runs that were let go although nobody knew what became of
// some of their effects.
var abandonedEffects = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "pawl_effects_abandoned_total",
	Help: "Deleted runs that were let go although nobody knew what became of some of their effects.",
})

func init() { metrics.Registry.MustRegister(abandonedEffects) }

// tellAbandoned says that a deleted run is let go although something about it is unknown. A
// namespace on its way out takes no event, and takes those that it has with it: the log and a
// metric say it too.
func (r *Reconciler) tellAbandoned(ctx context.Context, object *v1alpha1.AgentRun, why string, args ...any) {
	keys := make([]string, 0, len(object.Status.UnknownEffects))
	for _, unknown := range object.Status.UnknownEffects {
		keys = append(keys, unknown.EffectKey)
	}
	note := fmt.Sprintf(why, args...)
	abandonedEffects.Inc()
	ctrl.LoggerFrom(ctx).Info("A deleted run is let go with effects that nobody settled", "namespace", object.Namespace, "name", object.Name, "uid", object.UID, "effectKeys", keys, "why", note)
	r.recorder.Eventf(object, nil, eventWarning, "EffectsAbandoned", "Delete", "%s", note)
}
