package proxy_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/pawl-run/pawl/test/proxy"
)

// echo answers with what it hears.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	return listener.Addr().String()
}

func start(t *testing.T) *proxy.Proxy {
	t.Helper()
	p, err := proxy.New(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func dial(t *testing.T, p *proxy.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp4", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// served says whether a new connection is of any use.
func served(p *proxy.Proxy) bool {
	conn, err := net.Dial("tcp4", p.Address())
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	return echoes(conn, 5*time.Second)
}

// echoes says whether what is sent comes back in time.
func echoes(conn net.Conn, within time.Duration) bool {
	_ = conn.SetDeadline(time.Now().Add(within))
	if _, err := conn.Write([]byte("x")); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err == nil
}

func TestForwards(t *testing.T) {
	if !served(start(t)) {
		t.Error("nothing came back")
	}
}

func TestCutAndRestore(t *testing.T) {
	p := start(t)
	conn := dial(t, p)
	if !echoes(conn, 5*time.Second) {
		t.Fatal("nothing came back")
	}
	p.Cut()
	if echoes(conn, 5*time.Second) {
		t.Error("an old connection lives on")
	}
	if served(p) {
		t.Error("a new connection was served")
	}
	p.Restore()
	if !served(p) {
		t.Error("nothing came back after all was restored")
	}
}

func TestHold(t *testing.T) {
	p := start(t)
	conn := dial(t, p)
	p.Hold()
	if echoes(conn, 200*time.Millisecond) {
		t.Error("something came through")
	}
	p.Restore()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Errorf("what was held did not arrive: %v", err)
	}
}

func TestRefuse(t *testing.T) {
	p := start(t)
	mine := os.Getpid()
	var seen int
	p.Refuse(func(client net.Conn) bool {
		seen = proxy.ProcessOf(client.RemoteAddr().String(), []int{1, mine})
		return seen == mine
	})
	if served(p) {
		t.Error("a refused connection was served")
	}
	if seen != mine {
		t.Errorf("the connection is taken for process %d's, not %d's", seen, mine)
	}
	p.Refuse(nil)
	if !served(p) {
		t.Error("nothing came back")
	}
}
