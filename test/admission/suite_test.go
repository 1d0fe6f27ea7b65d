// Package admission holds the tests of config/admission and config/rbac: what each kind of
// user can and can't do to runs, their verdicts, their status and their journals, tried on a
// real API server.
package admission

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pawlv1alpha1 "github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/controlplane"
)

const (
	operatorNamespace = "pawl-system"
	operatorAccount   = "pawl-controller-manager"
)

var (
	plane  *controlplane.ControlPlane
	scheme = runtime.NewScheme()

	// admin is in system:masters, operator is the operator's own service account.
	admin, operator client.Client
)

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(pawlv1alpha1.AddToScheme(scheme)).To(Succeed())

	var err error
	plane, err = controlplane.Start(ctx, controlplane.Options{Install: []string{controlplane.DefaultConfig()}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })

	admin = clientFor(plane.Config())
	operator = clientFor(must(plane.ServiceAccountConfig(ctx, operatorNamespace, operatorAccount)))
})

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

func clientFor(config *rest.Config) client.Client {
	GinkgoHelper()
	return must(client.New(config, client.Options{Scheme: scheme}))
}

// namespace is a namespace of one spec with people in it.
type namespace struct{ name string }

func newNamespace(ctx context.Context) namespace {
	GinkgoHelper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}
	Expect(admin.Create(ctx, object)).To(Succeed())
	// Deletion is not waited for; the last namespaces go with the control plane.
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, object))).To(Succeed())
	})
	return namespace{name: object.Name}
}

// user returns a client for a user who has the given ClusterRoles in the namespace. Names are
// prefixed so that specs do not share users.
func (n namespace) user(ctx context.Context, name string, roles ...string) client.Client {
	GinkgoHelper()
	n.bind(ctx, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: n.userName(name)}, roles...)
	return clientFor(must(plane.UserConfig(n.userName(name))))
}

// clusterUser is user with rights in the whole cluster, which do not go with the namespace.
func (n namespace) clusterUser(ctx context.Context, name, role string) client.Client {
	GinkgoHelper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: n.userName(name)}},
	}
	Expect(admin.Create(ctx, binding)).To(Succeed())
	return clientFor(must(plane.UserConfig(n.userName(name))))
}

func (n namespace) userName(name string) string { return n.name + ":" + name }

// kubeconfig returns a kubeconfig of a user made with user.
func (n namespace) kubeconfig(name string) string {
	GinkgoHelper()
	return must(plane.UserKubeconfig(n.userName(name)))
}

func (n namespace) bind(ctx context.Context, subject rbacv1.Subject, roles ...string) {
	GinkgoHelper()
	for _, role := range roles {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: n.name, GenerateName: "spec-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{subject},
		}
		Expect(admin.Create(ctx, binding)).To(Succeed())
	}
}

// role makes a ClusterRole with one rule for runs, for rights that no shipped role has.
func (n namespace) role(ctx context.Context, name string, verbs ...string) string {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: n.name + ":" + name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{pawlv1alpha1.GroupVersion.Group},
			Resources: []string{"agentruns", "agentruns/status"},
			Verbs:     verbs,
		}},
	}
	Expect(admin.Create(ctx, role)).To(Succeed())
	return role.Name
}

func (n namespace) run(annotations map[string]string) *pawlv1alpha1.AgentRun {
	return &pawlv1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.name, GenerateName: "run-", Annotations: annotations},
		Spec: pawlv1alpha1.AgentRunSpec{
			ModelRef: pawlv1alpha1.LocalReference{Name: "any"},
			Prompt:   "Do nothing.",
		},
	}
}

// createRun creates a run as admin, so that created-by is not under test, and returns it
// without annotations that a verdict made.
func (n namespace) createRun(ctx context.Context) *pawlv1alpha1.AgentRun {
	GinkgoHelper()
	run := n.run(nil)
	Expect(admin.Create(ctx, run)).To(Succeed())
	return run
}

// annotate merges annotations into a run as the given user; nil removes one.
func annotate(ctx context.Context, user client.Client, run *pawlv1alpha1.AgentRun, annotations map[string]any) error {
	return user.Patch(ctx, run.DeepCopy(), mergePatch(map[string]any{"metadata": map[string]any{"annotations": annotations}}))
}

// annotationsOf reads a run's annotations as they are stored.
func annotationsOf(ctx context.Context, run *pawlv1alpha1.AgentRun) map[string]string {
	GinkgoHelper()
	stored := &pawlv1alpha1.AgentRun{}
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(run), stored)).To(Succeed())
	return stored.Annotations
}

// beRefusedWith matches an error by which admission, not RBAC, refused a request.
func beRefusedWith(text string) types.GomegaMatcher {
	return And(
		WithTransform(apierrors.IsForbidden, BeTrue()),
		MatchError(And(ContainSubstring("ValidatingAdmissionPolicy"), ContainSubstring(text))))
}

// manifest writes a file for kubectl.
func manifest(format string, args ...any) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "manifest.yaml")
	Expect(os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600)).To(Succeed())
	return path
}
