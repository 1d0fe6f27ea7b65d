// Package aimock runs whole runs against a model provider that others wrote: the npm
// package @copilotkit/aimock, on every wire, with the failures that it can make. It is
// less strict than any provider, so what it accepts proves little; test/fakemodel is the
// strict one. What it says, and how it fails, is nobody's idea of ours.
package aimock

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/test/environment"
	"github.com/pawl-run/pawl/test/npm"
)

var env *environment.Environment

func TestAimock(t *testing.T) {
	RegisterFailHandler(Fail)
	// Before the control plane, which takes a while to come up.
	script, err := npm.Script(t.Context(), "npm", "aimock", "@copilotkit/aimock/dist/cli.js")
	if err != nil {
		t.Skip("the npm package @copilotkit/aimock can't be had here: " + err.Error())
	}
	scriptPath = script
	RunSpecs(t, "aimock")
}

// scriptPath is the installed program.
var scriptPath string

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	env, err = environment.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
}, NodeTimeout(5*time.Minute))
