package msg

import (
	"bytes"
	"fmt"
	"io"
	"slices"
)

// A Source is the bytes of a message, which can be read more than once.
type Source interface {
	io.ReaderAt
	Size() int64
}

// Whole reads a message from its start to its end.
func Whole(m Source) *io.SectionReader { return io.NewSectionReader(m, 0, m.Size()) }

// Again reads the same bytes once more, from their start.
func Again(r *io.SectionReader) io.Reader { return io.NewSectionReader(r, 0, r.Size()) }

// ScanHeader parses the header of a message, and nothing of its body.
func ScanHeader(m Source) (*Part, error) {
	root, err := Scan(io.NewSectionReader(m, 0, min(m.Size(), MaxHeader)))
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	return root, nil
}

// AsSent reads what is sent of a stored message. What was delivered here before has a Return-Path
// on top, which is for the mailbox alone (RFC 5321 section 4.4); what is submitted has none.
func AsSent(m Source) (*io.SectionReader, error) {
	first := make([]byte, min(m.Size(), 1<<10))
	if _, err := m.ReadAt(first, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read message: %w", err)
	}
	if end := bytes.Index(first, []byte("\r\n")); end >= 0 && bytes.HasPrefix(first, []byte("Return-Path:")) {
		return io.NewSectionReader(m, int64(end+2), m.Size()-int64(end+2)), nil
	}
	return Whole(m), nil
}

// HasHighBytes reports whether anything beyond ASCII is read from r.
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
