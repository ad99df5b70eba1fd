// Package reportfile opens the files of reports that mail operators send to each other, and cleans
// the texts in them. It does not know what a report contains.
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

// Limits on a report that others sent.
const (
	MaxPacked = 5 << 20 // bytes of the attachment
	MaxText   = 256     // bytes of one text in a report
	MaxCount  = 1_000_000_000_000
)

// ErrReport is wrapped by all errors about a report that cannot be read: it is not a report, it is
// damaged, or it exceeds a limit.
var ErrReport = errors.New("the report cannot be read")

// Unpack returns the content of a report, which may be in a gzip or zip file. It recognizes these
// by their first bytes. From a zip file it takes the first file with the suffix or, if there is
// none, the first file. After limit bytes, the reader returns an error. Errors wrap ErrReport.
func Unpack(packed []byte, suffix string, limit int64) (io.Reader, error) {
	if len(packed) > MaxPacked {
		return nil, fmt.Errorf("%w: it has %d bytes, which is too large", ErrReport, len(packed))
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

// boundedReader is a reader that returns an error after a number of bytes.
type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: its decompressed content is too large", ErrReport)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Text returns a text without control characters, with at most MaxText bytes.
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

// Keyword returns s in lower case, if it is one of the allowed keywords. Otherwise it returns the
// first of these.
func Keyword(s string, allowed ...string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	for _, a := range allowed {
		if s == a {
			return a
		}
	}
	return allowed[0]
}

// DomainName returns a domain in lower case without a final dot, so that domains in reports can be
// compared.
func DomainName(s string) string { return strings.ToLower(strings.TrimSuffix(Text(s), ".")) }
