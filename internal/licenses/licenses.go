// Package licenses has the licence notices of everything that is built into the binary: Mailstead,
// Go, the Go modules and the libraries of the dashboard. The command in the folder generate writes
// them; its test fails if they are out of date.
package licenses

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
)

//go:embed notices.txt.gz
var zippedNotices []byte

// Text returns the notices. Each part of the binary has a line "=== NAME VERSION", followed by its
// notice. If several parts have the same notice, their lines come before it, and it appears once.
func Text() string {
	r, err := gzip.NewReader(bytes.NewReader(zippedNotices))
	if err != nil {
		panic(err) // impossible: the notices are part of the binary
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return string(text)
}
