package store

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/store/mailrow"
)

// Holdings is how much a store has.
type Holdings struct {
	Bytes    int64 // of its files
	Database int64 // of these, those of the database
	Messages int64 // in all mailboxes
}

// Holdings counts what the store has.
func (s *Store) Holdings() (h Holdings, err error) {
	info, err := os.Stat(filepath.Join(s.dir, DatabaseFile))
	if err != nil {
		return h, err
	}
	h.Bytes, h.Database = info.Size(), info.Size()
	for _, segment := range s.seg.List() {
		h.Bytes += segment.Size
	}
	err = s.View(func(tx *Tx) (err error) {
		h.Messages, err = tx.countMessages()
		return err
	})
	return h, err
}

// countMessages counts those in all mailboxes.
func (tx *Tx) countMessages() (n int64, err error) {
	for k, v := range tx.Ascend(mailrow.BucketAccount, nil) {
		if len(v) != accountRowSize && len(v) != accountRowArrived {
			return 0, fmt.Errorf("counts of account %x: %w", k, ErrDamagedRow)
		}
		n += int64(binary.BigEndian.Uint64(v))
	}
	return n, nil
}
