// Package password validates and compares password hashes of other mail servers, and knows which
// passwords are common. It does not know any user.
package password

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-crypt/crypt/algorithm/shacrypt"
	"golang.org/x/crypto/bcrypt"
)

// Limits on the cost of imported hashes at a login.
const (
	maxRounds      = 1_000_000 // of SHA-crypt
	maxBcryptCost  = 15
	maxArgonMemory = 1 << 18 // KiB
	maxArgonTime   = 20
)

// hashSchemes are the prefixes that other mail servers put before a hash.
var hashSchemes = []string{"{BLF-CRYPT}", "{SHA512-CRYPT}", "{SHA256-CRYPT}", "{ARGON2ID}", "{CRYPT}"}

// CleanHash returns a password hash of another mail server without its scheme prefix, in the form
// in which it is stored. It accepts bcrypt, SHA512-CRYPT, SHA256-CRYPT and argon2id; the error says
// what is wrong with any other.
func CleanHash(text string) (string, error) {
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
			if err == nil && fields[2] == "v=19" && memory > 0 && memory <= maxArgonMemory && time > 0 && time <= maxArgonTime && threads > 0 && threads <= 64 {
				return hash, nil
			}
		}
		return "", fmt.Errorf("the argon2id hash is damaged, or takes more than %d KiB or %d passes", maxArgonMemory, maxArgonTime)
	}
	return "", fmt.Errorf("unknown kind of password hash: it must be bcrypt ($2y$), SHA512-CRYPT ($6$), SHA256-CRYPT ($5$) or argon2id")
}

const (
	kindBcrypt = iota + 1
	kindSHA
	kindArgon
)

// hashKind returns the kind of a hash by its prefix; 0 if it is unknown.
func hashKind(hash string) int {
	for prefix, kind := range map[string]int{"$2a$": kindBcrypt, "$2b$": kindBcrypt, "$2y$": kindBcrypt, "$5$": kindSHA, "$6$": kindSHA, "$argon2id$": kindArgon} {
		if strings.HasPrefix(hash, prefix) {
			return kind
		}
	}
	return 0
}

// IsForeign reports whether a hash is bcrypt or SHA-crypt. Only hashes from other mail servers are;
// the first login replaces them.
func IsForeign(hash string) bool { k := hashKind(hash); return k == kindBcrypt || k == kindSHA }

// Matches reports whether the password matches an imported hash. For argon2id it returns false.
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

// shaRounds returns the number of rounds of a SHA-crypt hash; the default is 5000.
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
