package replicas

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/test/environment"
	"github.com/pawl-run/pawl/test/runs"
)

// cutCounter breaks every call of counter.next once it is done, so that nobody knows.
func cutCounter() {
	tools.use(func(tool string, _ *http.Request) (bool, func() bool) {
		if tool != "counter.next" {
			return true, nil
		}
		return true, func() bool { return false }
	})
	DeferCleanup(func() { tools.use(nil) })
}

// awaitGone waits until a run is gone.
func (w *world) awaitGone(ctx context.Context, limit time.Duration, name string) {
	GinkgoHelper()
	Eventually(ctx, func() bool {
		err := env.Admin.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, &v1alpha1.AgentRun{})
		return apierrors.IsNotFound(err)
	}).WithTimeout(limit).WithPolling(100*time.Millisecond).Should(BeTrue(), "%s is gone", name)
}

func (w *world) segments(ctx context.Context) []corev1.ConfigMap {
	GinkgoHelper()
	var list corev1.ConfigMapList
	Expect(env.Admin.List(ctx, &list, client.InNamespace(w.Namespace), client.HasLabels{v1alpha1.LabelRunUID})).To(Succeed())
	return list.Items
}

// abandoned says what an event tells of a run that was let go with something unknown.
func (w *world) abandoned(ctx context.Context, name string) string {
	GinkgoHelper()
	text, err := env.Plane.Kubectl(ctx, "get", "events", "--namespace", w.Namespace,
		"--field-selector=reason=EffectsAbandoned,involvedObject.name="+name, "--output=jsonpath={.items[*].message}")
	Expect(err).NotTo(HaveOccurred())
	return text
}

var _ = Describe("A run that is deleted", func() {
	It("settles what it did, or lets go, in the background, in the foreground and with its namespace", func(ctx SpecContext) {
		cutCounter()
		newFleet(ctx, 2)
		policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}
		var worlds []*world
		var flights []*v1alpha1.AgentRun
		for range policies {
			w := newWorld(ctx, "deletion",
				script("flight", turn{calls: []call{{"effect.apply", map[string]any{"seconds": 3}}}}),
				script("endless", turn{calls: []call{{"effect.later", map[string]any{"seconds": 50}}}}),
				script("unknown", turn{calls: []call{{"counter.next", map[string]any{}}}}),
			)
			w.start(ctx, "unknown", 2)
			worlds = append(worlds, w)
		}
		for _, w := range worlds {
			for _, name := range []string{"unknown-000", "unknown-001"} {
				w.Await(ctx, name, v1alpha1.ReasonOutcomeUnknown)
			}
		}
		doomed := newWorld(ctx, "doomed",
			script("endless", turn{calls: []call{{"effect.apply", map[string]any{"seconds": 50}}}}),
			script("unknown", turn{calls: []call{{"counter.next", map[string]any{}}}}),
			script("gated", turn{calls: []call{{"effect.apply", map[string]any{"ask": true}}}}),
		)
		for _, model := range []string{"endless", "unknown", "gated"} {
			doomed.start(ctx, model, 5)
		}
		Eventually(ctx, func() map[string]int { return doomed.reasons(ctx) }).Should(Equal(map[string]int{"Running": 5, "OutcomeUnknown": 5, "ApprovalRequired": 5}))
		Eventually(ctx, func() int { return len(newestIn(doomed)) }).Should(Equal(10))
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomed.Namespace}}
		Expect(env.Admin.Delete(ctx, namespace)).To(Succeed())
		began := time.Now()
		for _, w := range worlds {
			w.start(ctx, "flight", 1)
			w.start(ctx, "endless", 1)
			flights = append(flights, w.Get(ctx, "flight-000"))
		}
		for i, w := range worlds {
			Eventually(ctx, func() int { return len(newestIn(w)) }).WithPolling(50 * time.Millisecond).Should(Equal(4))
			for _, run := range w.list(ctx) {
				Expect(run.Finalizers).To(ContainElement(v1alpha1.FinalizerEffects), run.Name)
				Expect(env.Admin.Delete(ctx, &run, client.PropagationPolicy(policies[i]))).To(Succeed())
			}
		}
		deleted := time.Now()

		By("letting the one go that a person settles")
		pause(ctx, 500*time.Millisecond)
		for _, w := range worlds {
			run := w.Get(ctx, "unknown-000")
			w.Annotate(ctx, run.Name, map[string]string{v1alpha1.AnnotationSettle: fmt.Sprintf(`{%q:"committed"}`, run.Status.UnknownEffects[0].EffectKey)})
			w.awaitGone(ctx, 4*time.Second, run.Name)
		}
		settled := time.Since(deleted)
		Expect(settled).To(BeNumerically("<", deletionGrace), "before the grace ends")

		By("letting the one go whose call came back")
		for i, w := range worlds {
			w.awaitGone(ctx, 15*time.Second, "flight-000")
			for _, entry := range env.Tools.Requests("effect.apply") {
				if entry.RunUID == string(flights[i].UID) {
					Expect(entry.Disconnected).To(BeFalse(), "its reply was read")
					Expect(entry.Done).NotTo(BeNil())
				}
			}
		}
		replied := time.Since(deleted)

		By("letting the one go that nobody settles")
		for _, w := range worlds {
			w.awaitGone(ctx, 20*time.Second, "unknown-001")
		}
		unsettled := time.Since(deleted)
		Expect(unsettled).To(BeNumerically(">=", deletionGrace-time.Second))

		By("letting the one go whose call does not come back")
		for _, w := range worlds {
			w.awaitGone(ctx, 30*time.Second, "endless-000")
		}
		round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
		AddReportEntry(fmt.Sprintf("gone after the deletion: settled %s, reply read %s, nobody settled %s, no reply %s",
			round(settled), round(replied), round(unsettled), round(time.Since(deleted))), ReportEntryVisibilityAlways)
		for _, w := range worlds {
			for _, name := range []string{"unknown-001", "endless-000"} {
				Eventually(ctx, func() string { return w.abandoned(ctx, name) }).Should(ContainSubstring("nobody settled 1 unknown outcomes"))
			}
			for _, name := range []string{"unknown-000", "flight-000"} {
				Expect(w.abandoned(ctx, name)).To(BeEmpty())
			}
			Eventually(ctx, func() int { return len(w.segments(ctx)) }).Should(BeZero(), "journals are collected")
			Expect(newestIn(w)).To(HaveLen(4))
			for _, entry := range env.Tools.Ledger() {
				if strings.HasPrefix(entry.Run, w.Namespace+"/") {
					Expect(entry.Attempt).To(BeEquivalentTo(1))
				}
			}
		}

		By("letting the namespace go")
		Eventually(ctx, func() bool {
			return apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace))
		}).WithTimeout(90*time.Second).Should(BeTrue(), "the namespace is gone")
		AddReportEntry(fmt.Sprintf("the namespace was gone by %s", round(time.Since(began))), ReportEntryVisibilityAlways)
		Expect(newestIn(doomed)).To(HaveLen(10), "nothing was sent meanwhile")
	})
})

var _ = Describe("A finalizer that is taken off by hand", func() {
	It("lets the run go with its journal, which nothing holds any more", func(ctx SpecContext) {
		cutCounter()
		f := newFleet(ctx, 2)
		w := newWorld(ctx, "stripped",
			script("unknown", turn{calls: []call{{"counter.next", map[string]any{}}}}),
			script("endless", turn{calls: []call{{"effect.later", map[string]any{"seconds": 50}}}}))
		w.start(ctx, "unknown", 2)
		w.start(ctx, "endless", 2)
		for _, name := range []string{"unknown-000", "unknown-001"} {
			w.Await(ctx, name, v1alpha1.ReasonOutcomeUnknown)
		}
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(Equal(4))
		Expect(w.segments(ctx)).NotTo(BeEmpty())
		held := 0
		for _, segment := range w.segments(ctx) {
			held += len(segment.Finalizers)
		}
		Expect(held).To(BeNumerically(">=", 4), "each journal is held")
		began := time.Now()
		for _, run := range w.list(ctx) {
			Expect(env.Admin.Delete(ctx, &run)).To(Succeed())
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			Expect(client.IgnoreNotFound(env.Admin.Patch(ctx, &run, patch))).To(Succeed())
			w.awaitGone(ctx, 5*time.Second, run.Name)
		}
		Eventually(ctx, func() int { return len(w.segments(ctx)) }).WithTimeout(30*time.Second).Should(BeZero(), "journals are collected")
		AddReportEntry(fmt.Sprintf("the journals were gone %s after the finalizers", time.Since(began).Round(10*time.Millisecond)), ReportEntryVisibilityAlways)
		for _, entry := range ledgerOf(w) {
			Expect(strings.Count(strings.Join(ledgerOf(w), " "), entry)).To(Equal(1))
		}
		Expect(f.replicas()).To(HaveLen(2))
	})
})

// asOperator is a client with the operators' name, for what admission lets nobody else do.
func asOperator() client.Client {
	GinkgoHelper()
	c, err := client.New(env.Plane.ImpersonatingConfig("system:serviceaccount:"+environment.Namespace+":"+environment.Account,
		"system:serviceaccounts", "system:serviceaccounts:"+environment.Namespace), client.Options{})
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("A journal", func() {
	DescribeTable("that was deleted ends its run as CheckpointFailed, and never starts it anew", func(ctx SpecContext, away bool) {
		w := newWorld(ctx, "lost", script("work",
			turn{calls: []call{{"effect.apply", map[string]any{"n": 1}}}},
			turn{calls: []call{{"effect.apply", map[string]any{"n": 2, "ask": true}}}}))
		f := newFleet(ctx, 2)
		w.start(ctx, "work", 1)
		run := w.Await(ctx, "work-000", v1alpha1.ReasonApprovalRequired)
		if away {
			f.kill(f.replicas()...)
		}
		for _, segment := range w.segments(ctx) {
			Expect(env.Admin.Delete(ctx, &segment)).To(Succeed())
		}
		if away {
			for _, r := range f.replicas() {
				f.launch(r)
			}
		}
		w.Annotate(ctx, run.Name, map[string]string{v1alpha1.AnnotationApprove: run.Status.Pending.Digest})
		run = w.Await(ctx, run.Name, v1alpha1.ReasonCheckpointFailed)
		Expect(runs.Succeeded(run).Message).To(ContainSubstring(store.SegmentName(string(run.UID), 1)), "the place is named")
		pause(ctx, 2*time.Second)
		Expect(w.segments(ctx)).To(BeEmpty(), "no journal was begun")
		Expect(appliedOf(run)).To(Equal(1), "nothing was done again")
	},
		Entry("while the operators were there", false),
		Entry("while the operators were away", true),
	)

	It("is not adopted from somebody else's ConfigMap under its reserved name", func(ctx SpecContext) {
		w := newWorld(ctx, "foreign",
			script("first", turn{calls: []call{{"effect.apply", map[string]any{"n": 1}}}}),
			script("later", append([]turn{{calls: []call{{"effect.apply", map[string]any{"ask": true}}}}}, steadyTurns(8, 100*time.Millisecond)...)...))
		plant := func(run *v1alpha1.AgentRun, n int32) *corev1.ConfigMap {
			planted := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: store.SegmentName(string(run.UID), n)},
				Data:       map[string]string{"e000001": `{"v":1}`},
			}
			Expect(apierrors.IsForbidden(env.Admin.Create(ctx, planted.DeepCopy()))).To(BeTrue(), "admission reserves the name, for system:masters too")
			Expect(asOperator().Create(ctx, planted)).To(Succeed())
			return planted
		}
		// The first segment is there before any operator, a later one before the run gets so far.
		w.start(ctx, "first", 1)
		w.start(ctx, "later", 1)
		early := plant(w.Get(ctx, "first-000"), 1)
		newFleet(ctx, 2)
		waiting := w.Await(ctx, "later-000", v1alpha1.ReasonApprovalRequired)
		late := plant(waiting, 3)
		w.Annotate(ctx, waiting.Name, map[string]string{v1alpha1.AnnotationApprove: waiting.Status.Pending.Digest})
		for name, planted := range map[string]*corev1.ConfigMap{"first-000": early, "later-000": late} {
			run := w.Await(ctx, name, v1alpha1.ReasonCheckpointFailed)
			Expect(runs.Succeeded(run).Message).To(ContainSubstring(planted.Name), "the place is named")
			live := &corev1.ConfigMap{}
			Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(planted), live)).To(Succeed())
			Expect(live.ResourceVersion).To(Equal(planted.ResourceVersion), "it was not touched")
		}
		Expect(appliedOf(w.Get(ctx, "first-000"))).To(BeZero())
		before := appliedOf(w.Get(ctx, "later-000"))
		pause(ctx, 2*time.Second)
		Expect(appliedOf(w.Get(ctx, "later-000"))).To(Equal(before), "nothing is sent after the end")
	})
})

// appliedOf counts the effects that a run had.
func appliedOf(run *v1alpha1.AgentRun) int {
	n := 0
	for _, entry := range env.Tools.Ledger() {
		if entry.RunUID == string(run.UID) && entry.Applied {
			n++
		}
	}
	return n
}
