//go:build !linux

package rules

import "time"

// threadTime returns a function that returns how much time has passed since the call of threadTime.
// This system does not tell the processor time of a thread.
func threadTime() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
