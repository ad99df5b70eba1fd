// Package reportfile opens the files in which mail operators send each other reports, and cleans
// the texts in them. It does not know what a report says.
package reportfile

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"
)

// Bounds on a report from elsewhere.
const (
	MaxPacked = 5 << 20 // bytes as attached
	MaxText   = 256     // bytes of one text
	MaxCount  = 1_000_000_000_000
)

// ErrReport is wrapped by every error about a report that cannot be read: it is no report, damaged,
// or beyond the bounds.
var ErrReport = errors.New("not a report that can be read")

// Unpack opens a report that may be in a gzip or zip file, as its first bytes tell. Of a zip file
// it takes the first file with the suffix, or the first of all. The reader gives an error after
// limit bytes. Errors wrap ErrReport.
func Unpack(packed []byte, suffix string, limit int64) (io.Reader, error) {
	if len(packed) > MaxPacked {
		return nil, fmt.Errorf("%w: %d bytes", ErrReport, len(packed))
	}
	switch {
	case bytes.HasPrefix(packed, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrReport, err)
		}
		return &boundedReader{z, limit}, nil
	case bytes.HasPrefix(packed, []byte("PK\x03\x04")):
		z, err := openZip(packed, suffix)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrReport, err)
		}
		return &boundedReader{z, limit}, nil
	}
	return &boundedReader{bytes.NewReader(packed), limit}, nil
}

func openZip(packed []byte, suffix string) (io.Reader, error) {
	z, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		return nil, err
	}
	var found *zip.File
	for _, f := range z.File {
		if f.FileInfo().IsDir() {
			continue
		}
		if strings.EqualFold(path.Ext(f.Name), suffix) {
			found = f
			break
		}
		if found == nil {
			found = f
		}
	}
	if found == nil {
		return nil, io.ErrUnexpectedEOF
	}
	return found.Open()
}

// boundedReader reads up to a number of bytes, beyond which there is an error.
type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: too large once inflated", ErrReport)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Text is a text without control characters and cut to MaxText.
func Text(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, strings.TrimSpace(s))
	if len(s) <= MaxText {
		return s
	}
	return strings.ToValidUTF8(s[:MaxText], "")
}

// Keyword is a lower-case keyword: one of those allowed, or the first.
func Keyword(s string, allowed ...string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	for _, a := range allowed {
		if s == a {
			return a
		}
	}
	return allowed[0]
}

// DomainName is a domain in the form in which reports are compared: lower case, without the dot of
// the root.
func DomainName(s string) string { return strings.ToLower(strings.TrimSuffix(Text(s), ".")) }
