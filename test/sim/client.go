package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// apiClient is a process's way to the API server. Models, policies and runs are read
// from its cache, everything else live.
type apiClient struct {
	client.Client
	p *process
}

// stopTime is longer than a lease.
const stopTime = lease + 10*time.Second

// call makes one call: it takes time both ways, and each way something may happen.
func (c *apiClient) call(site Site, at address, known []Fault, do func() error) error {
	p := c.p
	w, t := p.w, p.w.current
	do = w.check.as(p, t.began, do)
	if p.doomed {
		p.die("after an acknowledged call")
	}
	fault := w.faults.at(site, known)
	if fault == FaultNone {
		fault = w.server.answers(known)
	}
	if fault != FaultNone {
		p.troubled = w.elapsed
		w.note(p.id, "FAULT %q at %s of %s", fault, site, at.Name)
	}
	if fault == FaultCrashBefore {
		p.die("before " + string(site))
	}
	t.sleep(w.faults.latency(p))
	if gone := max(p.cutOff, w.server.away); gone > w.elapsed {
		t.sleep(w.between(time.Second, 5*time.Second))
		p.troubled = w.elapsed
		return errorOf(FaultTimeout, at)
	}
	var err error
	switch fault {
	case FaultConflict, FaultThrottled, FaultServer, FaultTimeout:
		err = errorOf(fault, at)
	case FaultTimeoutLate:
		w.after(w.between(time.Second, 20*time.Second), nil, func() { _ = do() })
		err = errorOf(fault, at)
	case FaultServerDone, FaultTimeoutDone:
		_ = do()
		err = errorOf(fault, at)
	default:
		err = do()
	}
	switch fault {
	case FaultCrashUnsure:
		p.die("unacknowledged " + string(site))
	case FaultCrashAfter:
		p.doomed = true
	case FaultTimeout, FaultTimeoutDone, FaultTimeoutLate:
		t.sleep(w.between(time.Second, 5*time.Second))
	case FaultStop:
		p.stop(stopTime + w.between(0, 20*time.Second))
	default:
	}
	t.sleep(w.faults.latency(p))
	if err == nil && at.kind == kindMap {
		w.check.acknowledged(p, runOf(at.Name))
	}
	return err
}

// runOf is the run that a segment's name names.
func runOf(segment string) types.UID {
	rest := strings.TrimPrefix(segment, "pawl-journal-")
	return types.UID(rest[:strings.LastIndex(rest, "-")])
}

// read gives the caller what the server has.
func (c *apiClient) read(site Site, key client.ObjectKey, object client.Object) error {
	at := address{kindOf(object), key}
	var found client.Object
	err := c.call(site, at, readFaults, func() (err error) {
		found, err = c.p.w.server.get(at)
		return err
	})
	if err == nil {
		give(object, found)
	}
	return err
}

// Get implements client.Reader.
func (c *apiClient) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch object.(type) {
	case *corev1.ConfigMap:
		return c.read(SiteJournalRead, key, object)
	case *coordinationv1.Lease:
		return c.read(SiteLeaseRead, key, object)
	default:
		at := address{kindOf(object), key}
		found, ok := c.p.view.objects[at]
		if !ok {
			return notFound(at)
		}
		if c.p.w.poisonous(found) {
			panic("a run that nobody has thought of")
		}
		give(object, found)
		return nil
	}
}

// List implements client.Reader.
func (c *apiClient) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *coordinationv1.LeaseList:
		at := address{kind: kindLease}
		return c.call(SiteLeaseList, at, readFaults, func() error {
			list.Items = nil
			for _, object := range c.p.w.server.list(kindLease) {
				list.Items = append(list.Items, *object.(*coordinationv1.Lease))
			}
			return nil
		})
	case *v1alpha1.AgentRunList:
		for _, object := range c.p.view.cached(kindRun) {
			list.Items = append(list.Items, *object.(*v1alpha1.AgentRun))
		}
		return nil
	default:
		panic(fmt.Sprintf("lists of %T are not simulated", list))
	}
}

// write sends a copy, since an executed write that the caller does not hear of must not
// change the caller's object.
func (c *apiClient) write(site Site, object client.Object, do func(client.Object) error) error {
	sent := clone(object)
	err := c.call(site, addressOf(object), writeFaults, func() error { return do(sent) })
	if err == nil {
		give(object, sent)
	}
	return err
}

// Create implements client.Writer.
func (c *apiClient) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	site := SiteJournalCreate
	if kindOf(object) == kindLease {
		site = SiteLeaseWrite
	}
	return c.write(site, object, func(sent client.Object) error { return c.p.w.server.create(c.p.id, sent) })
}

// Update implements client.Writer.
func (c *apiClient) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	site := SiteJournalUpdate
	if kindOf(object) == kindLease {
		site = SiteLeaseWrite
	}
	if segment, ok := object.(*corev1.ConfigMap); ok {
		stored, found := c.p.w.server.objects[addressOf(segment)]
		if found && len(stored.(*corev1.ConfigMap).Data) == len(segment.Data) {
			site = SiteRelease
		}
	}
	return c.write(site, object, func(sent client.Object) error { return c.p.w.server.update(c.p.id, sent) })
}

// Patch implements client.Writer.
func (c *apiClient) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	return c.write(SiteFinalizer, object, func(sent client.Object) error { return c.p.w.server.patch(c.p.id, sent, data) })
}

// Delete implements client.Writer.
func (c *apiClient) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	site := SiteRunDelete
	if kindOf(object) == kindLease {
		site = SiteLeaseDelete
	}
	applied := (&client.DeleteOptions{}).ApplyOptions(options)
	at := addressOf(object)
	return c.call(site, at, writeFaults, func() error { return c.p.w.server.delete(c.p.id, at, applied.Preconditions) })
}

// Status implements client.StatusClient.
func (c *apiClient) Status() client.SubResourceWriter { return statusClient{c: c} }

type statusClient struct {
	client.SubResourceWriter
	c *apiClient
}

// Update implements client.SubResourceWriter.
func (s statusClient) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.c.write(SiteStatus, object, func(sent client.Object) error {
		return s.c.p.w.server.updateStatus(s.c.p.id, sent.(*v1alpha1.AgentRun))
	})
}

// liveReader reads runs from the server itself.
type liveReader struct{ c *apiClient }

// Get implements client.Reader.
func (l liveReader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	return l.c.read(SiteRunRead, key, object)
}

// List implements client.Reader.
func (l liveReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	panic("nothing lists live")
}
