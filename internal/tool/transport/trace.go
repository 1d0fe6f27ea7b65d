package transport

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

// Trace gives the trace context of ctx as W3C names and values, nothing where there is no
// trace. Baggage stays here: it may hold anything, and a tool service is another's.
func Trace(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier
}
