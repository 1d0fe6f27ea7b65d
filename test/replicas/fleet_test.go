package replicas

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/test/controlplane"
	"github.com/pawl-run/pawl/test/environment"
	"github.com/pawl-run/pawl/test/proxy"
)

// replica is one operator behind a network of its own to the API server.
type replica struct {
	name    string
	network *proxy.Proxy
	// api, where set, answers some requests in the API server's place.
	api     *proxy.API
	process *controlplane.Process
}

// close ends the replica's network.
func (r *replica) close() {
	if r.api != nil {
		r.api.Close()
	}
	_ = r.network.Close()
}

// is says whether a worker's identity is that of one of the replica's lives.
func (r *replica) is(identity string) bool { return strings.HasPrefix(identity, r.name+"-") }

// fleet is every operator of a spec.
type fleet struct {
	// behind is true for operators that each have a proxy.API before the API server.
	behind bool

	mu   sync.Mutex
	all  []*replica
	pids map[int]string
}

// terminate asks a process to end.
const terminate = syscall.SIGTERM

// names never repeat within the suite.
var names struct {
	sync.Mutex
	n int
}

func nextName() string {
	names.Lock()
	defer names.Unlock()
	names.n++
	return fmt.Sprintf("r%d", names.n)
}

// newFleet starts operators, which end with the spec.
func newFleet(ctx context.Context, size int) *fleet {
	GinkgoHelper()
	f := &fleet{pids: map[int]string{}}
	DeferCleanup(f.end)
	f.grow(ctx, size)
	return f
}

// newFleetBehind is newFleet of operators that each have a proxy.API before the API server.
func newFleetBehind(ctx context.Context, size int) *fleet {
	GinkgoHelper()
	f := &fleet{pids: map[int]string{}, behind: true}
	DeferCleanup(f.end)
	f.grow(ctx, size)
	return f
}

// grow adds operators and waits until they count.
func (f *fleet) grow(ctx context.Context, n int) {
	GinkgoHelper()
	var added []*replica
	for range n {
		added = append(added, f.add())
	}
	for _, r := range added {
		awaitLease(ctx, r, "")
	}
}

func (f *fleet) add() *replica {
	GinkgoHelper()
	address, err := url.Parse(env.Plane.Config().Host)
	Expect(err).NotTo(HaveOccurred())
	host := address.Host
	if host == "" {
		host = env.Plane.Config().Host
	}
	network, err := proxy.New(host)
	Expect(err).NotTo(HaveOccurred())
	r := &replica{name: nextName(), network: network}
	if f.behind {
		r.api, err = proxy.NewAPI(env.Config())
		Expect(err).NotTo(HaveOccurred())
	}
	f.mu.Lock()
	f.all = append(f.all, r)
	f.mu.Unlock()
	f.launch(r)
	return r
}

// launch starts a replica, again after its end.
func (f *fleet) launch(r *replica) {
	GinkgoHelper()
	var process *controlplane.Process
	var err error
	if r.api != nil {
		process, err = env.LaunchWith(r.api.Config(env.Config()), r.name)
	} else {
		process, err = env.LaunchVia(r.network.Address(), r.name)
	}
	Expect(err).NotTo(HaveOccurred())
	f.mu.Lock()
	defer f.mu.Unlock()
	r.process = process
	f.pids[process.PID()] = r.name
}

// kill ends replicas with SIGKILL, all at the same time.
func (f *fleet) kill(replicas ...*replica) {
	for _, r := range replicas {
		_ = r.process.Signal(os.Kill)
	}
	for _, r := range replicas {
		r.process.Kill()
	}
}

// remove forgets a replica that ended for good.
func (f *fleet) remove(r *replica) {
	f.mu.Lock()
	f.all = slices.DeleteFunc(f.all, func(other *replica) bool { return other == r })
	f.mu.Unlock()
	r.close()
}

func (f *fleet) replicas() []*replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// callerOf is the name of the replica whose socket has an address.
func (f *fleet) callerOf(address string) string {
	f.mu.Lock()
	pids := make([]int, 0, len(f.pids))
	for pid := range f.pids {
		pids = append(pids, pid)
	}
	f.mu.Unlock()
	pid := proxy.ProcessOf(address, pids)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pids[pid]
}

func (f *fleet) end() {
	failed := CurrentSpecReport().Failed()
	all := f.replicas()
	for _, r := range all {
		_ = r.process.Resume()
	}
	f.kill(all...)
	for _, r := range all {
		r.close()
		if failed {
			log, _ := os.ReadFile(env.Plane.LogFile(controlplane.Component(r.name)))
			AddReportEntry("the log of "+r.name, string(log[max(0, len(log)-4<<10):]), ReportEntryVisibilityFailureOrVerbose)
		}
	}
}

// holder is who holds a replica's lease, empty for nobody.
func holder(ctx context.Context, r *replica) string {
	found := &coordinationv1.Lease{}
	if err := env.Admin.Get(ctx, client.ObjectKey{Namespace: environment.Namespace, Name: "pawl-worker-" + r.name}, found); err != nil {
		return ""
	}
	return ptr.Deref(found.Spec.HolderIdentity, "")
}

func awaitLease(ctx context.Context, r *replica, old string) {
	GinkgoHelper()
	Eventually(ctx, func() string { return holder(ctx, r) }).Should(And(Not(BeEmpty()), Not(Equal(old))), "the lease of "+r.name)
}
