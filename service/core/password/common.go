package password

import (
	_ "embed" // the list
	"strings"
)

// commonPasswords lists the 10 000 commonest passwords of six characters or more, in lower case,
// one per line, from the frequency lists of zxcvbn (MIT licence).
//
//go:embed common.txt
var commonPasswords string

// IsCommon reports whether a password is one of the 10 000 commonest, in any case.
func IsCommon(password string) bool {
	return strings.Contains("\n"+commonPasswords, "\n"+strings.ToLower(password)+"\n")
}
