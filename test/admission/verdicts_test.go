package admission

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pawlv1alpha1 "github.com/pawl-run/pawl/api/v1alpha1"
)

const (
	approve    = pawlv1alpha1.AnnotationApprove
	approveBy  = pawlv1alpha1.AnnotationApproveBy
	deny       = pawlv1alpha1.AnnotationDeny
	denyBy     = pawlv1alpha1.AnnotationDenyBy
	denyReason = pawlv1alpha1.AnnotationDenyReason
	answer     = pawlv1alpha1.AnnotationAnswer
	answerBy   = pawlv1alpha1.AnnotationAnswerBy
	settle     = pawlv1alpha1.AnnotationSettle
	settleBy   = pawlv1alpha1.AnnotationSettleBy
	complete   = pawlv1alpha1.AnnotationComplete
	completeBy = pawlv1alpha1.AnnotationCompleteBy
	createdBy  = pawlv1alpha1.AnnotationCreatedBy
)

const runManifest = `
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata:
  name: applied
  namespace: %s
  annotations: {%s}
spec:
  modelRef: {name: any}
  prompt: Do nothing.
`

func mergePatch(patch map[string]any) client.Patch {
	GinkgoHelper()
	return client.RawPatch(types.MergePatchType, must(json.Marshal(patch)))
}

var _ = Describe("Verdicts", func() {
	var (
		space namespace
		run   *pawlv1alpha1.AgentRun
	)

	BeforeEach(func(ctx SpecContext) {
		space = newNamespace(ctx)
		run = space.createRun(ctx)
	})

	DescribeTable("without the verb, every way to set one is refused",
		func(ctx SpecContext, annotation, verb string) {
			editor := space.user(ctx, "editor", "pawl-editor")
			refused := beRefusedWith(`needs the verb "` + verb + `"`)

			By("creation")
			Expect(editor.Create(ctx, space.run(map[string]string{annotation: "x"}))).To(refused)
			By("a merge patch")
			Expect(annotate(ctx, editor, run, map[string]any{annotation: "x"})).To(refused)
			By("an update")
			changed := run.DeepCopy()
			changed.Annotations[annotation] = "x"
			Expect(editor.Update(ctx, changed)).To(refused)
			By("kubectl annotate")
			_, err := plane.KubectlAs(ctx, space.kubeconfig("editor"), "annotate", "--namespace", space.name, "arun", run.Name, annotation+"=x")
			Expect(err).To(MatchError(ContainSubstring(`needs the verb "` + verb + `"`)))
			By("server-side apply")
			_, err = plane.KubectlAs(ctx, space.kubeconfig("editor"), "apply", "--server-side", "--filename",
				manifest(runManifest, space.name, annotation+": x"))
			Expect(err).To(MatchError(ContainSubstring(`needs the verb "` + verb + `"`)))

			Expect(annotationsOf(ctx, run)).NotTo(HaveKey(annotation))
		},
		Entry("approve", approve, "approve"),
		Entry("deny", deny, "approve"),
		Entry("deny-reason", denyReason, "approve"),
		Entry("answer", answer, "answer"),
		Entry("settle", settle, "settle"),
		Entry("complete", complete, "complete"),
	)

	DescribeTable("one verb does not give another",
		func(ctx SpecContext, verb string, allowed []string, refused []string) {
			user := space.user(ctx, "someone", space.role(ctx, verb, "get", "patch", verb))
			for _, annotation := range refused {
				Expect(annotate(ctx, user, run, map[string]any{annotation: "x"})).To(beRefusedWith("needs the verb"), annotation)
			}
			for _, annotation := range allowed {
				Expect(annotate(ctx, user, run, map[string]any{annotation: "x"})).To(Succeed(), annotation)
			}
		},
		Entry("approve", "approve", []string{approve, deny, denyReason}, []string{answer, settle, complete}),
		Entry("answer", "answer", []string{answer}, []string{approve, deny, denyReason, settle, complete}),
		Entry("settle", "settle", []string{settle}, []string{approve, deny, denyReason, answer, complete}),
		Entry("complete", "complete", []string{complete}, []string{approve, deny, denyReason, answer, settle}),
	)

	DescribeTable("with the verb, it is stamped with the requester's name",
		func(ctx SpecContext, annotation, stamp string) {
			approver := space.user(ctx, "approver", "pawl-approver")
			name := space.userName("approver")

			By("setting it, over a forged name")
			Expect(annotate(ctx, approver, run, map[string]any{annotation: "x", stamp: "somebody else"})).To(Succeed())
			Expect(annotationsOf(ctx, run)).To(And(HaveKeyWithValue(annotation, "x"), HaveKeyWithValue(stamp, name)))

			By("forging the name alone afterwards")
			Expect(annotate(ctx, approver, run, map[string]any{stamp: "somebody else"})).To(beRefusedWith("say who gave a verdict"))

			By("taking it back")
			Expect(annotate(ctx, approver, run, map[string]any{annotation: nil})).To(Succeed())
			Expect(annotationsOf(ctx, run)).NotTo(Or(HaveKey(annotation), HaveKey(stamp)))
		},
		Entry("approve", approve, approveBy),
		Entry("deny", deny, denyBy),
		Entry("answer", answer, answerBy),
		Entry("settle", settle, settleBy),
		Entry("complete", complete, completeBy),
	)

	DescribeTable("a name that comes without a verdict is refused, from whomever",
		func(ctx SpecContext, stamp string) {
			editor, approver := space.user(ctx, "editor", "pawl-editor"), space.user(ctx, "approver", "pawl-approver")
			for _, user := range []client.Client{editor, approver, admin} {
				Expect(annotate(ctx, user, run, map[string]any{stamp: "somebody"})).To(beRefusedWith("say who gave a verdict"))
			}
			Expect(editor.Create(ctx, space.run(map[string]string{stamp: "somebody"}))).To(beRefusedWith("say who gave a verdict"))
		},
		Entry(nil, approveBy), Entry(nil, denyBy), Entry(nil, answerBy), Entry(nil, settleBy), Entry(nil, completeBy),
	)

	It("stamps each verdict by itself, so that a second person relabels nothing", func(ctx SpecContext) {
		first, second := space.user(ctx, "first", "pawl-approver"), space.user(ctx, "second", "pawl-approver")
		Expect(annotate(ctx, first, run, map[string]any{approve: "x"})).To(Succeed())
		Expect(annotate(ctx, second, run, map[string]any{deny: "x", denyReason: "too much"})).To(Succeed())
		Expect(annotate(ctx, second, run, map[string]any{approve: "x"})).To(Succeed(), "the same value again changes nothing")
		Expect(annotationsOf(ctx, run)).To(And(
			HaveKeyWithValue(approveBy, space.userName("first")),
			HaveKeyWithValue(denyBy, space.userName("second"))))

		By("changing the value, which is a verdict of the second person's own")
		Expect(annotate(ctx, second, run, map[string]any{approve: "y"})).To(Succeed())
		Expect(annotationsOf(ctx, run)).To(HaveKeyWithValue(approveBy, space.userName("second")))
	})

	It("can't be altered or taken back without the verb", func(ctx SpecContext) {
		editor, approver := space.user(ctx, "editor", "pawl-editor"), space.user(ctx, "approver", "pawl-approver")
		Expect(annotate(ctx, approver, run, map[string]any{approve: "x"})).To(Succeed())
		before := annotationsOf(ctx, run)

		Expect(annotate(ctx, editor, run, map[string]any{approve: "y"})).To(beRefusedWith("needs the verb"))
		Expect(annotate(ctx, editor, run, map[string]any{approve: nil})).To(beRefusedWith("needs the verb"))
		Expect(annotate(ctx, editor, run, map[string]any{approve: nil, approveBy: nil})).To(beRefusedWith("needs the verb"))
		Expect(annotate(ctx, editor, run, map[string]any{approveBy: "y"})).To(beRefusedWith("say who gave a verdict"))
		Expect(annotate(ctx, editor, run, map[string]any{approveBy: nil})).To(Succeed(), "a stamp that is left out is put back")
		Expect(annotationsOf(ctx, run)).To(Equal(before))
	})

	It("leaves everything else to those who may write runs", func(ctx SpecContext) {
		editor, approver := space.user(ctx, "editor", "pawl-editor"), space.user(ctx, "approver", "pawl-approver")
		Expect(annotate(ctx, editor, run, map[string]any{"example.com/free": "x", "pawl.run/unrelated": "y"})).To(Succeed())
		Expect(annotate(ctx, approver, run, map[string]any{approve: "x"})).To(Succeed())
		Expect(annotate(ctx, editor, run, map[string]any{"example.com/free": "z"})).To(Succeed())
		Expect(editor.Patch(ctx, run.DeepCopy(), mergePatch(map[string]any{"spec": map[string]any{"state": "Suspended"}}))).To(Succeed())
		Expect(annotationsOf(ctx, run)).To(And(
			HaveKeyWithValue("example.com/free", "z"),
			HaveKeyWithValue(approveBy, space.userName("approver"))))
	})

	It("survives server-side apply of the same manifest twice", func(ctx SpecContext) {
		space.user(ctx, "approver", "pawl-approver", "pawl-editor")
		file := manifest(runManifest, space.name, `pawl.run/approve: x, pawl.run/approve-by: forged`)
		plain := manifest(runManifest, space.name, `pawl.run/approve: x`)
		applied := &pawlv1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Namespace: space.name, Name: "applied"}}
		for _, path := range []string{file, plain, plain} {
			must(plane.KubectlAs(ctx, space.kubeconfig("approver"), "apply", "--server-side", "--filename", path))
			Expect(annotationsOf(ctx, applied)).To(And(
				HaveKeyWithValue(approveBy, space.userName("approver")),
				HaveKeyWithValue(createdBy, space.userName("approver"))))
		}
	})

	It("takes kubectl annotate from an approver", func(ctx SpecContext) {
		space.user(ctx, "approver", "pawl-approver")
		must(plane.KubectlAs(ctx, space.kubeconfig("approver"), "annotate", "--namespace", space.name, "arun", run.Name, approve+"=x"))
		Expect(annotationsOf(ctx, run)).To(HaveKeyWithValue(approveBy, space.userName("approver")))
	})

	It("can't be carried in by the status", func(ctx SpecContext) {
		Expect(operator.Status().Patch(ctx, run.DeepCopy(), mergePatch(map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{approve: "x", approveBy: "somebody"}},
			"status":   map[string]any{"turns": 1},
		}))).To(Succeed())
		Expect(annotationsOf(ctx, run)).NotTo(Or(HaveKey(approve), HaveKey(approveBy)))
	})

	Context("from service accounts", func() {
		var pipeline client.Client

		BeforeEach(func(ctx SpecContext) {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space.name, Name: "pipeline"}}
			Expect(admin.Create(ctx, account)).To(Succeed())
			space.bind(ctx, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: space.name, Name: "pipeline"}, "cluster-admin")
			pipeline = clientFor(must(plane.ServiceAccountConfig(ctx, space.name, "pipeline")))
		})

		It("are refused even with every right", func(ctx SpecContext) {
			Expect(annotate(ctx, pipeline, run, map[string]any{approve: "x"})).To(beRefusedWith("verdict-service-accounts"))
			Expect(pipeline.Create(ctx, space.run(map[string]string{answer: "x"}))).To(beRefusedWith("verdict-service-accounts"))
			Expect(pipeline.Create(ctx, space.run(nil))).To(Succeed())
		})

		It("are taken where the namespace lists the account", func(ctx SpecContext) {
			Expect(admin.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space.name}}, mergePatch(map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{
					"pawl.run/verdict-service-accounts": "elsewhere:pipeline, " + space.name + ":pipeline",
				}},
			}))).To(Succeed())
			Eventually(func(ctx context.Context) error {
				return annotate(ctx, pipeline, run, map[string]any{approve: "x"})
			}).WithContext(ctx).WithTimeout(10 * second).Should(Succeed())
			Expect(annotationsOf(ctx, run)).To(HaveKeyWithValue(approveBy, "system:serviceaccount:"+space.name+":pipeline"))
		})
	})

	It("never come from the operator", func(ctx SpecContext) {
		for _, annotation := range []string{approve, deny, denyReason, answer, settle} {
			Expect(annotate(ctx, operator, run, map[string]any{annotation: "x"})).To(beRefusedWith("needs the verb"), annotation)
		}
		Expect(operator.Patch(ctx, run.DeepCopy(), mergePatch(map[string]any{
			"metadata": map[string]any{"finalizers": []string{"pawl.run/journal"}},
		}))).To(Succeed(), "its own business goes on")
		Expect(operator.Patch(ctx, run.DeepCopy(), mergePatch(map[string]any{
			"metadata": map[string]any{"finalizers": nil},
		}))).To(Succeed())
	})
})

var _ = Describe("The creator's name", func() {
	It("is stamped at creation and never changes", func(ctx SpecContext) {
		space := newNamespace(ctx)
		editor := space.user(ctx, "editor", "pawl-editor")
		other := space.user(ctx, "other", "pawl-editor")
		run := space.run(map[string]string{createdBy: "somebody else"})
		Expect(editor.Create(ctx, run)).To(Succeed())
		Expect(run.Annotations).To(HaveKeyWithValue(createdBy, space.userName("editor")))

		for _, user := range []client.Client{editor, other, admin} {
			Expect(annotate(ctx, user, run, map[string]any{createdBy: "somebody"})).To(beRefusedWith("never changes"))
		}
		By("leaving it out, as a replace does")
		Expect(annotate(ctx, other, run, map[string]any{createdBy: nil})).To(Succeed())
		Expect(other.Patch(ctx, run.DeepCopy(), mergePatch(map[string]any{"metadata": map[string]any{"annotations": nil}}))).To(Succeed())
		Expect(annotationsOf(ctx, run)).To(Equal(map[string]string{createdBy: space.userName("editor")}))
	})
})

var _ = Describe("The status of a run", func() {
	It("is written by the operator alone", func(ctx SpecContext) {
		space := newNamespace(ctx)
		run := space.createRun(ctx)
		everything := space.user(ctx, "everything", "cluster-admin")
		patch := mergePatch(map[string]any{"status": map[string]any{"turns": 7}})
		for _, user := range []client.Client{everything, admin} {
			Expect(user.Status().Patch(ctx, run.DeepCopy(), patch)).To(beRefusedWith("written by the operator alone"))
		}
		Expect(operator.Status().Patch(ctx, run.DeepCopy(), patch)).To(Succeed())
	})
})

var _ = Describe("Whose child a run is", func() {
	child := func(space namespace, change func(*pawlv1alpha1.AgentRun)) *pawlv1alpha1.AgentRun {
		run := space.run(map[string]string{
			pawlv1alpha1.AnnotationDepth: "2", pawlv1alpha1.AnnotationParent: "a", pawlv1alpha1.AnnotationRoot: "a", createdBy: "ann",
			pawlv1alpha1.AnnotationEffectKey: "pawl-0123",
		})
		run.Labels = map[string]string{pawlv1alpha1.LabelParentUID: "u", pawlv1alpha1.LabelRootUID: "u"}
		change(run)
		return run
	}
	whole := func(*pawlv1alpha1.AgentRun) {}

	It("is written by the operator alone, with the creator of the run at the top", func(ctx SpecContext) {
		space := newNamespace(ctx)
		run := child(space, whole)
		Expect(operator.Create(ctx, run)).To(Succeed())
		Expect(annotationsOf(ctx, run)).To(HaveKeyWithValue(createdBy, "ann"))
		By("where nobody knows who created that")
		run = child(space, func(r *pawlv1alpha1.AgentRun) { delete(r.Annotations, createdBy) })
		Expect(operator.Create(ctx, run)).To(Succeed())
		Expect(annotationsOf(ctx, run)).NotTo(HaveKey(createdBy))

		everything := space.user(ctx, "everything", "cluster-admin")
		for _, user := range []client.Client{everything, admin} {
			Expect(user.Create(ctx, child(space, whole))).To(beRefusedWith("only the operator writes them"))
			for name := range run.Annotations {
				Expect(annotate(ctx, user, run, map[string]any{name: "1"})).To(beRefusedWith("never changes"))
				Expect(annotate(ctx, user, run, map[string]any{name: nil})).To(beRefusedWith("never changes"))
			}
			for name := range run.Labels {
				Expect(user.Patch(ctx, run.DeepCopy(), mergePatch(map[string]any{"metadata": map[string]any{"labels": map[string]any{name: "v"}}}))).To(beRefusedWith("never changes"))
			}
		}
		Expect(annotate(ctx, operator, run, map[string]any{pawlv1alpha1.AnnotationDepth: "1"})).To(beRefusedWith("never changes"))
		Expect(annotate(ctx, everything, run, map[string]any{"other": "x"})).To(Succeed())
	})

	DescribeTable("can't be claimed in part", func(ctx SpecContext, change func(*pawlv1alpha1.AgentRun)) {
		space := newNamespace(ctx)
		run := child(space, whole)
		run.Annotations, run.Labels = map[string]string{}, map[string]string{}
		change(run)
		Expect(space.user(ctx, "editor", "pawl-editor").Create(ctx, run)).To(beRefusedWith("only the operator writes them"))
	},
		Entry("effect key", func(r *pawlv1alpha1.AgentRun) { r.Annotations[pawlv1alpha1.AnnotationEffectKey] = "pawl-0123" }),
		Entry("depth", func(r *pawlv1alpha1.AgentRun) { r.Annotations[pawlv1alpha1.AnnotationDepth] = "1" }),
		Entry("parent", func(r *pawlv1alpha1.AgentRun) { r.Annotations[pawlv1alpha1.AnnotationParent] = "a" }),
		Entry("root", func(r *pawlv1alpha1.AgentRun) { r.Annotations[pawlv1alpha1.AnnotationRoot] = "a" }),
		Entry("the parent's UID", func(r *pawlv1alpha1.AgentRun) { r.Labels[pawlv1alpha1.LabelParentUID] = "u" }),
		Entry("the root's UID", func(r *pawlv1alpha1.AgentRun) { r.Labels[pawlv1alpha1.LabelRootUID] = "u" }),
	)

	It("is said of every run that the operator creates", func(ctx SpecContext) {
		space := newNamespace(ctx)
		refused := beRefusedWith("creates child runs and no others")
		Expect(operator.Create(ctx, space.run(nil))).To(refused)
		Expect(operator.Create(ctx, child(space, func(r *pawlv1alpha1.AgentRun) { r.Labels = nil }))).To(refused)
	})
})
