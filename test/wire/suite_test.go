// Package wire replays recorded exchanges with a model's provider through the whole
// operator: what was recorded once as a conversation of another client has to come out of
// a run in the same way, request by request.
package wire

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/test/environment"
)

var env *environment.Environment

func TestWire(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Wire")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	env, err = environment.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
}, NodeTimeout(5*time.Minute))
