//go:build !linux

package boltfile

import (
	"io"
	"os"
)

// readAhead reads the first size bytes of a file into the system's cache, in file order. That is
// many times faster than reading in the order of the trees. Errors are ignored: the later reads
// will meet them.
func readAhead(f *os.File, size int64) {
	buf := make([]byte, 1<<20)
	_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.NewSectionReader(f, 0, size)}, buf)
}
