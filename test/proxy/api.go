package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Refusal is an answer that an API gives instead of what it was asked for.
type Refusal struct {
	// Status is an HTTP status from 400 on, and Reason the machine's word for it.
	Status int
	Reason metav1.StatusReason
	// RetryAfter asks the caller for patience, 0 for not at all.
	RetryAfter time.Duration
	// Done lets the request through first: it is carried out, and reported as failed.
	Done bool
}

// API stands before an API server and answers some requests in its place.
type API struct {
	server  *httptest.Server
	forward *httputil.ReverseProxy
	refused atomic.Int64

	mu      sync.Mutex
	refuses func(*http.Request) *Refusal
}

// NewAPI starts one before the API server of a client configuration.
func NewAPI(target *rest.Config) (*API, error) {
	address, err := url.Parse(target.Host)
	if err != nil {
		return nil, fmt.Errorf("standing before %s: %w", target.Host, err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(target.CAData) {
		return nil, fmt.Errorf("standing before %s: its configuration has no certificate authority", target.Host)
	}
	a := &API{forward: httputil.NewSingleHostReverseProxy(address)}
	// Watches are streams.
	a.forward.FlushInterval = -1
	a.forward.Transport = &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}, MaxIdleConnsPerHost: 64,
	}
	// Callers that are killed are what tests here are about.
	a.forward.ErrorLog = log.New(io.Discard, "", 0)
	a.server = httptest.NewUnstartedServer(a)
	a.server.Config.ErrorLog = a.forward.ErrorLog
	a.server.StartTLS()
	return a, nil
}

// Config is a client configuration that goes this way, otherwise like another one.
func (a *API) Config(like *rest.Config) *rest.Config {
	config := rest.CopyConfig(like)
	config.Host = a.server.URL
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	config.CAFile = ""
	return config
}

// Refuse sets what answers in the API server's place, where it gives an answer; nil lets
// everything through.
func (a *API) Refuse(which func(*http.Request) *Refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuses = which
}

// Refused counts the requests that were not answered by the API server.
func (a *API) Refused() int64 { return a.refused.Load() }

// Close ends it with every connection.
func (a *API) Close() {
	a.server.CloseClientConnections()
	a.server.Close()
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	which := a.refuses
	a.mu.Unlock()
	var refusal *Refusal
	if which != nil {
		refusal = which(r)
	}
	if refusal == nil {
		a.forward.ServeHTTP(w, r)
		return
	}
	a.refused.Add(1)
	if refusal.Done {
		a.forward.ServeHTTP(httptest.NewRecorder(), r)
	} else {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	w.Header().Set("Content-Type", "application/json")
	if refusal.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(refusal.RetryAfter.Seconds())))
	}
	w.WriteHeader(refusal.Status)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(refusal.Status), Reason: refusal.Reason, Message: "said by the proxy",
	})
}
