// Package crash kills the operator at the worst moments and checks what is left: nothing
// that was done is done again, nothing that was decided is decided again, and every run
// goes on to its end. It also holds what else the outside world can do to a run: objects
// that come in any order, and models that answer with garbage.
package crash

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/test/environment"
)

var (
	env   *environment.Environment
	tools *gateway
)

func TestCrash(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Crash")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	env, err = environment.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	tools = newGateway(env.Tools)
	DeferCleanup(tools.stop)
}, NodeTimeout(5*time.Minute))
