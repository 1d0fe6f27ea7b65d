package limits

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// counter stands before the model and notes when each request began and ended.
type counter struct {
	server *httptest.Server
	proxy  *httputil.ReverseProxy

	mu       sync.Mutex
	requests []*span
}

// span is one request. One that is not over yet has no end.
type span struct{ begin, end time.Time }

func newCounter(root string) *counter {
	GinkgoHelper()
	target, err := url.Parse(root)
	Expect(err).NotTo(HaveOccurred())
	c := &counter{proxy: httputil.NewSingleHostReverseProxy(target)}
	c.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	c.server = httptest.NewServer(c)
	return c
}

func (c *counter) stop() { c.server.Close() }

// ServeHTTP implements http.Handler. A request is over before its answer leaves, or the
// next one could arrive before that is noted.
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := &span{begin: time.Now()}
	c.mu.Lock()
	c.requests = append(c.requests, request)
	c.mu.Unlock()
	answer := httptest.NewRecorder()
	c.proxy.ServeHTTP(answer, r)
	c.mu.Lock()
	request.end = time.Now()
	c.mu.Unlock()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// since are the requests that began after a time.
func (c *counter) since(begin time.Time) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []span
	for _, request := range c.requests {
		if request.begin.After(begin) {
			found = append(found, *request)
		}
	}
	return found
}

// peak is the most requests that were under way at once.
func peak(spans []span) int {
	most := 0
	for _, at := range spans {
		n := 0
		for _, other := range spans {
			if !other.begin.After(at.begin) && (other.end.IsZero() || other.end.After(at.begin)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// densest is the most that began within a window.
func densest(begins []time.Time, window time.Duration) int {
	sorted := slices.SortedFunc(slices.Values(begins), time.Time.Compare)
	most, first := 0, 0
	for i, begin := range sorted {
		for begin.Sub(sorted[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func begins(spans []span) []time.Time {
	var times []time.Time
	for _, s := range spans {
		times = append(times, s.begin)
	}
	return times
}
