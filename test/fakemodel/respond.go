package fakemodel

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// Body is what the server would answer on a wire, for tests that have a server of their
// own.
func Body(wire Wire, answer Answer) []byte {
	said, err := answer.in(wire, &Names{})
	if err != nil {
		panic(err)
	}
	return said.Body
}

// in turns a reply or trouble into a body of the wire.
func (a Answer) in(wire Wire, names *Names) (Answer, error) {
	switch {
	case a.Reply != nil:
		body, err := wire.Render(*a.Reply, names)
		if err != nil {
			return a, fmt.Errorf("the test's answer can't be said on wire %s: %w", wire.Name(), err)
		}
		a.Body = body
	case a.Trouble != nil:
		said := wire.Refuse(*a.Trouble)
		a.Body = said.Body
		if a.Status == 0 {
			a.Status = said.Status
		}
		header := said.Header.Clone()
		if header == nil {
			header = http.Header{}
		}
		maps.Copy(header, a.Header)
		a.Header = header
	}
	return a, nil
}

func (a Answer) write(ctx context.Context, w http.ResponseWriter) {
	if a.Hang {
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	}
	pause(ctx, a.Delay)
	if a.Cut {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), a.Header)
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(max(a.Status, http.StatusOK))
	a.writeBody(ctx, w)
}

func (a Answer) writeBody(ctx context.Context, w http.ResponseWriter) {
	body := a.Body
	if a.CutAfter > 0 {
		body = body[:min(a.CutAfter, len(body))]
	}
	if a.Pause == 0 {
		_, _ = w.Write(body)
	} else {
		for i := range body {
			_, _ = w.Write(body[i : i+1])
			_ = http.NewResponseController(w).Flush()
			pause(ctx, a.Pause)
		}
	}
	if len(body) < len(a.Body) {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}
