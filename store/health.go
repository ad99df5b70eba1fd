package store

import (
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/store/mailindex"
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
		h.Messages, err = mailindex.CountMessages(&tx.Tx)
		return err
	})
	return h, err
}
