package engine

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
	of    any // the function that it is named for: fn, or what fn calls
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

// Fail ends the writing for good, and says so once. It returns what Failed does from then on.
func (db *DB) Fail(err error) error {
	if db.failure.set(err) {
		db.log.Error("the disk refused or lost what was written; the store takes no more writes until the server is restarted", "error", err)
	}
	return db.failure.get()
}

func (f *failure) get() error {
	if p := f.err.Load(); p != nil {
		return fmt.Errorf("%w: %w", ErrFailed, *p)
	}
	return nil
}

// ErrEnded is returned by Update when its function ended the goroutine that ran it, as
// testing.T.FailNow does.
var ErrEnded = errors.New("the transaction function ended its goroutine")

// panicked carries a panic of a transaction function back to the goroutine that called Update.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// Update runs fn in a transaction and returns once everything that it wrote, and what Start's sync
// brings there, is on disk. If fn returns an error nothing is written and Update returns that
// error. fn shares its commit with whoever else waits, may run more than once, and must not wait
// for anything.
func (db *DB) Update(fn func(*Tx) error) error { return db.UpdateFor(fn, fn) }

// UpdateFor is Update where fn only calls `of`: the log names that one where the transaction is too
// large.
func (db *DB) UpdateFor(of any, fn func(*Tx) error) error {
	if err := db.failure.get(); err != nil {
		return err
	}
	w := &write{fn: fn, of: of, done: make(chan error, 1)}
	if db.bounds.fail || db.report.path != "" {
		w.from = callers()
	}
	select {
	case db.writes <- w:
	case <-db.closing:
		return ErrClosed
	}
	err := <-w.done
	var p *panicked
	if errors.As(err, &p) {
		panic(p)
	}
	if err == nil && w.numbers && w.number != 0 {
		return db.waitStored(w.number)
	}
	return db.damage.note(err)
}

// View runs fn on a snapshot. fn must not write to a network peer: a forgotten reader keeps every
// old page alive.
func (db *DB) View(fn func(*Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer db.CatchDamage(&err)
	err = db.bolt.View(func(b *bolt.Tx) error {
		tx := &Tx{b: b, db: db}
		if err := fn(tx); err != nil {
			return err
		}
		return tx.err
	})
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return db.damage.note(err)
}

// Failed says why the database takes no more writes; nil while it does.
func (db *DB) Failed() error { return db.failure.get() }

func (db *DB) commitLoop() {
	debug.SetPanicOnFault(true)
	ended := false
	defer func() {
		if ended {
			close(db.committed)
			return
		}
		go db.commitLoop() // a transaction function has ended this goroutine
	}()
	for {
		select {
		case w := <-db.writes:
			db.commit(db.collectBatch(w))
			db.mmapTrim.Trim(db.bolt)
		case <-db.closing:
			ended = true
			return
		}
	}
}

// collectBatch takes whatever waits by now. No timer: while one commit syncs, the next batch forms.
func (db *DB) collectBatch(first *write) []*write {
	batch := []*write{first}
	for len(batch) < maxBatch {
		select {
		case w := <-db.writes:
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

// commit answers every member of the batch.
func (db *DB) commit(batch []*write) {
	unanswered := batch
	defer func() {
		answer(unanswered, ErrEnded) // none are left, unless a function has ended the goroutine
	}()
	if db.runTwice {
		db.dryRun(batch)
	}
	for len(unanswered) > 0 {
		unanswered = db.commitSome(unanswered)
	}
}

// dryRun runs every function of the batch by itself and undoes it.
func (db *DB) dryRun(batch []*write) {
	for _, w := range batch {
		b, err := db.bolt.Begin(true)
		if err != nil {
			return // the batch itself will say so
		}
		func() {
			defer rollback(b)
			_ = db.runOne(&Tx{b: b, db: db, writable: true}, w.fn)
		}()
	}
}

// commitSome commits the batch up to the first member that has written and then failed, or until it
// has written enough for one commit, answers those, and returns the members behind it. Running
// nobody more than twice, it takes time in proportion to the batch whatever fails in it.
func (db *DB) commitSome(batch []*write) (rest []*write) {
	if err := db.failure.get(); err != nil {
		answer(batch, err)
		return nil
	}
	killpoint.At("commit.begin")
	began := time.Now()
	synced := make(chan error, 1)
	go func() { synced <- db.sync() }()
	good, failed := batch, []*write(nil)
	var tx *bolt.Tx
	var cost txCost
	var noted *entry.Changes
	for {
		var err error
		tx, err = db.bolt.Begin(true)
		if err != nil {
			<-synced
			answer(batch, fmt.Errorf("begin transaction: %w", err))
			return nil
		}
		var n int
		var stopped bool
		noted = &entry.Changes{Keep: db.entries.last != nil}
		n, cost, stopped = db.run(tx, good, noted)
		if !stopped {
			good, rest = good[:n], append(slices.Clone(good[n:]), rest...)
			break
		}
		rollback(tx)
		failed = append(failed, good[n])
		rest = append(slices.Clone(good[n+1:]), rest...)
		good = good[:n]
	}
	err := db.finish(tx, cost.writes, noted, <-synced)
	if len(good) > 0 {
		db.report.note("batch_us", cost.took.Microseconds(), good[0].caller)
		db.report.note("commit_us", time.Since(began).Microseconds(), good[0].caller)
	}
	if err == nil {
		if db.told != nil {
			db.told(time.Since(began))
		}
		for _, w := range good {
			w.number = noted.Number
		}
		db.reportChanges(good)
	}
	answer(good, err)
	killpoint.At("commit.answered")
	answer(failed, err)
	return rest
}

// run runs the functions of the batch in one transaction, up to the first that fails after it has
// written: then stopped is true. It ends early when enough is written for one commit. It returns
// how many functions were right, and what they cost.
func (db *DB) run(b *bolt.Tx, batch []*write, noted *entry.Changes) (n int, cost txCost, stopped bool) {
	ended := false
	defer func() {
		if !ended {
			rollback(b)
		}
	}()
	for n < len(batch) && cost.bytes < batchBytes {
		w := batch[n]
		began := time.Now()
		tx := &Tx{b: b, db: db, writable: true, noted: noted}
		before := noted.N
		w.err = db.runOne(tx, w.fn)
		w.numbers = noted.N > before
		one := txCost{tx.bytes, tx.writes, tx.steps, time.Since(began)}
		db.report.function(w, one)
		if err := db.checkBounds(w, one); err != nil && w.err == nil {
			w.err = err
		}
		if err := db.roomForTx(tx); err != nil && w.err == nil {
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

func (db *DB) runOne(tx *Tx, fn func(*Tx) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			tx.writes++
			if err = Damaged(db.dir, v); !isDamage(v) {
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
func (db *DB) finish(tx *bolt.Tx, writes int, noted *entry.Changes, synced error) error {
	if synced != nil {
		rollback(tx)
		return db.Fail(synced)
	}
	killpoint.At("commit.segments_synced")
	if writes == 0 {
		rollback(tx)
		return nil
	}
	if err := db.commitPages(tx, noted); err != nil {
		return err
	}
	db.freelistMissing = db.bolt.NoFreelistSync
	db.forgetAllocations(allocationsKept)
	return nil
}

// allocationsKept is of how many pages bbolt may know which transaction has allocated them: 4 MiB
// of memory. See boltfile.Allocations.
const allocationsKept = 100_000

// commitPages commits, which may meet damaged pages beside those that the functions have read. What
// bbolt then has in memory is half done, so that it takes no more writes.
func (db *DB) commitPages(tx *bolt.Tx, noted *entry.Changes) (err error) {
	defer func() {
		if errors.Is(err, ErrDatabase) {
			rollback(tx)
			err = db.Fail(err)
		}
	}()
	defer db.CatchDamage(&err)
	numbered := func() {}
	if noted.N > 0 {
		numbered, err = db.number(tx, noted)
		if err != nil {
			rollback(tx)
			return fmt.Errorf("number the commit: %w", err)
		}
	}
	db.keepFreelist()
	killpoint.At("commit.pages")
	if err := tx.Commit(); err != nil {
		return db.commitFailed(err)
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
func (db *DB) commitFailed(err error) error {
	var refused *fs.PathError
	if errors.As(err, &refused) && segment.IsFull(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return db.Fail(err)
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

// FreelistMost is how many free pages a list that is written at each commit may have: 8 KiB, two
// pages.
const FreelistMost = 1000

// keepFreelist decides, before a commit, whether the list of free pages goes with it.
func (db *DB) keepFreelist() {
	stats := db.bolt.Stats()
	db.bolt.NoFreelistSync = stats.FreePageN+stats.PendingPageN > FreelistMost
}

// closeFreelist writes the list of free pages if the last commit has not.
func (db *DB) closeFreelist() {
	if !db.freelistMissing || db.failure.get() != nil {
		return
	}
	db.bolt.NoFreelistSync = false
	err := func() (err error) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer db.CatchDamage(&err)
		return db.bolt.Update(func(*bolt.Tx) error { return nil })
	}()
	if err != nil {
		db.log.Warn("the list of free pages was not written; the next start takes longer", "error", err)
	}
}

// The disk is not written to its end: a commit that the system refuses half-way costs more than one
// that is not begun, and whoever frees room needs some. From the reserve on, new messages are
// refused, and every transaction that does not free anything, however small: people are told that
// changes are refused, and none is to pass. Refusals are ErrFull.

// errReserve is why the store refuses what the disk might still take.
var errReserve = fmt.Errorf("%w: what is left is for deletions", ErrFull)

// RoomForMessage tells whether a new message may be written.
func (db *DB) RoomForMessage() error {
	if db.room.Short() {
		return errReserve
	}
	return nil
}

// roomForTx tells whether a transaction may be committed.
func (db *DB) roomForTx(tx *Tx) error {
	if tx.writes == 0 || tx.frees {
		return nil
	}
	return db.RoomForMessage()
}

// MayUseReserve lets the transaction write where the disk has room for deletions only. It is for
// what deletions depend on, such as the queue of jobs. A transaction that deletes records or
// messages needs no permission.
func (tx *Tx) MayUseReserve() { tx.frees = true }

// A Disk is the disk that a database is on.
type Disk struct {
	Free, Total int64 // bytes
	Full        bool  // new messages are refused, since what is left is for deletions
}

// Disk looks at the disk.
func (db *DB) Disk() (d Disk, err error) {
	d.Free, d.Total, err = db.room.Free(db.dir)
	d.Full = db.room.Short()
	return d, err
}

// A Change names a row of an account that a committed transaction has written or deleted.
type Change struct {
	Table   string // the table's Name, or another one that its owner has chosen
	Account string // whose row it is
	User    string // which person's, of a row that is not for everybody in the account; else ""
	ID      string // of the row
}

// OnCommit has fn told, from now on, what each transaction has changed once it is on disk; another
// fn takes the place of this one, and nil ends it. fn runs in the committer: it must be short, must
// not call the store and must not keep the slice. Of a transaction that ran before nothing is told,
// though it may not be on disk yet: an empty Update waits for it.
func (db *DB) OnCommit(fn func([]Change)) {
	if fn == nil {
		db.onCommit.Store(nil)
		return
	}
	db.onCommit.Store(&fn)
}

// Observed tells whether anybody wants to know of changes.
func (tx *Tx) Observed() bool { return tx.db.onCommit.Load() != nil }

// RecordChange keeps a change, but not twice in a row.
func (tx *Tx) RecordChange(c Change) {
	n := len(tx.changes)
	if c.Account == "" || n > 0 && tx.changes[n-1] == c {
		return
	}
	tx.changes = append(tx.changes, c)
}

// reportChanges tells who asked by OnCommit what the batch, which is on disk, has changed.
func (db *DB) reportChanges(batch []*write) {
	fn := db.onCommit.Load()
	if fn == nil {
		return
	}
	for _, w := range batch {
		if w.err == nil && len(w.changes) > 0 {
			(*fn)(w.changes)
		}
	}
}
