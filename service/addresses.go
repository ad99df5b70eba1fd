package service

import (
	"strconv"

	"github.com/mailstead/mailstead/mail/msg"
)

// normalizeEmail gives the one form under which an address is kept, or an Invalid that names the
// field.
func normalizeEmail(field, text string) (string, error) {
	email, err := msg.NormalizeEmail(text)
	if err != nil {
		return "", Invalid(field, "invalid", "%s", err)
	}
	return email, nil
}

// uidText is an IMAP UID as the API shows it.
func uidText(uid uint32) string { return strconv.FormatUint(uint64(uid), 10) }
