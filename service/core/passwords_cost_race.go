//go:build race

package core

// Weak parameters for the race detector, which is never used in production. With the real ones,
// hashing took half of the time of all tests.
const (
	argonTime   = 1
	argonMemory = 256
)
