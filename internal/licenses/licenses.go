// Package licenses holds the licence notices of everything that is built into the binary: Mailstead
// itself, Go, the linked modules and the dashboard's libraries. The program in generate collects
// them, and its test fails when they are out of date.
package licenses

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
)

//go:embed notices.txt.gz
var zipped []byte

// Text returns the notices in readable form. Each part of the binary has a line "=== NAME VERSION";
// parts with the same notice are listed together above it.
func Text() string {
	r, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		panic(err) // they are part of the binary
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return string(text)
}
