package wire

import (
	"encoding/json"
	"math"

	"github.com/pawl-run/pawl/internal/model"
)

// maxTokens is the largest count that is believed.
const maxTokens = 1_000_000_000

// Count reads a number of tokens; a missing one is 0. ok is false for what no count can be.
func (o Object) Count(name string) (tokens int64, ok bool) {
	value := o.Get(name)
	if value == nil {
		return 0, true
	}
	var n float64
	if json.Unmarshal(value, &n) != nil || n < 0 || n > maxTokens || n != math.Trunc(n) {
		return 0, false
	}
	return int64(n), true
}

// Detail reads a count out of one of the report's own objects.
func (o Object) Detail(group, name string) (tokens int64, ok bool) {
	value := o.Get(group)
	if value == nil {
		return 0, true
	}
	details, err := ParseObject(value)
	if err != nil {
		return 0, false
	}
	return details.Count(name)
}

// Believable reports whether a report agrees with itself. One that does not is no
// report: the caller then charges an estimate, because a wrong number in a budget is
// worse than a rough one. No prompt is empty, so a 0 stands for "not counted".
func Believable(u model.Usage) bool {
	return u.InputTokens > 0 && u.CacheReadTokens+u.CacheWriteTokens <= u.InputTokens && u.ReasoningTokens <= u.OutputTokens
}
