package fakemodel_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/test/fakemodel"
)

// TestSignedBy checks the signature that AWS's own documentation computes step by step.
func TestSignedBy(t *testing.T) {
	const header = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, " +
		"SignedHeaders=content-type;host;x-amz-date, " +
		"Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
	keys := fakemodel.AWSKeys{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
	signed := func() *http.Request {
		r := httptest.NewRequest(http.MethodGet, "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08", nil)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
		r.Header.Set("X-Amz-Date", "20150830T123600Z")
		r.Header.Set("Authorization", header)
		return r
	}
	at := time.Date(2015, 8, 30, 12, 37, 0, 0, time.UTC)
	tests := map[string]struct {
		change         func(*http.Request)
		keys           fakemodel.AWSKeys
		region, body   string
		later          time.Duration
		wantPartOfCode string
	}{
		"as documented":         {func(*http.Request) {}, keys, "us-east-1", "", 0, ""},
		"another body":          {func(*http.Request) {}, keys, "us-east-1", "x", 0, "does not match"},
		"another path":          {func(r *http.Request) { r.URL.Path = "/x" }, keys, "us-east-1", "", 0, "does not match"},
		"another header":        {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, keys, "us-east-1", "", 0, "does not match"},
		"another secret":        {func(*http.Request) {}, fakemodel.AWSKeys{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "x"}, "us-east-1", "", 0, "does not match"},
		"another key":           {func(*http.Request) {}, fakemodel.AWSKeys{AccessKeyID: "AKIDOTHER"}, "us-east-1", "", 0, "scoped"},
		"another region":        {func(*http.Request) {}, keys, "eu-central-1", "", 0, "scoped"},
		"too late":              {func(*http.Request) {}, keys, "us-east-1", "", 6 * time.Minute, "expired"},
		"a token not signed":    {func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "t") }, fakemodel.AWSKeys{AccessKeyID: "AKIDEXAMPLE", SessionToken: "t"}, "us-east-1", "", 0, "must be signed"},
		"a token too many":      {func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "t") }, keys, "us-east-1", "", 0, "security token"},
		"no signature":          {func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, keys, "us-east-1", "", 0, "Missing"},
		"a host that is not in": {func(r *http.Request) { r.Header.Set("Authorization", strings.Replace(header, ";host", "", 1)) }, keys, "us-east-1", "", 0, "must be signed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := signed()
			test.change(r)
			now := func() time.Time { return at.Add(test.later) }
			got := fakemodel.SignedBy(test.keys, test.region, "iam", now)(r, []byte(test.body))
			if (got == "") != (test.wantPartOfCode == "") || !strings.Contains(got, test.wantPartOfCode) {
				t.Errorf("got %q, want %q", got, test.wantPartOfCode)
			}
		})
	}
}
