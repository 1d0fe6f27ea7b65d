package policy

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestGlob(t *testing.T) {
	tests := []struct {
		pattern, name string
		want          bool
	}{
		{"crm.get", "crm.get", true},
		{"crm.get", "crm.get_all", false},
		{"crm.*", "crm.get", true},
		{"crm.*", "crm.", true},
		{"crm.*", "crm.a.b.c", true},
		{"crm.*", "crmx.get", false},
		{"*", "anything.at.all", true},
		{"*", "", true},
		{"*.get*", "crm.getter", true},
		{"*get", "crm.get.get", true},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*a", "aba", true},
		{"a**a", "aa", true},
		{"crm.?et", "crm.get", false},
		{"", "", true},
		{"", "x", false},
	}
	for _, tt := range tests {
		if got := newGlob(tt.pattern).matches(tt.name); got != tt.want {
			t.Errorf("%q matches %q = %v, want %v", tt.pattern, tt.name, got, tt.want)
		}
	}
}

func TestGlobMayMatch(t *testing.T) {
	for pattern, want := range map[string]bool{
		"crm.get": true, "crm.": false, "crm": false, "crm.*": true, "*": true, "c*": true, "crm*": true,
		"*.get": true, "billing.*": false, "b*": false, "crmx*": false, "crm.get*x": true, "crm*get": true,
	} {
		if got := newGlob(pattern).mayMatch("crm."); got != want {
			t.Errorf("%q may match a tool of crm = %v, want %v", pattern, got, want)
		}
	}
}

// matchesByRegexp is the obvious implementation.
func matchesByRegexp(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)\A` + strings.Join(parts, ".*") + `\z`).MatchString(name)
}

func TestGlobAgreesWithRegexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab.*]{0,12}`).Draw(t, "pattern")
		name := rapid.StringMatching(`[ab.]{0,16}`).Draw(t, "name")
		if got, want := newGlob(pattern).matches(name), matchesByRegexp(pattern, name); got != want {
			t.Fatalf("%q matches %q = %v, want %v", pattern, name, got, want)
		}
		if rest, ok := strings.CutPrefix(name, "a."); ok && rest != "" && newGlob(pattern).matches(name) && !newGlob(pattern).mayMatch("a.") {
			t.Fatalf("%q matches %q but may not match a tool of a", pattern, name)
		}
	})
}

func TestGlobIsLinear(t *testing.T) {
	pattern := strings.Repeat("a*", 100) + "b"
	name := strings.Repeat("a", 1_000_000)
	start := time.Now()
	if newGlob(pattern).matches(name) {
		t.Error("matched without the b")
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("crm.*", "crm.get")
	f.Add("*a*b*", "xaxbx")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if !utf8.ValidString(pattern) || !utf8.ValidString(name) {
			t.Skip("regular expressions want UTF-8")
		}
		if got, want := newGlob(pattern).matches(name), matchesByRegexp(pattern, name); got != want {
			t.Fatalf("%q matches %q = %v, want %v", pattern, name, got, want)
		}
	})
}
