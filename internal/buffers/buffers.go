// Package buffers lends buffered readers and writers, and buffers that grow, so that the memory of
// one message or answer serves the next. It knows nothing of what passes through them.
package buffers

import (
	"bufio"
	"bytes"
	"io"
	"sync"
)

// Size is how many bytes each of them holds.
const Size = 16 << 10

var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, Size) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, Size) }}
	blocks  = sync.Pool{New: func() any { return new([2 * Size]byte) }}
	texts   = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, Size)) }}
)

// mostKept is the capacity of a buffer that grew beyond which it is not lent again.
const mostKept = 256 << 10

// Reader lends a reader of r. Whoever borrows it gives it back by FreeReader, and uses neither it
// nor a slice that it returned afterwards; one that is not given back is lost to the pool alone.
func Reader(r io.Reader) *bufio.Reader {
	br := readers.Get().(*bufio.Reader)
	br.Reset(r)
	return br
}

// FreeReader takes a reader of Reader back. What it has read and nobody took is gone.
func FreeReader(br *bufio.Reader) {
	br.Reset(nil)
	readers.Put(br)
}

// Writer lends a writer to w. Whoever borrows it flushes it and gives it back by FreeWriter.
func Writer(w io.Writer) *bufio.Writer {
	bw := writers.Get().(*bufio.Writer)
	bw.Reset(w)
	return bw
}

// FreeWriter takes a writer of Writer back. What was not flushed is gone.
func FreeWriter(bw *bufio.Writer) {
	bw.Reset(nil)
	writers.Put(bw)
}

// Bytes lends an empty buffer that grows. Whoever borrows it gives it back by FreeBytes, and uses
// neither it nor its bytes afterwards.
func Bytes() *bytes.Buffer { return texts.Get().(*bytes.Buffer) }

// FreeBytes takes a buffer of Bytes back.
func FreeBytes(b *bytes.Buffer) {
	if b.Cap() > mostKept {
		return
	}
	b.Reset()
	texts.Put(b)
}

// Copy is io.Copy with a lent buffer, whatever r and w are: chains of readers, such as
// io.MultiReader, allocate one each time that they copy themselves.
func Copy(w io.Writer, r io.Reader) (int64, error) {
	block := blocks.Get().(*[2 * Size]byte)
	defer blocks.Put(block)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, block[:])
}
