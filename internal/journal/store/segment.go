package store

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// CorruptError is a segment that this operator did not write as it is. It never heals.
type CorruptError struct {
	// Place names segment and key.
	Place string
	// Problem says what is wrong there, without content.
	Problem string
}

// Error implements error.
func (e *CorruptError) Error() string { return fmt.Sprintf("journal %s: %s", e.Place, e.Problem) }

// RefusedError is a write that the API server refuses: quota, admission, size or
// permissions. It may be accepted later.
type RefusedError struct {
	Segment string
	Err     error
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("journal segment %s was refused: %v", e.Segment, e.Err)
}

// Reason is the API server's answer, bounded. It names quotas, policies and sizes and
// never quotes the journal.
func (e *RefusedError) Reason() string {
	var status apierrors.APIStatus
	if errors.As(e.Err, &status) {
		details := status.Status()
		text := string(details.Reason)
		if apierrors.IsForbidden(e.Err) || apierrors.IsRequestEntityTooLargeError(e.Err) {
			text += ": " + details.Message
		}
		return strings.ToValidUTF8(text[:min(len(text), 300)], "")
	}
	return "no reason given"
}

// Unwrap gives the API server's own error.
func (e *RefusedError) Unwrap() error { return e.Err }

func eventKey(seq int64) string { return fmt.Sprintf("e%06d", seq) }

func partKey(seq int64) string { return fmt.Sprintf("p%06d", seq) }

// parseSegment reads the events that follow the first after ones. A segment that
// belongs to somebody else, or holds anything else, is corrupt.
func parseSegment(run *v1alpha1.AgentRun, segment *corev1.ConfigMap, after int64) ([]journal.Record, error) {
	if segment.Labels[v1alpha1.LabelRunUID] != string(run.UID) {
		return nil, &CorruptError{Place: segment.Name, Problem: "the label " + v1alpha1.LabelRunUID + " does not name this run"}
	}
	records := make([]journal.Record, 0, len(segment.Data))
	parts := 0
	for seq := after + 1; seq <= after+int64(len(segment.Data)); seq++ {
		place := segment.Name + "/" + eventKey(seq)
		data, ok := segment.Data[eventKey(seq)]
		if !ok {
			return nil, &CorruptError{Place: place, Problem: "the event is missing"}
		}
		event, err := journal.Decode([]byte(data))
		var newer *journal.NewerError
		if errors.As(err, &newer) {
			return nil, fmt.Errorf("journal %s: %w", place, newer)
		}
		if err != nil {
			return nil, &CorruptError{Place: place, Problem: "the event can't be read"}
		}
		record := journal.Record{Event: event, Bytes: []byte(data)}
		if part, ok := segment.BinaryData[partKey(seq)]; ok {
			record.Part = part
			parts++
		}
		records = append(records, record)
	}
	if len(records) == 0 || parts != len(segment.BinaryData) {
		return nil, &CorruptError{Place: segment.Name, Problem: "the segment holds what no event accounts for, or no event"}
	}
	return records, nil
}
