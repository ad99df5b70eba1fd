package core

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/msg"
)

// NormalizeEmail gives the one form under which an address is kept, or an Invalid that names the
// field.
func NormalizeEmail(field, text string) (string, error) {
	email, err := msg.NormalizeEmail(text)
	if err != nil {
		return "", Invalid(field, "invalid", "%s", err)
	}
	return email, nil
}

// uidText is an IMAP UID as the API shows it.
func UIDText(uid uint32) string { return strconv.FormatUint(uint64(uid), 10) }

// UnicodeName is a domain in its own letters.
func UnicodeName(ascii string) string {
	_, name, err := idn.Registrable(ascii)
	if err != nil {
		return ascii
	}
	return name
}

// Bracketed gives a Message-ID with its angle brackets, whether it came with or without.
func Bracketed(id string) string {
	return "<" + strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(id), "<"), ">") + ">"
}

func CheckLine(field, name string) error {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return Invalid(field, "invalid", "must not contain control characters")
	}
	return nil
}
