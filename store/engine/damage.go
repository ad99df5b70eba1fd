package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/mailstead/mailstead/store/boltfile"
	"github.com/mailstead/mailstead/store/segment"
)

// bbolt takes its pages for sound: on a damaged one it panics, or reads memory that is not there.
// Whoever reads lets such a fault become a panic (debug.SetPanicOnFault) and that an error.

// ErrDatabase is returned where a page of the database is not what was written. What stands on
// other pages can be read.
var ErrDatabase = errors.New("the database is damaged")

// CatchDamage is deferred where the database is read: a panic over a damaged page becomes *err,
// every other panic goes on.
func (db *DB) CatchDamage(err *error) {
	if v := recover(); v != nil {
		*err = db.Damage(v)
		if *err == nil {
			panic(v)
		}
	}
}

// Damage is for whoever recovers from a panic in a transaction: its error is ErrDatabase if v,
// which recover gave, is over a damaged page, and nil for every other panic. The function that
// recovers calls it.
func (db *DB) Damage(v any) error {
	if !isDamage(v) {
		return nil
	}
	return db.damage.note(Damaged(db.dir, v))
}

// Damaged makes ErrDatabase of what recover gave, or of an error, for the store in dir.
func Damaged(dir string, v any) error {
	return fmt.Errorf("%w: stop the server and run mailstead check --data %s: %v", ErrDatabase, dir, v)
}

// isDamage tells whether a panic, of which the calling function has recovered, is over a damaged
// page: a fault of memory, or one that bbolt raised.
func isDamage(v any) bool {
	if fault, ok := v.(interface{ Addr() uintptr }); ok && fault != nil {
		return true
	}
	calls := make([]uintptr, 30)
	frames := runtime.CallersFrames(calls[:runtime.Callers(2, calls)])
	for panicked := false; ; {
		frame, more := frames.Next()
		name := frame.Function
		switch {
		case name == "runtime.gopanic":
			panicked = true
		case panicked && !strings.HasPrefix(name, "runtime.") && !strings.HasPrefix(name, "sort."):
			return strings.HasPrefix(name, "go.etcd.io/bbolt")
		}
		if !more {
			return false
		}
	}
}

// openDatabase is bolt.Open of a file that may be damaged.
func openDatabase(path string, o *bolt.Options) (db *bolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = Damaged(filepath.Dir(path), v)
		}
	}()
	db, err = bolt.Open(path, 0o600, o)
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = ErrInUse
	}
	return db, err
}

// damageMet counts what was read and is not what was written, since the database was opened.
type damageMet struct {
	mu    sync.Mutex
	times int
	last  error
}

// note counts an error that is over damage, and gives it back; it passes on every other error.
func (d *damageMet) note(err error) error {
	if errors.Is(err, segment.ErrDamaged) || errors.Is(err, ErrDamagedRow) || errors.Is(err, ErrDatabase) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.times++
		d.last = err
	}
	return err
}

// NoteDamage counts an error that is over damage, and gives it back, as it does every other one.
func (db *DB) NoteDamage(err error) error { return db.damage.note(err) }

// DamageMet says how often something was read that is not what was written, since the database was
// opened, and what it was the last time.
func (db *DB) DamageMet() (times int, last error) {
	db.damage.mu.Lock()
	defer db.damage.mu.Unlock()
	return db.damage.times, db.damage.last
}

// The pages of a database in use are verified again and again: on a damaged one keys may not be
// found that are there, and nobody would know. pagesEvery is how long at least passes between two
// rounds; a large database waits for pagesShare times as long as a round takes. One snapshot serves
// for pagesAtOnce.
const (
	pagesEvery  = 5 * time.Second
	pagesShare  = 200
	pagesAtOnce = 500
)

// WatchPages verifies the pages of the database, round after round, until ctx ends. It returns
// ErrDatabase as soon as it finds a damaged one. The order of keys is verified, not what stands in
// rows: they have checksums.
func (db *DB) WatchPages(ctx context.Context) error {
	f, err := os.Open(db.path)
	if err != nil {
		return err
	}
	defer f.Close()
	for first := true; ; first = false {
		began := time.Now()
		if !first || !db.checkedPages {
			if err := db.verifyPages(ctx, f); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-db.closing:
			return nil
		case <-time.After(max(pagesEvery, pagesShare*time.Since(began))):
		}
	}
}

// verifyPages verifies the pages of one bucket after the other, a few in each snapshot: bbolt uses
// no page again that an open snapshot can see, so that the file of a busy server grows fast
// meanwhile. It rests between snapshots, and returns nil when ctx ends or the store is closed.
func (db *DB) verifyPages(ctx context.Context, f *os.File) error {
	var pace Pacer
	for _, bucket := range db.buckets {
		for more, from := true, []byte(nil); more; more = from != nil {
			err := db.bolt.View(func(b *bolt.Tx) error {
				var wrong []error
				// Read as a file: bbolt would fall over a damaged page, or walk in circles.
				from, wrong = boltfile.CheckBucket(f, uint64(b.Cursor().Bucket().Root()), bucket, b.Size(), int64(db.bolt.Info().PageSize), from, pagesAtOnce)
				if len(wrong) > 0 {
					return Damaged(db.dir, errors.Join(wrong...))
				}
				return nil
			})
			if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
				return nil
			}
			if err != nil {
				return err
			}
			select {
			case <-db.closing:
				return nil
			default:
			}
			if pace.Rest(ctx) != nil {
				return nil
			}
		}
	}
	return nil
}

// CheckPages verifies the pages of the database in a file, which no process may have open. Where it
// finds damage, Open may fail or not return, so it goes before Open.
func CheckPages(path string) error {
	db, err := openDatabase(path, &bolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer db.Close()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return errors.Join(boltfile.CheckPages(f, info.Size())...)
}
