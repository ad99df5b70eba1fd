//go:build !(linux || darwin || freebsd || openbsd || netbsd)

package objects

import "os"

// lock always returns false on systems without flock.
func lock(*os.File) bool { return false }
