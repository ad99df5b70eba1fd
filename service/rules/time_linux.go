package rules

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns a function that returns how much processor time the current thread has used
// since the call of threadTime.
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
