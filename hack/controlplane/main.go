// Command controlplane runs the development control plane for shell users: etcd,
// kube-apiserver and kube-controller-manager on loopback, with config/default installed.
//
//	go run ./hack/controlplane up          # stays in the foreground; Ctrl-C stops it
//	go run ./hack/controlplane up --detach # returns when it is ready
//	go run ./hack/controlplane down
//	go run ./hack/controlplane kubeconfig [--user NAME [--group GROUP]... | --service-account NAMESPACE/NAME]
//
// Its state is in bin/controlplane and new with every start. `make kubernetes` builds the
// programs it needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-run/pawl/test/controlplane"
)

const (
	startLimit = 2 * time.Minute
	stopLimit  = time.Minute
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	root, err := controlplane.Root()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "bin", "controlplane")
	if len(args) == 0 {
		return errors.New("usage: controlplane up [--detach] | down | kubeconfig")
	}
	switch args[0] {
	case "up":
		return up(dir, args[1:])
	case "down":
		return down(dir)
	case "kubeconfig":
		return kubeconfig(dir, args[1:])
	default:
		return fmt.Errorf("unknown command %q; there are up, down and kubeconfig", args[0])
	}
}

func up(dir string, args []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	detach := flags.Bool("detach", false, "run in the background and return when it is ready")
	install := flags.String("install", controlplane.DefaultConfig(), "kustomization to install; empty for none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *detach {
		return upDetached(dir, *install)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	options := controlplane.Options{Dir: dir}
	if *install != "" {
		options.Install = []string{*install}
	}
	plane, err := controlplane.Start(ctx, options)
	if err != nil {
		return err
	}
	fmt.Printf("ready\nexport KUBECONFIG=%s\nexport PATH=%s:$PATH\n", plane.Kubeconfig(), filepath.Dir(plane.KubectlPath()))
	<-ctx.Done()
	return plane.Stop()
}

// upDetached starts this program again as `up` and waits for its "ready".
func upDetached(dir, install string) error {
	pid, err := controlplane.Owner(dir)
	if err != nil {
		return err
	}
	if pid != 0 {
		return fmt.Errorf("process %d runs it already; `go run ./hack/controlplane down` stops it", pid)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	logName := filepath.Join(dir, "up.log")
	log, err := os.Create(logName)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	// `go run` deletes the executable when this process ends; a copy outlives it.
	kept := filepath.Join(dir, "up")
	if err := copyProgram(program, kept); err != nil {
		return err
	}
	command := exec.Command(kept, "up", "--install="+install)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = command.Wait()
	}()
	deadline := time.After(startLimit)
	for {
		if ready, ok := strings.CutPrefix(readLog(logName), "ready\n"); ok {
			fmt.Print(ready)
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("it did not start:\n%s", readLog(logName))
		case <-deadline:
			return fmt.Errorf("it was not ready after %s; its output is in %s", startLimit, logName)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func readLog(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	// Removed first: a program that still runs can't be written to.
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func down(dir string) error {
	pid, err := controlplane.Owner(dir)
	if err != nil {
		return err
	}
	if pid == 0 {
		fmt.Println("not running")
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping process %d: %w", pid, err)
	}
	for deadline := time.Now().Add(stopLimit); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if owner, err := controlplane.Owner(dir); err == nil && owner != pid {
			fmt.Println("stopped")
			return nil
		}
	}
	return fmt.Errorf("process %d did not stop within %s", pid, stopLimit)
}

func kubeconfig(dir string, args []string) error {
	flags := flag.NewFlagSet("kubeconfig", flag.ContinueOnError)
	user := flags.String("user", "", "act as this user instead of an administrator")
	account := flags.String("service-account", "", "log in as this service account, NAMESPACE/NAME")
	var groups []string
	flags.Func("group", "a group of the user; may be given several times", func(group string) error {
		groups = append(groups, group)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	access, err := controlplane.Attach(dir)
	if err != nil {
		return err
	}
	path := access.Kubeconfig()
	switch {
	case *user != "":
		path, err = access.ImpersonatingKubeconfig(*user, groups...)
	case *account != "":
		namespace, name, found := strings.Cut(*account, "/")
		if !found {
			return fmt.Errorf("--service-account=%s: want NAMESPACE/NAME", *account)
		}
		path, err = access.ServiceAccountKubeconfig(context.Background(), namespace, name)
	}
	if err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}
