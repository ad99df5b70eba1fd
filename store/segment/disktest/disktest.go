// Package disktest is a disk that fails when a test tells it to.
// It does not know what is kept on it.
package disktest

import (
	"errors"
	"os"
	"sync"
)

// Faults is a disk with limited room and failing syncs. The zero value fails nothing. Fields are
// changed by Set while others may use the disk.
type Faults struct {
	mu       sync.Mutex
	WriteErr error // error of a write that exceeds Room; nil: Room is not limited
	Room     int64 // bytes that may still be written while WriteErr is set
	SyncErr  error // error of Datasync; nil: none
	DirErr   error // error of SyncDir; nil: none
	Syncs    int   // calls of Datasync so far
}

// Set changes the faults while the disk is in use.
func (d *Faults) Set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// WriteAt writes what there is room for, as the system does before ENOSPC. Each byte written takes
// room, even where the file does not grow.
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
