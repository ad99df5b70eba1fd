package core

import (
	_ "embed" // the list
	"strings"
	"unicode"
	"unicode/utf8"
)

// The lengths of passwords that people and programs choose, in characters.
const (
	LeastPassword = 8
	mostPassword  = 128
)

// commonPasswords are the 10 000 commonest passwords of six characters or more, in lower case, one
// a line. They are of the frequency lists of zxcvbn (MIT licence).
//
//go:embed passwords.txt
var commonPasswords string

// CheckPassword checks a password that is to be set, of at least so many characters. The error
// names the field.
func CheckPassword(field, password string, least int) error {
	n := utf8.RuneCountInString(password)
	switch {
	case n < least || n > mostPassword:
		return Invalid(field, "out_of_range", "must have %d to %d characters", least, mostPassword)
	case strings.ContainsFunc(password, unicode.IsControl):
		return Invalid(field, "invalid", "must not contain control characters")
	case isCommon(password):
		return Invalid(field, "too_common", "is one of the 10 000 commonest passwords, which are tried first; choose another one, such as three unrelated words")
	}
	return nil
}

func isCommon(password string) bool {
	return strings.Contains("\n"+commonPasswords, "\n"+strings.ToLower(password)+"\n")
}

// ShortPassword is the warning about a password that is taken and should be longer; "" for others.
func ShortPassword(password string) string {
	if utf8.RuneCountInString(password) >= LeastPassword {
		return ""
	}
	return "The password has less than 8 characters. Have its user choose a longer one."
}
