package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// bbolt does not check the pages that it reads: on a damaged page it panics or reads unmapped
// memory. Every reader turns such a memory fault into a panic (debug.SetPanicOnFault) and the panic
// into an error.

// ErrDatabase is returned when a page of the database is damaged. Rows on other pages can still be
// read.
var ErrDatabase = errors.New("the database is damaged")

// CatchDamage must be deferred in a function that reads the database. It turns a panic that a
// damaged page causes into *err and lets every other panic continue.
func (db *DB) CatchDamage(err *error) {
	if v := recover(); v != nil {
		*err = db.DamageError(v)
		if *err == nil {
			panic(v)
		}
	}
}

// DamageError takes what recover returned after a panic in a transaction. If a damaged page caused
// the panic, DamageError counts the damage and returns ErrDatabase; otherwise it returns nil. Call
// it in the function that calls recover.
func (db *DB) DamageError(recovered any) error {
	if !isDamage(recovered) {
		return nil
	}
	return db.damage.countIfDamage(DamagedStoreError(db.dir, recovered))
}

// DamagedStoreError returns ErrDatabase for the store in dir. cause is a recovered panic or an
// error.
func DamagedStoreError(dir string, cause any) error {
	return fmt.Errorf("%w: stop the server and run mailstead check --data %s: %v", ErrDatabase, dir, cause)
}

// isDamage reports whether a damaged page caused a panic: v is a memory fault, or bbolt raised it.
// Only the function that recovered v may call it, since it examines the stack.
func isDamage(v any) bool {
	if fault, ok := v.(interface{ Addr() uintptr }); ok && fault != nil {
		return true
	}
	calls := make([]uintptr, 30)
	frames := runtime.CallersFrames(calls[:runtime.Callers(2, calls)])
	for afterPanic := false; ; {
		frame, more := frames.Next()
		name := frame.Function
		switch {
		case name == "runtime.gopanic":
			afterPanic = true
		case afterPanic && !strings.HasPrefix(name, "runtime.") && !strings.HasPrefix(name, "sort."):
			return strings.HasPrefix(name, "go.etcd.io/bbolt")
		}
		if !more {
			return false
		}
	}
}

// openDatabase is bolt.Open for a file that may be damaged. It returns ErrInUse if another process
// has the file open.
func openDatabase(path string, o *bolt.Options) (db *bolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = DamagedStoreError(filepath.Dir(path), v)
		}
	}()
	db, err = bolt.Open(path, 0o600, o)
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = ErrInUse
	}
	return db, err
}

// damageCount counts the damage errors since the database was opened.
type damageCount struct {
	mu    sync.Mutex
	times int
	last  error
}

// countIfDamage counts err if it reports damage, and returns err in any case.
func (d *damageCount) countIfDamage(err error) error {
	if errors.Is(err, segment.ErrDamaged) || errors.Is(err, ErrDamagedRow) || errors.Is(err, ErrDatabase) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.times++
		d.last = err
	}
	return err
}

// NoteDamage counts err if it reports damage, and returns err in any case.
func (db *DB) NoteDamage(err error) error { return db.damage.countIfDamage(err) }

// DamageFound returns how many times damage was found since the database was opened, and the last
// error about it; nil if there was none.
func (db *DB) DamageFound() (times int, last error) {
	db.damage.mu.Lock()
	defer db.damage.mu.Unlock()
	return db.damage.times, db.damage.last
}

// The pages of an open database are verified in rounds: with a damaged page, existing keys may not
// be found, and nobody would notice. pageCheckInterval is the shortest time between two rounds. For
// a large database it is pageCheckRestRatio times the duration of the round before. One snapshot is
// used for pagesPerSnapshot pages.
const (
	pageCheckInterval  = 5 * time.Second
	pageCheckRestRatio = 200
	pagesPerSnapshot   = 500
)

// WatchPages verifies the pages of the database in rounds until ctx ends or the database is closed.
// It returns ErrDatabase as soon as it finds a damaged page. It verifies the order of keys, but not
// the content of rows, which have checksums.
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
		case <-time.After(max(pageCheckInterval, pageCheckRestRatio*time.Since(began))):
		}
	}
}

// verifyPages verifies the pages of one bucket after the other, pagesPerSnapshot in each snapshot:
// bbolt does not reuse pages that an open snapshot can see, so a long snapshot would let the file
// of a busy server grow. It rests between snapshots, and returns nil when ctx ends or the database
// is closed.
func (db *DB) verifyPages(ctx context.Context, f *os.File) error {
	var pace Pacer
	for _, bucket := range db.buckets {
		for more, from := true, []byte(nil); more; more = from != nil {
			err := db.bolt.View(func(b *bolt.Tx) error {
				var wrong []error
				// Read the file directly: on a damaged page bbolt would panic or loop forever.
				from, wrong = boltfile.CheckBucket(f, uint64(b.Cursor().Bucket().Root()), bucket, b.Size(), int64(db.bolt.Info().PageSize), from, pagesPerSnapshot)
				if len(wrong) > 0 {
					return DamagedStoreError(db.dir, errors.Join(wrong...))
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

// CheckPages verifies the pages of a database file that no process has open. Call it before Open,
// which may fail or hang on a damaged file.
func CheckPages(path string) error {
	return checkPages(path, func(f io.ReaderAt) io.ReaderAt { return f })
}

// CheckPagesInBackground is like CheckPages, but it rests while the process is busy. It returns the
// error of ctx when that ends.
func CheckPagesInBackground(ctx context.Context, path string) error {
	pace := &background{ctx: ctx}
	err := checkPages(path, func(f io.ReaderAt) io.ReaderAt { return &pacedFile{f, pace} })
	if ctx.Err() != nil {
		return ctx.Err() // what was found by then comes from reads that were cut short
	}
	return err
}

// A pacedFile is a file whose reads rest while the process is busy.
type pacedFile struct {
	io.ReaderAt
	pace *background
}

// ReadAt reads like the file.
func (f *pacedFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.pace.rest(); err != nil {
		return 0, err
	}
	return f.ReaderAt.ReadAt(p, off)
}

// checkPages does the work of CheckPages. It reads the file through the reader that `through`
// returns.
func checkPages(path string, through func(io.ReaderAt) io.ReaderAt) error {
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
	return errors.Join(boltfile.CheckPages(through(f), info.Size())...)
}
