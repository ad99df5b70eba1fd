// Package disktest is a disk that fails when a test tells it to.
// It does not know what is kept on it.
package disktest

import (
	"errors"
	"os"
	"sync"
)

// Faults is a disk that writes what there is room for, and fails syncs when told to. The zero value
// fails nothing. Fields are changed by Set where others may use the disk meanwhile.
type Faults struct {
	mu       sync.Mutex
	WriteErr error // of a write that there is no room for; nil: there is room for all
	Room     int64 // bytes that may still be written, where there is a WriteErr
	SyncErr  error // of a sync of a file
	DirErr   error // of a sync of a directory
	Syncs    int   // of files that were asked for
}

// Set changes the faults while the disk is in use.
func (d *Faults) Set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// WriteAt writes what there is room for, as the system does before ENOSPC. Room is taken by the
// bytes written, not by the file's length.
func (d *Faults) WriteAt(f *os.File, p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.WriteErr == nil {
		return f.WriteAt(p, off)
	}
	n := int(min(d.Room, int64(len(p))))
	d.Room -= int64(n)
	if n, err := f.WriteAt(p[:n], off); err != nil || n == len(p) {
		return n, err
	}
	return n, &os.PathError{Op: "write", Path: f.Name(), Err: d.WriteErr}
}

// Datasync puts the file's bytes on disk.
func (d *Faults) Datasync(f *os.File) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Syncs++
	if d.SyncErr != nil {
		return d.SyncErr
	}
	return f.Sync()
}

// SyncDir puts a directory's entries on disk.
func (d *Faults) SyncDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.DirErr != nil {
		return d.DirErr
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
