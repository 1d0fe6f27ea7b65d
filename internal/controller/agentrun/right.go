package agentrun

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// sendWindow is how long the acknowledgement of a dispatch gives the right to send a
// call that may have an effect. A worker that was frozen longer must not send: others may
// have taken its run for abandoned, and a person may have settled that nothing happened.
const sendWindow = 5 * time.Second

var errWindow = errors.New("the right to send has lapsed")

// rightToSend is asked immediately before the first byte of a call leaves.
func (r *Reconciler) rightToSend(acknowledged time.Duration, effect string) func() error {
	harmless := effect == journal.ReadOnly || canary.Is(canary.GateIgnored)
	return func() error {
		if !harmless && (r.boot()-acknowledged > sendWindow || !r.members.Fresh(r.clock.Now())) {
			return errWindow
		}
		return nil
	}
}

// askGate keeps a worker that was frozen, and whose run may be somebody else's by now,
// from asking the model: nothing would be done twice by that, but paid twice.
type askGate struct {
	worker *Reconciler
	// began and booted are the same moment, on a clock that stands still while the machine
	// is suspended and on one that does not.
	began   time.Time
	booted  time.Duration
	refused atomic.Bool
}

func (r *Reconciler) rightToAsk() *askGate {
	return &askGate{worker: r, began: r.clock.Now(), booted: r.boot()}
}

// guard makes every request under ctx ask the gate once it has its connection. There is no
// other way to refuse there than to close the connection, on which nothing was written yet.
func (g *askGate) guard(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(transport.WithGate(ctx, g.mayAsk), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if g.mayAsk() != nil {
				_ = info.Conn.Close()
			}
		},
	})
}

func (g *askGate) mayAsk() error {
	r := g.worker
	suspended := r.boot() - g.booted - r.clock.Since(g.began)
	if canary.Is(canary.StaleAsk) || r.members.Fresh(r.clock.Now()) && suspended < r.members.Lease()/3 {
		return nil
	}
	g.refused.Store(true)
	return errWindow
}

// lapsed replaces what became of a request that the gate refused.
func (g *askGate) lapsed(failure *model.Error) *model.Error {
	if failure == nil || !g.refused.Load() {
		return failure
	}
	return &model.Error{Class: model.ClassTransient, Code: "not_sent", Detail: "this worker was away for too long to ask"}
}
