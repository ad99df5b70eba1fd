package rules

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime gives a function that tells how much processor time the calling thread has taken
// since.
func threadTime() func() time.Duration {
	now := func() time.Duration {
		var at unix.Timespec
		if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at) != nil {
			return time.Duration(time.Now().UnixNano())
		}
		return time.Duration(at.Nano())
	}
	begun := now()
	return func() time.Duration { return now() - begun }
}
