package segment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/internal/killpoint"
)

const (
	spoolChunk  = 16 << 10
	spoolChunks = 16 // 256 KiB in memory for each message that is arriving
	spoolPrefix = "spool-"
)

// Spools make a Spool for each message, which share buffers and a directory for what exceeds them.
type Spools struct {
	dir     string
	chunks  sync.Pool // of *[spoolChunk]byte
	writeAt func(f *os.File, p []byte, off int64) (int, error)
}

// OpenSpools makes dir/spool of the data directory dir if it is missing, and removes what a crash
// has left there.
func OpenSpools(dir string) (*Spools, error) {
	dir = filepath.Join(dir, "spool")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), spoolPrefix) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	s := &Spools{dir: dir, writeAt: (*os.File).WriteAt}
	s.chunks.New = func() any { return new([spoolChunk]byte) }
	return s, nil
}

// New gives an empty Spool for a message of at most limit bytes. It must be closed.
func (s *Spools) New(limit int64) *Spool { return &Spool{home: s, limit: limit} }

// Spool holds one message while it arrives: up to 256 KiB in memory, the rest in a temporary file
// without a name. One goroutine writes; when writing has ended, any number may read until Close.
type Spool struct {
	home  *Spools
	limit int64
	head  []byte

	file    *os.File
	name    string // of the file, where it could not be unlinked while open
	flushed int64  // bytes of the body in file; those behind it are in chunks
	chunks  []*[spoolChunk]byte
	inChunk int64 // bytes of the body in chunks

	err error
}

// Write appends to the message. When p does not fit under the maximum, nothing of p is taken and
// ErrTooLarge is returned; after any error every later Write returns the same error, and the Spool
// cannot be stored. On a full disk the error is ErrFull.
func (s *Spool) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if int64(len(p)) > s.limit-s.flushed-s.inChunk {
		s.err = ErrTooLarge
		return 0, s.err
	}
	taken := 0
	for taken < len(p) {
		if err := s.grow(); err != nil {
			s.err = err
			return taken, err
		}
		n := copy(s.chunks[s.inChunk/spoolChunk][s.inChunk%spoolChunk:], p[taken:])
		s.inChunk += int64(n)
		taken += n
	}
	return taken, nil
}

// ReadFrom reads a message to its end without a buffer between. Of more than the maximum it keeps
// what fits, and returns ErrTooLarge as Write does. An error of r does not end the Spool.
func (s *Spool) ReadFrom(r io.Reader) (n int64, err error) {
	for s.err == nil {
		left := s.limit - s.flushed - s.inChunk
		if left == 0 {
			var over [1]byte
			m, err := r.Read(over[:])
			switch {
			case m > 0:
				s.err = ErrTooLarge
			case err == io.EOF:
				return n, nil
			case err != nil:
				return n, err
			}
			continue
		}
		s.err = s.grow()
		if s.err != nil {
			break
		}
		at := s.inChunk % spoolChunk
		m, err := r.Read(s.chunks[s.inChunk/spoolChunk][at:][:min(left, spoolChunk-at)])
		s.inChunk += int64(m)
		n += int64(m)
		switch {
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		}
	}
	return n, s.err
}

// grow makes room for at least one byte in chunks.
func (s *Spool) grow() error {
	switch {
	case s.inChunk < int64(len(s.chunks))*spoolChunk:
		return nil
	case len(s.chunks) < spoolChunks:
		s.chunks = append(s.chunks, s.home.chunks.Get().(*[spoolChunk]byte))
		return nil
	}
	return s.flush()
}

func (s *Spool) flush() error {
	if s.file == nil {
		f, err := os.CreateTemp(s.home.dir, spoolPrefix)
		if err != nil {
			return spoolFailed(err)
		}
		s.file = f
		killpoint.At("spool.begun")
		if os.Remove(f.Name()) != nil {
			s.name = f.Name()
		}
	}
	for i, c := range s.chunks {
		if _, err := s.home.writeAt(s.file, c[:], s.flushed+int64(i)*spoolChunk); err != nil {
			return spoolFailed(err)
		}
	}
	killpoint.At("spool.flushed")
	s.flushed += s.inChunk
	s.inChunk = 0
	return nil
}

func spoolFailed(err error) error {
	if IsFull(err) {
		return fmt.Errorf("spool message: %w: %w", ErrFull, err)
	}
	return fmt.Errorf("spool message: %w", err)
}

// Prepend puts p, whole header fields with their line ends, before the message and before what
// earlier calls have put there. It does not count against the maximum. p is copied.
func (s *Spool) Prepend(p []byte) {
	head := make([]byte, 0, len(p)+len(s.head))
	s.head = append(append(head, p...), s.head...)
}

// Size is the message's length in bytes, what was prepended included.
func (s *Spool) Size() int64 { return int64(len(s.head)) + s.flushed + s.inChunk }

// ReadAt reads from the message, what was prepended included, as io.ReaderAt asks.
func (s *Spool) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read spool at %d: negative offset", off)
	}
	read := 0
	for read < len(p) {
		n, err := s.readPiece(p[read:], off+int64(read))
		read += n
		if err != nil {
			return read, err
		}
	}
	return read, nil
}

// readPiece reads from the one place that holds the byte at off: head, file or a chunk.
func (s *Spool) readPiece(p []byte, off int64) (int, error) {
	if off < int64(len(s.head)) {
		return copy(p, s.head[off:]), nil
	}
	off -= int64(len(s.head))
	if off < s.flushed {
		n, err := s.file.ReadAt(p[:min(int64(len(p)), s.flushed-off)], off)
		if err != nil {
			return n, fmt.Errorf("read spool: %w", err)
		}
		return n, nil
	}
	off -= s.flushed
	if off >= s.inChunk {
		if s.err == os.ErrClosed {
			return 0, s.err
		}
		return 0, io.EOF
	}
	i := off / spoolChunk
	filled := min(s.inChunk-i*spoolChunk, spoolChunk)
	return copy(p, s.chunks[i][off%spoolChunk:filled]), nil
}

// Reader reads the whole message from its start; each call gives a reader of its own.
func (s *Spool) Reader() io.Reader { return io.NewSectionReader(s, 0, s.Size()) }

// Close frees the buffers and the file. Closing again does nothing.
func (s *Spool) Close() error {
	if s.err == os.ErrClosed {
		return nil
	}
	s.err = os.ErrClosed
	for _, c := range s.chunks {
		s.home.chunks.Put(c)
	}
	s.chunks, s.inChunk, s.flushed, s.head = nil, 0, 0, nil
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	s.file = nil
	return err
}
