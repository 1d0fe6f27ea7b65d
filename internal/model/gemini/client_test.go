package gemini_test

import (
	"errors"
	"net/http"
)

// broken is a transport that runs no hooks, so that nothing is known about sending.
type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("broken " + secret)
}
