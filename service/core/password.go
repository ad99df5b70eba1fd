package core

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/service/core/password"
)

// Limits on the length of passwords that users choose, in characters.
const (
	LeastPassword = 8
	maxPassword   = 128
)

// CheckPassword validates a new password of at least `least` characters. The error names the field.
func CheckPassword(field, text string, least int) error {
	n := utf8.RuneCountInString(text)
	switch {
	case n < least || n > maxPassword:
		return Invalid(field, "out_of_range", "must have %d to %d characters", least, maxPassword)
	case strings.ContainsFunc(text, unicode.IsControl):
		return Invalid(field, "invalid", "must not contain control characters")
	case password.IsCommon(text):
		return Invalid(field, "too_common", "is one of the 10 000 commonest passwords, which are tried first; choose another one, such as three unrelated words")
	}
	return nil
}

// ShortPassword returns a warning for a valid password that should be longer; "" for others.
func ShortPassword(password string) string {
	if utf8.RuneCountInString(password) >= LeastPassword {
		return ""
	}
	return "The password has less than 8 characters. Have its user choose a longer one."
}
