//go:build !race

package core

// Parameters of argon2id for new hashes: t=3, 12 MiB, one lane. OWASP lists several choices of
// equal strength. One with more memory is slower where the memory does not fit into the processor's
// cache.
const (
	argonTime   = 3
	argonMemory = 12 * 1024
)
