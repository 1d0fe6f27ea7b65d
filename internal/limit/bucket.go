package limit

import "time"

// Bucket paces what is begun: the tokens of a minute come one by one, at even distances.
// What was not used in time is lost, but for the tokens of about one second, which make
// up for callers that come late. So no minute ever has more than its limit, also not the
// one in which a worker starts anew, remembering nothing.
//
// The zero Bucket is full. Its limit is given with each question, since it may change.
type Bucket struct {
	// full is when every token will be back.
	full time.Time
}

// capacity is how many tokens may be there at once.
func capacity(perMinute int32) int64 { return max(1, int64(perMinute)/60) }

// interval is the distance between two tokens. A full bucket and the tokens that come
// back in a minute are together no more than the limit.
func interval(perMinute int32) time.Duration {
	tokens := int64(perMinute) - capacity(perMinute) + 1
	return time.Duration((int64(time.Minute) + tokens - 1) / tokens)
}

// Next says when the n-th of those that wait may begin, counted from 1 and at the
// earliest now.
func (b *Bucket) Next(now time.Time, perMinute int32, n int) time.Time {
	gap := interval(perMinute)
	lead := time.Duration(int64(n)-capacity(perMinute)) * gap
	if at := b.due(now, perMinute).Add(lead); at.After(now) {
		return at
	}
	return now
}

// Take removes a token, whether or not there is one.
func (b *Bucket) Take(now time.Time, perMinute int32) {
	b.full = b.due(now, perMinute).Add(interval(perMinute))
}

// Full says whether the bucket remembers nothing that matters any more.
func (b *Bucket) Full(now time.Time) bool { return !b.full.After(now) }

// due is when every token is back, by the limit as it is now: tokens that were taken
// under a lower limit are not waited for longer than an empty bucket needs.
func (b *Bucket) due(now time.Time, perMinute int32) time.Time {
	if b.Full(now) {
		return now
	}
	if latest := now.Add(time.Duration(capacity(perMinute)) * interval(perMinute)); b.full.After(latest) {
		return latest
	}
	return b.full
}
