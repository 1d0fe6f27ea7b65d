package httptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	"github.com/pawl-run/pawl/internal/tool/transport"
)

// States that a service may report of an effect.
const (
	// EffectPending means that the service is still at it.
	EffectPending tool.EffectState = "pending"
	// EffectNotFound means that the service does not know the key. It proves nothing:
	// the request may still be on its way.
	EffectNotFound tool.EffectState = "notFound"
)

// maxFoundBytes bounds what a service says about one effect.
const maxFoundBytes = 128 << 10

// Found is what a service says became of an effect.
type Found struct {
	State tool.EffectState
	// Result of a committed effect, where the service keeps it. One that is longer than a
	// result of its tool may be is cut, and says so in itself.
	Result    json.RawMessage
	Truncated bool
}

// Effects is a service that is asked what became of effects: GET <url>/<effect key>.
type Effects struct {
	base   *url.URL
	client *transport.Client
	bound  int
}

// NewEffects makes an Effects for a service that keeps results of at most maxResultBytes,
// 0 for the default of tools. Options.Tools means nothing here.
func NewEffects(o Options, maxResultBytes int32) (*Effects, error) {
	server, err := New(o)
	if err != nil {
		return nil, err
	}
	return &Effects{base: server.base, client: server.client, bound: transport.Bound(tool.Call{MaxResultBytes: maxResultBytes})}, nil
}

// Close closes connections that are kept for later look-ups.
func (e *Effects) Close() { e.client.Close() }

// Look asks about one effect. An error leaves everything as it was.
func (e *Effects) Look(ctx context.Context, key string) (Found, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base.JoinPath(url.PathEscape(key)).String(), nil)
	if err != nil {
		return Found{}, errors.New("the service's url can't be used")
	}
	req.Header.Set("Accept", "application/json")
	resp, _, err := e.client.Send(req, false)
	if err != nil {
		return Found{}, errors.New(transport.Reason(err))
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return Found{State: EffectNotFound}, nil
	case resp.StatusCode != http.StatusOK:
		return Found{}, fmt.Errorf("the service answered with HTTP %d", resp.StatusCode)
	}
	value, err := transport.ReadValue(resp, maxFoundBytes)
	if err != nil {
		return Found{}, errors.New("the answer broke off")
	}
	return readFound(value, e.bound)
}

func readFound(value transport.Value, bound int) (Found, error) {
	object, err := strictjson.Object(value.JSON, strictjson.Limits{})
	if err != nil || value.Truncated {
		return Found{}, errors.New("the answer is not a JSON object of at most 128 KiB")
	}
	state, _ := object["state"].(string)
	found := Found{State: tool.EffectState(state)}
	switch found.State {
	case tool.EffectCommitted:
		if result, has := object["result"]; has {
			found.Result = strictjson.Canonical(result)
			if size := len(found.Result); size > bound {
				found.Result, found.Truncated = transport.Beginning(found.Result, int64(size), bound).JSON, true
			}
		}
		return found, nil
	case tool.EffectRejected, EffectPending, EffectNotFound:
		return found, nil
	default:
		return Found{}, errors.New(`the answer's state is none of "committed", "rejected", "pending" and "notFound"`)
	}
}
