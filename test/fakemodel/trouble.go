package fakemodel

import (
	"net/http"
	"strconv"
	"time"
)

// Trouble is a request that is not answered with a reply, as a provider puts it.
type Trouble struct {
	// Kind chooses status and code, unless they are given.
	Kind   TroubleKind
	Status int
	// Code is the wire's own.
	Code    string
	Message string
	// Wait is how long the provider asks to wait, 0 for not saying.
	Wait time.Duration
}

// TroubleKind is what is wrong.
type TroubleKind int

// Kinds of trouble that every provider has a way to say.
const (
	// TroubleRequest is a request that is refused whatever the time.
	TroubleRequest TroubleKind = iota
	// TroubleKey is a missing or wrong key.
	TroubleKey
	// TroubleThrottled is more than the provider wants to be asked.
	TroubleThrottled
	// TroubleOverloaded is a provider with too much to do.
	TroubleOverloaded
	// TroubleQuota is a used-up quota or an unpaid bill.
	TroubleQuota
	// TroubleTooLong is a conversation that the model can't read.
	TroubleTooLong
	// TroubleInternal is the provider's own mistake.
	TroubleInternal
)

// statusOf is the status that most providers use.
func (t Trouble) statusOf() int {
	if t.Status != 0 {
		return t.Status
	}
	switch t.Kind {
	case TroubleKey:
		return http.StatusUnauthorized
	case TroubleThrottled, TroubleQuota:
		return http.StatusTooManyRequests
	case TroubleOverloaded:
		return http.StatusServiceUnavailable
	case TroubleInternal:
		return http.StatusInternalServerError
	default:
		return http.StatusBadRequest
	}
}

// codeOf is the code given, else the wire's own for the kind.
func (t Trouble) codeOf(byKind map[TroubleKind]string) string {
	if t.Code != "" {
		return t.Code
	}
	return byKind[t.Kind]
}

// retryAfter is the header that asks to wait, nil for none.
func (t Trouble) retryAfter() http.Header {
	if t.Wait <= 0 {
		return nil
	}
	return http.Header{"Retry-After": {strconv.Itoa(int(t.Wait.Seconds()))}}
}

// Refuse answers with an error of the vendor's shape, its status and the wire's own code.
func Refuse(status int, code, message string) Answer {
	return Answer{Trouble: &Trouble{Status: status, Code: code, Message: message}}
}

// Throttled asks to wait.
func Throttled(wait time.Duration) Answer {
	return Answer{Trouble: &Trouble{Kind: TroubleThrottled, Message: "too many requests", Wait: wait}}
}

// Overloaded answers that the provider has too much to do.
func Overloaded() Answer {
	return Answer{Trouble: &Trouble{Kind: TroubleOverloaded, Message: "the server has too much to do"}}
}

// OutOfQuota answers that nothing is left of a quota.
func OutOfQuota() Answer {
	return Answer{Trouble: &Trouble{Kind: TroubleQuota, Message: "you exceeded your current quota"}}
}

// TooLong answers that the conversation is longer than the model can read.
func TooLong() Answer {
	return Answer{Trouble: &Trouble{Kind: TroubleTooLong, Message: "the conversation is too long for this model"}}
}

// ServerError answers with a status of 500 and above, and no JSON.
func ServerError(status int) Answer {
	return Answer{Status: status, Body: []byte("upstream trouble")}
}
