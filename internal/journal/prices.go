package journal

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Prices of a model in US dollars for a million tokens, as decimals with at most six
// places. CacheRead and CacheWrite default to Input.
type Prices struct {
	Input      string `json:"input"`
	Output     string `json:"output"`
	CacheRead  string `json:"cacheRead,omitempty"`
	CacheWrite string `json:"cacheWrite,omitempty"`
}

// Cost is an amount of money in millionths of a millionth of a US dollar, so that a
// single token's price of six places is a whole number. Sums stop at the largest amount.
type Cost int64

// microsPerUnit is how many of the smallest steps of a decimal make one.
const microsPerUnit = 1_000_000

// Cost of some usage. Reads from and writes to the cache are part of the input, at their
// own price; reasoning is part of the output. A nil receiver costs nothing.
func (p *Prices) Cost(u Usage) Cost {
	if p == nil {
		return 0
	}
	input, output := parsePrice(p.Input), parsePrice(p.Output)
	read, write := input, input
	if p.CacheRead != "" {
		read = parsePrice(p.CacheRead)
	}
	if p.CacheWrite != "" {
		write = parsePrice(p.CacheWrite)
	}
	plain := max(u.InputTokens-u.CacheReadTokens-u.CacheWriteTokens, 0)
	sum := new(big.Int)
	for _, part := range [][2]int64{{plain, input}, {u.CacheReadTokens, read}, {u.CacheWriteTokens, write}, {u.OutputTokens, output}} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
	}
	return bounded(sum)
}

// ParseCost reads an amount in dollars, as the schema allows it: a decimal with at most
// six places.
func ParseCost(dollars string) Cost {
	return bounded(new(big.Int).Mul(big.NewInt(parsePrice(dollars)), big.NewInt(microsPerUnit)))
}

// Floor is the amount in dollars, rounded down to six places.
func (c Cost) Floor() string { return (c - c%microsPerUnit).String() }

// String is the amount in dollars, with as many of six places as it needs, rounded up so
// that nothing that cost something reads as 0.
func (c Cost) String() string {
	micros := int64(c) / microsPerUnit
	if int64(c)%microsPerUnit > 0 {
		micros++
	}
	text := fmt.Sprintf("%d.%06d", micros/microsPerUnit, micros%microsPerUnit)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

func bounded(amount *big.Int) Cost {
	if !amount.IsInt64() {
		return math.MaxInt64
	}
	return Cost(max(amount.Int64(), 0))
}

// parsePrice reads a decimal as millionths. What the schema would refuse counts as 0: it
// can't come from a Model.
func parsePrice(text string) int64 {
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole+(fraction + "000000")[:6], 10, 64)
	if err != nil || len(fraction) > 6 || n < 0 {
		return 0
	}
	return n
}
