package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const stopTimeout = 20 * time.Second

// controllers are those whose work a test can observe. Node, endpoint, volume and similar
// controllers would only cost time.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"ttl-after-finished-controller",
	"validatingadmissionpolicy-status-controller",
}

// PID returns the process id of a running component, for tests that stop, pause or kill it.
func (c *ControlPlane) PID(component Component) (int, error) {
	data, err := os.ReadFile(c.pidFile(component))
	if err != nil {
		return 0, fmt.Errorf("reading the pid of %s: %w", component, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("reading the pid of %s: %w", component, err)
	}
	return pid, nil
}

// Replace says that a component is another process now, which StartProcess started.
func (c *ControlPlane) Replace(component Component, process *Process) error {
	if err := os.WriteFile(c.pidFile(component), []byte(strconv.Itoa(process.PID())), 0o644); err != nil {
		return fmt.Errorf("noting the pid of %s: %w", component, err)
	}
	return nil
}

// LogFile returns the path of the log of a component, or of a program that StartProcess started.
func (c *ControlPlane) LogFile(component Component) string {
	return filepath.Join(c.dir, "logs", string(component)+".log")
}

func (c *ControlPlane) pidFile(component Component) string {
	return filepath.Join(c.dir, "pids", string(component))
}

// wrap writes a script that notes its process id and then becomes the program, because
// envtest does not tell the ids of what it starts and the watchdog needs them.
func (c *ControlPlane) wrap(component Component) (string, error) {
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = --help ] || echo $$ >'%s'\nexec '%s' \"$@\"\n",
		c.pidFile(component), filepath.Join(c.binaries, string(component)))
	path := filepath.Join(c.dir, "wrappers", string(component))
	// Written under another name first: while a file is open for writing it can't be run.
	if err := os.WriteFile(path+".new", []byte(script), 0o755); err != nil {
		return "", fmt.Errorf("preparing %s: %w", component, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return "", fmt.Errorf("preparing %s: %w", component, err)
	}
	return path, nil
}

func (c *ControlPlane) openLog(component Component) (*os.File, error) {
	file, err := os.Create(c.LogFile(component))
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", component, err)
	}
	c.logs = append(c.logs, file)
	return file, nil
}

// logTails returns the ends of logs as one error, to explain a start that failed.
func (c *ControlPlane) logTails(components ...Component) error {
	const tail = 2048
	var errs []error
	for _, component := range components {
		data, err := os.ReadFile(c.LogFile(component))
		if err != nil || len(data) == 0 {
			continue
		}
		errs = append(errs, fmt.Errorf("the log of %s ends with:\n%s", component, data[max(0, len(data)-tail):]))
	}
	return errors.Join(errs...)
}

// Process is a program that runs beside the control plane: the controller manager, or what
// StartProcess started.
type Process struct {
	name    string
	command *exec.Cmd
	exited  chan struct{}
	err     error
}

// StartProcess starts a program, the operator say, that ends with the control plane: Stop
// stops it first, and it does not outlive this process either. Output that the command does
// not direct elsewhere is appended to the log of that name; see LogFile.
func (c *ControlPlane) StartProcess(name string, command *exec.Cmd) (*Process, error) {
	if command.Stdout == nil && command.Stderr == nil {
		log, err := os.OpenFile(c.LogFile(Component(name)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, fmt.Errorf("starting %s: %w", name, err)
		}
		defer func() { _ = log.Close() }()
		command.Stdout, command.Stderr = log, log
	}
	// Its own process group: a Ctrl-C in the terminal is for the caller, which then stops it in order.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	process := &Process{name: name, command: command, exited: make(chan struct{})}
	pidFile := c.pidFile(Component(fmt.Sprintf("%s.%d", name, process.PID())))
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(process.PID())), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", name, err), command.Process.Kill(), command.Wait())
	}
	go func() {
		defer close(process.exited)
		process.err = command.Wait()
		// The number may soon be somebody else's, whom the watchdog must not hit.
		_ = os.Remove(pidFile)
	}()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.processes = append(c.processes, process)
	return process, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err says how the process ended, as exec.Cmd.Wait does. It may be called once Exited is closed.
func (p *Process) Err() error { return p.err }

// Signal sends a signal, and does not wait for what comes of it.
func (p *Process) Signal(signal os.Signal) error { return p.command.Process.Signal(signal) }

// Pause suspends the process with SIGSTOP, and Resume lets it go on.
func (p *Process) Pause() error { return p.command.Process.Signal(syscall.SIGSTOP) }

// Resume lets a process go on that Pause suspended.
func (p *Process) Resume() error { return p.command.Process.Signal(syscall.SIGCONT) }

// Kill ends the process with SIGKILL, as a crash would, and waits for it.
func (p *Process) Kill() {
	// The error only says that it has already ended.
	_ = p.command.Process.Kill()
	<-p.exited
}

// Stop asks the process to end, with SIGTERM, and waits for it. It kills what has not ended
// after a while, and says so.
func (p *Process) Stop() error {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTimeout):
		p.Kill()
		return fmt.Errorf("stopping %s: it had to be killed after %s", p.name, stopTimeout)
	}
}

func (c *ControlPlane) startManager(options Options) (*Process, error) {
	kubeconfig, err := c.UserKubeconfig("system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	authority := filepath.Join(c.dir, "certs", "serving-ca.crt")
	if err := os.WriteFile(authority, c.plane.APIServer.CA, 0o644); err != nil {
		return nil, fmt.Errorf("starting %s: %w", ControllerManager, err)
	}
	flags := map[string]string{
		"kubeconfig":                       kubeconfig,
		"controllers":                      strings.Join(controllers, ","),
		"service-account-private-key-file": filepath.Join(c.plane.APIServer.CertDir, "sa-signer.key"),
		"root-ca-file":                     authority,
		"use-service-account-credentials":  "true",
		"leader-elect":                     "false",
		"secure-port":                      "0",
		"profiling":                        "false",
		// The defaults pace a large cluster; a test would wait for them.
		"kube-api-qps":   "500",
		"kube-api-burst": "1000",
	}
	for name, value := range options.ControllerManagerFlags {
		flags[name] = value
	}
	path, err := c.wrap(ControllerManager)
	if err != nil {
		return nil, err
	}
	command := exec.Command(path)
	for name, value := range flags {
		command.Args = append(command.Args, "--"+name+"="+value)
	}
	return c.StartProcess(string(ControllerManager), command)
}

// waitForServiceAccount waits for the first thing that only the controller manager does.
func (c *ControlPlane) waitForServiceAccount(ctx context.Context, manager *Process, timeout time.Duration) error {
	api, err := client.New(c.admin, client.Options{})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", ControllerManager, err)
	}
	key := client.ObjectKey{Namespace: corev1.NamespaceDefault, Name: "default"}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-manager.exited:
			return false, errors.New("it ended")
		default:
			return api.Get(ctx, key, &corev1.ServiceAccount{}) == nil, nil
		}
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", ControllerManager, err)
	}
	return nil
}

// watchdog ends the components when this process is gone without having stopped them.
type watchdog struct {
	command *exec.Cmd
	alive   io.Closer
	pids    string
}

// watchdogScript waits for the end of its input, which comes when the parent closes the pipe
// or dies. Stop removes the pid files first, so that an orderly end kills nobody.
const watchdogScript = `cat >/dev/null
for f in "$0"/pids/*; do [ -f "$f" ] && kill -KILL "$(cat "$f")" 2>/dev/null && killed=1; done
[ -z "$killed" ] || [ "$1" != temporary ] || { sleep 1; rm -rf "$0"; }
exit 0`

func startWatchdog(dir string, temporary bool) (*watchdog, error) {
	pids := filepath.Join(dir, "pids")
	if err := clearDir(pids); err != nil {
		return nil, err
	}
	input, alive, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the watchdog: %w", err)
	}
	defer func() { _ = input.Close() }()
	kind := "kept"
	if temporary {
		kind = "temporary"
	}
	command := exec.Command("/bin/sh", "-c", watchdogScript, dir, kind)
	command.Stdin = input
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		_ = alive.Close()
		return nil, fmt.Errorf("starting the watchdog: %w", err)
	}
	return &watchdog{command: command, alive: alive, pids: pids}, nil
}

func (w *watchdog) stop() error {
	errs := []error{os.RemoveAll(w.pids), w.alive.Close()}
	if err := w.command.Wait(); err != nil {
		errs = append(errs, fmt.Errorf("stopping the watchdog: %w", err))
	}
	return errors.Join(errs...)
}
