//go:build race

package core

// Weak parameters of argon2id for tests under the race detector. With the real ones, hashing took
// half of the time of all tests.
const (
	argonTime   = 1
	argonMemory = 256
)
