// Package buffers pools buffered readers and writers, and growing buffers, so that their memory is
// reused for the next message or answer. It knows nothing of the data in them.
package buffers

import (
	"bufio"
	"bytes"
	"io"
	"sync"
)

// Size is the buffer size of readers and writers, in bytes.
const Size = 16 << 10

var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, Size) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, Size) }}
	blocks  = sync.Pool{New: func() any { return new([2 * Size]byte) }}
	texts   = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, Size)) }}
)

// maxPooled is the largest capacity of a grown buffer that is put back into the pool.
const maxPooled = 256 << 10

// Reader returns a pooled reader of r. The caller returns it with FreeReader, and afterwards uses
// neither it nor a slice that it returned. A reader that is not returned is left to the garbage
// collector.
func Reader(r io.Reader) *bufio.Reader {
	br := readers.Get().(*bufio.Reader)
	br.Reset(r)
	return br
}

// FreeReader returns a reader to the pool. Its unread data is lost.
func FreeReader(br *bufio.Reader) {
	br.Reset(nil)
	readers.Put(br)
}

// Writer returns a pooled writer to w. The caller flushes it and returns it with FreeWriter.
func Writer(w io.Writer) *bufio.Writer {
	bw := writers.Get().(*bufio.Writer)
	bw.Reset(w)
	return bw
}

// FreeWriter returns a writer to the pool. Data that was not flushed is lost.
func FreeWriter(bw *bufio.Writer) {
	bw.Reset(nil)
	writers.Put(bw)
}

// Bytes returns a pooled, empty buffer that grows. The caller returns it with FreeBytes, and
// afterwards uses neither it nor its bytes.
func Bytes() *bytes.Buffer { return texts.Get().(*bytes.Buffer) }

// FreeBytes returns a buffer to the pool.
func FreeBytes(b *bytes.Buffer) {
	if b.Cap() > maxPooled {
		return
	}
	b.Reset()
	texts.Put(b)
}

// Copy is io.Copy with a pooled buffer for every kind of r and w. io.Copy would leave the copying
// to some readers, such as io.MultiReader, which allocate a buffer each time.
func Copy(w io.Writer, r io.Reader) (int64, error) {
	block := blocks.Get().(*[2 * Size]byte)
	defer blocks.Put(block)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, block[:])
}
