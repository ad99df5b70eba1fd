//go:build !linux

package rules

import "time"

// threadTime returns a function that reports the time that has passed since now, since the
// processor time of a thread is not available.
func threadTime() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
