package ready

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

func TestCondition(t *testing.T) {
	good := Condition(3, nil)
	if good.Status != metav1.ConditionTrue || good.Reason != v1alpha1.ReadyReasonAccepted || good.ObservedGeneration != 3 || good.Message == "" {
		t.Errorf("got %+v", good)
	}
	bad := Condition(4, []string{"a: wrong", "b:\n  wrong"})
	if bad.Status != metav1.ConditionFalse || bad.Reason != v1alpha1.ReadyReasonInvalid || bad.ObservedGeneration != 4 {
		t.Errorf("got %+v", bad)
	}
	if bad.Message != "a: wrong; b: wrong" {
		t.Errorf("message %q", bad.Message)
	}
}

// Every problem is in the message or counted there.
func TestMessageCountsEveryProblem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		problems := rapid.SliceOfN(rapid.StringMatching(`[aé]{1,400}`), 1, 60).Draw(t, "problems")
		if rapid.Bool().Draw(t, "long") {
			problems[0] = strings.Repeat("é", 2000)
		}
		got := message(problems)
		if len(got) > maxMessageBytes || !utf8.ValidString(got) {
			t.Fatalf("%d bytes: %q", len(got), got)
		}
		parts := strings.Split(got, "; ")
		more := 0
		if _, err := fmt.Sscanf(parts[len(parts)-1], "and %d more", &more); err == nil {
			parts = parts[:len(parts)-1]
		}
		if len(parts)+more != len(problems) {
			t.Fatalf("%d named and %d counted of %d problems: %q", len(parts), more, len(problems), got)
		}
		for i, part := range parts {
			if part != problems[i] && (i > 0 || !strings.HasSuffix(part, "…")) {
				t.Fatalf("problem %d is %q, want %q", i, part, problems[i])
			}
		}
	})
}
