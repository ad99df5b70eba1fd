package store

import (
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/store/mailindex"
)

// Holdings are the size of a store on disk and its number of messages.
type Holdings struct {
	Bytes    int64 // size of all files
	Database int64 // size of the database file; part of Bytes
	Messages int64 // number of messages in all mailboxes
}

// Holdings returns the size of the store's files and the number of its messages.
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
