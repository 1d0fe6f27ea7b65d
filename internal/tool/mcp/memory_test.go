package mcptool_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/tool"
	mcptool "github.com/pawl-run/pawl/internal/tool/mcp"
)

// peakHeap runs f and gives by how much the heap grew on the way.
func peakHeap(f func()) uint64 {
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			peak.Store(max(peak.Load(), now.HeapInuse))
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	f()
	close(stop)
	watching.Wait()
	return peak.Load() - min(peak.Load(), before.HeapInuse)
}

// pour writes text over and over until so many bytes are out, or nobody reads them.
func pour(w io.Writer, text string, bytes int) {
	for range bytes / len(text) {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// Whatever servers pour out, each answer under way takes a bounded multiple of the 8 MiB
// that are read of one.
func TestMemoryIsBounded(t *testing.T) {
	const (
		atOnce = 4
		most   = 8 << 20
		ratio  = 6
	)
	zeros := strings.Repeat("0,", 1<<15)
	for name, answer := range map[string]func(r modernRequest, w http.ResponseWriter){
		"a result of 50 MB": func(r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, r.ID)
			pour(w, strings.Repeat("x", 1<<16), 50<<20)
		},
		"50 MB of small values": func(r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"structuredContent":[`, r.ID)
			pour(w, zeros, 50<<20)
		},
		"7 MB of small values": func(r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"structuredContent":[`, r.ID)
			pour(w, zeros, 7<<20)
			_, _ = io.WriteString(w, `0],"content":[]}}`)
		},
		"7 MB of text that grows when it is escaped": func(r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, r.ID)
			pour(w, strings.Repeat(`\u0001`, 1<<12), 7<<20)
			_, _ = io.WriteString(w, `"}]}}`)
		},
		"an image of 7 MB": func(r modernRequest, w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"image","mimeType":"image/png","data":"`, r.ID)
			pour(w, strings.Repeat("AAAA", 1<<14), 7<<20)
			_, _ = io.WriteString(w, `"}]}}`)
		},
		"a stream without end": func(_ modernRequest, w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			pour(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n", 200<<20)
		},
		"an event without end": func(_ modernRequest, w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			pour(w, "data: "+strings.Repeat("x", 100)+"\n", 200<<20)
		},
		"a line without end": func(_ modernRequest, w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			pour(w, strings.Repeat("x", 1<<16), 200<<20)
		},
	} {
		m := newModern(t, plainTool, func(_ int, r modernRequest, w http.ResponseWriter) { answer(r, w) })
		memory := mcptool.NewMemory(time.Now)
		grown := peakHeap(func() {
			var wait sync.WaitGroup
			for range atOnce {
				wait.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					out := serverWith(t, mcptool.Options{URL: m.URL, Memory: memory}).Call(ctx, aCall("x"))
					if len(out.Value) > 1000 || out.Class == tool.ClassTimeout {
						t.Errorf("%s: class %s, value of %d bytes", name, out.Class, len(out.Value))
					}
				})
			}
			wait.Wait()
		})
		t.Logf("%s: %d at once took %d MiB, %.1f times what is read of them", name, atOnce, grown>>20, float64(grown)/(atOnce*most))
		if grown > atOnce*most*ratio {
			t.Errorf("%s: %d MiB", name, grown>>20)
		}
	}
}

// What is remembered of servers is bounded too, however many there are and whatever they
// offer.
func TestRememberedIsBounded(t *testing.T) {
	var tools []string
	for i := range 30 {
		tools = append(tools, fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object","description":"%s"}}`, i, strings.Repeat("x", 60_000)))
	}
	m := newModern(t, strings.Join(tools, ","), fine)
	memory := mcptool.NewMemory(time.Now)
	grown := peakHeap(func() {
		for i := range 100 {
			if _, err := serverWith(t, mcptool.Options{URL: fmt.Sprintf("%s/%d", m.URL, i), Memory: memory}).List(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Logf("100 servers with 1.8 MB of schemas each: %d MiB", grown>>20)
	if grown > 384<<20 {
		t.Errorf("%d MiB", grown>>20)
	}
	runtime.KeepAlive(memory)
}

// A reply that comes after its call was given up is nobody's.
func TestLateReply(t *testing.T) {
	var held sync.WaitGroup
	m := newModern(t, plainTool, nil)
	m.call = func(n int, r modernRequest, w http.ResponseWriter) {
		if n == 1 {
			defer held.Done()
			time.Sleep(300 * time.Millisecond)
			writeJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[{"type":"text","text":"late"}]}}`, r.ID)
			return
		}
		fine(n, r, w)
	}
	s := newServer(t, m.URL)
	held.Add(1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if out := s.Call(ctx, aCall("x", repeatable)); out.Class != tool.ClassTimeout || out.Effect != tool.EffectUnknown {
		t.Errorf("given up: %+v", out)
	}
	for range 5 {
		if out := s.Call(t.Context(), aCall("x", repeatable)); string(out.Value) != `"fine"` {
			t.Errorf("the next: %+v", out)
		}
	}
	held.Wait()
	if out := s.Call(t.Context(), aCall("x", repeatable)); string(out.Value) != `"fine"` {
		t.Errorf("after the late reply: %+v", out)
	}
}
