// Package environment is what the suites below test/ run in: a real control plane with
// Pawl installed, the operator as a process of its own under its own service account,
// and a tool server with a ledger.
package environment

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/controlplane"
	"github.com/pawl-run/pawl/test/toolserver/tools"
)

// The operator's namespace and account.
const (
	Namespace = "pawl-system"
	Account   = "pawl-controller-manager"
)

// Environment is a control plane with an operator and a tool server.
type Environment struct {
	Plane *controlplane.ControlPlane
	// Admin is a client in system:masters. It reads live.
	Admin client.Client
	// Tools is the tool server's ledger and behaviour, ToolsURL its address.
	Tools    *tools.Server
	ToolsURL string

	operator   *controlplane.Process
	binary     string
	kubeconfig string
	flags      []string
	server     *httptest.Server
}

// Start brings everything up. Flags are added to the operator's own.
func Start(ctx context.Context, flags ...string) (_ *Environment, err error) {
	plane, err := controlplane.Start(ctx, controlplane.Options{Install: []string{controlplane.DefaultConfig()}})
	if err != nil {
		return nil, err
	}
	e := &Environment{Plane: plane, flags: flags, Tools: tools.New()}
	defer func() {
		if err != nil {
			_ = e.Stop()
		}
	}()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if e.Admin, err = client.New(plane.Config(), client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	e.server = httptest.NewServer(e.Tools)
	e.ToolsURL = e.server.URL
	if e.binary, err = buildOperator(ctx); err != nil {
		return nil, err
	}
	if e.kubeconfig, err = plane.ServiceAccountKubeconfig(ctx, Namespace, Account); err != nil {
		return nil, err
	}
	return e, e.StartOperator()
}

// StartOperator starts the operator, again after KillOperator: under the same worker
// name, so that it goes on at once.
func (e *Environment) StartOperator() error {
	arguments := append([]string{
		"--worker-name", "worker", "--namespace", Namespace, "--lease-duration", "4s",
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0",
	}, e.flags...)
	command := exec.Command(e.binary, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+e.kubeconfig)
	process, err := e.Plane.StartProcess("operator", command)
	if err != nil {
		return fmt.Errorf("starting the operator: %w", err)
	}
	e.operator = process
	return nil
}

// KillOperator ends the operator with SIGKILL.
func (e *Environment) KillOperator() { e.operator.Kill() }

// StopOperator asks the operator to end and waits for it.
func (e *Environment) StopOperator() error { return e.operator.Stop() }

// Operator is the running operator.
func (e *Environment) Operator() *controlplane.Process { return e.operator }

// OperatorLog is the path of what the operator has logged.
func (e *Environment) OperatorLog() string { return e.Plane.LogFile("operator") }

// Stop ends everything.
func (e *Environment) Stop() error {
	if e.server != nil {
		e.server.CloseClientConnections()
		e.server.Close()
	}
	return e.Plane.Stop()
}

var build struct {
	once sync.Once
	path string
	err  error
}

// buildOperator builds the operator once a process.
func buildOperator(ctx context.Context) (string, error) {
	build.once.Do(func() {
		root, err := controlplane.Root()
		if err != nil {
			build.err = err
			return
		}
		dir, err := os.MkdirTemp("", "pawl-operator-")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "manager")
		command := exec.CommandContext(ctx, "go", "build", "-o", build.path, "./cmd")
		command.Dir = root
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := command.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("building the operator: %w\n%s", err, output)
		}
	})
	return build.path, build.err
}
