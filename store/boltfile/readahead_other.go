//go:build !linux

package boltfile

import (
	"io"
	"os"
)

// readAhead reads the first bytes of a file in file order, which is many times faster than in the
// order of its trees. Errors are ignored: the later reads will meet them.
func readAhead(f *os.File, size int64) {
	buf := make([]byte, 1<<20)
	_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.NewSectionReader(f, 0, size)}, buf)
}
