package deliver

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestHandOver: a host is told to take the content only after HandOver has agreed, with or without
// PIPELINING and CHUNKING, and done is called once it has answered. After a refusal no other host
// is tried, the message is for later, and the connection takes the next one.
func TestHandOver(t *testing.T) {
	for _, offers := range [][]string{nil, {"PIPELINING"}, {"CHUNKING"}, {"PIPELINING", "CHUNKING"}} {
		t.Run(strings.Join(offers, " "), func(t *testing.T) {
			h := &host{offers: offers}
			n := newInternet(t)
			n.host("mx1.them.example", h)
			n.domain("them.example", "mx1.them.example")
			c := n.client()
			takes := func() bool {
				return slices.ContainsFunc(h.heard(), func(line string) bool { return line == "DATA" || strings.HasPrefix(line, "BDAT") })
			}
			m, done := hello, 0
			m.HandOver = func() (func(), error) { return nil, errors.New("not now") }
			r := c.Direct(t.Context(), "them.example", envelope(), m)
			want(t, r, Temporary, 0, "4.3.0")
			if takes() || len(r.Attempts) != 1 {
				t.Errorf("it was refused, and the host heard %q", h.heard())
			}
			m.HandOver = func() (func(), error) {
				if takes() {
					t.Errorf("it was asked late: the host heard %q", h.heard())
				}
				return func() { done++ }, nil
			}
			r = c.Direct(t.Context(), "them.example", envelope(), m)
			want(t, r, Delivered, 250, "2.0.0")
			if done != 1 || len(h.received()) != 1 {
				t.Errorf("done was called %d times, and the host has %q", done, h.received())
			}
		})
	}
}
