package journal

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestCost(t *testing.T) {
	prices := &Prices{Input: "3", Output: "15", CacheRead: "0.30", CacheWrite: "3.75"}
	for name, test := range map[string]struct {
		prices *Prices
		usage  Usage
		want   string
	}{
		"no prices":            {nil, Usage{InputTokens: 1000, OutputTokens: 1000}, "0"},
		"nothing":              {prices, Usage{}, "0"},
		"a token":              {prices, Usage{InputTokens: 1}, "0.000003"},
		"less than is shown":   {&Prices{Input: "0.000001", Output: "0"}, Usage{InputTokens: 1}, "0.000001"},
		"input and output":     {prices, Usage{InputTokens: 1_000_000, OutputTokens: 2_000_000}, "33"},
		"caches have a price":  {prices, Usage{InputTokens: 1_000_000, CacheReadTokens: 500_000, CacheWriteTokens: 400_000}, "1.95"},
		"caches default":       {&Prices{Input: "3", Output: "15"}, Usage{InputTokens: 1_000_000, CacheReadTokens: 500_000, CacheWriteTokens: 400_000}, "3"},
		"reasoning is output":  {prices, Usage{OutputTokens: 1_000_000, ReasoningTokens: 900_000}, "15"},
		"more than is counted": {&Prices{Input: "999999", Output: "0"}, Usage{InputTokens: math.MaxInt64}, Cost(math.MaxInt64).String()},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.prices.Cost(test.usage).String(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestParseCost(t *testing.T) {
	for text, want := range map[string]Cost{"0": 0, "2.50": 2_500_000_000_000, "0.000001": 1_000_000, "999999.999999": 999_999_999_999_000_000} {
		if got := ParseCost(text); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}

// Costs never shrink as usage grows, and a sum costs what its parts cost.
func TestCostsAddUp(t *testing.T) {
	prices := &Prices{Input: "3", Output: "15", CacheRead: "0.30", CacheWrite: "3.75"}
	usage := rapid.Custom(func(t *rapid.T) Usage {
		read, write := rapid.Int64Range(0, 1e6).Draw(t, "read"), rapid.Int64Range(0, 1e6).Draw(t, "write")
		return Usage{
			InputTokens: read + write + rapid.Int64Range(0, 1e6).Draw(t, "plain"), CacheReadTokens: read, CacheWriteTokens: write,
			OutputTokens: rapid.Int64Range(0, 1e6).Draw(t, "output"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := usage.Draw(t, "a"), usage.Draw(t, "b")
		if got, want := prices.Cost(a.Add(b)), prices.Cost(a)+prices.Cost(b); got != want {
			t.Fatalf("together %d, one by one %d", got, want)
		}
	})
}
