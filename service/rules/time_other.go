//go:build !linux

package rules

import "time"

// threadTime gives a function that tells how much time has passed since, where that of a thread is
// not known.
func threadTime() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
