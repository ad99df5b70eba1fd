//go:build !linux

package store

import (
	"errors"
	"os"
)

// diskRoom does not know.
func diskRoom(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }

// segDatasync puts the file's bytes and length on disk.
func segDatasync(f *os.File) error { return f.Sync() }
