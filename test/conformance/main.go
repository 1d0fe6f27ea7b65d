// Command conformance runs the client scenarios that the MCP conformance suite requires of
// each revision against the operator's own MCP client (test/conformance/client), in a
// network namespace, since the suite's servers listen on every address.
//
// A scenario passes, or it is in not-applicable.yaml with the reason.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/pawl-run/pawl/test/alone"
	"github.com/pawl-run/pawl/test/controlplane"
	"github.com/pawl-run/pawl/test/npm"
)

// inside names, in the process in the namespace, the folder with the client and the suite.
const inside = "PAWL_CONFORMANCE_INSIDE"

// revisions that are run, each with the scenarios that it requires, on its own wire.
var revisions = []string{"2026-07-28", "2025-11-25"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work := prepare
	if os.Getenv(inside) != "" {
		work = runAll
	}
	if err := work(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// prepare gets the suite and builds the client, and starts this program in the namespace.
func prepare(ctx context.Context) error {
	root, err := controlplane.Root()
	if err != nil {
		return err
	}
	folder := filepath.Join(root, "test", "conformance")
	script, err := npm.Script(ctx, filepath.Join(folder, "npm"), "conformance", "@modelcontextprotocol/conformance/dist/index.js")
	if err != nil {
		return fmt.Errorf("the suite can't be had: %w", err)
	}
	dir, err := os.MkdirTemp("", "pawl-conformance-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "client"), "./test/conformance/client")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the client: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, program)
	command.Env = append(os.Environ(), inside+"="+dir, "PAWL_CONFORMANCE_SCRIPT="+script, "PAWL_CONFORMANCE_FOLDER="+folder)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	alone.Prepare(command)
	if err := command.Run(); err != nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			return errors.New("not every scenario ended as it should")
		}
		return fmt.Errorf("starting a process in a network namespace: %w", err)
	}
	return nil
}

// runAll runs every revision's scenarios.
func runAll(ctx context.Context) error {
	if err := alone.LoopbackUp(); err != nil {
		return err
	}
	s, err := newSuite(os.Getenv(inside), os.Getenv("PAWL_CONFORMANCE_SCRIPT"), os.Getenv("PAWL_CONFORMANCE_FOLDER"))
	if err != nil {
		return err
	}
	var failed error
	for _, revision := range revisions {
		if err := s.run(ctx, revision); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", revision, err))
		}
	}
	return failed
}
