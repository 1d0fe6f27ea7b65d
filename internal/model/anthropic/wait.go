package anthropic

import (
	"net/http"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// waitOut notes how long to wait: what the provider asks for, else until the limit that
// was met is full again.
func waitOut(e *model.Error, response wire.Response) {
	wire.WaitOut(e, response)
	said := response.Header.Get("Retry-After") != "" || response.Header.Get("Retry-After-Ms") != ""
	if e.Class == model.ClassThrottled && response.Status == http.StatusTooManyRequests && !said {
		e.RetryAfter = max(e.RetryAfter, untilReset(response.Header, response.ReceivedAt))
	}
}

// untilReset reads when the limits are full again. Where one is said to be used up it is
// the one to wait for; otherwise it was most likely tokens, which can be too few without
// being none.
func untilReset(header http.Header, now time.Time) time.Duration {
	var exhausted, tokens, requests time.Duration
	for _, limit := range []string{"Requests", "Tokens", "Input-Tokens", "Output-Tokens"} {
		prefix := "Anthropic-Ratelimit-" + limit
		reset, err := time.Parse(time.RFC3339, strings.TrimSpace(header.Get(prefix+"-Reset")))
		if err != nil || now.IsZero() {
			continue
		}
		wait := wire.Bounded(reset.Sub(now))
		if strings.TrimSpace(header.Get(prefix+"-Remaining")) == "0" {
			exhausted = max(exhausted, wait)
		}
		if limit == "Requests" {
			requests = wait
		} else {
			tokens = max(tokens, wait)
		}
	}
	switch {
	case exhausted > 0:
		return exhausted
	case tokens > 0:
		return tokens
	default:
		return requests
	}
}
