package replicas

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/environment"
	"github.com/pawl-run/pawl/test/proxy"
	"github.com/pawl-run/pawl/test/runs"
)

// steadyTurns are calls that may be sent once and take their time.
func steadyTurns(n int, each time.Duration) []turn {
	var turns []turn
	for i := range n {
		turns = append(turns, turn{calls: []call{{"effect.apply", map[string]any{"n": i, "seconds": each.Seconds()}}}})
	}
	return turns
}

// written is one write of the API server's audit log.
type written struct {
	Verb                     string
	User                     struct{ Username string }
	ObjectRef                struct{ Resource, Subresource, Namespace, Name string }
	RequestReceivedTimestamp time.Time
}

// writes counts the operators' writes between two moments, by namespace.
func writes(from, to time.Time) map[string]int {
	GinkgoHelper()
	data, err := os.ReadFile(audit)
	Expect(err).NotTo(HaveOccurred())
	counts := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var w written
		Expect(json.Unmarshal(lines.Bytes(), &w)).To(Succeed())
		if at := w.RequestReceivedTimestamp; at.Before(from) || !at.Before(to) {
			continue
		}
		if w.User.Username == "system:serviceaccount:"+environment.Namespace+":"+environment.Account {
			counts[w.ObjectRef.Namespace]++
		}
	}
	return counts
}

var _ = Describe("A minute in which one of three replicas is suspended", Ordered, func() {
	const size = 100
	minute := pick(time.Minute, 5*time.Minute)
	var (
		f                 *fleet
		waiting, active   *world
		from, to          time.Time
		suspended         *replica
		before, during    map[string]string
		requestsOfWaiting int
	)
	BeforeAll(func(ctx SpecContext) {
		turns := int(minute/(9*time.Second)) + 1
		waiting = newWorld(ctx, "waiting", script("gated", turn{calls: []call{{"effect.apply", map[string]any{"ask": true}}}}))
		active = newWorld(ctx, "active", script("steady", steadyTurns(turns, 9*time.Second)...))
		f = newFleet(ctx, 3)
		waiting.start(ctx, "gated", size)
		waiting.awaitAll(ctx, time.Minute, v1alpha1.ReasonApprovalRequired)
		active.start(ctx, "steady", size)
		Eventually(ctx, func() int { return len(newestIn(active)) }).Should(Equal(size))

		before = owners(active.histories(ctx))
		suspended = f.replicas()[0]
		Expect(suspended.process.Pause()).To(Succeed())
		from = time.Now()
		pause(ctx, minute)
		to = time.Now()
		during = owners(active.histories(ctx))
		requestsOfWaiting = len(newestIn(waiting))
		Expect(suspended.process.Resume()).To(Succeed())
		active.awaitAll(ctx, 2*time.Minute, v1alpha1.ReasonCompleted)
	}, NodeTimeout(10*time.Minute))

	It("takes the suspended one's runs, no others, and repeats nothing when it wakes up", func(ctx SpecContext) {
		t := active.check(ctx)
		theirs := 0
		for _, owner := range before {
			if suspended.is(owner) {
				theirs++
			}
		}
		t.expectSound(fmt.Sprintf("%d of %d active runs were the suspended replica's", theirs, size))
		Expect(theirs).To(BeNumerically(">", 0))
		for name, owner := range during {
			// One that has ended by now has no owner.
			if owner != "" && before[name] != owner {
				Expect(suspended.is(before[name])).To(BeTrue(), "%s went from %s to %s", name, before[name], owner)
			}
			Expect(suspended.is(owner)).To(BeFalse(), "%s is still with %s", name, owner)
		}
		for from := range t.takeovers {
			Expect(suspended.is(from)).To(BeTrue(), "taken from %s", from)
		}
		Expect(t.takeoverCount()).To(Equal(theirs))
	})

	It("costs 100 runs that wait for approval no write", func() {
		counts := writes(from, to)
		AddReportEntry(fmt.Sprintf("operators' writes in %s: %d for %d runs that wait, %d for worker leases, %d for the runs that work",
			to.Sub(from).Round(time.Second), counts[waiting.Namespace], size, counts[environment.Namespace], counts[active.Namespace]), ReportEntryVisibilityAlways)
		Expect(counts[waiting.Namespace]).To(BeZero())
		Expect(counts[environment.Namespace]).To(BeNumerically(">", 0), "the audit log shows the operators")
		Expect(counts[active.Namespace]).To(BeNumerically(">", 0), "the audit log shows runs")
		Expect(requestsOfWaiting).To(BeZero())
	})
})

// newestIn lists when the tool server was last asked for each run of a world, by name.
func newestIn(w *world) map[string]time.Time {
	found := map[string]time.Time{}
	for _, entry := range env.Tools.Ledger() {
		if name, ours := strings.CutPrefix(entry.Run, w.Namespace+"/"); ours {
			found[name] = entry.Time
		}
	}
	return found
}

var _ = Describe("Replicas that are suspended past their lease again and again", func() {
	It("repeat nothing among 100 active runs", func(ctx SpecContext) {
		random := seed()
		w := newWorld(ctx, "stutter", script("quick", steadyTurns(12, 300*time.Millisecond)...))
		f := newFleet(ctx, 3)
		w.start(ctx, "quick", 100)
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(BeNumerically(">", 30))
		settler := newSettler(w)
		pauses := 0
		for range pick(3, 40) {
			if w.moving(ctx) == 0 {
				break
			}
			victim := f.replicas()[random.IntN(3)]
			Expect(victim.process.Pause()).To(Succeed())
			pauses++
			pause(ctx, between(random, lease+500*time.Millisecond, lease+3*time.Second))
			Expect(victim.process.Resume()).To(Succeed())
			settler.settle(ctx)
			pause(ctx, between(random, 0, time.Second))
		}
		w.awaitAll(ctx, 2*time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		t.expectSound(fmt.Sprintf("%d suspensions past the lease", pauses))
		Expect(t.takeoverCount()).To(BeNumerically(">", 0))
	}, NodeTimeout(10*time.Minute))
})

// vault is a tool behind TLS, so that a connection can be late.
const vault = `
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: vault}
spec:
  servers:
  - name: effect
    http: {url: VAULT/effect, caBundleConfigMapRef: {name: ca, key: ca.crt}, tools: [{name: apply, inputSchema: {type: object, additionalProperties: true}}]}
  tools: [{match: ["*"], effect: NonIdempotent, timeoutSeconds: 60, reconcile: {http: {url: TOOLS/effects}}}]
  rules: [{name: everything, match: ["*"], action: Allow}]
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: run}
spec: {modelRef: {name: once}, toolPolicyRefs: [{name: vault}], prompt: Do it once.}
`

var _ = Describe("The send window", func() {
	DescribeTable("lapses before a late connection carries a call that may be sent once", func(ctx SpecContext, replicas int, suspend bool) {
		if replicas == 1 && suspend && !long {
			Skip("PAWL_LONG is not set; the entry with two replicas shows more")
		}
		server := httptest.NewTLSServer(env.Tools)
		DeferCleanup(server.Close)
		late, err := proxy.New(server.Listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(late.Close()).To(Succeed()) })
		late.Hold()

		w := newWorld(ctx, "window", script("once", turn{calls: []call{{"effect.apply", map[string]any{}}}}))
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		w.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Data: map[string]string{"ca.crt": string(authority)}})
		f := newFleet(ctx, replicas)
		w.Apply(ctx, vault, "VAULT", "https://"+late.Address(), "TOOLS", tools.URL)
		Eventually(ctx, func() int {
			records, _ := w.Journal(ctx, w.Get(ctx, "run"))
			return len(runs.Events[journal.CallDispatched](records))
		}).WithPolling(50 * time.Millisecond).Should(Equal(1))
		if suspend {
			for _, r := range f.replicas() {
				if owner := owners(w.histories(ctx))["run"]; r.is(owner) {
					Expect(r.process.Pause()).To(Succeed())
					DeferCleanup(r.process.Resume)
				}
			}
		}
		pause(ctx, 6*time.Second)
		late.Restore()
		for _, r := range f.replicas() {
			Expect(r.process.Resume()).To(Succeed())
		}
		run := w.AwaitWithin(ctx, 30*time.Second, "run", v1alpha1.ReasonCompleted)
		_, state := w.Journal(ctx, run)
		last := state.Transcript[0].Calls[0].Last
		AddReportEntry(fmt.Sprintf("outcome %s, effect %s: %s", last.Class, last.Effect, last.Message), ReportEntryVisibilityAlways)
		Expect(last.Effect).To(Equal(journal.EffectRejected))
		if !suspend {
			Expect(last.Class).To(Equal("not_run"))
		}
		Expect(newestIn(w)).To(BeEmpty(), "nothing was sent")
		w.check(ctx).expectSound("the send window")
	},
		Entry("of an owner that still has the run", 1, false),
		Entry("of an owner that was suspended meanwhile", 1, true),
		Entry("of an owner that was suspended and lost the run", 2, true),
	)
})
