package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// suite is the conformance suite with what it needs.
type suite struct {
	dir, node, script string
	// reasons say of each scenario that does not apply why.
	reasons map[string]string
}

// architectures by their names in Go and in the packages of Node.
var architectures = map[string]string{"amd64": "x64", "arm64": "arm64"}

func newSuite(dir, script, folder string) (*suite, error) {
	home := script[:strings.Index(script, "@modelcontextprotocol")]
	s := &suite{dir: dir, script: script, reasons: map[string]string{}, node: filepath.Join(home, "node-linux-"+architectures[runtime.GOARCH], "bin", "node")}
	if _, err := os.Stat(s.node); err != nil {
		return nil, fmt.Errorf("no Node 22 for %s: %w", runtime.GOARCH, err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "not-applicable.yaml"))
	if err != nil {
		return nil, err
	}
	var entries []struct {
		Reason    string   `json:"reason"`
		Scenarios []string `json:"scenarios"`
	}
	if err := yaml.UnmarshalStrict(text, &entries); err != nil {
		return nil, err
	}
	for _, e := range entries {
		for _, scenario := range e.Scenarios {
			if e.Reason == "" || s.reasons[scenario] != "" {
				return nil, fmt.Errorf("%s needs one reason in not-applicable.yaml", scenario)
			}
			s.reasons[scenario] = e.Reason
		}
	}
	return s, nil
}

// command runs the suite.
func (s *suite) command(ctx context.Context, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, s.node, append([]string{s.script}, args...)...)
	command.Dir = s.dir
	return command.CombinedOutput()
}

var (
	listedLine = regexp.MustCompile(`(?m)^ +- (\S+)( \[client\])?$`)
	resultLine = regexp.MustCompile(`(?m)^(✓|✗) (\S+): (\d+) passed, (\d+) failed`)
)

// scenarios are those of a revision that concern clients, scored or not.
func (s *suite) scenarios(ctx context.Context, revision string) ([]string, error) {
	output, err := s.command(ctx, "list", "--requirements", revision)
	_, clients, found := bytes.Cut(output, []byte("Client scenarios"))
	if err != nil || !found {
		return nil, fmt.Errorf("listing the scenarios: %w: %.500s", err, output)
	}
	required, others, _ := bytes.Cut(clients, []byte("never scored"))
	var names []string
	for _, match := range listedLine.FindAllSubmatch(required, -1) {
		names = append(names, string(match[1]))
	}
	for _, match := range listedLine.FindAllSubmatch(others, -1) {
		if len(match[2]) > 0 {
			names = append(names, string(match[1]))
		}
	}
	return names, nil
}

// run runs the scenarios of one revision. The suite itself compares failures with those
// that are expected, both ways; a scenario that checked nothing has not passed.
func (s *suite) run(ctx context.Context, revision string) error {
	names, err := s.scenarios(ctx, revision)
	if err != nil {
		return err
	}
	expected := map[string][]string{"client": {}}
	for _, name := range names {
		if s.reasons[name] != "" {
			expected["client"] = append(expected["client"], name)
		}
	}
	text, err := yaml.Marshal(expected)
	if err != nil {
		return err
	}
	baseline := filepath.Join(s.dir, revision+".yaml")
	if err := os.WriteFile(baseline, text, 0o600); err != nil {
		return err
	}
	output, err := s.command(ctx, "client", "--command", filepath.Join(s.dir, "client"), "--requirements", revision, "--expected-failures", baseline)
	seen := s.report(revision, output)
	switch {
	case err != nil:
		fmt.Println(string(output))
		return err
	case len(seen) != len(names):
		return fmt.Errorf("%d of %d scenarios ran", len(seen), len(names))
	}
	for _, name := range names {
		if passed := seen[name]; passed == 0 && s.reasons[name] == "" {
			return fmt.Errorf("%s checked nothing", name)
		}
	}
	return nil
}

// report prints how every scenario ended, and counts the checks that each passed.
func (s *suite) report(revision string, output []byte) map[string]int {
	seen, passed, excused := map[string]int{}, 0, map[string][]string{}
	fmt.Printf("\n%s\n", revision)
	for _, match := range resultLine.FindAllSubmatch(output, -1) {
		name, reason := string(match[2]), s.reasons[string(match[2])]
		var checks int
		_, _ = fmt.Sscan(string(match[3]), &checks)
		seen[name] = checks
		switch {
		case reason != "":
			excused[reason] = append(excused[reason], name)
		case string(match[1]) == "✓":
			passed++
			fmt.Printf("  passed  %s (%d checks)\n", name, checks)
		default:
			fmt.Printf("  FAILED  %s\n", name)
		}
	}
	fmt.Printf("  %d passed\n", passed)
	for _, reason := range slices.Sorted(maps.Keys(excused)) {
		fmt.Printf("  %d do not apply: %s\n    %s\n", len(excused[reason]), strings.Join(excused[reason], ", "), reason)
	}
	return seen
}
