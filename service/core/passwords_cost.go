//go:build !race

package core

// argon2id parameters of new hashes: t=2, 19 MiB, one lane (OWASP's second choice of equal
// strength).
const (
	argonTime   = 2
	argonMemory = 19 * 1024
)
