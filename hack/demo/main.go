// Command demo shows every sample of config/samples run to its end on a real control plane:
// it starts one, installs Pawl, starts the operator under its own account and the tool
// server that the samples call, plays the people who approve, deny, answer and cancel, and
// shows all runs in a table that refreshes in place.
//
// It stays up until Ctrl-C, so that one can look around. With DEMO_EXIT=1 it ends by itself,
// with status 0 only if every sample ended as samples.go expects.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pawlv1alpha1 "github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/controlplane"
)

const (
	// sampleAddress is where the samples expect their tools.
	sampleAddress = "127.0.0.1:8797"

	operatorNamespace = "pawl-system"
	operatorAccount   = "pawl-controller-manager"
	leaseDuration     = 5 * time.Second

	// limit is for everything after the programs are built.
	limit = 2 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Getenv("DEMO_EXIT") == "1")
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "demo: stopped")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo is what its parts share.
type demo struct {
	root   string
	plane  *controlplane.ControlPlane
	api    client.Client
	screen *screen
	// toolAddress is where the tool server listens.
	toolAddress string
	people      *people
	operator    *controlplane.Process
	toolServer  *controlplane.Process
}

func run(ctx context.Context, exit bool) (err error) {
	d := &demo{screen: newScreen(os.Stdout)}
	if d.root, err = controlplane.Root(); err != nil {
		return err
	}
	if err := d.build(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if d.plane != nil {
			err = errors.Join(err, d.plane.Stop())
		}
	}()
	if err := d.start(limited); err != nil {
		return err
	}
	if err := d.follow(limited); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	wrong := d.summary(ctx)
	if exit {
		if wrong > 0 {
			return fmt.Errorf("%d of %d samples did not end as expected; the operator's log is %s",
				wrong, len(samples), d.plane.LogFile("operator"))
		}
		return nil
	}
	d.explain()
	<-ctx.Done()
	return nil
}

// build compiles the operator and the tool server, so that what is shown is what is in the
// work tree.
func (d *demo) build(ctx context.Context) error {
	for _, p := range []struct{ name, source string }{{"manager", "./cmd"}, {"toolserver", "./test/toolserver"}} {
		d.screen.step("building %s", p.source)
		command := exec.CommandContext(ctx, "go", "build", "-o", d.program(p.name), p.source)
		command.Dir = d.root
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", p.source, err, out)
		}
	}
	return nil
}

func (d *demo) program(name string) string { return filepath.Join(d.root, "bin", name) }

// start brings everything up and applies the samples.
func (d *demo) start(ctx context.Context) error {
	began := time.Now()
	d.screen.step("starting etcd, kube-apiserver and kube-controller-manager, and applying config/default")
	var err error
	d.plane, err = controlplane.Start(ctx, controlplane.Options{
		Dir:     filepath.Join(d.root, "bin", "demo"),
		Install: []string{controlplane.DefaultConfig()},
	})
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), pawlv1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	if d.api, err = client.New(d.plane.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := d.startPrograms(ctx); err != nil {
		return err
	}
	if err := d.bindApprover(ctx); err != nil {
		return err
	}
	d.screen.step("ready after %s; applying config/samples", time.Since(began).Round(100*time.Millisecond))
	return d.applySamples(ctx)
}

// applySamples applies config/samples as it is or, where its tools are at another address,
// a copy that says so.
func (d *demo) applySamples(ctx context.Context) error {
	folder := filepath.Join(d.root, "config", "samples")
	if d.toolAddress == sampleAddress {
		return d.plane.Apply(ctx, folder)
	}
	changed := filepath.Join(d.plane.Dir(), "samples")
	if err := os.MkdirAll(changed, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		data = bytes.ReplaceAll(data, []byte(sampleAddress), []byte(d.toolAddress))
		if err := os.WriteFile(filepath.Join(changed, filepath.Base(file)), data, 0o644); err != nil {
			return err
		}
	}
	return d.plane.Apply(ctx, changed)
}

// freeAddress returns the samples' address, or another one if somebody else listens there.
func freeAddress() (string, error) {
	for _, address := range []string{sampleAddress, "127.0.0.1:0"} {
		if listener, err := net.Listen("tcp", address); err == nil {
			return listener.Addr().String(), listener.Close()
		}
	}
	return "", errors.New("no address on loopback is free for the tool server")
}

func (d *demo) startPrograms(ctx context.Context) error {
	var err error
	if d.toolAddress, err = freeAddress(); err != nil {
		return err
	}
	d.screen.step("starting the tool server on %s and the operator as %s/%s", d.toolAddress, operatorNamespace, operatorAccount)
	d.toolServer, err = d.plane.StartProcess("toolserver", exec.Command(d.program("toolserver"), "--listen", d.toolAddress))
	if err != nil {
		return err
	}
	if err := waitForLine(ctx, d.toolServer, d.plane.LogFile("toolserver"), "listening on"); err != nil {
		return err
	}
	kubeconfig, err := d.plane.ServiceAccountKubeconfig(ctx, operatorNamespace, operatorAccount)
	if err != nil {
		return err
	}
	operator := exec.Command(d.program("manager"),
		"--worker-name=demo",
		"--namespace="+operatorNamespace,
		"--lease-duration="+leaseDuration.String(),
		"--metrics-bind-address=0",
		"--health-probe-bind-address=0")
	operator.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	d.operator, err = d.plane.StartProcess("operator", operator)
	return err
}

func waitForLine(ctx context.Context, process *controlplane.Process, log, text string) error {
	for {
		data, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		if strings.Contains(string(data), text) {
			return nil
		}
		select {
		case <-process.Exited():
			data, err := os.ReadFile(log)
			return errors.Join(fmt.Errorf("the tool server ended before it was ready: %w\n%s", process.Err(), data), err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// bindApprover gives the person of the demo the shipped role and a kubeconfig.
func (d *demo) bindApprover(ctx context.Context) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "demo-approver"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "pawl-approver"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: approver}},
	}
	if err := d.api.Create(ctx, binding); err != nil {
		return err
	}
	kubeconfig, err := d.plane.ImpersonatingKubeconfig(approver)
	if err != nil {
		return err
	}
	d.people = newPeople(d.plane, kubeconfig, d.screen)
	return nil
}

// follow shows the runs and plays the people until every sample has ended.
func (d *demo) follow(ctx context.Context) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		runs := &pawlv1alpha1.AgentRunList{}
		if err := d.api.List(ctx, runs); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		d.screen.draw(runs.Items)
		if allEnded(runs.Items) {
			return nil
		}
		if err := d.people.act(ctx, runs.Items); err != nil {
			return err
		}
		select {
		case <-d.operator.Exited():
			return fmt.Errorf("the operator ended: %w; its log is %s", d.operator.Err(), d.plane.LogFile("operator"))
		case <-d.toolServer.Exited():
			return fmt.Errorf("the tool server ended: %w; its log is %s", d.toolServer.Err(), d.plane.LogFile("toolserver"))
		case <-ctx.Done():
			d.screen.note("not every run ended within %s", limit)
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// summary prints how each sample ended and returns how many ended otherwise than expected.
func (d *demo) summary(ctx context.Context) int {
	runs := &pawlv1alpha1.AgentRunList{}
	if err := d.api.List(ctx, runs); err != nil {
		d.screen.note("reading the runs: %v", err)
		return len(samples)
	}
	fmt.Println()
	wrong := 0
	for _, sample := range samples {
		differences := sample.check(ctx, d.api, runs.Items)
		if len(differences) == 0 {
			fmt.Printf("%-13s ok: %s\n", sample.name, sample.story)
			continue
		}
		wrong++
		fmt.Printf("%-13s DIFFERS: %s\n", sample.name, strings.Join(differences, "; "))
	}
	return wrong
}

func (d *demo) explain() {
	fmt.Printf(`
The control plane stays up until Ctrl-C. In another terminal:

  export KUBECONFIG=%s PATH=%s:$PATH

  kubectl get agentruns -o wide
  kubectl describe agentrun refund-big
  kubectl get configmaps -l pawl.run/run=lookup -o yaml     # the journal of one run

Logs are in %s.
`, d.plane.Kubeconfig(), filepath.Dir(d.plane.KubectlPath()), filepath.Dir(d.plane.LogFile("operator")))
}
