package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconcileWorkers is how many runs a replica reconciles at once.
const reconcileWorkers = 2

// Back-off of a request whose reconcile failed, as the controller has it.
const (
	minRetry = 5 * time.Millisecond
	maxRetry = time.Minute
)

// queue is a replica's work queue: a request waits in it at most once, and never runs
// twice at the same time.
type queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]

	p        *process
	waiting  []reconcile.Request
	running  []reconcile.Request
	again    []reconcile.Request
	failures map[reconcile.Request]int
	// reconciles counts how often each request was served.
	reconciles map[reconcile.Request]int
	// due is when a delayed request is next added: the earliest time wins.
	due map[reconcile.Request]time.Duration
}

func newQueue(p *process) *queue {
	return &queue{p: p, failures: map[reconcile.Request]int{}, reconciles: map[reconcile.Request]int{}, due: map[reconcile.Request]time.Duration{}}
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(request reconcile.Request) {
	switch {
	case q.p.dead:
	case slices.Contains(q.running, request):
		if !slices.Contains(q.again, request) {
			q.again = append(q.again, request)
		}
	case !slices.Contains(q.waiting, request):
		q.waiting = append(q.waiting, request)
		q.p.w.after(q.p.w.between(0, 2*time.Millisecond), q.p, q.serve)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(request reconcile.Request, d time.Duration) {
	at := q.p.w.elapsed + d
	if due, waits := q.due[request]; waits && due <= at {
		return
	}
	q.due[request] = at
	q.p.w.after(d, q.p, func() {
		if due, waits := q.due[request]; waits && due == at {
			delete(q.due, request)
			q.Add(request)
		}
	})
}

// serve gives the next request to a free worker.
func (q *queue) serve() {
	if len(q.waiting) == 0 || len(q.running) >= reconcileWorkers {
		return
	}
	request := q.waiting[0]
	q.waiting = q.waiting[1:]
	q.running = append(q.running, request)
	q.reconciles[request]++
	q.p.w.spawn(0, q.p, "reconcile "+request.Name, func(*task) {
		result, err := q.reconcile(request)
		q.finish(request, result, err)
	})
}

// reconcile makes an error of a panic, as controller-runtime does.
func (q *queue) reconcile(request reconcile.Request) (result reconcile.Result, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			if _, unwound := problem.(died); unwound {
				panic(problem)
			}
			q.p.w.counts.Panics++
			result, err = reconcile.Result{}, fmt.Errorf("panic: %v", problem)
		}
	}()
	return q.p.reconciler.Reconcile(context.Background(), request)
}

// AddWithOpts implements priorityqueue.PriorityQueue: what has a priority goes first.
func (q *queue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	for _, request := range requests {
		waits := slices.Contains(q.waiting, request)
		q.Add(request)
		if i := slices.Index(q.waiting, request); i > 0 && !waits && ptr.Deref(o.Priority, 0) > 0 {
			q.waiting = slices.Insert(slices.Delete(q.waiting, i, i+1), 0, request)
		}
	}
}

func (q *queue) finish(request reconcile.Request, result reconcile.Result, err error) {
	q.running = slices.DeleteFunc(q.running, func(r reconcile.Request) bool { return r == request })
	again := slices.Contains(q.again, request)
	q.again = slices.DeleteFunc(q.again, func(r reconcile.Request) bool { return r == request })
	switch {
	case err != nil:
		n := q.failures[request]
		q.failures[request]++
		q.p.w.note(q.p.id, "reconcile %s: %v", request.Name, err)
		q.AddAfter(request, min(minRetry<<min(n, 20), maxRetry))
	case result.RequeueAfter > 0:
		delete(q.failures, request)
		q.AddAfter(request, result.RequeueAfter)
	default:
		delete(q.failures, request)
	}
	if again {
		q.Add(request)
	}
	q.serve()
}

// backsOff says whether a request waits to be tried again after it failed.
func (q *queue) backsOff(request reconcile.Request) bool {
	_, waits := q.due[request]
	return waits && q.failures[request] > 0
}
