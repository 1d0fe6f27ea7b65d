package admission

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	pawlv1alpha1 "github.com/pawl-run/pawl/api/v1alpha1"
)

const (
	second = time.Second
	// patience is for controllers that work in the background.
	patience = 20 * second
)

func journalOf(run *pawlv1alpha1.AgentRun, number int) *corev1.ConfigMap {
	GinkgoHelper()
	journal := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: run.Namespace,
			Name:      fmt.Sprintf("pawl-journal-%s-%04d", run.UID, number),
			Labels:    map[string]string{pawlv1alpha1.LabelRunUID: string(run.UID)},
		},
		Data: map[string]string{"e000001": "{}"},
	}
	Expect(controllerutil.SetControllerReference(run, journal, scheme)).To(Succeed())
	return journal
}

func gone(ctx context.Context, object client.Object) func() bool {
	return func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(object), object))
	}
}

var _ = Describe("Journals", func() {
	var (
		space   namespace
		run     *pawlv1alpha1.AgentRun
		journal *corev1.ConfigMap
		// everything may do anything, short of being in system:masters.
		everything client.Client
	)

	BeforeEach(func(ctx SpecContext) {
		space = newNamespace(ctx)
		run = space.createRun(ctx)
		journal = journalOf(run, 1)
		Expect(operator.Create(ctx, journal)).To(Succeed())
		everything = space.clusterUser(ctx, "everything", "cluster-admin")
	})

	It("are created by the operator alone", func(ctx SpecContext) {
		for _, user := range []client.Client{everything, admin} {
			Expect(user.Create(ctx, journalOf(run, 2))).To(beRefusedWith("reserved"))
			generated := journalOf(run, 2)
			generated.Name, generated.GenerateName = "", "pawl-journal-"
			Expect(user.Create(ctx, generated)).To(beRefusedWith("reserved"))
		}
		Expect(operator.Create(ctx, journalOf(run, 2))).To(Succeed())
	})

	It("grow by the operator alone", func(ctx SpecContext) {
		patch := mergePatch(map[string]any{"data": map[string]any{"e000002": "{}"}})
		for _, user := range []client.Client{everything, admin} {
			Expect(user.Patch(ctx, journal.DeepCopy(), patch)).To(beRefusedWith("written by the operator alone"))
		}
		journal.Data["e000002"] = "{}"
		journal.BinaryData = map[string][]byte{"reply": []byte("bytes")}
		Expect(operator.Update(ctx, journal)).To(Succeed())
	})

	DescribeTable("keep what they hold, from the operator too",
		func(ctx SpecContext, patch map[string]any) {
			journal.BinaryData = map[string][]byte{"reply": []byte("bytes")}
			Expect(operator.Update(ctx, journal)).To(Succeed())
			changed := journal.DeepCopy()
			if data, ok := patch["data"].(map[string]string); ok {
				changed.Data = data
			}
			if data, ok := patch["binaryData"].(map[string][]byte); ok {
				changed.BinaryData = data
			}
			Expect(operator.Update(ctx, changed)).To(beRefusedWith("never changes"))
		},
		Entry("an event is altered", map[string]any{"data": map[string]string{"e000001": "{ }"}}),
		Entry("an event is removed", map[string]any{"data": map[string]string{"e000002": "{}"}}),
		Entry("all events are removed", map[string]any{"data": map[string]string(nil)}),
		Entry("bytes are altered", map[string]any{"binaryData": map[string][]byte{"reply": []byte("other")}}),
		Entry("bytes are removed", map[string]any{"binaryData": map[string][]byte(nil)}),
	)

	It("are not to be relabelled or sealed by others", func(ctx SpecContext) {
		for _, patch := range []map[string]any{
			{"metadata": map[string]any{"labels": map[string]any{"x": "y"}}},
			{"metadata": map[string]any{"annotations": map[string]any{"x": "y"}}},
			{"immutable": true},
		} {
			for _, user := range []client.Client{everything, admin} {
				Expect(user.Patch(ctx, journal.DeepCopy(), mergePatch(patch))).To(beRefusedWith("written by the operator alone"))
			}
		}
	})

	It("are not deleted by themselves", func(ctx SpecContext) {
		for _, user := range []client.Client{everything, operator} {
			Expect(user.Delete(ctx, journal.DeepCopy())).To(beRefusedWith("goes with its AgentRun"))
		}
		Expect(everything.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(space.name),
			client.MatchingLabels(journal.Labels))).To(beRefusedWith("goes with its AgentRun"))
	})

	It("can be cleared away by system:masters", func(ctx SpecContext) {
		held := journalOf(run, 2)
		held.Finalizers = []string{"pawl.run/held"}
		Expect(operator.Create(ctx, held)).To(Succeed())
		Expect(admin.Patch(ctx, held, letGo())).To(Succeed())
		Expect(admin.Delete(ctx, held)).To(Succeed())
		Eventually(gone(ctx, held)).WithTimeout(patience).Should(BeTrue())
	})

	It("are kept with what is too large for them", func(ctx SpecContext) {
		artifact := journalOf(run, 1)
		artifact.Name, artifact.Data = fmt.Sprintf("pawl-artifact-%s-0123456789abcdef-0001", run.UID), map[string]string{"content": "x"}
		artifact.Immutable = ptr.To(true)
		for _, user := range []client.Client{everything, admin} {
			Expect(user.Create(ctx, artifact.DeepCopy())).To(beRefusedWith("reserved"))
		}
		Expect(operator.Create(ctx, artifact)).To(Succeed())
		Expect(everything.Patch(ctx, artifact.DeepCopy(), mergePatch(map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": "y"}}}))).
			To(beRefusedWith("written by the operator alone"))
		for _, user := range []client.Client{everything, operator} {
			Expect(user.Delete(ctx, artifact.DeepCopy())).To(beRefusedWith("goes with its AgentRun"))
		}
		changed := artifact.DeepCopy()
		changed.Data["content"] = "y"
		Expect(operator.Update(ctx, changed)).NotTo(Succeed())
		Expect(admin.Delete(ctx, artifact)).To(Succeed())
	})

	It("leave other ConfigMaps free", func(ctx SpecContext) {
		other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: space.name, Name: "journal"}, Data: map[string]string{"a": "b"}}
		Expect(everything.Create(ctx, other)).To(Succeed())
		other.Data["a"] = "c"
		Expect(everything.Update(ctx, other)).To(Succeed())
		Expect(everything.Delete(ctx, other)).To(Succeed())
	})

	It("are checked within the cost limit when they are large", func(ctx SpecContext) {
		large := journalOf(run, 2)
		for i := range 5000 {
			large.Data[fmt.Sprintf("e%06d", i)] = strings.Repeat("x", 100)
		}
		large.BinaryData = map[string][]byte{"reply": make([]byte, 300_000)}
		Expect(operator.Create(ctx, large)).To(Succeed())
		large.Data["e999999"] = "{}"
		large.Immutable = ptr.To(true)
		Expect(operator.Update(ctx, large)).To(Succeed())
	})

	DescribeTable("go when their run is deleted",
		func(ctx SpecContext, propagation metav1.DeletionPropagation) {
			Expect(admin.Delete(ctx, run, client.PropagationPolicy(propagation))).To(Succeed())
			Eventually(gone(ctx, run)).WithTimeout(patience).Should(BeTrue())
			Eventually(gone(ctx, journal)).WithTimeout(patience).Should(BeTrue())
		},
		Entry("in the background", metav1.DeletePropagationBackground),
		Entry("in the foreground", metav1.DeletePropagationForeground),
	)

	It("stay, without an owner, when their run is deleted as an orphan's parent", func(ctx SpecContext) {
		Expect(admin.Delete(ctx, run, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		Eventually(gone(ctx, run)).WithTimeout(patience).Should(BeTrue())
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(journal), journal)).To(Succeed())
		Expect(journal.OwnerReferences).To(BeEmpty())
	})

	It("go with their namespace, once the operator lets go of what it holds", func(ctx SpecContext) {
		held := journalOf(run, 2)
		held.Finalizers = []string{"pawl.run/held"}
		Expect(operator.Create(ctx, held)).To(Succeed())
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space.name}}
		Expect(admin.Delete(ctx, object)).To(Succeed())
		Eventually(gone(ctx, journal)).WithTimeout(patience).Should(BeTrue())
		// The namespace controller writes too; a conflict is tried again.
		Eventually(func(g Gomega) {
			g.Expect(operator.Get(ctx, client.ObjectKeyFromObject(held), held)).To(Succeed())
			held.Finalizers = nil
			g.Expect(operator.Update(ctx, held)).To(Succeed())
		}).WithTimeout(patience).Should(Succeed())
		Eventually(gone(ctx, object)).WithTimeout(patience).Should(BeTrue())
	})

	It("may lose their finalizers to anyone in a namespace that ends, and nothing else", func(ctx SpecContext) {
		held := journalOf(run, 2)
		held.Finalizers = []string{"pawl.run/held"}
		Expect(operator.Create(ctx, held)).To(Succeed())
		Expect(everything.Patch(ctx, held.DeepCopy(), letGo())).To(beRefusedWith("written by the operator alone"))

		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space.name}}
		Expect(admin.Delete(ctx, object)).To(Succeed())
		Eventually(gone(ctx, journal)).WithTimeout(patience).Should(BeTrue())
		Expect(everything.Patch(ctx, held.DeepCopy(), mergePatch(map[string]any{"data": map[string]any{"e000002": "{}"}}))).
			To(beRefusedWith("written by the operator alone"))
		Expect(everything.Patch(ctx, held.DeepCopy(), letGo())).To(Succeed())
		Eventually(gone(ctx, object)).WithTimeout(patience).Should(BeTrue())
	})
})

// letGo removes all finalizers.
func letGo() client.Patch {
	GinkgoHelper()
	return mergePatch(map[string]any{"metadata": map[string]any{"finalizers": nil}})
}
