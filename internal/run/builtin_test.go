package run

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/internal/jsonschema"
)

func TestAliases(t *testing.T) {
	long := "s." + strings.Repeat("x", 80)
	longer := long + "y"
	cases := map[string]struct {
		names []string
		want  map[string]string
	}{
		"a tool's own name":                {[]string{"crm.get", "billing.refund"}, map[string]string{"crm.get": "get", "billing.refund": "refund"}},
		"the same name on two servers":     {[]string{"a.get", "b.get"}, map[string]string{"a.get": "a_get", "b.get": "b_get"}},
		"the name of a built-in tool":      {[]string{"s.ask"}, map[string]string{"s.ask": "s_ask"}},
		"characters that providers refuse": {[]string{"s.a.b c/ü"}, map[string]string{"s.a.b c/ü": "a_b_c__"}},
		"a digit first":                    {[]string{"s.1st", "s.-x"}, map[string]string{"s.1st": "_1st", "s.-x": "_-x"}},
		"no name":                          {[]string{"s."}, map[string]string{"s.": "_"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Aliases(test.names)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	t.Run("too long", func(t *testing.T) {
		got := Aliases([]string{long, longer})
		if len(got[long]) != maxAlias || len(got[longer]) != maxAlias || got[long] == got[longer] {
			t.Errorf("aliases %v", got)
		}
	})
}

var legalAlias = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)

func TestAliasesAreLegalAndUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`(a|b|a_a|ask)\.[a-b_.é -]{0,3}([0-9a]{0,70}|)`), 0, 12, rapid.ID[string]).Draw(t, "names")
		aliases := Aliases(names)
		seen := map[string]string{ToolAsk: "", ToolRequestApproval: "", ToolCannotContinue: ""}
		for _, name := range names {
			alias, ok := aliases[name]
			if !ok || !legalAlias.MatchString(alias) {
				t.Fatalf("%q has the alias %q", name, alias)
			}
			if other, taken := seen[alias]; taken {
				t.Fatalf("%q and %q have the alias %q", name, other, alias)
			}
			seen[alias] = name
		}
		if diff := cmp.Diff(aliases, Aliases(names)); diff != "" {
			t.Fatalf("aliases differ from one time to the next:\n%s", diff)
		}
	})
}

func TestBuiltInToolsAreSound(t *testing.T) {
	for _, entry := range BuiltInTools() {
		if _, err := jsonschema.CompileObject(entry.InputSchema); err != nil {
			t.Errorf("schema of %s: %v", entry.Name, err)
		}
		if !legalAlias.MatchString(entry.Alias) || entry.Digest == "" {
			t.Errorf("entry %+v", entry)
		}
	}
}
