package store

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/entry"
	"github.com/mailstead/mailstead/store/segment"
)

// maxBatch bounds how many transactions one commit carries.
const maxBatch = 1024

// A write is one caller's transaction on its way through the committer.
type write struct {
	fn    func(*Tx) error
	done  chan error
	err   error // of fn, kept until what it may have read of its neighbours is on disk
	after []func()
	from  []uintptr // who called Update, where that is asked for

	changes []Change
	numbers bool   // it has written what entries have
	number  uint64 // of its commit, where an entry is kept of that
}

// failure remembers the first error after which nothing may be acknowledged.
type failure struct{ err atomic.Pointer[error] }

// set tells whether err is the first.
func (f *failure) set(err error) bool { return f.err.CompareAndSwap(nil, &err) }

// fail ends the store's writing for good, and says so once.
func (s *Store) fail(err error) error {
	if s.failure.set(err) {
		s.log.Error("the disk refused or lost what was written; the store takes no more writes until the server is restarted", "error", err)
	}
	return s.failure.get()
}

func (f *failure) get() error {
	if p := f.err.Load(); p != nil {
		return fmt.Errorf("%w: %w", ErrFailed, *p)
	}
	return nil
}

// errEnded is returned by Update when its function ended the goroutine that ran it, as
// testing.T.FailNow does.
var errEnded = errors.New("the transaction function ended its goroutine")

// panicked carries a panic of a transaction function back to the goroutine that called Update.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// Update runs fn in a transaction and returns once everything that it wrote, and every blob
// appended before, is on disk. If fn returns an error nothing is written and Update returns that
// error. fn shares its commit with whoever else waits, may run more than once, and must not wait
// for anything.
func (s *Store) Update(fn func(*Tx) error) error {
	if err := s.failure.get(); err != nil {
		return err
	}
	w := &write{fn: fn, done: make(chan error, 1)}
	if s.bounds.fail || s.report.path != "" {
		w.from = callers()
	}
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
	if err == nil && w.numbers && w.number != 0 {
		return s.waitStored(w.number)
	}
	return s.damage.note(err)
}

// View runs fn on a snapshot. fn must not write to a network peer: a forgotten reader keeps every
// old page alive.
func (s *Store) View(fn func(*Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.catchDamage(&err)
	err = s.db.View(func(b *bolt.Tx) error {
		tx := &Tx{b: b, s: s}
		if err := fn(tx); err != nil {
			return err
		}
		return tx.err
	})
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return s.damage.note(err)
}

// Failed says why the store takes no more writes; nil while it does.
func (s *Store) Failed() error { return s.failure.get() }

func (s *Store) commitLoop() {
	debug.SetPanicOnFault(true)
	ended := false
	defer func() {
		if ended {
			close(s.committed)
			return
		}
		go s.commitLoop() // a transaction function has ended this goroutine
	}()
	for {
		select {
		case w := <-s.writes:
			s.commit(s.collectBatch(w))
			s.mmapTrim.Trim(s.db)
		case <-s.closing:
			ended = true
			return
		}
	}
}

// collectBatch takes whatever waits by now. No timer: while one commit syncs, the next batch forms.
func (s *Store) collectBatch(first *write) []*write {
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

// commit answers every member of the batch.
func (s *Store) commit(batch []*write) {
	unanswered := batch
	defer func() {
		answer(unanswered, errEnded) // none are left, unless a function has ended the goroutine
	}()
	if s.runTwice {
		s.dryRun(batch)
	}
	for len(unanswered) > 0 {
		unanswered = s.commitSome(unanswered)
	}
}

// dryRun runs every function of the batch by itself and undoes it.
func (s *Store) dryRun(batch []*write) {
	for _, w := range batch {
		b, err := s.db.Begin(true)
		if err != nil {
			return // the batch itself will say so
		}
		func() {
			defer rollback(b)
			_ = s.runOne(&Tx{b: b, s: s, writable: true}, w.fn)
		}()
	}
}

// commitSome commits the batch up to the first member that has written and then failed, or until it
// has written enough for one commit, answers those, and returns the members behind it. Running
// nobody more than twice, it takes time in proportion to the batch whatever fails in it.
func (s *Store) commitSome(batch []*write) (rest []*write) {
	if err := s.failure.get(); err != nil {
		answer(batch, err)
		return nil
	}
	killpoint.At("commit.begin")
	began := time.Now()
	synced := make(chan error, 1)
	go func() { synced <- s.seg.Sync() }()
	good, failed := batch, []*write(nil)
	var tx *bolt.Tx
	var cost txCost
	var noted *entry.Changes
	for {
		var err error
		tx, err = s.db.Begin(true)
		if err != nil {
			<-synced
			answer(batch, fmt.Errorf("begin transaction: %w", err))
			return nil
		}
		var n int
		var stopped bool
		noted = &entry.Changes{Keep: s.entries.last != nil}
		n, cost, stopped = s.run(tx, good, noted)
		if !stopped {
			good, rest = good[:n], append(slices.Clone(good[n:]), rest...)
			break
		}
		rollback(tx)
		failed = append(failed, good[n])
		rest = append(slices.Clone(good[n+1:]), rest...)
		good = good[:n]
	}
	err := s.finish(tx, cost.writes, noted, <-synced)
	if len(good) > 0 {
		s.report.note("batch_us", cost.took.Microseconds(), good[0].caller)
		s.report.note("commit_us", time.Since(began).Microseconds(), good[0].caller)
	}
	if err == nil {
		if s.told != nil {
			s.told(time.Since(began))
		}
		for _, w := range good {
			w.number = noted.Number
		}
		s.reportChanges(good)
	}
	answer(good, err)
	killpoint.At("commit.answered")
	answer(failed, err)
	return rest
}

// run runs the functions of the batch in one transaction, up to the first that fails after it has
// written: then stopped is true. It ends early when enough is written for one commit. It returns
// how many functions were right, and what they cost.
func (s *Store) run(b *bolt.Tx, batch []*write, noted *entry.Changes) (n int, cost txCost, stopped bool) {
	ended := false
	defer func() {
		if !ended {
			rollback(b)
		}
	}()
	for n < len(batch) && cost.bytes < batchBytes {
		w := batch[n]
		began := time.Now()
		tx := &Tx{b: b, s: s, writable: true, noted: noted}
		before := noted.N
		w.err = s.runOne(tx, w.fn)
		w.numbers = noted.N > before
		one := txCost{tx.bytes, tx.writes, tx.steps, time.Since(began)}
		s.report.function(w, one)
		if err := s.checkBounds(w, one); err != nil && w.err == nil {
			w.err = err
		}
		if err := s.roomForTx(tx); err != nil && w.err == nil {
			w.err = err
		}
		w.after, w.changes = tx.after, tx.changes
		if w.err != nil && tx.writes > 0 {
			stopped = true
			break
		}
		cost.add(one)
		n++
	}
	ended = true
	return n, cost, stopped
}

func (s *Store) runOne(tx *Tx, fn func(*Tx) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			tx.writes++
			if err = damaged(s.dir, v); !isDamage(v) {
				err = &panicked{v, debug.Stack()}
			}
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	for _, end := range tx.ends {
		if err := end(); err != nil {
			return err
		}
	}
	return tx.err
}

// finish commits what the functions wrote, once the message bytes that it may refer to are on disk.
func (s *Store) finish(tx *bolt.Tx, writes int, noted *entry.Changes, synced error) error {
	if synced != nil {
		rollback(tx)
		return s.fail(synced)
	}
	killpoint.At("commit.segments_synced")
	if writes == 0 {
		rollback(tx)
		return nil
	}
	if err := s.commitPages(tx, noted); err != nil {
		return err
	}
	s.freelistMissing = s.db.NoFreelistSync
	s.forgetAllocations(allocationsKept)
	return nil
}

// allocationsKept is of how many pages bbolt may know which transaction has allocated them: 4 MiB
// of memory. See boltfile.Allocations.
const allocationsKept = 100_000

// commitPages commits, which may meet damaged pages beside those that the functions have read. What
// bbolt then has in memory is half done, so that it takes no more writes.
func (s *Store) commitPages(tx *bolt.Tx, noted *entry.Changes) (err error) {
	defer func() {
		if errors.Is(err, ErrDatabase) {
			rollback(tx)
			err = s.fail(err)
		}
	}()
	defer s.catchDamage(&err)
	numbered := func() {}
	if noted.N > 0 {
		numbered, err = s.number(tx, noted)
		if err != nil {
			rollback(tx)
			return fmt.Errorf("number the commit: %w", err)
		}
	}
	s.keepFreelist()
	killpoint.At("commit.pages")
	if err := tx.Commit(); err != nil {
		return s.commitFailed(err)
	}
	killpoint.At("commit.done")
	numbered()
	return nil
}

// rollback cannot fail on a transaction that is open; its error says only that it was not.
func rollback(tx *bolt.Tx) { _ = tx.Rollback() }

// commitFailed tells a full disk, which refused the write of a page and after which bbolt has
// rolled back and may go on, from everything else: when a sync has failed, for want of room too,
// nobody knows what the disk holds.
func (s *Store) commitFailed(err error) error {
	var refused *fs.PathError
	if errors.As(err, &refused) && segment.IsFull(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return s.fail(err)
}

// answer ends the members' waiting: with err, if the commit failed, else with what their functions
// returned.
func answer(batch []*write, err error) {
	for _, w := range batch {
		var p *panicked
		if err != nil && !errors.As(w.err, &p) {
			w.done <- err
			continue
		}
		if w.err == nil {
			for _, fn := range w.after {
				killpoint.At("commit.after")
				fn()
			}
		}
		w.done <- w.err
	}
}

// bbolt keeps the list of its free pages in memory. Without a copy in the file, Open has to verify
// all pages and to write one, and bbolt walks the whole database after each commit that the system
// refused. A copy costs 8 bytes a free page at each commit, so it is written while the list is
// short, and always by Close. bbolt looks at NoFreelistSync in Commit alone, which the committer
// calls: so it may be switched from one commit to the next. A commit that leaves the copy out says
// so in its meta page.

// freelistMost is how many free pages a list that is written at each commit may have: 8 KiB, two
// pages.
const freelistMost = 1000

// keepFreelist decides, before a commit, whether the list of free pages goes with it.
func (s *Store) keepFreelist() {
	stats := s.db.Stats()
	s.db.NoFreelistSync = stats.FreePageN+stats.PendingPageN > freelistMost
}

// closeFreelist writes the list of free pages if the last commit has not.
func (s *Store) closeFreelist() {
	if !s.freelistMissing || s.failure.get() != nil {
		return
	}
	s.db.NoFreelistSync = false
	err := func() (err error) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer s.catchDamage(&err)
		return s.db.Update(func(*bolt.Tx) error { return nil })
	}()
	if err != nil {
		s.log.Warn("the list of free pages was not written; the next start takes longer", "error", err)
	}
}

// The disk is not written to its end: a commit that the system refuses half-way costs more than one
// that is not begun, and whoever frees room needs some. From the reserve on, new messages are
// refused, and every transaction that does not free anything, however small: people are told that
// changes are refused, and none is to pass. Refusals are ErrFull.

// errReserve is why the store refuses what the disk might still take.
var errReserve = fmt.Errorf("%w: what is left is for deletions", ErrFull)

// roomForMessage tells whether a new message may be written.
func (s *Store) roomForMessage() error {
	if s.room.Short() {
		return errReserve
	}
	return nil
}

// roomForTx tells whether a transaction may be committed.
func (s *Store) roomForTx(tx *Tx) error {
	if tx.writes == 0 || tx.frees {
		return nil
	}
	return s.roomForMessage()
}

// MayUseReserve lets the transaction write where the disk has room for deletions only. It is for
// what deletions depend on, such as the queue of jobs. A transaction that deletes records or
// messages needs no permission.
func (tx *Tx) MayUseReserve() { tx.frees = true }

// A Change names a row of an account that a committed transaction has written or deleted.
type Change struct {
	Table   string // the table's Name, or InboxName
	Account string // whose row it is
	User    string // which person's, of a row that is not for everybody in the account; else ""
	ID      string // of the row; of the mailbox, for InboxName
}

// InboxName is the Table of a Change of messages in the INBOX of a mailbox.
const InboxName = "inbox"

// OnCommit has fn told, from now on, what each transaction has changed once it is on disk; another
// fn takes the place of this one, and nil ends it. fn runs in the committer: it must be short, must
// not call the store and must not keep the slice. Of a transaction that ran before nothing is told,
// though it may not be on disk yet: an empty Update waits for it.
func (s *Store) OnCommit(fn func([]Change)) {
	if fn == nil {
		s.onCommit.Store(nil)
		return
	}
	s.onCommit.Store(&fn)
}

// recordChange keeps a change, but not twice in a row.
func (tx *Tx) recordChange(c Change) {
	n := len(tx.changes)
	if c.Account == "" || n > 0 && tx.changes[n-1] == c {
		return
	}
	tx.changes = append(tx.changes, c)
}

// reportChanges tells who asked by OnCommit what the batch, which is on disk, has changed.
func (s *Store) reportChanges(batch []*write) {
	fn := s.onCommit.Load()
	if fn == nil {
		return
	}
	for _, w := range batch {
		if w.err == nil && len(w.changes) > 0 {
			(*fn)(w.changes)
		}
	}
}
