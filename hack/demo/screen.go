package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	pawlv1alpha1 "github.com/pawl-run/pawl/api/v1alpha1"
)

// screen shows the runs. On a terminal it redraws one table in place, with notes scrolling by
// above it; elsewhere it prints a line whenever a run changed.
type screen struct {
	out      *os.File
	terminal bool
	began    time.Time
	table    []string          // as drawn last, on a terminal
	printed  map[string]string // as printed last, elsewhere
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
	return &screen{out: out, terminal: terminal, began: time.Now(), printed: map[string]string{}}
}

// step says what is done before there are runs to show.
func (s *screen) step(format string, args ...any) {
	s.note("· "+format, args...)
}

// note prints a line above the table.
func (s *screen) note(format string, args ...any) {
	s.erase()
	_, _ = fmt.Fprintf(s.out, format+"\n", args...)
	s.paint()
}

func (s *screen) draw(runs []pawlv1alpha1.AgentRun) {
	if !s.terminal {
		s.printChanges(runs)
		return
	}
	s.erase()
	s.table = table(runs)
	s.paint()
}

// erase moves back to where the table began and clears what follows.
func (s *screen) erase() {
	if s.terminal && len(s.table) > 0 {
		_, _ = fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", len(s.table))
	}
}

func (s *screen) paint() {
	if !s.terminal {
		return
	}
	for _, line := range s.table {
		// Lines must not wrap, or erase would go back too few.
		_, _ = fmt.Fprintf(s.out, "\x1b[?7l%s\x1b[?7h\n", line)
	}
}

func (s *screen) printChanges(runs []pawlv1alpha1.AgentRun) {
	for i := range runs {
		run := &runs[i]
		cells := row(run)
		if cells[2] == "" {
			continue // the operator has not seen it yet
		}
		line := strings.TrimSpace(fmt.Sprintf("%-13s %-8s %-20s turns=%s calls=%s tokens=%s  %s",
			cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]))
		if s.printed[run.Name] != line {
			s.printed[run.Name] = line
			_, _ = fmt.Fprintf(s.out, "%6.1fs  %s\n", time.Since(s.began).Seconds(), line)
		}
	}
}

var columns = []string{"NAME", "SUCCEEDED", "REASON", "TURNS", "CALLS", "TOKENS", "WAITS FOR"}

func table(runs []pawlv1alpha1.AgentRun) []string {
	text := &strings.Builder{}
	writer := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(writer, strings.Join(append([]string{"AGE"}, columns...), "\t"))
	for i := range runs {
		_, _ = fmt.Fprintln(writer, strings.Join(append([]string{age(&runs[i])}, row(&runs[i])...), "\t"))
	}
	_ = writer.Flush()
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	lines[0] = "\x1b[1m" + lines[0] + "\x1b[0m"
	return append([]string{""}, lines...)
}

func age(run *pawlv1alpha1.AgentRun) string {
	end := time.Now()
	if run.Status.CompletionTime != nil {
		end = run.Status.CompletionTime.Time
	}
	return duration.HumanDuration(end.Sub(run.CreationTimestamp.Time))
}

func row(run *pawlv1alpha1.AgentRun) []string {
	succeeded := succeededOf(run)
	tokens := int64(0)
	if run.Status.Usage != nil {
		tokens = run.Status.Usage.TotalTokens
	}
	return []string{
		run.Name, string(succeeded.Status), succeeded.Reason,
		fmt.Sprint(run.Status.Turns), fmt.Sprint(run.Status.ToolCalls), fmt.Sprint(tokens),
		waitsFor(run, succeeded),
	}
}

// waitsFor says what has to happen next, for a run that is open and not simply at work.
func waitsFor(run *pawlv1alpha1.AgentRun, succeeded metav1.Condition) string {
	const widest = 60
	text := ""
	switch {
	case succeeded.Status != metav1.ConditionUnknown:
	case run.Status.Pending != nil:
		tools := make([]string, 0, len(run.Status.Pending.Calls))
		for _, call := range run.Status.Pending.Calls {
			tools = append(tools, call.Tool+" "+call.ArgumentsPreview)
		}
		text = "approval of " + strings.Join(tools, ", ")
	case run.Status.Question != nil:
		text = "an answer to: " + run.Status.Question.Text
	case succeeded.Reason == "WaitingForTool":
		text = "its tool"
	case succeeded.Reason == "ModelUnavailable":
		text = "its model"
	case succeeded.Reason == "ConfigurationNotReady":
		text = succeeded.Message
	}
	if runes := []rune(text); len(runes) > widest {
		text = string(runes[:widest-1]) + "…"
	}
	return text
}
