//go:build !(linux || darwin || freebsd || openbsd || netbsd)

package objects

import "os"

// tryLock always returns false on systems without flock.
func tryLock(*os.File) bool { return false }
