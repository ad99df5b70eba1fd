package store

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// maxBatch bounds how many transactions one commit carries.
const maxBatch = 1024

// A write is one caller's transaction on its way through the committer.
type write struct {
	fn    func(*Tx) error
	done  chan error
	after []func()
}

// failure remembers the first error after which nothing may be acknowledged.
type failure struct{ err atomic.Pointer[error] }

func (f *failure) set(err error) { f.err.CompareAndSwap(nil, &err) }
func (f *failure) get() error {
	if p := f.err.Load(); p != nil {
		return fmt.Errorf("%w: %w", ErrFailed, *p)
	}
	return nil
}

// panicked carries a panic of a transaction function back to the goroutine that called Update.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// Update runs fn in a transaction and returns once everything that it wrote, and every blob appended before, is on
// disk. If fn returns an error nothing is written and Update returns that error. fn shares its commit with whoever else
// waits, may run more than once, and must not wait for anything.
func (s *Store) Update(fn func(*Tx) error) error {
	if err := s.failure.get(); err != nil {
		return err
	}
	w := &write{fn: fn, done: make(chan error, 1)}
	select {
	case s.writes <- w:
	case <-s.closing:
		return ErrClosed
	}
	err := <-w.done
	var p *panicked
	if errors.As(err, &p) {
		panic(p)
	}
	return err
}

// View runs fn on a snapshot. fn must not write to a network peer: a forgotten reader keeps every old page alive.
func (s *Store) View(fn func(*Tx) error) error {
	return s.db.View(func(b *bolt.Tx) error {
		tx := &Tx{b: b, s: s}
		if err := fn(tx); err != nil {
			return err
		}
		return tx.err
	})
}

// Failed says why the store takes no more writes; nil while it does.
func (s *Store) Failed() error { return s.failure.get() }

func (s *Store) commitLoop() {
	defer close(s.committed)
	for {
		select {
		case w := <-s.writes:
			s.commit(s.gather(w))
		case <-s.closing:
			return
		}
	}
}

// gather takes whatever waits by now. No timer: while one commit syncs, the next batch forms.
func (s *Store) gather(first *write) []*write {
	batch := []*write{first}
	for len(batch) < maxBatch {
		select {
		case w := <-s.writes:
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

// commit runs the batch until no member spoils it, syncs segments and database, and answers every member.
func (s *Store) commit(batch []*write) {
	if err := s.failure.get(); err != nil {
		answer(batch, err)
		return
	}
	synced := make(chan error, 1)
	go func() { synced <- s.seg.sync() }()
	var tx *bolt.Tx
	for {
		var err error
		if tx, err = s.db.Begin(true); err != nil {
			<-synced
			answer(batch, fmt.Errorf("begin transaction: %w", err))
			return
		}
		good, spoiled := s.runBatch(tx, batch)
		batch = good
		if !spoiled {
			break
		}
		rollback(tx)
	}
	syncErr := <-synced
	if syncErr != nil {
		rollback(tx)
		s.failure.set(syncErr)
		answer(batch, s.failure.get())
		return
	}
	if len(batch) == 0 {
		rollback(tx)
		return
	}
	if err := tx.Commit(); err != nil {
		answer(batch, s.commitFailed(err))
		return
	}
	for _, w := range batch {
		for _, fn := range w.after {
			fn()
		}
		w.done <- nil
	}
}

// rollback cannot fail on a transaction that is open; its error says only that it was not.
func rollback(tx *bolt.Tx) { _ = tx.Rollback() }

// runBatch runs every function of the batch in one transaction. Those that fail are answered and left out; spoiled says
// that one of them had already written, so that the others must run again without it.
func (s *Store) runBatch(b *bolt.Tx, batch []*write) (good []*write, spoiled bool) {
	for i, w := range batch {
		tx := &Tx{b: b, s: s, writable: true}
		err := runOne(tx, w.fn)
		if err == nil {
			w.after = tx.after
			good = append(good, w)
			continue
		}
		w.done <- err
		if tx.dirty {
			return append(good, batch[i+1:]...), true
		}
	}
	return good, false
}

func runOne(tx *Tx, fn func(*Tx) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			tx.dirty = true
			err = &panicked{v, debug.Stack()}
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.err
}

// commitFailed tells a full disk, after which bbolt has rolled back and may go on, from a failed sync, after which
// nobody knows what the disk holds.
func (s *Store) commitFailed(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	s.failure.set(err)
	return s.failure.get()
}

func answer(batch []*write, err error) {
	for _, w := range batch {
		w.done <- err
	}
}
