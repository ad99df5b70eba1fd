package auth

import (
	"context"
	"io"
	"slices"
	"strings"
)

// fieldNamesIn returns the field names in the value of an h= tag, in lower case.
func fieldNamesIn(list string) []string {
	return strings.Split(strings.ToLower(removeSpace(list)), ":")
}

// covers reports whether the signature passes and signs all fields with these names, which must be
// in lower case.
func (s *Signature) covers(names []string) bool {
	return s.Result == Pass && !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(s.signed, name) })
}

// Covers reports whether one DKIM signature passes and covers the fields with all these names. Each
// of these fields must occur exactly once. Covers returns an error if the message cannot be read or
// if ctx ends.
func (v *Verifier) Covers(ctx context.Context, message io.ReaderAt, size int64, names ...string) (bool, error) {
	m, err := openMessage(io.NewSectionReader(message, 0, size))
	if err != nil {
		return false, err
	}
	defer m.free()
	lower := make([]string, len(names))
	for i, name := range names {
		if countFieldsShownAs(m.fields, name) != 1 {
			return false, nil
		}
		lower[i] = strings.ToLower(name)
	}
	look, cancel := v.newLookups(ctx)
	defer cancel()
	sigs, err := v.checkDKIM(ctx, newTreeWalker(look), m)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(sigs, func(s Signature) bool { return s.covers(lower) }), ctx.Err()
}
