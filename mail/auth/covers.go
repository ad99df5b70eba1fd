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

// isShown tells whether readers are given a field of a lower-case name.
func isShown(name string) bool {
	return slices.Contains(shownOnce, name) || slices.ContainsFunc(shownFamilies, func(family string) bool { return strings.HasPrefix(name, family) })
}

// shownNames gives the lower-case names of the fields of a message that readers are given, and the
// first of them that stands twice. clear is false where readers may differ about which fields there
// are, so that no signature tells what they show.
func shownNames(m *message) (names []string, repeated string, clear bool) {
	if m.tooLarge || m.cut || len(m.header) > msg.MaxHeader {
		return nil, "", false
	}
	clear = true
	for _, f := range m.fields {
		if !isPlain(f) {
			clear = false
		}
		name := strings.ToLower(f.name)
		switch {
		case !isShown(name):
		case !slices.Contains(names, name):
			names = append(names, name)
		case repeated == "":
			repeated = name
		}
	}
	return names, repeated, clear
}

// isPlain tells whether every program reads a field as the same one: it has a name of printable
// ASCII (RFC 5322 section 2.2), and its lines end in CRLF alone.
func isPlain(f field) bool {
	before, _, ok := strings.Cut(f.raw, ":")
	before = strings.TrimRight(before, " \t")
	if !ok || before == "" || strings.ContainsFunc(before, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	text := strings.ReplaceAll(f.raw, "\r\n", "")
	return !strings.ContainsAny(text, "\r\n\x00")
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
	sigs, err := v.checkDKIM(ctx, look, m)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(sigs, func(s Signature) bool { return s.covers(lower) }), ctx.Err()
}
