//go:build linux || darwin || freebsd || openbsd || netbsd

package objects

import (
	"os"
	"syscall"
)

// lock locks a file until it is closed or the process ends. It returns false if the file is locked
// already, or the file system has no locks.
func lock(f *os.File) bool { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil }
