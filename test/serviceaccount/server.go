// Package serviceaccount stands in for Google's token endpoint: it makes the key of a
// service account, and gives tokens only for assertions that the real endpoint would take.
package serviceaccount

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// Email of the account.
	Email = "agents@pawl-test.iam.gserviceaccount.com"
	keyID = "8f2a3c"
	grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	scope = "https://www.googleapis.com/auth/cloud-platform"
)

// Server is a token endpoint on loopback.
type Server struct {
	// Lifetime is what the tokens are said to live; 0 for an hour.
	Lifetime time.Duration

	key      *rsa.PrivateKey
	address  string
	http     *http.Server
	served   sync.WaitGroup
	mu       sync.Mutex
	valid    map[string]bool
	given    int
	requests int
	refusals []string
	failures []Failure
}

// Failure is an answer in place of a token.
type Failure struct {
	Status int
	Header http.Header
	Body   string
}

// Start makes an account and listens on a free port of 127.0.0.1.
func Start() (*Server, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("making the key of a service account: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a token endpoint: %w", err)
	}
	s := &Server{key: key, address: "http://" + listener.Addr().String() + "/token", valid: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", s.serve)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	s.served.Go(func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("serving tokens: %v", err))
		}
	})
	return s, nil
}

// Close stops the endpoint.
func (s *Server) Close() error {
	err := s.http.Shutdown(context.Background())
	s.served.Wait()
	return err
}

// Address is the account's token_uri.
func (s *Server) Address() string { return s.address }

// PrivateKey is the account's key in PEM form.
func (s *Server) PrivateKey() string {
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		panic(fmt.Sprintf("encoding a key that was just made: %v", err))
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// KeyFile is the account's JSON key, as a console offers it for download.
func (s *Server) KeyFile() string {
	data, err := json.MarshalIndent(map[string]string{
		"type": "service_account", "project_id": "pawl-test", "private_key_id": keyID, "private_key": s.PrivateKey(),
		"client_email": Email, "client_id": "100000000000000000001",
		"auth_uri": "https://accounts.google.com/o/oauth2/auth", "token_uri": s.address,
		"universe_domain": "googleapis.com",
	}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encoding a key file: %v", err))
	}
	return string(data) + "\n"
}

// Valid reports whether the endpoint gave this token and it was not revoked.
func (s *Server) Valid(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.valid[token]
}

// Revoke makes every token so far worthless.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.valid)
}

// Fail answers the next requests with failures, one each.
func (s *Server) Fail(failures ...Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, failures...)
}

// Requests is how many requests came, and Refusals says why some were refused.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Refusals says why requests were refused. A test that expects a well-behaved client
// checks that it is empty.
func (s *Server) Refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.refusals...)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	problem := ""
	if err := r.ParseForm(); err != nil {
		problem = "no form"
	} else {
		problem = s.judge(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	w.Header().Set("Content-Type", "application/json")
	switch {
	case problem != "":
		s.refusals = append(s.refusals, problem)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error":"invalid_grant","error_description":%q}`, problem)
	case len(s.failures) > 0:
		failure := s.failures[0]
		s.failures = s.failures[1:]
		for name, values := range failure.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(failure.Status)
		_, _ = w.Write([]byte(failure.Body))
	default:
		s.given++
		token := fmt.Sprintf("ya29.pawl-%d", s.given)
		s.valid[token] = true
		seconds := int64(time.Hour.Seconds())
		if s.Lifetime > 0 {
			seconds = int64(s.Lifetime.Seconds())
		}
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"expires_in":%d,"token_type":"Bearer"}`, token, seconds)
	}
}

// judge checks the grant, the signature and the claims of a request.
func (s *Server) judge(r *http.Request) string {
	if got := r.PostForm.Get("grant_type"); got != grant {
		return "the grant type is not that of an assertion"
	}
	parts := strings.Split(r.PostForm.Get("assertion"), ".")
	if len(parts) != 3 {
		return "the assertion has not three parts"
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return "the signature is not base64"
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if rsa.VerifyPKCS1v15(&s.key.PublicKey, crypto.SHA256, digest[:], signature) != nil {
		return "the signature is not the account's"
	}
	var header struct{ Alg, Typ, Kid string }
	var claims struct {
		Iss, Aud, Scope string
		Iat, Exp        int64
	}
	if !decode(parts[0], &header) || !decode(parts[1], &claims) {
		return "header or claims are not JSON"
	}
	now := time.Now().Unix()
	const skew = 300
	switch {
	case header.Alg != "RS256" || header.Kid != keyID:
		return "the header names another algorithm or key"
	case claims.Iss != Email:
		return "another issuer"
	case claims.Aud != s.address:
		return "another audience"
	case claims.Scope != scope:
		return "another scope"
	case claims.Iat > now+skew || claims.Exp < now-skew || claims.Exp-claims.Iat > 3600+skew:
		return "the time of the assertion is wrong"
	default:
		return ""
	}
}

func decode(part string, into any) bool {
	data, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(data, into) == nil
}
