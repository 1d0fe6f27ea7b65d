package replicas

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/controlplane"
	"github.com/pawl-run/pawl/test/proxy"
	"github.com/pawl-run/pawl/test/runs"
)

// restarted are components that envtest did not start.
var restarted []*controlplane.Process

// restartComponent kills a component of the control plane and starts it again as it was.
func restartComponent(component controlplane.Component) {
	GinkgoHelper()
	pid, err := env.Plane.PID(component)
	Expect(err).NotTo(HaveOccurred())
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	Expect(err).NotTo(HaveOccurred())
	arguments := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")
	Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
	Eventually(func() error { return syscall.Kill(pid, 0) }).Should(MatchError(syscall.ESRCH), "%s is gone", component)
	// Its port can be somebody's for a moment.
	for range 20 {
		process, err := env.Plane.StartProcess(string(component)+"-again", exec.Command(arguments[0], arguments[1:]...))
		Expect(err).NotTo(HaveOccurred())
		select {
		case <-process.Exited():
			time.Sleep(250 * time.Millisecond)
		case <-time.After(3 * time.Second):
			restarted = append(restarted, process)
			Expect(env.Plane.Replace(component, process)).To(Succeed())
			return
		}
	}
	Fail(string(component) + " does not start again")
}

func apiServerAnswers(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := env.Plane.Kubectl(ctx, "get", "--raw", "/readyz")
		return err
	}).Should(Succeed())
}

var _ = Describe("An API server that is away for longer than a lease", func() {
	const away = lease + 2*time.Second
	It("makes nobody steal a run or repeat a call", func(ctx SpecContext) {
		w := newWorld(ctx, "away", script("steady", steadyTurns(8, 3*time.Second)...))
		f := newFleet(ctx, 3)
		w.start(ctx, "steady", 60)
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(Equal(60))
		type fault struct {
			what string
			do   func()
		}
		faults := []fault{
			{"every connection is cut", func() {
				for _, r := range f.replicas() {
					r.network.Cut()
				}
				pause(ctx, away)
				for _, r := range f.replicas() {
					r.network.Restore()
				}
			}},
			{"it is suspended", func() {
				pid, err := env.Plane.PID(controlplane.APIServer)
				Expect(err).NotTo(HaveOccurred())
				Expect(syscall.Kill(pid, syscall.SIGSTOP)).To(Succeed())
				pause(ctx, away)
				Expect(syscall.Kill(pid, syscall.SIGCONT)).To(Succeed())
			}},
			{"etcd is killed and starts again", func() { restartComponent(controlplane.Etcd) }},
			{"it is killed and starts again", func() { restartComponent(controlplane.APIServer) }},
		}
		if long {
			faults = append(faults, fault{"nothing comes through", func() {
				for _, r := range f.replicas() {
					r.network.Hold()
				}
				pause(ctx, away)
				for _, r := range f.replicas() {
					r.network.Restore()
				}
			}})
		}
		for _, fault := range faults {
			By(fault.what)
			fault.do()
			apiServerAnswers(ctx)
			pause(ctx, 2*time.Second)
			GinkgoWriter.Println(fault.what, w.reasons(ctx))
		}
		w.awaitAll(ctx, 2*time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		t.expectSound(fmt.Sprintf("%d outages", len(faults)))
		Expect(t.takeovers).To(BeEmpty())
		Expect(t.unknown).To(BeZero())
	}, NodeTimeout(5*time.Minute))
})

var _ = Describe("A partition", func() {
	It("between one replica and the API server costs it its runs and repeats nothing, though it reaches the tools", func(ctx SpecContext) {
		w := newWorld(ctx, "partition", script("steady", steadyTurns(7, 1500*time.Millisecond)...))
		f := newFleet(ctx, 3)
		alone := f.replicas()[0]
		w.start(ctx, "steady", 60)
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(Equal(60))
		theirs := 0
		for _, owner := range owners(w.histories(ctx)) {
			if alone.is(owner) {
				theirs++
			}
		}
		cut := time.Now()
		alone.network.Cut()
		pause(ctx, bound+time.Second)
		for name, owner := range owners(w.histories(ctx)) {
			Expect(alone.is(owner)).To(BeFalse(), "%s is still with %s", name, owner)
		}
		restored := time.Now()
		alone.network.Restore()
		w.awaitAll(ctx, 2*time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		var spent time.Duration
		sender := w.senders(ctx)
		for _, entry := range env.Tools.Requests("effect.apply") {
			if entry.Time.Before(restored) && alone.is(sender(entry)) {
				spent = max(spent, entry.Time.Sub(cut))
			}
		}
		t.expectSound(fmt.Sprintf("cut off with %d runs; its last call left %s after the cut", theirs, spent.Round(10*time.Millisecond)))
		for from := range t.takeovers {
			Expect(alone.is(from)).To(BeTrue(), "taken from %s", from)
		}
		Expect(theirs).To(BeNumerically(">", 0))
		Expect(spent).To(BeNumerically("<=", lease))
	}, NodeTimeout(5*time.Minute))

	It("between one replica and the tools loses nothing, though it reaches the API server", func(ctx SpecContext) {
		reach, err := proxy.New(tools.Listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(reach.Close()).To(Succeed()) })
		w := newWorldAt(ctx, "http://"+reach.Address(), "unreachable", script("steady", steadyTurns(6, time.Second)...))
		f := newFleet(ctx, 3)
		alone := f.replicas()[0]
		w.start(ctx, "steady", 60)
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(Equal(60))
		reach.Refuse(func(client net.Conn) bool { return f.callerOf(client.RemoteAddr().String()) == alone.name })
		pause(ctx, 5*time.Second)
		reach.Refuse(nil)
		w.awaitAll(ctx, 2*time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		t.expectSound("cut off from the tools")
		Expect(t.takeovers).To(BeEmpty(), "it lives")
		rejected := 0
		for _, h := range w.histories(ctx) {
			for _, completed := range runs.Events[journal.CallCompleted](h.records) {
				if completed.Final && completed.Effect == journal.EffectRejected {
					rejected++
				}
			}
		}
		AddReportEntry(fmt.Sprintf("%d calls did not come about, and their models were told", rejected), ReportEntryVisibilityAlways)
		Expect(rejected).To(BeNumerically(">", 0))
	}, NodeTimeout(5*time.Minute))
})

var _ = Describe("A rolling replacement of three replicas", func() {
	It("fails none of 100 active runs and repeats no call", func(ctx SpecContext) {
		w := newWorld(ctx, "rolling", script("mixed", mixedTurns(5)...))
		f := newFleet(ctx, 3)
		w.start(ctx, "mixed", 100)
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(Equal(100))
		var took []time.Duration
		for _, old := range f.replicas() {
			f.grow(ctx, 1)
			asked := time.Now()
			Expect(old.process.Signal(syscall.SIGTERM)).To(Succeed())
			Eventually(ctx, old.process.Exited()).WithTimeout(45 * time.Second).Should(BeClosed())
			Expect(old.process.Err()).NotTo(HaveOccurred())
			took = append(took, time.Since(asked))
			f.remove(old)
		}
		left := w.moving(ctx)
		w.awaitAll(ctx, 2*time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		t.expectSound(fmt.Sprintf("replaced, each in %s, while %d runs were still active at the end", spread(took), left))
		Expect(left).To(BeNumerically(">", 0), "runs were active all the time")
		Expect(t.takeovers).To(BeEmpty(), "every run was let go")
		Expect(t.unknown).To(BeZero())
		sent, proposed := 0, 0
		for class, calls := range t.calls {
			sent, proposed = sent+t.requests[class], proposed+calls
		}
		// A call is not run where its replica could not renew its lease in time.
		Expect(sent).To(Equal(proposed-t.notRun), "every call was sent once")
	}, NodeTimeout(5*time.Minute))
})
