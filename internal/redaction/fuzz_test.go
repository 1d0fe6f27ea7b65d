package redaction_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pawl-run/pawl/internal/redaction"
	"github.com/pawl-run/pawl/internal/strictjson"
)

// FuzzApply: whatever path and result, there is JSON again, applying twice changes nothing
// more where the path has no filter, and it takes no time to speak of.
func FuzzApply(f *testing.F) {
	for _, path := range []string{"$", "$.a", "$..a", "$[*].a", "$[?@.a == 1].b", "$['a','b'][0]", "$[?match(@.a,'x+')]", "$..[1:3:2]", "$[::-1]", "$[?@[?@.a]]", "$[?length(@.a)>1e3]"} {
		f.Add(path, `{"a":[{"a":1,"b":"x"},2],"b":"{\"a\":1}"}`)
	}
	f.Add("$.a", `"{\"a\":1}"`)
	f.Fuzz(func(t *testing.T, path, value string) {
		if redaction.Check(path) != nil {
			return
		}
		paths := redaction.New([]string{path})
		start := time.Now()
		got := paths.Apply(json.RawMessage(value), []string{"text"})
		if took := time.Since(start); took > 10*time.Second {
			t.Fatalf("%s on %d bytes took %s", path, len(value), took)
		}
		if len(value) > 0 && !json.Valid(got) {
			t.Fatalf("Apply(%q) = %q", value, got)
		}
		if strings.Contains(path, "?") {
			return
		}
		if again := paths.Apply(got, []string{"text"}); !bytes.Equal(again, got) {
			t.Fatalf("a second time changes %s to %s", got, again)
		}
	})
}

// FuzzMember: a member's value is nowhere in what is left, however the rest looks.
func FuzzMember(f *testing.F) {
	f.Add(`{"x":[1]}`, "k")
	f.Add(`"prose"`, "a b")
	f.Fuzz(func(t *testing.T, rest, name string) {
		const secret = "s3cr3t-5511"
		around, err := strictjson.Parse([]byte(rest), strictjson.Limits{MaxDepth: 20})
		if err != nil || strings.Contains(rest, secret) || name == "rest" || len(name) > 64 || !json.Valid(strictjson.Canonical(name)) {
			return
		}
		path := "$[" + string(strictjson.Canonical(name)) + "]"
		if redaction.Check(path) != nil {
			return
		}
		document := strictjson.Canonical(map[string]any{"rest": around, name: secret})
		for _, value := range [][]byte{document, strictjson.Canonical(string(document))} {
			if got := redaction.New([]string{path}).Apply(value, nil); bytes.Contains(got, []byte(secret)) {
				t.Fatalf("%s leaves %s", path, got)
			}
		}
	})
}
