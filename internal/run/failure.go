package run

import (
	"fmt"
	"time"

	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
)

// RecordFailure turns a request that brought no decision into an event. What may have
// cost something is charged.
func RecordFailure(f Facts, asked Asked, failure *model.Error) Entry {
	event := journal.ModelFailed{
		Attempt: f.State.ModelAttempts + 1, Class: string(failure.Class), Status: failure.Status, Code: bounded(failure.Code, 64),
		RetryAfterMillis: failure.RetryAfter.Milliseconds(), DurationMillis: asked.Duration.Milliseconds(),
	}
	if failure.Class == model.ClassOverflow {
		event.TooLong = inputTokens(f.State, asked.Request)
	}
	event.Usage = chargeFailure(f.State, asked.Request, failure)
	return Entry{Payload: event}
}

// recordOverflow turns a reply that says that the request left it no room into an event: it
// is no decision, and the next request is about a shorter conversation.
func recordOverflow(f Facts, asked Asked, reply model.Reply) Entry {
	return Entry{Payload: journal.ModelFailed{
		Attempt: f.State.ModelAttempts + 1, Class: string(model.ClassOverflow), Code: "context_exceeded",
		DurationMillis: asked.Duration.Milliseconds(), Usage: charge(f.State, asked.Request, reply), TooLong: inputTokens(f.State, asked.Request),
	}}
}

// chargeFailure is the usage to book for a request that brought no decision: what the
// provider reported, else an estimate for all that was sent and not certainly refused.
func chargeFailure(s *journal.State, request model.Request, failure *model.Error) journal.Usage {
	switch {
	case failure.Usage.Reported && believable(failure.Usage):
		return reported(failure.Usage)
	case !failure.Sent || unworked(failure.Status):
		return journal.Usage{}
	case failure.Status == 0 || failure.Cut:
		return chargeLost(s, request)
	default:
		return journal.Usage{InputTokens: inputTokens(s, request), Estimated: true}
	}
}

// chargeLost is what a request is charged whose reply nobody has seen whole: a limit that must
// hold has to take the reply for as long as was allowed.
func chargeLost(s *journal.State, request model.Request) journal.Usage {
	return journal.Usage{InputTokens: inputTokens(s, request), OutputTokens: int64(request.MaxOutputTokens), Estimated: true}
}

// Lost is what a run is charged whose owner is gone while a decision was due: that owner may
// have asked. Where limits forbid the request it can't have.
func Lost(s *journal.State) journal.Usage {
	f := Facts{State: s}
	request := prompt.Project(s)
	step, shortened := shorten(f, request)
	if !shortened {
		step = afford(f, request)
	}
	if step.Kind != AskModel {
		return journal.Usage{}
	}
	return chargeLost(s, step.Request)
}

// unworked is true for a status that says that the model was never at work. Of those below
// 500 some say that it was, and took too long or failed.
func unworked(status int) bool {
	switch status {
	case statusTimeout, statusModelFailed, statusGivenUp:
		return false
	default:
		return status >= 300 && status < 500
	}
}

// Statuses below 500 that come after work was begun: 424 is Bedrock's for a model that failed,
// 499 that of Google and of proxies for a request that was ended early.
const (
	statusTimeout     = 408
	statusModelFailed = 424
	statusGivenUp     = 499
)

// afterFailure says what follows failed attempts at the decision that is due.
func afterFailure(f Facts) (Step, bool) {
	s := f.State
	limit := s.Run.Model.MaxAttempts
	if failure := s.ModelFailure; failure != nil {
		switch model.Class(failure.Class) {
		case model.ClassOverflow:
			// The decision that follows shortens the conversation, or ends the run. The same
			// request is never repeated, so that attempts do not count.
			return Step{}, false
		case model.ClassRequest, model.ClassQuota:
			limit = 1
		case model.ClassUnauthorized:
			// Once more, since credentials are sometimes mended meanwhile.
			limit = min(limit, 2)
		case model.ClassTransient, model.ClassThrottled, model.ClassCanceled:
		}
	}
	if s.ModelAttempts >= limit {
		return finish(f, "ModelError", fmt.Sprintf("the model gave no decision in %d attempts%s", s.ModelAttempts, describe(s.ModelFailure))), true
	}
	if s.ModelFailure == nil {
		return Step{}, false
	}
	at := s.FailedAt.Add(pause(s.ModelFailure, s.ModelAttempts))
	if s.ModelFailure.Class == string(model.ClassCanceled) || !f.Now.Before(at) {
		return Step{}, false
	}
	if !at.Before(workDeadline(f)) {
		return finish(f, "ModelError", "the provider asks to wait longer than the run may last"+describe(s.ModelFailure)), true
	}
	return Step{Kind: Await, Waiting: "ModelUnavailable", Until: at,
		Message: fmt.Sprintf("attempt %d of %d failed%s; the next one follows", s.ModelAttempts, limit, describe(s.ModelFailure))}, true
}

// Bounds of the wait, which doubles, after a provider that is asked too often and does not
// say for how long.
const (
	minThrottledPause = 5 * time.Second
	maxThrottledPause = time.Minute
)

// pause is how long the next attempt waits. Limits of providers count by the minute: without
// a hint the default number of attempts spans more than one.
func pause(failure *journal.ModelFailed, attempts int32) time.Duration {
	asked := time.Duration(failure.RetryAfterMillis) * time.Millisecond
	if failure.Class == string(model.ClassThrottled) && asked <= 0 {
		return min(minThrottledPause<<min(max(attempts-1, 0), 4), maxThrottledPause)
	}
	return max(asked, backoff(attempts))
}

// describe names class, status and code of a failure and nothing that the provider wrote freely.
func describe(failure *journal.ModelFailed) string {
	if failure == nil {
		return ""
	}
	text := ": " + failure.Class
	if failure.Status != 0 {
		text += fmt.Sprintf(", status %d", failure.Status)
	}
	if failure.Code != "" {
		text += ", code " + failure.Code
	}
	return text
}
