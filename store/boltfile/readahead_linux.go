package boltfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// readAhead has the system read the first bytes of a file in the order of the file, which is many
// times faster than in that of its trees, and without a copy (posix_fadvise, POSIX_FADV_WILLNEED).
// What is wrong with it, whoever reads then sees.
func readAhead(f *os.File, size int64) {
	const piece = 4 << 20
	for at := int64(0); at < size; at += piece {
		if unix.Fadvise(int(f.Fd()), at, piece, unix.FADV_WILLNEED) != nil {
			return
		}
	}
}
