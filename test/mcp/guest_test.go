package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pawl-run/pawl/test/alone"
)

// A Node server listens on every address of its machine. It gets a machine of its own:
// a network namespace with nothing but a loopback interface. What leads in is a socket in
// the file system, held by a process of this program in the same namespace.
const (
	// guestVariable names the folder for the socket, in that process.
	guestVariable = "PAWL_MCP_GUEST"
	// guestArguments are those of Node, as a JSON list.
	guestArguments = "PAWL_MCP_GUEST_ARGUMENTS"
	guestPort      = "3001"
	socketName     = "socket"
)

// guest is the main function of the process in the namespace. It ends with its standard
// input.
func guest() error {
	if err := alone.LoopbackUp(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var arguments []string
	if err := json.Unmarshal([]byte(os.Getenv(guestArguments)), &arguments); err != nil {
		return err
	}
	server := exec.CommandContext(ctx, "node", arguments...)
	server.Env = append(os.Environ(), "PORT="+guestPort)
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	ended := make(chan error, 3)
	go func() { ended <- server.Wait() }()
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	go func() { ended <- relay(ctx, filepath.Join(os.Getenv(guestVariable), socketName)) }()
	return <-ended
}

// relay passes what comes in at the socket on to the server, once that listens.
func relay(ctx context.Context, path string) error {
	dialer := &net.Dialer{}
	dial := func() (net.Conn, error) { return dialer.DialContext(ctx, "tcp", "127.0.0.1:"+guestPort) }
	for {
		conn, err := dial()
		if err == nil {
			_ = conn.Close()
			break
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("waiting for the server: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listening at the socket: %w", err)
	}
	for {
		outer, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = outer.Close() }()
			inner, err := dial()
			if err != nil {
				return
			}
			defer func() { _ = inner.Close() }()
			go func() {
				_, _ = io.Copy(inner, outer)
				_ = inner.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(outer, inner)
		}()
	}
}

// startGuest starts the server and waits until it answers. What it writes goes to log.
func startGuest(ctx context.Context, dir string, arguments []string, log io.Writer) (stop func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(arguments)
	if err != nil {
		return nil, err
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), guestVariable+"="+dir, guestArguments+"="+string(encoded))
	command.Stdout, command.Stderr = log, log
	alone.Prepare(command)
	alive, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting a process in a network namespace: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	stop = func() {
		_ = alive.Close()
		<-ended
		_ = os.Remove(filepath.Join(dir, socketName))
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, socketName)); err == nil {
			return stop, nil
		}
		select {
		case <-ended:
			stop()
			return nil, errors.New("the server has ended before it answered")
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
