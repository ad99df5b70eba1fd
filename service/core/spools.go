package core

import (
	"github.com/mailstead/mailstead/store"
)

// A Spool holds a message while it arrives.
type Spool = store.Spool

// NewSpool returns a place for a message of at most limit bytes while it arrives. Whoever makes one
// closes it.
func (s *Core) NewSpool(limit int64) *Spool { return s.Store.NewSpool(limit) }
