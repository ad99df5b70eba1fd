package store

import (
	"fmt"

	"github.com/mailstead/mailstead/store/diskroom"
)

// The disk is not written to its end: a commit that the system refuses half-way costs more than one
// that is not begun, and whoever frees room needs some. From the reserve on, new messages and large
// transactions are refused; in its second half, every transaction that does not free anything.
// Refusals are ErrFull.

// reserveSmall is how many bytes a transaction may write in the first half of the reserve.
const reserveSmall = 16 << 10

// errReserve is why the store refuses what the disk might still take.
var errReserve = fmt.Errorf("%w: what is left is for deletions", ErrFull)

// roomForMessage tells whether a new message may be written.
func (s *Store) roomForMessage() error {
	if s.room.Level() != diskroom.Enough {
		return errReserve
	}
	return nil
}

// roomForTx tells whether a transaction may be committed.
func (s *Store) roomForTx(tx *Tx) error {
	if tx.writes == 0 || tx.frees {
		return nil
	}
	switch level := s.room.Level(); {
	case level == diskroom.Least, level == diskroom.Short && tx.bytes > reserveSmall:
		return errReserve
	}
	return nil
}

// MayUseReserve lets the transaction write where the disk has room for deletions only. It is for
// what deletions depend on, such as the queue of jobs. A transaction that deletes records or
// messages needs no permission.
func (tx *Tx) MayUseReserve() { tx.frees = true }
