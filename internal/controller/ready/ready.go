// Package ready turns what was found about an object into its condition Ready.
package ready

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// maxMessageBytes bounds the message of the condition.
const maxMessageBytes = 1024

// Condition says that an object can be used, or why not. generation is the one that
// was looked at.
func Condition(generation int64, problems []string) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionTrue,
		Reason:             v1alpha1.ReadyReasonAccepted,
		Message:            "nothing is wrong with the spec",
		ObservedGeneration: generation,
	}
	if len(problems) > 0 {
		condition.Status = metav1.ConditionFalse
		condition.Reason = v1alpha1.ReadyReasonInvalid
		condition.Message = message(problems)
	}
	return condition
}

// message names the problems one after the other, and says how many had no room.
func message(problems []string) string {
	const separator = "; "
	var b strings.Builder
	for i, problem := range problems {
		problem = strings.Join(strings.Fields(problem), " ")
		more := fmt.Sprintf("%sand %d more", separator, len(problems)-i)
		room := maxMessageBytes - b.Len() - len(separator)
		if i < len(problems)-1 {
			room -= len(more)
		}
		if len(problem) > room {
			if i > 0 {
				b.WriteString(more)
				break
			}
			problem = strings.ToValidUTF8(problem[:room-len("…")], "") + "…"
		}
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(problem)
	}
	return b.String()
}
