package msg

import (
	"fmt"
	"io"
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
