package auth

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
)

// shownFieldNames are the lower-case names of the fields that mail programs show to readers.
// shownFieldPrefixes are prefixes of names of further such fields.
var shownFieldNames = []string{"from", "subject", "to", "cc", "reply-to", "sender", "date", "message-id", "in-reply-to", "references", "mime-version"}

var shownFieldPrefixes = []string{"content-", "list-"}

// IsShown reports whether mail programs show the header field to readers, so that a Proof must
// cover it.
func IsShown(name string) bool { return shownFieldName(field{name: name}) != "" }

// shownFieldName returns the lower-case name of a field that readers are shown, and "" for any
// other field.
func shownFieldName(f field) string {
	for _, name := range shownFieldNames {
		if f.is(name) {
			return name
		}
	}
	for _, family := range shownFieldPrefixes {
		if len(f.name) >= len(family) && strings.EqualFold(f.name[:len(family)], family) {
			return strings.ToLower(f.name)
		}
	}
	return ""
}

// findShownFields sets shownNames, repeated and unambiguous.
func (m *message) findShownFields() {
	if len(m.header) > msg.MaxHeader {
		return
	}
	m.unambiguous = true
	for _, f := range m.fields {
		m.unambiguous = m.unambiguous && isPlain(f)
		name := shownFieldName(f)
		switch {
		case name == "":
		case !slices.Contains(m.shownNames, name):
			m.shownNames = append(m.shownNames, name)
		case m.repeated == "":
			m.repeated = name
		}
	}
}

// isPlain reports whether all programs read the field alike: its name is printable ASCII (RFC 5322
// section 2.2), and its line ends are CRLF.
func isPlain(f field) bool {
	before, _, ok := strings.Cut(f.raw, ":")
	before = strings.TrimRight(before, " \t")
	if !ok || before == "" || strings.ContainsFunc(before, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	for rest := f.raw; ; rest = rest[2:] {
		i := strings.IndexAny(rest, "\r\n\x00")
		if i < 0 {
			return true
		}
		rest = rest[i:]
		if !strings.HasPrefix(rest, "\r\n") {
			return false
		}
	}
}
