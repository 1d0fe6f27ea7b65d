// Package integration moves whole runs through the operator, which is a process of its
// own, on a real control plane, with people who use kubectl and tools that keep a ledger.
//
// Specs run one after another. What takes time is started together, before the specs of
// a container, so that each of them only waits for the rest of it.
package integration

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/test/environment"
)

// journalRefusalTimeout is how long the operator bears with an API server that refuses
// a journal.
const journalRefusalTimeout = 2 * time.Second

var (
	env   *environment.Environment
	tools *gateway
	void  *blackHole
	watch *observer
)

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Integration")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	SetDefaultConsistentlyPollingInterval(100 * time.Millisecond)

	env = must(environment.Start(ctx,
		"--journal-refusal-timeout", journalRefusalTimeout.String(),
		// Longer than the environment's own: nothing here waits for a lease to run out, and
		// a machine that is busy with something else must not end the operator.
		"--lease-duration", "30s",
		// Nobody settles what is deleted with its namespace.
		"--deletion-grace", "5s"))
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	tools = newGateway(env.Tools)
	DeferCleanup(tools.stop)
	void = newBlackHole()
	DeferCleanup(void.stop)
	watch = startObserver()
	DeferCleanup(watch.stop)
	makePeople(ctx)
}, NodeTimeout(5*time.Minute))

var _ = JustAfterEach(func(ctx SpecContext) {
	defer touched.clear()
	if CurrentSpecReport().Failed() {
		AddReportEntry("what was there", dump(ctx), ReportEntryVisibilityFailureOrVerbose)
	}
})

var _ = AfterEach(func() {
	Expect(watch.problems()).To(BeEmpty(), "what every status has to satisfy")
})

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

// The people of the suite. Each has one of the shipped roles in the whole cluster.
var (
	dana = person{name: "dana", role: "pawl-approver"}
	erin = person{name: "erin", role: "pawl-editor"}
)

// person is a user of kubectl and of the API.
type person struct {
	name, role string
	kubeconfig string
	api        client.Client
}

func makePeople(ctx context.Context) {
	GinkgoHelper()
	for _, p := range []*person{&dana, &erin} {
		Expect(env.Admin.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "integration-" + p.name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: p.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: p.name}},
		})).To(Succeed())
		p.kubeconfig = must(env.Plane.ImpersonatingKubeconfig(p.name))
		p.api = must(client.New(env.Plane.ImpersonatingConfig(p.name), client.Options{Scheme: env.Admin.Scheme()}))
	}
}

// kubectl runs the real one as the person.
func (p person) kubectl(ctx context.Context, args ...string) (string, error) {
	return env.Plane.KubectlAs(ctx, p.kubeconfig, args...)
}

// dump is the runs that the spec has touched, their journals, and the end of the
// operator's log.
func dump(ctx context.Context) string {
	const tail = 8 << 10
	var text string
	for _, key := range touched.keys() {
		run, err := env.Plane.Kubectl(ctx, "get", "agentrun", key.Name, "--namespace", key.Namespace, "--output=yaml")
		if err != nil {
			run = err.Error()
		}
		text += fmt.Sprintf("---\n%s\n%s", run, journalText(ctx, key))
	}
	log, err := os.ReadFile(env.OperatorLog())
	if err != nil {
		return text + err.Error()
	}
	return text + "--- the operator's log ends with\n" + string(log[max(0, len(log)-tail):])
}
