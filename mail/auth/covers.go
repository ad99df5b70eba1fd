package auth

import (
	"context"
	"io"
	"slices"
	"strings"
)

// namesIn reads a list of names as h= has it.
func namesIn(list string) []string { return strings.Split(strings.ToLower(compact(list)), ":") }

// covers reports whether a signature passes and signs the fields of all these lower-case names.
func (s *Signature) covers(names []string) bool {
	return s.Result == Pass && !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(s.signed, name) })
}

// Covers reports whether a valid signature of a message covers all fields of these names, each of
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
