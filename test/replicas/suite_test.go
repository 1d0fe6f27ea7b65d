// Package replicas runs several operators as processes of their own against one real API
// server, takes processes and networks away from them, and checks with a service that
// counts what it was asked that nothing is done twice and nothing is lost.
//
// Times are those of a lease of four seconds. PAWL_LONG=1 runs the longer versions.
package replicas

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/test/environment"
)

const lease = environment.Lease

// deletionGrace is how long a deleted run waits for people here.
const deletionGrace = 6 * time.Second

// long asks for the longer versions.
var long = os.Getenv("PAWL_LONG") != ""

// pick chooses between the default and the longer version of a number.
func pick[N int | time.Duration](normal, longer N) N {
	if long {
		return longer
	}
	return normal
}

var (
	env   *environment.Environment
	tools *gateway
	audit string
)

func TestReplicas(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Replicas")
}

// auditPolicy notes who wrote what, and nothing about reading.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [create, update, patch, delete]}
- {level: None}
`

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	dir := GinkgoT().TempDir()
	audit = filepath.Join(dir, "audit.log")
	policy := filepath.Join(dir, "audit.yaml")
	Expect(os.WriteFile(policy, []byte(auditPolicy), 0o644)).To(Succeed())
	var err error
	env, err = environment.Prepare(ctx, environment.Options{
		Flags:          []string{"--deletion-grace", deletionGrace.String()},
		APIServerFlags: map[string]string{"audit-policy-file": policy, "audit-log-path": audit},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		// An API server that was asked to end would wait for its watchers.
		for _, process := range slices.Backward(restarted) {
			process.Kill()
		}
		Expect(env.Stop()).To(Succeed())
	})
	tools = newGateway(env.Tools)
	DeferCleanup(tools.stop)
	DeferCleanup(func() {
		Expect(broken).To(BeEmpty(), "no second attempt makes up for what was done twice or lost in the first")
	})
}, NodeTimeout(5*time.Minute))
