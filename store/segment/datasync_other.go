//go:build !linux

package segment

import "os"

// datasync puts the file's bytes and length on disk.
func datasync(f *os.File) error { return f.Sync() }
