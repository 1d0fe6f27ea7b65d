package run

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/redaction"
	"github.com/pawl-run/pawl/internal/tool"
)

const (
	secret     = "ada@example.com"
	withSecret = `{"customer":{"email":"` + secret + `","id":7}}`
	masked     = `{"customer":{"email":"[redacted]","id":7}}`
)

func discreet() *v1alpha1.ToolPolicySpec {
	return ptr.To(withProperties(
		v1alpha1.ToolProperties{Match: []string{"s.read"}, Effect: v1alpha1.EffectReadOnly, MaxAttempts: 2, Redact: []string{"$.customer.email"}},
		v1alpha1.ToolProperties{Match: []string{"s.act"}, TimeoutSeconds: 600, Redact: []string{"$.customer.email"}},
	))
}

// valueOf is the result that a call has.
func valueOf(s *stage, id string) string {
	call := s.state().Call(id)
	if call == nil || call.Last == nil {
		return ""
	}
	return string(call.Last.Value)
}

// unredacted fails where the secret is anywhere in the journal.
func unredacted(t *testing.T, s *stage) {
	t.Helper()
	for _, record := range s.records {
		if bytes.Contains(record.Bytes, []byte(secret)) || bytes.Contains(record.Part, []byte(secret)) {
			t.Errorf("the journal holds it: %s", record.Bytes)
		}
	}
}

func TestResultsAreRedactedHoweverTheyCome(t *testing.T) {
	reads := func(outcome tool.Outcome) []act { return []act{calls(called("c:read", `{}`)), lands("c", outcome)} }
	outside := func(more ...act) []act {
		return append([]act{calls(called("c:act", `{}`)), lands("c", goesOn)}, more...)
	}
	unknown := func(more ...act) []act {
		return append([]act{calls(called("c:act", `{}`)), lands("c", lostReply)}, more...)
	}
	failed := func(class tool.Class, effect tool.EffectState, value string, embedded ...string) tool.Outcome {
		return tool.Outcome{Class: class, Effect: effect, Value: []byte(value), Embedded: embedded}
	}
	cut := gave(`"{\"customer\":{\"email\":\"` + secret + `"`)
	cut.Truncated, cut.Size = true, 1000
	quoted := `"` + strings.ReplaceAll(withSecret, `"`, `\"`) + `"`
	withheld := `"` + redaction.Withheld + `"`
	for name, tc := range map[string]struct {
		acts []act
		want string
	}{
		"a result":                   {reads(gave(withSecret)), masked},
		"a text that is JSON":        {reads(gave(quoted)), `"` + strings.ReplaceAll(masked, `"`, `\"`) + `"`},
		"a text that is none":        {reads(gave(`"it is ` + secret + `"`)), withheld},
		"a result that was cut":      {reads(cut), withheld},
		"no result":                  {reads(gave(``)), `null`},
		"a failure":                  {reads(failed(tool.ClassToolError, tool.EffectCommitted, withSecret)), masked},
		"a refusal":                  {reads(failed(tool.ClassRejected, tool.EffectRejected, quoted)), `"` + strings.ReplaceAll(masked, `"`, `\"`) + `"`},
		"what a job left behind":     {reads(failed(tool.ClassToolError, tool.EffectCommitted, `{"logs":"`+secret+`"}`, "logs")), `{"logs":` + withheld + `}`},
		"a second attempt":           {append(reads(tool.Outcome{Class: tool.ClassTransport, Effect: tool.EffectRejected, Retryable: true, Value: []byte(withSecret)}), passes(time.Minute), lands("c", gave(withSecret))), masked},
		"what an unknown one said":   {unknown(settledBy(withSecret)), masked},
		"what was polled":            {outside(untilThen, learns("c", gave(withSecret))), masked},
		"what was delivered":         {outside(delivers("c", withSecret, "ann")), masked},
		"what a late worker says":    {unknown(testifies(gave(withSecret))), masked},
		"what a late worker cut off": {unknown(testifies(cut)), withheld},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene{spec: discreet(), acts: tc.acts}.play(t)
			if got := valueOf(s, "c"); got != tc.want {
				t.Errorf("the result is %s, want %s", got, tc.want)
			}
			unredacted(t, s)
		})
	}
}

// settles is the word of the service that is asked what became of call c.
func settledBy(value string) act {
	return func(s *stage, _ Step) {
		entry, fits := RecordFound(s.look(), "c", Found{State: "committed", Value: []byte(value)})
		if !fits {
			s.t.Fatalf("nobody wants to know")
		}
		s.add(entry)
	}
}

// testifies is the word of a worker that sent call c and lost the run.
func testifies(outcome tool.Outcome) act {
	return func(s *stage, _ Step) {
		entry, fits := RecordLate(s.look(), "c", 1, outcome)
		if !fits {
			s.t.Fatalf("nobody wants to know")
		}
		s.add(entry)
	}
}

func TestRedactionOnlyGrowsWhileACallIsUnderWay(t *testing.T) {
	none := withProperties(v1alpha1.ToolProperties{Match: []string{"s.*"}, Effect: v1alpha1.EffectReadOnly})
	for name, tc := range map[string]struct {
		before, after v1alpha1.ToolPolicySpec
		rules         bool
	}{
		"taken away":   {*discreet(), none, true},
		"added":        {none, *discreet(), true},
		"out of sight": {*discreet(), none, false},
	} {
		t.Run(name, func(t *testing.T) {
			after := rules(tc.after)
			if !tc.rules {
				after = noRules
			}
			s := scene{spec: &tc.before, acts: []act{calls(called("c:read", `{}`)), after, lands("c", gave(withSecret))}}.play(t)
			if got := valueOf(s, "c"); got != masked {
				t.Errorf("the result is %s", got)
			}
			unredacted(t, s)
		})
	}
}
