// Package mcp runs whole runs against MCP servers written by others: the Go SDK's, always,
// and a Node package's, where Node is.
package mcp

import (
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/test/environment"
)

var env *environment.Environment

// TestMain is also the entry of the process that runs a server in a network namespace.
func TestMain(m *testing.M) {
	if os.Getenv(guestVariable) != "" {
		if err := guest(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestMCP(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "MCP")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	env, err = environment.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
}, NodeTimeout(5*time.Minute))
