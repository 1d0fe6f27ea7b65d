package regressions

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// reference is a test as the document names it: `code` for Go, *italics* for Ginkgo.
var reference = regexp.MustCompile("^(\\S+): (?:`([^`]+)`|\\*([^*]+)\\*)$")

// classes is how many fault classes there are.
const classes = 20

// TestTheNamedTestsExist checks every line of both lists: it names a test, and each test
// that it names is there.
func TestTheNamedTestsExist(t *testing.T) {
	found := map[string]*tests{}
	seen := map[int]bool{}
	for _, row := range rows(t) {
		if n, err := strconv.Atoi(row[0]); err == nil {
			seen[n] = true
		}
		for _, text := range strings.Split(row[2], "; ") {
			parts := reference.FindStringSubmatch(text)
			if parts == nil {
				t.Errorf("%s: %q names no test: write package: `Test/subtest` or package: *text of a spec*", row[1], text)
				continue
			}
			if found[parts[1]] == nil {
				found[parts[1]] = read(t, parts[1])
			}
			if !found[parts[1]].has(parts[2], parts[3]) {
				t.Errorf("%s: there is no %s", row[1], text)
			}
		}
	}
	for n := 1; n <= classes; n++ {
		if !seen[n] {
			t.Errorf("fault class %d has no line", n)
		}
	}
}

// rows are the lines of the document's tables, three cells each.
func rows(t *testing.T) [][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "docs", "regressions.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasSuffix(line, "| Guarded by |") {
			continue
		}
		if len(cells) != 3 {
			t.Fatalf("%q has %d cells", line, len(cells))
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all = append(all, cells)
	}
	if len(all) < 80 {
		t.Fatalf("only %d lines were read", len(all))
	}
	return all
}

// tests are those of a package: Go tests, every string that may name a subtest, and the
// whole texts of Ginkgo specs.
type tests struct{ functions, literals, specs map[string]bool }

func (s *tests) has(goTest, spec string) bool {
	if spec != "" {
		return s.specs[spec]
	}
	name, subtest, nested := strings.Cut(goTest, "/")
	return s.functions[name] && (!nested || s.literals[subtest])
}

// read parses a package.
func read(t *testing.T, folder string) *tests {
	t.Helper()
	s := &tests{functions: map[string]bool{}, literals: map[string]bool{}, specs: map[string]bool{}}
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("package %s has no files: %v", folder, err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok {
				if text, isText := textOf(literal); isText {
					s.literals[text] = true
				}
			}
			return true
		})
		for _, declared := range parsed.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && function.Recv == nil && strings.HasSuffix(file, "_test.go") {
				s.functions[function.Name.Name] = strings.HasPrefix(function.Name.Name, "Test") || strings.HasPrefix(function.Name.Name, "Fuzz")
			}
		}
		s.addSpecs("", parsed)
	}
	return s
}

// addSpecs adds the specs below a node, whose texts follow those of what they are in.
func (s *tests) addSpecs(prefix string, node ast.Node) {
	ast.Inspect(node, func(inner ast.Node) bool {
		call, ok := inner.(*ast.CallExpr)
		if !ok || inner == node || len(call.Args) == 0 {
			return true
		}
		function, isName := call.Fun.(*ast.Ident)
		text, isText := textOf(call.Args[0])
		if !isName || !isText {
			return true
		}
		whole := strings.TrimSpace(prefix + " " + text)
		switch function.Name {
		case "It", "Entry":
			s.specs[whole] = true
			return false
		case "DescribeTable":
			s.specs[whole] = true
		case "Describe", "Context", "When":
		default:
			return true
		}
		for _, argument := range call.Args[1:] {
			s.addSpecs(whole, &ast.ExprStmt{X: argument})
		}
		return false
	})
}

func textOf(node ast.Expr) (string, bool) {
	literal, ok := node.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}

// TestWhatIsNotThereIsMissed checks the check.
func TestWhatIsNotThereIsMissed(t *testing.T) {
	here, replicas := read(t, "test/regressions"), read(t, "test/replicas")
	for _, test := range []struct {
		in           *tests
		goTest, spec string
		want         bool
	}{
		{here, "TestWhatIsNotThereIsMissed", "", true},
		{here, "TestWhatIsNotThere", "", false},
		{here, "rows", "", false},
		{here, "TestTheNamedTestsExist/" + "no " + "such " + "subtest", "", false},
		{replicas, "", "The duplicate refund does not happen when owners die between the effect and its record", true},
		{replicas, "", "does not happen when owners die between the effect and its record", false},
		{replicas, "", "The duplicate refund", false},
		{replicas, "", "The send window lapses before a late connection carries a call that may be sent once", true},
		{replicas, "", "The send window lapses before a late connection carries a call that may be sent once of an owner that still has the run", true},
	} {
		if got := test.in.has(test.goTest, test.spec); got != test.want {
			t.Errorf("%s%s: found %v", test.goTest, test.spec, got)
		}
	}
}
