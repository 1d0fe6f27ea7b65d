package fakemodel

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// AWSKeys is a key pair of AWS.
type AWSKeys struct {
	AccessKeyID, SecretAccessKey string
	// SessionToken goes with temporary keys; empty for none.
	SessionToken string
}

// SignedBy is for Options.Authorize: it computes the signature (version 4) of a request
// again, as AWS does, and refuses every other.
func SignedBy(keys AWSKeys, region, service string, now func() time.Time) func(*http.Request, []byte) string {
	return func(r *http.Request, body []byte) string {
		scope, signed, signature, ok := parseAuthorization(r.Header.Get("Authorization"))
		sent := r.Header.Get("X-Amz-Date")
		at, err := time.Parse("20060102T150405Z", sent)
		switch {
		case !ok:
			return "MissingAuthenticationTokenException"
		case err != nil || now().Sub(at).Abs() > 5*time.Minute:
			return "InvalidSignatureException: signature expired"
		case scope != strings.Join([]string{keys.AccessKeyID, sent[:8], region, service, "aws4_request"}, "/"):
			return "InvalidSignatureException: the credential is scoped to another key, day, region or service"
		case r.Header.Get("X-Amz-Security-Token") != keys.SessionToken:
			return "UnrecognizedClientException: the security token is invalid"
		}
		must := []string{"host", "x-amz-date"}
		if keys.SessionToken != "" {
			must = append(must, "x-amz-security-token")
		}
		for _, name := range must {
			if !slices.Contains(signed, name) {
				return "InvalidSignatureException: " + name + " must be signed"
			}
		}
		if !hmac.Equal([]byte(signature), []byte(sign(keys, region, service, sent, canonicalRequest(r, signed, body)))) {
			return "InvalidSignatureException: the signature does not match"
		}
		return ""
	}
}

var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^,\s]+), ?SignedHeaders=([^,\s]+), ?Signature=([0-9a-f]{64})$`)

func parseAuthorization(header string) (scope string, signed []string, signature string, ok bool) {
	found := authorization.FindStringSubmatch(header)
	if found == nil {
		return "", nil, "", false
	}
	return found[1], strings.Split(found[2], ";"), found[3], true
}

func canonicalRequest(r *http.Request, signed []string, body []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%s\n", r.Method, canonicalPath(r.URL), r.URL.RawQuery)
	for _, name := range signed {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		fmt.Fprintf(&b, "%s:%s\n", name, strings.Join(strings.Fields(value), " "))
	}
	fmt.Fprintf(&b, "\n%s\n%s", strings.Join(signed, ";"), digestOf(body))
	return b.String()
}

// canonicalPath escapes the path as it was sent once more, as every service but S3 does.
func canonicalPath(u *url.URL) string {
	var b strings.Builder
	for _, c := range []byte(u.EscapedPath()) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~/", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func sign(keys AWSKeys, region, service, at, request string) string {
	key := []byte("AWS4" + keys.SecretAccessKey)
	for _, part := range []string{at[:8], region, service, "aws4_request"} {
		key = keyed(key, part)
	}
	scope := strings.Join([]string{at[:8], region, service, "aws4_request"}, "/")
	return hex.EncodeToString(keyed(key, strings.Join([]string{"AWS4-HMAC-SHA256", at, scope, digestOf([]byte(request))}, "\n")))
}

func keyed(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
