package redaction

import (
	"errors"
	"fmt"
	"strings"

	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/spec"

	"github.com/pawl-run/pawl/internal/strictjson"
)

const (
	maxPathBytes = 256
	// maxSelectors bounds how often a path may select the same value.
	maxSelectors = 16
	// maxFilterCommas bounds the same within a filter, its functions' arguments included.
	maxFilterCommas = 4
)

// Check says what is wrong with a path: RFC 9535, less what could take more time than is
// in proportion to the result.
func Check(text string) error {
	_, err := compile(text)
	return err
}

func compile(text string) (*jsonpath.Path, error) {
	if len(text) > maxPathBytes {
		return nil, fmt.Errorf("the path has %d bytes, more than the %d allowed: make it shorter", len(text), maxPathBytes)
	}
	path, err := jsonpath.Parse(text)
	if err != nil {
		reason := strings.TrimPrefix(err.Error(), jsonpath.ErrPathParse.Error()+": ")
		return nil, fmt.Errorf("it is not a JSONPath (%s): write it as in RFC 9535, such as $.customer.email, $.items[*].price or $..token", strictjson.Preview([]byte(reason), 160))
	}
	return path, affordable(path.Query())
}

// affordable refuses paths that select the same value over and over, or search the whole
// document for each value in it.
func affordable(query *spec.PathQuery) error {
	descendants, repeated := 0, 1
	for _, segment := range query.Segments() {
		if strings.HasPrefix(segment.String(), "..") {
			descendants++
		}
		repeated *= max(len(segment.Selectors()), 1)
		for _, selector := range segment.Selectors() {
			filter, ok := selector.(*spec.FilterSelector)
			if !ok {
				continue
			}
			written := filter.String()
			if strings.Contains(written, "..") || strings.Contains(written, "$") || strings.Count(written, ",") > maxFilterCommas {
				return errors.New("a filter may look at the current value alone: use neither '$' nor '..' in it, and few commas")
			}
		}
		if repeated > maxSelectors {
			return fmt.Errorf("it selects in more than %d ways: write several paths", maxSelectors)
		}
	}
	if descendants > 1 {
		return errors.New("it has '..' more than once: once is enough to find a member wherever it stands")
	}
	return nil
}
