package openaiapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3/option"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// credential reads what a request authenticates itself with, empty where there is nothing.
func (a Address) credential(connection *wire.Connection) (string, *model.Error) {
	if !a.azure {
		return connection.Key()
	}
	key, failure := connection.Credential()
	if failure != nil {
		return "", failure
	}
	if token, _ := strings.CutPrefix(key, bearer); !wire.FitsHeader(token) {
		return "", wire.Unauthorized("the API key has characters that no header can carry")
	}
	return key, nil
}

// bearer marks a token in the Secret of a Model on Azure, where the usual credential is a
// key in a header of its own.
const bearer = "Bearer "

// options make the vendor's SDK send body once, as it is, to this address. The path of the
// operation is the SDK's.
func (a Address) options(once http.RoundTripper, credential string, body []byte) []option.RequestOption {
	options := []option.RequestOption{
		option.WithBaseURL(a.base),
		option.WithHTTPClient(&http.Client{Transport: unread{once}}),
		option.WithMaxRetries(0),
		option.WithRequestBody("application/json", body),
		option.WithHeader("User-Agent", "pawl"),
	}
	if a.apiVersion != "" {
		options = append(options, option.WithQuery("api-version", a.apiVersion))
	}
	token, isToken := strings.CutPrefix(credential, bearer)
	switch {
	case credential == "":
	case a.azure && !isToken:
		options = append(options, option.WithHeader("Api-Key", credential))
	default:
		options = append(options, option.WithAPIKey(token))
	}
	return options
}

// unread is the transport that the SDK is given. The answer has been read when the attempt
// returns, and goes no further: nothing follows a redirect, and bytes that a stranger
// chose are read in one place only.
type unread struct{ once http.RoundTripper }

var errAnswered = errors.New("the answer was read already")

// RoundTrip implements http.RoundTripper.
func (t unread) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	for name := range request.Header {
		// What the SDK tells of the machine that it runs on.
		if strings.HasPrefix(name, "X-Stainless-") {
			request.Header.Del(name)
		}
	}
	answer, err := t.once.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	_ = answer.Body.Close()
	return nil, errAnswered
}

// Ask makes the one attempt at a request. Send has the SDK make it, and interpret reads
// the answer; what either wire's SDK makes of the answer is of no interest.
func (a Address) Ask(
	ctx context.Context, connection *wire.Connection, body []byte,
	send func(context.Context, []option.RequestOption) error, interpret func(wire.Response) (model.Reply, *model.Error),
) (model.Reply, error) {
	key, failure := a.credential(connection)
	if failure != nil {
		return model.Reply{}, failure
	}
	response, failure := connection.Exchange(ctx, func(ctx context.Context, once http.RoundTripper) error {
		return send(ctx, a.options(once, key, body))
	})
	if failure != nil {
		return model.Reply{}, failure
	}
	reply, failure := interpret(response)
	key = strings.TrimPrefix(key, bearer)
	if failure != nil {
		wire.ScrubError(failure, key)
		return model.Reply{}, failure
	}
	wire.Scrub(&reply, key)
	return reply, nil
}
