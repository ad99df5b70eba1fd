//go:build linux || darwin || freebsd || openbsd || netbsd

package objects

import (
	"os"
	"syscall"
)

// tryLock locks a file until it is closed or the process ends. It returns false if the file is
// already locked, or if the file system has no locks.
func tryLock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
