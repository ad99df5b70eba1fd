package core

import (
	"hash/crc32"
	"strings"
)

const tokenPrefix = "mst_"

// NewToken returns a new token: mst_, 40 base62 characters, and their CRC-32 in six more, so that
// secret scanners recognize it.
func NewToken() string {
	secret := RandomText(40, Base62)
	return tokenPrefix + secret + tokenChecksum(secret)
}

func tokenChecksum(secret string) string {
	n := crc32.ChecksumIEEE([]byte(secret))
	sum := []byte("000000")
	for i := 5; i >= 0; i-- {
		sum[i] = Base62[n%62]
		n /= 62
	}
	return string(sum)
}

// IsWellFormedToken reports whether text can be a token, so that random guesses cost no lookup.
func IsWellFormedToken(text string) bool {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	return ok && len(rest) == 46 && tokenChecksum(rest[:40]) == rest[40:]
}
