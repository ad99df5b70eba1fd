//go:build !linux

package segment

import "os"

// datasync writes the file's content and length to disk.
func datasync(f *os.File) error { return f.Sync() }
