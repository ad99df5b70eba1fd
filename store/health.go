package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// damageMet counts what was read and is not what was written, since the store was opened.
type damageMet struct {
	mu    sync.Mutex
	times int
	last  error
}

// note counts an error that is over damage, and gives it back; it passes on every other error.
func (d *damageMet) note(err error) error {
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrDamagedRow) || errors.Is(err, ErrDatabase) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.times++
		d.last = err
	}
	return err
}

// DamageMet says how often something was read that is not what was written, since the store was
// opened, and what it was the last time.
func (s *Store) DamageMet() (times int, last error) {
	s.damage.mu.Lock()
	defer s.damage.mu.Unlock()
	return s.damage.times, s.damage.last
}

// A Disk is the disk that a store is on.
type Disk struct {
	Free, Total int64 // bytes
	Full        bool  // new messages are refused, since what is left is for deletions
}

// Disk looks at the disk.
func (s *Store) Disk() (d Disk, err error) {
	d.Free, d.Total, err = s.room.Free(s.dir)
	d.Full = s.room.Short()
	return d, err
}

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
	for k, v := range tx.ascend(tx.messageBucket(bktAccount), nil) {
		if len(v) != accountRowSize && len(v) != accountRowArrived {
			return 0, fmt.Errorf("counts of account %x: %w", k, ErrDamagedRow)
		}
		n += int64(binary.BigEndian.Uint64(v))
	}
	return n, nil
}
