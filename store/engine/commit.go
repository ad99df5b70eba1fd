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

// maxBatch is the largest number of transactions in one commit.
const maxBatch = 1024

// A queuedWrite is a call of Update that the committer runs.
type queuedWrite struct {
	fn      func(*Tx) error
	logAs   any        // function that logs name for this transaction: fn, or the one that fn wraps
	done    chan error // receives the result of Update
	err     error      // result of fn; sent after the commit, since fn may have read what others in its batch wrote
	after   []func()
	callers []uintptr // call stack of Update; nil unless it is logged

	changes    []Change // row changes for OnCommit
	hasChanges bool     // fn wrote to rows that an entry records
	number     uint64   // number of its commit; 0 if no entry was kept
}

// failure holds the first error after which no write may be acknowledged.
type failure struct{ err atomic.Pointer[error] }

// set stores err unless an earlier error is stored, and reports whether it did.
func (f *failure) set(err error) bool { return f.err.CompareAndSwap(nil, &err) }

// Fail stops all writes until the process restarts, and logs the first err. It returns the error of
// the first call, which Failed returns from then on.
func (db *DB) Fail(err error) error {
	if db.failure.set(err) {
		db.log.Error("the disk refused or lost what was written; the store takes no more writes until the server is restarted", "error", err)
	}
	return db.failure.get()
}

func (f *failure) get() error {
	if p := f.err.Load(); p != nil {
		return fmt.Errorf("%w: the first error: %w", ErrFailed, *p)
	}
	return nil
}

// ErrEnded is returned by Update when its function ended the goroutine that ran it, as
// testing.T.FailNow does.
var ErrEnded = errors.New("the transaction function ended its goroutine")

// A panicError passes a panic of a transaction function to the goroutine that called Update.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// Update runs fn in a write transaction. It returns once the writes are on disk, with everything
// that the sync function of Start covers. If fn returns an error, nothing is written and Update
// returns that error. Concurrent calls share a commit. fn may run more than once and must not
// block.
func (db *DB) Update(fn func(*Tx) error) error { return db.UpdateFor(fn, fn) }

// UpdateFor is like Update. It is for an fn that only wraps another function: logs of large
// transactions name the function `logged` instead of fn.
func (db *DB) UpdateFor(logged any, fn func(*Tx) error) error {
	if err := db.failure.get(); err != nil {
		return err
	}
	w := &queuedWrite{fn: fn, logAs: logged, done: make(chan error, 1)}
	if db.bounds.fail || db.report.path != "" {
		w.callers = callStack()
	}
	select {
	case db.writes <- w:
	case <-db.closing:
		return ErrClosed
	}
	err := <-w.done
	var p *panicError
	if errors.As(err, &p) {
		panic(p)
	}
	if err == nil && w.hasChanges && w.number != 0 {
		return db.waitUntilStored(w.number)
	}
	return db.damage.countIfDamage(err)
}

// View runs fn on a snapshot. fn must not wait for a network peer, since bbolt cannot reuse old
// pages while a snapshot is open.
func (db *DB) View(fn func(*Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer db.CatchDamage(&err)
	if db.background != nil {
		if err := db.background.rest(); err != nil {
			return err
		}
	}
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
	return db.damage.countIfDamage(err)
}

// Failed returns the error that stopped all writes; nil if there was none.
func (db *DB) Failed() error { return db.failure.get() }

// commitLoop runs the committer until the database is closed.
func (db *DB) commitLoop() {
	debug.SetPanicOnFault(true)
	ended := false
	defer func() {
		if ended {
			close(db.committed)
			return
		}
		go db.commitLoop() // a transaction function ended this goroutine
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

// collectBatch returns first and all writes that are queued now, up to maxBatch. It need not wait
// for more: the next batch queues up while this one is synced.
func (db *DB) collectBatch(first *queuedWrite) []*queuedWrite {
	batch := []*queuedWrite{first}
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

// commit runs the batch in one or more commits and sends each write its result.
func (db *DB) commit(batch []*queuedWrite) {
	unanswered := batch
	defer func() {
		sendResults(unanswered, ErrEnded) // empty, unless a function ended the goroutine
	}()
	if db.runTwice {
		db.dryRun(batch)
	}
	for len(unanswered) > 0 {
		unanswered = db.commitSome(unanswered)
	}
}

// dryRun runs each function of the batch once in a transaction of its own, and rolls it back.
func (db *DB) dryRun(batch []*queuedWrite) {
	for _, w := range batch {
		b, err := db.bolt.Begin(true)
		if err != nil {
			return // beginning the real transaction will report it
		}
		func() {
			defer rollback(b)
			_ = db.runOne(&Tx{b: b, db: db, writable: true}, w.fn)
		}()
	}
}

// commitSome commits the first writes of the batch, at most as many as fit into one commit. If a
// function fails after it has written something, only the writes before it are committed.
// commitSome sends the committed and the failed writes their results, and returns the others. No
// function runs more than twice, so the time stays proportional to the size of the batch, whichever
// functions fail.
func (db *DB) commitSome(batch []*queuedWrite) (rest []*queuedWrite) {
	if err := db.failure.get(); err != nil {
		sendResults(batch, err)
		return nil
	}
	killpoint.At("commit.begin")
	began := time.Now()
	synced := make(chan error, 1)
	go func() { synced <- db.sync() }()
	good, failed := batch, []*queuedWrite(nil)
	var tx *bolt.Tx
	var cost txCost
	var entryChanges *entry.Changes
	for {
		var err error
		tx, err = db.bolt.Begin(true)
		if err != nil {
			<-synced
			sendResults(batch, fmt.Errorf("begin transaction: %w", err))
			return nil
		}
		var n int
		var needsRollback bool
		entryChanges = &entry.Changes{Keep: db.entries.last != nil}
		n, cost, needsRollback = db.run(tx, good, entryChanges)
		if !needsRollback {
			good, rest = good[:n], append(slices.Clone(good[n:]), rest...)
			break
		}
		rollback(tx)
		failed = append(failed, good[n])
		rest = append(slices.Clone(good[n+1:]), rest...)
		good = good[:n]
	}
	err := db.commitOrRollback(tx, cost.writes, entryChanges, <-synced)
	if len(good) > 0 {
		db.report.record("batch_us", cost.took.Microseconds(), good[0].callChain)
		db.report.record("commit_us", time.Since(began).Microseconds(), good[0].callChain)
	}
	if err == nil {
		if db.onCommitted != nil {
			db.onCommitted(time.Since(began))
		}
		for _, w := range good {
			w.number = entryChanges.Number
		}
		db.reportChanges(good)
	}
	sendResults(good, err)
	killpoint.At("commit.answered")
	sendResults(failed, err)
	return rest
}

// run runs the functions of the batch in one transaction, until the commit has enough bytes. If a
// function fails after it has written something, run stops there, and needsRollback is true. ran is
// the number of functions that ran, not counting that one, and cost is their total cost.
func (db *DB) run(b *bolt.Tx, batch []*queuedWrite, entryChanges *entry.Changes) (ran int, cost txCost, needsRollback bool) {
	ended := false
	defer func() {
		if !ended {
			rollback(b)
		}
	}()
	for ran < len(batch) && cost.bytes < batchBytes {
		w := batch[ran]
		began := time.Now()
		tx := &Tx{b: b, db: db, writable: true, entryChanges: entryChanges}
		before := entryChanges.N
		w.err = db.runOne(tx, w.fn)
		w.hasChanges = entryChanges.N > before
		one := txCost{tx.bytes, tx.writes, tx.steps, time.Since(began)}
		db.report.recordCost(w, one)
		if err := db.checkBounds(w, one); err != nil && w.err == nil {
			w.err = err
		}
		if err := db.roomForTx(tx); err != nil && w.err == nil {
			w.err = err
		}
		w.after, w.changes = tx.after, tx.changes
		if w.err != nil && tx.writes > 0 {
			needsRollback = true
			break
		}
		cost.add(one)
		ran++
	}
	ended = true
	return ran, cost, needsRollback
}

// runOne runs one function and its AtEnd functions. It turns a panic into an error.
func (db *DB) runOne(tx *Tx, fn func(*Tx) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			tx.writes++
			if err = DamagedStoreError(db.dir, v); !isDamage(v) {
				err = &panicError{v, debug.Stack()}
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

// commitOrRollback commits what the functions wrote. synced is the result of syncing the message
// bytes that the rows may refer to. If the sync failed, or if there are no writes, it rolls back.
func (db *DB) commitOrRollback(tx *bolt.Tx, writes int, entryChanges *entry.Changes, synced error) error {
	if synced != nil {
		rollback(tx)
		return db.Fail(synced)
	}
	killpoint.At("commit.segments_synced")
	if writes == 0 {
		rollback(tx)
		return nil
	}
	if err := db.commitPages(tx, entryChanges); err != nil {
		return err
	}
	db.freelistMissing = db.bolt.NoFreelistSync
	db.forgetAllocations(allocationsKept)
	return nil
}

// allocationsKept is the number of pages for which bbolt may remember the transaction that
// allocated them: 4 MiB of memory. See boltfile.AllocationForgetter.
const allocationsKept = 100_000

// commitPages commits the bbolt transaction, with the entry of the commit. Here bbolt may read
// damaged pages that no function has read. After such a fault bbolt's memory is inconsistent, so
// the database takes no more writes.
func (db *DB) commitPages(tx *bolt.Tx, entryChanges *entry.Changes) (err error) {
	defer func() {
		if errors.Is(err, ErrDatabase) {
			rollback(tx)
			err = db.Fail(err)
		}
	}()
	defer db.CatchDamage(&err)
	onDisk := func() {}
	if entryChanges.N > 0 {
		onDisk, err = db.numberCommit(tx, entryChanges)
		if err != nil {
			rollback(tx)
			return fmt.Errorf("assign the commit number: %w", err)
		}
	}
	db.chooseFreelistSync()
	killpoint.At("commit.pages")
	if err := tx.Commit(); err != nil {
		return db.commitError(err)
	}
	killpoint.At("commit.done")
	onDisk()
	return nil
}

// rollback rolls a transaction back. It ignores the error: a rollback fails only if the transaction
// has already ended.
func rollback(tx *bolt.Tx) { _ = tx.Rollback() }

// commitError returns ErrFull if a full disk refused to write a page. bbolt has then rolled back
// and can go on. Every other error stops all writes, also a sync that fails for lack of space,
// since the content of the disk is then unknown.
func (db *DB) commitError(err error) error {
	var refused *fs.PathError
	if errors.As(err, &refused) && segment.IsFull(err) {
		return fmt.Errorf("commit: %w: %w", ErrFull, err)
	}
	return db.Fail(err)
}

// sendResults sends each write its result: err if the commit failed, otherwise what its function
// returned. Before that it runs the After functions of each write that succeeded.
func sendResults(batch []*queuedWrite, err error) {
	for _, w := range batch {
		var p *panicError
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
// all pages and write the list, and bbolt walks the whole database after each commit that the
// operating system refused. A copy costs 8 bytes per free page at each commit. So the committer
// writes it only while the list is short, and Close always writes it. bbolt reads NoFreelistSync
// only in Commit, which only the committer calls, so it may change between commits. A commit
// without the list says so in its meta page.

// MaxWrittenFreelist is the largest number of free pages at which each commit still writes their
// list: 8 KiB, two pages.
const MaxWrittenFreelist = 1000

// chooseFreelistSync decides before a commit whether the commit writes the list of free pages.
func (db *DB) chooseFreelistSync() {
	stats := db.bolt.Stats()
	db.bolt.NoFreelistSync = stats.FreePageN+stats.PendingPageN > MaxWrittenFreelist
}

// writeFreelistAtClose writes the list of free pages if the last commit did not.
func (db *DB) writeFreelistAtClose() {
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

// The disk is never filled completely. A commit that the operating system refuses half-way costs
// more than one that is not begun, and deletions need some space themselves. Once only the reserve
// is left, new messages are refused, and so is every transaction that frees nothing, however small:
// people are told that changes are refused, so none may succeed. The error is ErrFull.

// errReserve is returned for writes that would use the reserve of the disk.
var errReserve = fmt.Errorf("%w: the space that is left is reserved for deletions", ErrFull)

// RoomForMessage returns nil if there is room for a new message, otherwise ErrFull.
func (db *DB) RoomForMessage() error {
	if db.room.IsShort() {
		return errReserve
	}
	return nil
}

// roomForTx returns nil if the transaction may be committed, otherwise ErrFull.
func (db *DB) roomForTx(tx *Tx) error {
	if tx.writes == 0 || tx.mayUseReserve {
		return nil
	}
	return db.RoomForMessage()
}

// MayUseReserve lets the transaction write even when the space that is left is reserved for
// deletions. It is for writes that deletions depend on, such as the job queue. A transaction that
// deletes records or messages does not need it.
func (tx *Tx) MayUseReserve() { tx.mayUseReserve = true }

// A Disk describes the file system that the database is on.
type Disk struct {
	Free, Total int64 // bytes
	Full        bool  // new messages are refused: the space left is reserved for deletions
}

// Spare returns how many bytes work that can wait leaves free for mail: 256 MiB, or a tenth of a
// small disk. It is more than what is reserved for deletions.
func (d Disk) Spare() int64 { return min(256<<20, d.Total/10) }

// Disk returns the free and total space of the file system.
func (db *DB) Disk() (d Disk, err error) {
	d.Free, d.Total, err = db.room.Free(db.dir)
	d.Full = db.room.IsShort()
	return d, err
}

// A Change identifies a row of an account that a committed transaction wrote or deleted.
type Change struct {
	Table   string // the table's Name, or another name that the caller of RecordChange chose
	Account string // id of the account that owns the row
	User    string // id of the person that the row belongs to; "" if it is for everybody in the account
	ID      string // id of the row
}

// OnCommit makes fn receive the changes of each transaction once they are on disk. A later call
// replaces fn; nil removes it. fn runs in the committer: it must be short, must not call the store
// and must not keep the slice. fn does not receive the changes of transactions that ran before
// OnCommit. Some of these may not be on disk yet; an empty Update waits for them.
func (db *DB) OnCommit(fn func([]Change)) {
	if fn == nil {
		db.onCommit.Store(nil)
		return
	}
	db.onCommit.Store(&fn)
}

// HasObserver reports whether OnCommit has set a function.
func (tx *Tx) HasObserver() bool { return tx.db.onCommit.Load() != nil }

// RecordChange adds a change for OnCommit. It ignores a change without an account, and one that
// equals the change before it.
func (tx *Tx) RecordChange(c Change) {
	n := len(tx.changes)
	if c.Account == "" || n > 0 && tx.changes[n-1] == c {
		return
	}
	tx.changes = append(tx.changes, c)
}

// reportChanges calls the function that OnCommit was given with the changes of a batch that is on
// disk.
func (db *DB) reportChanges(batch []*queuedWrite) {
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
