//go:build !linux

package store

import "os"

// segDatasync puts the file's bytes and length on disk.
func segDatasync(f *os.File) error { return f.Sync() }
