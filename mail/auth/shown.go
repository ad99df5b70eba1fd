package auth

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
)

// shownOnce are the fields that readers are given, beside those of the families in shownFamilies.
var shownOnce = []string{"from", "subject", "to", "cc", "reply-to", "sender", "date", "message-id", "in-reply-to", "references", "mime-version"}

var shownFamilies = []string{"content-", "list-"}

// IsShown reports whether a header field is one that readers are given, and which a proof therefore
// covers.
func IsShown(name string) bool { return shownName(field{name: name}) != "" }

// shownName gives the lower-case name of a field that readers are given; empty for others.
func shownName(f field) string {
	for _, name := range shownOnce {
		if f.is(name) {
			return name
		}
	}
	for _, family := range shownFamilies {
		if len(f.name) >= len(family) && strings.EqualFold(f.name[:len(family)], family) {
			return strings.ToLower(f.name)
		}
	}
	return ""
}

// readShown looks which fields of a message readers are given.
func (m *message) readShown() {
	if len(m.header) > msg.MaxHeader {
		return
	}
	m.clear = true
	for _, f := range m.fields {
		m.clear = m.clear && isPlain(f)
		name := shownName(f)
		switch {
		case name == "":
		case !slices.Contains(m.shown, name):
			m.shown = append(m.shown, name)
		case m.repeated == "":
			m.repeated = name
		}
	}
}

// isPlain reports whether every program reads a field as the same one: it has a name of printable
// ASCII (RFC 5322 section 2.2), and its lines end in CRLF alone.
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
