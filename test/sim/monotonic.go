package sim

import (
	"time"
	"unsafe"
)

// clockReading is how package time lays out a Time. TestReadings fails where that changes.
type clockReading struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

const (
	hasMonotonic   = 1 << 63
	nanosecondBits = 30
)

// firstYear is what a Time with a monotonic reading counts its seconds from.
var firstYear = time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// reading is what time.Now gives on a machine whose wall clock and monotonic clock say
// these: differences of two readings are those of the monotonic clock alone. Package time
// offers no other way to set the two apart, as a clock that is set does.
func reading(wall time.Time, monotonic time.Duration) time.Time {
	parts := clockReading{
		wall: hasMonotonic | uint64(wall.Unix()-firstYear)<<nanosecondBits | uint64(wall.Nanosecond()),
		ext:  int64(monotonic),
	}
	return *(*time.Time)(unsafe.Pointer(&parts))
}
