package transport

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// ErrHeaders wraps what the function for configured headers reports.
var ErrHeaders = errors.New("the configured headers can't be read")

// Credentials are the configured headers, an access token included, as they were at one
// moment. Requests that belong together share them, so that a Secret rotated in between
// does not split them.
type Credentials struct {
	header http.Header
	// token is the access token among them, empty for none.
	token string
}

// Credentials reads what is configured, and fetches an access token where one is due.
func (c *Client) Credentials(ctx context.Context) (Credentials, error) {
	found := Credentials{header: http.Header{}}
	if c.headers != nil {
		configured, err := c.headers()
		if err != nil {
			return Credentials{}, fmt.Errorf("%w: %w", ErrHeaders, err)
		}
		if err := found.take(configured); err != nil {
			return Credentials{}, err
		}
	}
	if c.oauth != nil {
		token, err := c.accessToken(ctx)
		if err != nil {
			return Credentials{}, err
		}
		found.token = token
		found.header.Set("Authorization", "Bearer "+token)
	}
	return found, nil
}

// take copies configured headers that may be sent.
func (c Credentials) take(configured http.Header) error {
	for name, values := range configured {
		name = http.CanonicalHeaderKey(name)
		if reserved(name) {
			continue
		}
		for _, value := range values {
			// Secrets made from files often end in a line break.
			value = strings.TrimRight(value, "\r\n")
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("%w: the value of %s holds a control character", ErrHeaders, name)
			}
			c.header.Add(name, value)
		}
	}
	return nil
}

// Digest names the credentials without giving them away: whoever does not know key can't
// try out values.
func (c Credentials) Digest(key []byte) string {
	mac := hmac.New(sha256.New, key)
	for _, name := range slices.Sorted(maps.Keys(c.header)) {
		for _, value := range c.header[name] {
			_, _ = fmt.Fprintf(mac, "%d %s%d %s", len(name), name, len(value), value)
		}
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// addTo sets the headers that a request does not have already.
func (c Credentials) addTo(header http.Header) {
	for name, values := range c.header {
		if _, ok := header[name]; !ok {
			header[name] = slices.Clone(values)
		}
	}
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", "pawl")
	}
}

// reserved names are set by the adapters or by net/http alone.
func reserved(name string) bool {
	switch name {
	case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Upgrade", "Expect", "Traceparent", "Tracestate":
		return true
	}
	return strings.HasPrefix(name, "Pawl-") || strings.HasPrefix(name, "Mcp-") || name == "Idempotency-Key"
}

// unsent is what Send gives for a request that can't be sent: its body is closed.
func unsent(req *http.Request, err error) (*http.Response, *Sending, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, &Sending{gate: GateOf(req.Context())}, err
}
