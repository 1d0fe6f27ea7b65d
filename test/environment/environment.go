// Package environment is what the suites below test/ run in: a real control plane with
// Pawl installed, the operator as a process of its own under its own service account,
// and a tool server with a ledger.
package environment

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
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

// Lease is the operators' --lease-duration.
const Lease = 4 * time.Second

// Environment is a control plane with an operator and a tool server.
type Environment struct {
	Plane *controlplane.ControlPlane
	// Admin is a client in system:masters. It reads live.
	Admin client.Client
	// Tools is the tool server's ledger and behaviour, ToolsURL its address.
	Tools    *tools.Server
	ToolsURL string

	operator   *controlplane.Process
	config     *rest.Config
	binary     string
	kubeconfig string
	flags      []string
	server     *httptest.Server
}

// Start brings everything up. Flags are added to the operator's own.
func Start(ctx context.Context, flags ...string) (*Environment, error) {
	e, err := Prepare(ctx, Options{Flags: flags})
	if err != nil {
		return nil, err
	}
	if err := e.StartOperator(); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// Options of Prepare.
type Options struct {
	// Flags are added to every operator's own.
	Flags []string
	// APIServerFlags are added to the API server's.
	APIServerFlags map[string]string
}

// Prepare brings up everything but an operator; see Launch.
func Prepare(ctx context.Context, options Options) (_ *Environment, err error) {
	plane, err := controlplane.Start(ctx, controlplane.Options{
		Install: []string{controlplane.DefaultConfig()}, APIServerFlags: options.APIServerFlags,
	})
	if err != nil {
		return nil, err
	}
	e := &Environment{Plane: plane, flags: options.Flags, Tools: tools.New()}
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
	if e.binary, err = BuildOperator(ctx); err != nil {
		return nil, err
	}
	if e.config, err = plane.ServiceAccountConfig(ctx, Namespace, Account); err != nil {
		return nil, err
	}
	e.kubeconfig, err = plane.WriteKubeconfig("operator", e.config)
	return e, err
}

// StartOperator starts the operator, again after KillOperator: under the same worker
// name, so that it goes on at once.
func (e *Environment) StartOperator() error {
	// Nobody takes over from it, so that nothing is gained by waiting for what is in flight.
	process, err := e.run("operator", "worker", e.kubeconfig, "--shutdown-grace", "1s")
	if err != nil {
		return err
	}
	e.operator = process
	return nil
}

// Launch starts one of several operators, under a worker name of its own. Flags are added
// to the ones that all have. Its log is LogFile(name).
func (e *Environment) Launch(name string, flags ...string) (*controlplane.Process, error) {
	return e.run(name, name, e.kubeconfig, flags...)
}

// LaunchVia is Launch of an operator that reaches the API server at another address, such
// as a proxy's, a host and port.
func (e *Environment) LaunchVia(address, name string, flags ...string) (*controlplane.Process, error) {
	config := rest.CopyConfig(e.config)
	config.Host = "https://" + address
	return e.LaunchWith(config, name, flags...)
}

// Config is the operators' way to the API server.
func (e *Environment) Config() *rest.Config { return rest.CopyConfig(e.config) }

// LaunchWith is Launch of an operator that has another way to the API server.
func (e *Environment) LaunchWith(config *rest.Config, name string, flags ...string) (*controlplane.Process, error) {
	kubeconfig, err := e.Plane.WriteKubeconfig("operator-"+name, config)
	if err != nil {
		return nil, fmt.Errorf("starting operator %s: %w", name, err)
	}
	return e.run(name, name, kubeconfig, flags...)
}

func (e *Environment) run(program, worker, kubeconfig string, flags ...string) (*controlplane.Process, error) {
	arguments := append([]string{
		"--worker-name", worker, "--namespace", Namespace, "--lease-duration", Lease.String(),
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0",
	}, append(slices.Clone(e.flags), flags...)...)
	command := exec.Command(e.binary, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	process, err := e.Plane.StartProcess(program, command)
	if err != nil {
		return nil, fmt.Errorf("starting operator %s: %w", worker, err)
	}
	return process, nil
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

// BuildOperator builds the operator, once a process, and returns the program's path.
func BuildOperator(ctx context.Context) (string, error) {
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
