//go:build race

package core

// Under the race detector, which nobody serves people with, hashing as it should be took half of
// all tests' time.
const (
	argonTime   = 1
	argonMemory = 256
)
