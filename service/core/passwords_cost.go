//go:build !race

package core

// argon2id parameters of new hashes: t=3, 12 MiB, one lane. OWASP names several choices of equal
// strength; the more memory one takes, the longer it takes where that memory is not in the cache.
const (
	argonTime   = 3
	argonMemory = 12 * 1024
)
