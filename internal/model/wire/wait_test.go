package wire_test

import (
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

const forever = 366 * 24 * time.Hour

func TestAskedWait(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		after, millis string
		want          time.Duration
	}{
		"seconds":                       {"7", "", 7 * time.Second},
		"a fraction":                    {"1.5", "", 1500 * time.Millisecond},
		"milliseconds":                  {"", "250", 250 * time.Millisecond},
		"a long day":                    {"999999", "", 999999 * time.Second},
		"a moment to come":              {"1796040060", "", time.Minute},
		"a moment with a fraction":      {"1796040060.25", "", time.Minute},
		"a moment that is gone":         {"1796039940", "", 0},
		"a moment in the next century":  {"4102444800", "", forever},
		"more than all time":            {"99999999999999999999999", "", forever},
		"no number at all":              {"Inf", "", 0},
		"infinity":                      {"infinity", "", 0},
		"not a number":                  {"NaN", "", 0},
		"an exponent":                   {"1e3", "", 0},
		"of base 16":                    {"0x10", "", 0},
		"of base 16, with an exponent":  {"0x10p0", "", 0},
		"an underscore":                 {"1_0", "", 0},
		"a sign":                        {"+5", "", 0},
		"below nothing":                 {"-5", "", 0},
		"a comma":                       {"1,5", "", 0},
		"digits of another script":      {"٣", "", 0},
		"nothing exact beside seconds":  {"30", "0", 30 * time.Second},
		"the exact one is longer":       {"1", "1500", 1500 * time.Millisecond},
		"nonsense beside seconds":       {"30", "soon", 30 * time.Second},
		"a moment beside milliseconds":  {"1796040060", "250", time.Minute},
		"a date beside nothing exactly": {now.Add(time.Minute).Format(http.TimeFormat), "0", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{}
			if test.after != "" {
				header.Set("Retry-After", test.after)
			}
			if test.millis != "" {
				header.Set("Retry-After-Ms", test.millis)
			}
			for _, class := range []model.Class{model.ClassThrottled, model.ClassTransient} {
				e := &model.Error{Class: class}
				wire.WaitOut(e, wire.Response{Status: 429, Header: header, ReceivedAt: now})
				if e.RetryAfter != test.want {
					t.Errorf("%s waits for %s, want %s", class, e.RetryAfter, test.want)
				}
			}
		})
	}
}

// TestResetsAreRead checks the headers of limits with the same eye for numbers.
func TestResetsAreRead(t *testing.T) {
	for text, want := range map[string]time.Duration{"6m0s": 6 * time.Minute, "20ms": 20 * time.Millisecond, "4": 4 * time.Second, "Inf": 0, "1_0": 0, "0x4": 0, "soon": 0} {
		e := &model.Error{Class: model.ClassThrottled}
		wire.WaitOut(e, wire.Response{Status: 429, Header: http.Header{"X-Ratelimit-Reset-Tokens": {text}}})
		if e.RetryAfter != want {
			t.Errorf("%s is a wait of %s, want %s", text, e.RetryAfter, want)
		}
	}
}

// TestWaitsAreBounded checks that no header makes a wait that is negative or endless.
func TestWaitsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9]{1,40}([.][0-9]{0,9})?`)).Draw(t, "text")
		e := &model.Error{Class: model.ClassThrottled}
		wire.WaitOut(e, wire.Response{Status: 429, Header: http.Header{"Retry-After": {text}, "Retry-After-Ms": {text}, "X-Ratelimit-Reset-Requests": {text}}, ReceivedAt: time.Unix(1790000000, 0)})
		if e.RetryAfter < 0 || e.RetryAfter > forever {
			t.Fatalf("a wait of %s", e.RetryAfter)
		}
	})
}
