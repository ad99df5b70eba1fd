package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
)

// tempPrefix begins the names of files that are still being written.
const tempPrefix = ".new-"

// A directory is a Place that stores each object in a file. The slashes in an object's name
// separate directories.
type directory struct{ address, dir string }

func (d *directory) String() string { return d.address }

func (d *directory) path(name string) string { return filepath.Join(d.dir, filepath.FromSlash(name)) }

func (d *directory) Put(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	path := d.path(name)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	f, err := createLocked(dir)
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	_, err = io.Copy(f, &ctxReader{ctx, io.NewSectionReader(r, 0, size)})
	if err == nil {
		err = f.Sync()
	}
	killpoint.At("object.written")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	killpoint.At("object.named")
	if err != nil {
		return errors.Join(fmt.Errorf("put %s: %w", name, err), os.Remove(f.Name()))
	}
	// The name of the file must be durable, and so must those of the directories above it, which
	// may be new.
	for ; strings.HasPrefix(dir, d.dir); dir = filepath.Dir(dir) {
		if err := syncDir(dir); err != nil {
			return fmt.Errorf("put %s: %w", name, err)
		}
	}
	return nil
}

// createLocked creates a temporary file and locks it. The lock shows that the file is still being
// written.
func createLocked(dir string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(dir, tempPrefix)
		if err != nil {
			return nil, err
		}
		tryLock(f)
		if _, err := os.Lstat(f.Name()); err == nil {
			return f, nil
		}
		f.Close() // a concurrent List has removed the file before it was locked
	}
}

// removeAbandoned removes a temporary file if the process that was writing it has ended: the file
// is not locked, or older than a day.
func removeAbandoned(path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && (tryLock(f) || time.Since(info.ModTime()) > 24*time.Hour) {
		_ = os.Remove(path)
	}
}

// A ctxReader reads until its context is cancelled; then Read returns the error of the context.
type ctxReader struct {
	ctx context.Context
	io.Reader
}

func (e *ctxReader) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.Reader.Read(p)
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *directory) Open(_ context.Context, name string) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return f, nil
}

func (d *directory) Delete(_ context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// List reads each directory when it gets there. It also removes temporary files of processes that
// ended during a Put.
func (d *directory) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		err := d.walk(ctx, "", prefix, func(o Object) bool { return yield(o, nil) })
		if err != nil && !errors.Is(err, fs.SkipAll) {
			if errors.Is(err, syscall.ENOTDIR) {
				err = errors.New("it is a file; name a directory, or the file itself without the slash at its end")
			}
			yield(Object{}, fmt.Errorf("list %s: %w", d.address, err))
		}
	}
}

// walk passes the objects in a directory and below it to yield, sorted by name. `below` is the name
// of the directory with a slash at the end, or "".
func (d *directory) walk(ctx context.Context, below, prefix string, yield func(Object) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.path(below))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	name := func(e fs.DirEntry) string {
		if e.IsDir() {
			return below + e.Name() + "/"
		}
		return below + e.Name()
	}
	sort.Slice(entries, func(i, j int) bool { return name(entries[i]) < name(entries[j]) })
	for _, e := range entries {
		name := name(e)
		if strings.HasPrefix(e.Name(), tempPrefix) {
			removeAbandoned(d.path(name))
		}
		if strings.HasPrefix(e.Name(), ".") || !strings.HasPrefix(name, prefix) && !strings.HasPrefix(prefix, name) {
			continue
		}
		if e.IsDir() {
			if err := d.walk(ctx, name, prefix, yield); err != nil {
				return err
			}
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, prefix) && info.Mode().IsRegular() && !yield(Object{name, info.Size()}) {
			return fs.SkipAll
		}
	}
	return nil
}
