package auth

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
)

// shownOnce are the fields that readers are given, beside those of the families in shownFamilies.
var shownOnce = []string{"from", "subject", "to", "cc", "reply-to", "sender", "date", "message-id", "in-reply-to", "references", "mime-version"}

var shownFamilies = []string{"content-", "list-"}

// IsShown tells whether a header field is one that readers are given, and which a proof therefore
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

// isPlain tells whether every program reads a field as the same one: it has a name of printable
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

// namesIn reads a list of names as h= has it.
func namesIn(list string) []string { return strings.Split(strings.ToLower(compact(list)), ":") }

// covers tells whether a signature passes and signs the fields of all these lower-case names.
func (s *Signature) covers(names []string) bool {
	return s.Result == Pass && !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(s.signed, name) })
}

// Covers tells whether a valid signature of a message covers all fields of these names, each of
// which it has once. The error is that of reading the message, or the end of ctx.
func (v *Verifier) Covers(ctx context.Context, message io.ReaderAt, size int64, names ...string) (bool, error) {
	m, err := openMessage(io.NewSectionReader(message, 0, size))
	if err != nil {
		return false, err
	}
	defer m.free()
	lower := make([]string, len(names))
	for i, name := range names {
		if shown(m.fields, name) != 1 {
			return false, nil
		}
		lower[i] = strings.ToLower(name)
	}
	look, cancel := v.lookups(ctx)
	defer cancel()
	sigs, err := v.checkDKIM(ctx, newTree(look), m)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(sigs, func(s Signature) bool { return s.covers(lower) }), ctx.Err()
}
