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
	spoolChunks = 16 // limit of memory per spool: 256 KiB
	spoolPrefix = "spool-"
)

// Spools create spools, which share buffers and a directory for their temporary files.
type Spools struct {
	dir     string
	chunks  sync.Pool // of *[spoolChunk]byte
	writeAt func(f *os.File, p []byte, off int64) (int, error)
}

// OpenSpools returns Spools with the directory dir/spool in the data directory dir. It creates the
// directory if missing, and removes files that a crash has left in it.
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

// New returns an empty Spool for a message of at most limit bytes. The caller must close it.
func (s *Spools) New(limit int64) *Spool { return &Spool{spools: s, limit: limit} }

// A Spool holds a message while it arrives: up to 256 KiB in memory, the rest in a temporary file,
// unlinked where possible. One goroutine may write. When it has finished, any number may read until
// Close.
type Spool struct {
	spools *Spools
	limit  int64
	head   []byte // bytes added by Prepend

	file    *os.File
	name    string // name of the file, if it could not be unlinked while open; otherwise ""
	flushed int64  // length of the body in file; the bytes after it are in chunks
	chunks  []*[spoolChunk]byte
	inChunk int64 // length of the body in chunks

	err error // first error of writing; os.ErrClosed after Close
}

// Write appends p to the message. If the message would exceed its limit, Write takes nothing of p
// and returns ErrTooLarge. After an error, each later Write returns the same error and the spool
// cannot be stored. The error for a full disk is ErrFull.
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

// ReadFrom appends the content of r without an intermediate buffer. If the content exceeds the
// limit, it keeps what fits and returns ErrTooLarge, as does each later Write. After an error of r,
// writing may continue.
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
		s.chunks = append(s.chunks, s.spools.chunks.Get().(*[spoolChunk]byte))
		return nil
	}
	return s.flush()
}

// flush moves the chunks to the file.
func (s *Spool) flush() error {
	if s.file == nil {
		f, err := os.CreateTemp(s.spools.dir, spoolPrefix)
		if err != nil {
			return spoolError(err)
		}
		s.file = f
		killpoint.At("spool.begun")
		if os.Remove(f.Name()) != nil {
			s.name = f.Name()
		}
	}
	for i, c := range s.chunks {
		if _, err := s.spools.writeAt(s.file, c[:], s.flushed+int64(i)*spoolChunk); err != nil {
			return spoolError(err)
		}
	}
	killpoint.At("spool.flushed")
	s.flushed += s.inChunk
	s.inChunk = 0
	return nil
}

// spoolError wraps an error of the temporary file, with ErrFull for a full disk.
func spoolError(err error) error {
	if IsFull(err) {
		return fmt.Errorf("write spool file: %w: %w", ErrFull, err)
	}
	return fmt.Errorf("write spool file: %w", err)
}

// Prepend inserts p, complete header fields with their line ends, before the message and earlier
// prepended fields. p does not count toward the limit and is copied.
func (s *Spool) Prepend(p []byte) {
	head := make([]byte, 0, len(p)+len(s.head))
	s.head = append(append(head, p...), s.head...)
}

// Size returns the length of the message in bytes, including prepended fields.
func (s *Spool) Size() int64 { return int64(len(s.head)) + s.flushed + s.inChunk }

// ReadAt implements io.ReaderAt for the message, including prepended fields.
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
			return n, fmt.Errorf("read spool file: %w", err)
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

// Reader returns a new reader of the whole message.
func (s *Spool) Reader() io.Reader { return io.NewSectionReader(s, 0, s.Size()) }

// Close frees the buffers and the file. It is safe to call twice.
func (s *Spool) Close() error {
	if s.err == os.ErrClosed {
		return nil
	}
	s.err = os.ErrClosed
	for _, c := range s.chunks {
		s.spools.chunks.Put(c)
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
