package store

import (
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/store/mailindex"
)

// Holdings are the sizes of a store.
type Holdings struct {
	Bytes    int64 // of all its files
	Database int64 // of the database file; part of Bytes
	Messages int64 // in all mailboxes
}

// Holdings measures the store's files and counts its messages.
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
