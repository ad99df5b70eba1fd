//go:build linux || darwin || freebsd || openbsd || netbsd

package objects

import (
	"os"
	"syscall"
)

// lock takes the lock of a file, which ends with the process; false if another process has it, or
// the file system has none.
func lock(f *os.File) bool { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil }
