package wire

import (
	"math"
	"net/http"
	"regexp"
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

// askedWait reads the headers made for waiting. Where both are there the longer wait holds:
// a shorter one would be refused by whoever asked for the other.
func askedWait(header http.Header, now time.Time) (time.Duration, bool) {
	exact, saidExactly := number(header.Get("Retry-After-Ms"), time.Millisecond)
	wait, said := retryAfter(header.Get("Retry-After"), now)
	return max(exact, wait), saidExactly || said
}

// firstMoment is the least number that counts seconds since 1970 and not from now: a wait
// of thirty years is none, and the moment is long gone.
const firstMoment = 1_000_000_000

// retryAfter reads seconds, a date, or what some gateways send in their place: the time
// of day in seconds since 1970.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, ok := decimal(value); ok {
		if seconds < firstMoment {
			return boundedCount(seconds, time.Second), true
		}
		if now.IsZero() || seconds > math.MaxInt64/2 {
			return maxWait, true
		}
		return Bounded(time.Unix(int64(seconds), 0).Sub(now)), true
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
	n, ok := decimal(text)
	if !ok {
		return 0, false
	}
	return boundedCount(n, unit), true
}

func boundedCount(n float64, unit time.Duration) time.Duration {
	if n >= float64(maxWait)/float64(unit) {
		return maxWait
	}
	return Bounded(time.Duration(n * float64(unit)))
}

// plainDecimal is what a count looks like. Go's own parser takes much more for a number,
// such as Inf, 0x10 and 1_0.
var plainDecimal = regexp.MustCompile(`^[0-9]+([.][0-9]*)?$`)

func decimal(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if !plainDecimal.MatchString(text) {
		return 0, false
	}
	// Beyond the largest number it is infinite, and an error beside that.
	n, _ := strconv.ParseFloat(text, 64)
	return n, true
}

// Bounded keeps a wait between nothing and about a year.
func Bounded(wait time.Duration) time.Duration { return min(max(wait, 0), maxWait) }
