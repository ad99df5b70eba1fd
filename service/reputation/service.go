// Package reputation knows how much is sent here and by whom, and whether more may be sent. It does
// not know how mail goes out, nor what is in it.
//
// Where things stand:
//   - limits.go: how many recipients a mailbox, a domain and an account may write to in a day.
package reputation

import (
	"github.com/mailstead/mailstead/service/core"
)

// A Service counts.
type Service struct{ *core.Core }

// New puts the room together.
func New(c *core.Core) *Service { return &Service{c} }
