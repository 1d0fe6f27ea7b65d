package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/model"
)

// maxWait bounds what a header can ask for; a longer wait is as good as for ever.
const maxWait = 366 * 24 * time.Hour

// WaitOut notes in an error how long the provider asked to wait, and what it says about
// trying again at all. It reads the headers that the providers share.
func WaitOut(e *model.Error, response Response) {
	switch e.Class {
	case model.ClassThrottled, model.ClassTransient:
	default:
		return
	}
	if strings.EqualFold(strings.TrimSpace(response.Header.Get("X-Should-Retry")), "false") {
		if e.Class == model.ClassThrottled {
			e.Class = model.ClassQuota
		} else {
			e.Class = model.ClassRequest
		}
		return
	}
	wait, ok := askedWait(response.Header, response.ReceivedAt)
	if !ok && e.Class == model.ClassThrottled {
		wait = resetWait(response.Header)
	}
	e.RetryAfter = max(e.RetryAfter, wait)
}

// askedWait reads the headers made for waiting, the more exact one first.
func askedWait(header http.Header, now time.Time) (time.Duration, bool) {
	if wait, ok := number(header.Get("Retry-After-Ms"), time.Millisecond); ok {
		return wait, true
	}
	value := header.Get("Retry-After")
	if wait, ok := number(value, time.Second); ok {
		return wait, true
	}
	date, err := http.ParseTime(strings.TrimSpace(value))
	if err != nil || now.IsZero() {
		return 0, false
	}
	return Bounded(date.Sub(now)), true
}

// resetWait reads when the limits of requests and tokens are full again. Where one is
// said to be used up it is the one to wait for; otherwise it was most likely tokens,
// which can be too few without being none.
func resetWait(header http.Header) time.Duration {
	var exhausted time.Duration
	resets := map[string]time.Duration{}
	for _, limit := range []string{"Requests", "Tokens"} {
		wait, ok := Duration(header.Get("X-Ratelimit-Reset-" + limit))
		if !ok {
			continue
		}
		resets[limit] = wait
		if strings.TrimSpace(header.Get("X-Ratelimit-Remaining-"+limit)) == "0" {
			exhausted = max(exhausted, wait)
		}
	}
	switch {
	case exhausted > 0:
		return exhausted
	case resets["Tokens"] > 0:
		return resets["Tokens"]
	default:
		return resets["Requests"]
	}
}

// Duration reads "6m0s", "20ms" or a plain number of seconds.
func Duration(text string) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if wait, ok := number(text, time.Second); ok {
		return wait, true
	}
	wait, err := time.ParseDuration(text)
	if err != nil {
		return 0, false
	}
	return Bounded(wait), true
}

// number reads a count of units, which may have a fraction.
func number(text string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0, false
	}
	if n >= float64(maxWait)/float64(unit) {
		return maxWait, true
	}
	return Bounded(time.Duration(n * float64(unit))), true
}

// Bounded keeps a wait between nothing and about a year.
func Bounded(wait time.Duration) time.Duration { return min(max(wait, 0), maxWait) }
