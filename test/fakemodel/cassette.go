package fakemodel

import (
	"fmt"
	"net/http"
	"os"
	"slices"

	"sigs.k8s.io/yaml"
)

// Exchange is one recorded request with its response.
type Exchange struct {
	URL            string
	RequestBody    []byte
	Status         int
	ResponseHeader http.Header
	ResponseBody   []byte
}

// ReadCassette reads a recording in the second version of the go-vcr format.
func ReadCassette(path string) ([]Exchange, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a recording: %w", err)
	}
	var file struct {
		Version      int `json:"version"`
		Interactions []struct {
			Request struct {
				Body string `json:"body"`
				URL  string `json:"url"`
			} `json:"request"`
			Response struct {
				Body    string      `json:"body"`
				Headers http.Header `json:"headers"`
				Code    int         `json:"code"`
			} `json:"response"`
		} `json:"interactions"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("reading the recording %s: %w", path, err)
	}
	if file.Version != 2 {
		return nil, fmt.Errorf("reading the recording %s: version %d is not 2", path, file.Version)
	}
	var exchanges []Exchange
	for _, i := range file.Interactions {
		exchanges = append(exchanges, Exchange{
			URL:            i.Request.URL,
			RequestBody:    []byte(i.Request.Body),
			Status:         i.Response.Code,
			ResponseHeader: i.Response.Headers,
			ResponseBody:   []byte(i.Response.Body),
		})
	}
	return exchanges, nil
}

// StartReplay starts a server that answers its n-th request with the n-th recorded
// response. It checks requests as strictly as any Server; compare what it was sent
// with the recording by DiffRequests.
func StartReplay(exchanges []Exchange) (*Server, error) {
	s, err := Start(Options{})
	if err != nil {
		return nil, err
	}
	for _, e := range exchanges {
		header := http.Header{}
		for name, values := range e.ResponseHeader {
			// The length belongs to the connection of the recording.
			if http.CanonicalHeaderKey(name) != "Content-Length" {
				header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
			}
		}
		s.Enqueue(Answer{Status: e.Status, Header: header, Body: e.ResponseBody})
	}
	return s, nil
}
