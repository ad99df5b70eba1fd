//go:build !race

package core

// argon2id parameters of new hashes: t=3, 12 MiB, one lane. OWASP lists several choices of equal
// strength; one with more memory is slower where the memory does not fit into the processor's
// cache.
const (
	argonTime   = 3
	argonMemory = 12 * 1024
)
