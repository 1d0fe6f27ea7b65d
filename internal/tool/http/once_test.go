package httptool_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/tool"
	httptool "github.com/pawl-run/pawl/internal/tool/http"
)

// rawService is a listener that sees every connection and request, and does with the
// n-th request of the whole test what answer says.
type rawService struct {
	url                   string
	connections, requests atomic.Int32
}

func newRawService(t *testing.T, answer func(n int32, conn net.Conn) (keep bool)) *rawService {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := &rawService{url: "http://" + listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.connections.Add(1)
			go s.serve(conn, answer)
		}
	}()
	return s
}

func (s *rawService) serve(conn net.Conn, answer func(int32, net.Conn) bool) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if !answer(s.requests.Add(1), conn) {
			return
		}
	}
}

func ok(conn net.Conn) bool {
	_, err := fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Type: application/json\r\n\r\n1")
	return err == nil
}

// settle leaves time for a request that should not come.
func settle() { time.Sleep(200 * time.Millisecond) }

// The connection is cut once the request was read: the call may have happened, and
// exactly one request arrived, whatever net/http makes of an Idempotency-Key.
func TestCutAfterRequest(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("repeatable %v", again), func(t *testing.T) {
			service := newRawService(t, func(int32, net.Conn) bool { return false })
			s := newServer(t, httptool.Options{URL: service.url})
			out := s.Call(t.Context(), aCall(func(c *tool.Call) { c.Repeatable = again }))
			if out.Class != tool.ClassUnknown || out.Effect != tool.EffectUnknown || out.Retryable != again {
				t.Errorf("outcome %+v", out)
			}
			settle()
			if n := service.requests.Load(); n != 1 {
				t.Errorf("%d requests arrived", n)
			}
		})
	}
}

// The same on a connection that served a call before, where net/http is keenest to
// send again.
func TestCutOnKeptConnection(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("repeatable %v", again), func(t *testing.T) {
			service := newRawService(t, func(n int32, conn net.Conn) bool { return n == 1 && ok(conn) })
			s := newServer(t, httptool.Options{URL: service.url})
			if out := s.Call(t.Context(), aCall(repeatable)); out.Class != tool.ClassOK {
				t.Fatalf("first call: %+v", out)
			}
			out := s.Call(t.Context(), aCall(func(c *tool.Call) { c.Repeatable = again }))
			if out.Class != tool.ClassUnknown || out.Effect != tool.EffectUnknown {
				t.Errorf("outcome %+v", out)
			}
			settle()
			if n := service.requests.Load(); n != 2 {
				t.Errorf("%d requests arrived, want 2", n)
			}
			wantConnections := int32(2)
			if again {
				wantConnections = 1
			}
			if n := service.connections.Load(); n != wantConnections {
				t.Errorf("%d connections, want %d", n, wantConnections)
			}
		})
	}
}

// A kept connection that the service closed meanwhile: sent at most once, and the
// outcome never claims more than is known.
func TestStaleConnection(t *testing.T) {
	service := newRawService(t, func(n int32, conn net.Conn) bool {
		ok(conn)
		return n != 1
	})
	s := newServer(t, httptool.Options{URL: service.url})
	if out := s.Call(t.Context(), aCall(repeatable)); out.Class != tool.ClassOK {
		t.Fatalf("first call: %+v", out)
	}
	for range 20 {
		before := service.requests.Load()
		out := s.Call(t.Context(), aCall(repeatable))
		arrived := service.requests.Load() - before
		if arrived > 1 || out.Class == tool.ClassOK && arrived != 1 || out.Effect == tool.EffectRejected && arrived != 0 {
			t.Errorf("outcome %+v with %d requests", out, arrived)
		}
	}
}

// Calls that may be sent once never share a connection.
func TestFreshConnections(t *testing.T) {
	service := newRawService(t, func(_ int32, conn net.Conn) bool { return ok(conn) })
	s := newServer(t, httptool.Options{URL: service.url})
	for range 3 {
		if out := s.Call(t.Context(), aCall()); out.Class != tool.ClassOK {
			t.Fatalf("outcome %+v", out)
		}
	}
	if n := service.connections.Load(); n != 3 {
		t.Errorf("%d connections for 3 calls", n)
	}
	for range 3 {
		s.Call(t.Context(), aCall(repeatable))
	}
	if n := service.connections.Load(); n != 4 {
		t.Errorf("%d connections, want repeatable calls to share one", n)
	}
}

// The answer breaks off: a success whose result is lost is not known, a rejection
// stands.
func TestCutInsideAnswer(t *testing.T) {
	for _, tc := range []struct {
		answer string
		class  tool.Class
		effect tool.EffectState
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a\"", tool.ClassUnknown, tool.EffectUnknown},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n123\r\n", tool.ClassUnknown, tool.EffectUnknown},
		{"HTTP/1.1 200 OK\r\nContent-Le", tool.ClassUnknown, tool.EffectUnknown},
		{"garbage\r\n\r\n", tool.ClassUnknown, tool.EffectUnknown},
		{"HTTP/1.1 400 Bad\r\nContent-Length: 10\r\n\r\n{\"a\"", tool.ClassRejected, tool.EffectRejected},
		{"HTTP/1.1 100 Continue\r\n\r\n", tool.ClassUnknown, tool.EffectUnknown},
	} {
		service := newRawService(t, func(_ int32, conn net.Conn) bool {
			_, _ = fmt.Fprint(conn, tc.answer)
			return false
		})
		s := newServer(t, httptool.Options{URL: service.url})
		for _, again := range []bool{false, true} {
			before := service.requests.Load()
			out := s.Call(t.Context(), aCall(func(c *tool.Call) { c.Repeatable = again }))
			if out.Class != tc.class || out.Effect != tc.effect {
				t.Errorf("%q: outcome %+v", tc.answer, out)
			}
			if n := service.requests.Load() - before; n != 1 {
				t.Errorf("%q: %d requests", tc.answer, n)
			}
		}
	}
}
