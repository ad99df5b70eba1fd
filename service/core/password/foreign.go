// Package password reads password hashes of other servers, and knows which passwords are common. It
// does not know whose they are, nor when they are compared.
package password

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-crypt/crypt/algorithm/shacrypt"
	"golang.org/x/crypto/bcrypt"
)

// What a hash from elsewhere may cost at a log-in.
const (
	maxRounds     = 1_000_000 // of SHA-crypt
	maxBcryptCost = 15
	maxArgon      = 1 << 18 // KiB
	maxArgonTime  = 20
)

// hashSchemes are the prefixes that other mail servers put before a hash.
var hashSchemes = []string{"{BLF-CRYPT}", "{SHA512-CRYPT}", "{SHA256-CRYPT}", "{ARGON2ID}", "{CRYPT}"}

// Clean gives a password hash of another mail server in the form in which it is kept, without a
// scheme before it: bcrypt, SHA512-CRYPT, SHA256-CRYPT or argon2id. The error says what is wrong
// with any other.
func Clean(text string) (string, error) {
	hash := strings.TrimSpace(text)
	for _, scheme := range hashSchemes {
		if len(hash) > len(scheme) && strings.EqualFold(hash[:len(scheme)], scheme) {
			hash = hash[len(scheme):]
		}
	}
	switch hashKind(hash) {
	case kindBcrypt:
		cost, err := bcrypt.Cost([]byte(hash))
		if err != nil || cost > maxBcryptCost {
			return "", fmt.Errorf("the bcrypt hash is damaged, or its cost is over %d", maxBcryptCost)
		}
		return hash, nil
	case kindSHA:
		length := map[byte]int{'5': 43, '6': 86}[hash[1]]
		if _, err := shacrypt.Decode(hash); err != nil || len(hash)-1-strings.LastIndexByte(hash, '$') != length || shaRounds(hash) > maxRounds {
			return "", fmt.Errorf("the SHA-crypt hash is damaged, or has more than %d rounds", maxRounds)
		}
		return hash, nil
	case kindArgon:
		var memory, time, threads int
		fields := strings.Split(hash, "$")
		if len(fields) == 6 {
			_, err := fmt.Sscanf(fields[3], "m=%d,t=%d,p=%d", &memory, &time, &threads)
			if err == nil && fields[2] == "v=19" && memory > 0 && memory <= maxArgon && time > 0 && time <= maxArgonTime && threads > 0 && threads <= 64 {
				return hash, nil
			}
		}
		return "", fmt.Errorf("the argon2id hash is damaged, or takes more than %d KiB or %d passes", maxArgon, maxArgonTime)
	}
	return "", fmt.Errorf("the hash is none of bcrypt ($2y$), SHA512-CRYPT ($6$), SHA256-CRYPT ($5$) and argon2id")
}

const (
	kindBcrypt = iota + 1
	kindSHA
	kindArgon
)

// hashKind tells hashes apart by how they begin; 0: it is none.
func hashKind(hash string) int {
	for prefix, kind := range map[string]int{"$2a$": kindBcrypt, "$2b$": kindBcrypt, "$2y$": kindBcrypt, "$5$": kindSHA, "$6$": kindSHA, "$argon2id$": kindArgon} {
		if strings.HasPrefix(hash, prefix) {
			return kind
		}
	}
	return 0
}

// IsForeign reports whether a hash came from another mail server, and is to be replaced.
func IsForeign(hash string) bool { k := hashKind(hash); return k == kindBcrypt || k == kindSHA }

// Matches reports whether the password is the one of a hash that is not argon2id.
func Matches(hash, password string) bool {
	switch hashKind(hash) {
	case kindBcrypt:
		return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
	case kindSHA:
		digest, err := shacrypt.Decode(hash)
		return err == nil && digest.Match(password)
	}
	return false
}

// shaRounds is what a SHA-crypt hash says; without it there are 5000.
func shaRounds(hash string) int {
	fields := strings.Split(hash, "$")
	if len(fields) < 3 || !strings.HasPrefix(fields[2], "rounds=") {
		return 5000
	}
	n, err := strconv.Atoi(strings.TrimPrefix(fields[2], "rounds="))
	if err != nil {
		return maxRounds + 1
	}
	return n
}
