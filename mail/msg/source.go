package msg

import (
	"bytes"
	"fmt"
	"io"
	"slices"
)

// A Source holds the bytes of a message. It can be read more than once.
type Source interface {
	io.ReaderAt
	Size() int64
}

// Whole returns a reader of the entire message.
func Whole(m Source) *io.SectionReader { return io.NewSectionReader(m, 0, m.Size()) }

// Again returns a new reader of the same bytes as r, from their start.
func Again(r *io.SectionReader) io.Reader { return io.NewSectionReader(r, 0, r.Size()) }

// ScanHeader parses at most the first MaxHeader bytes of a message. It is for callers that need
// only the header.
func ScanHeader(m Source) (*Part, error) {
	root, err := Scan(io.NewSectionReader(m, 0, min(m.Size(), MaxHeader)))
	if err != nil {
		return nil, fmt.Errorf("parse header of message: %w", err)
	}
	return root, nil
}

// AsSent returns a reader of a stored message in the form in which it may be sent: without the
// Return-Path field at its top. That field of a delivered message is for its mailbox only (RFC 5321
// section 4.4). A submitted message has none.
func AsSent(m Source) (*io.SectionReader, error) {
	first := make([]byte, min(m.Size(), 1<<10))
	if _, err := m.ReadAt(first, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read start of message: %w", err)
	}
	if end := bytes.Index(first, []byte("\r\n")); end >= 0 && bytes.HasPrefix(first, []byte("Return-Path:")) {
		return io.NewSectionReader(m, int64(end+2), m.Size()-int64(end+2)), nil
	}
	return Whole(m), nil
}

// HasHighBytes reads r and reports whether it has a non-ASCII byte. It stops at the first one.
func HasHighBytes(r io.Reader) (bool, error) {
	block := make([]byte, 32<<10)
	for {
		n, err := r.Read(block)
		if slices.ContainsFunc(block[:n], func(b byte) bool { return b >= 0x80 }) {
			return true, nil
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read message: %w", err)
		}
	}
}
