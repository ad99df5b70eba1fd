package dmarcreport

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"strings"
)

// unpack opens a report that may be in a gzip or zip file, as its first bytes tell. What is read of
// it ends with an error after most bytes.
func unpack(packed []byte, suffix string, most int64) (io.Reader, error) {
	if len(packed) > MaxPacked {
		return nil, fmt.Errorf("%w: %d bytes", ErrReport, len(packed))
	}
	switch {
	case bytes.HasPrefix(packed, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrReport, err)
		}
		return &bounded{z, most}, nil
	case bytes.HasPrefix(packed, []byte("PK\x03\x04")):
		z, err := fileOf(packed, suffix)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrReport, err)
		}
		return &bounded{z, most}, nil
	}
	return &bounded{bytes.NewReader(packed), most}, nil
}

// fileOf opens the first file of a zip archive that has the suffix, or the first of all.
func fileOf(packed []byte, suffix string) (io.Reader, error) {
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

// bounded reads up to a number of bytes, beyond which there is an error.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: too large once inflated", ErrReport)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
