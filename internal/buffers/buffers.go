// Package buffers pools buffered readers, buffered writers and growing buffers, so that their
// memory is reused. It does not know what data they contain.
package buffers

import (
	"bufio"
	"bytes"
	"io"
	"sync"
)

// Size is the size in bytes of the buffers of readers and writers.
const Size = 16 << 10

var (
	readerPool = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, Size) }}
	writerPool = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, Size) }}
	blockPool  = sync.Pool{New: func() any { return new([2 * Size]byte) }}
	bytesPool  = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, Size)) }}
)

// maxPooled is the maximum capacity in bytes of a growing buffer that is put back into the pool.
const maxPooled = 256 << 10

// Reader returns a pooled reader that reads from r. The caller should pass it to FreeReader, and
// must not use it, or slices that it returned, after that.
func Reader(r io.Reader) *bufio.Reader {
	br := readerPool.Get().(*bufio.Reader)
	br.Reset(r)
	return br
}

// FreeReader puts a reader back into the pool. Data that it has buffered is lost.
func FreeReader(br *bufio.Reader) {
	br.Reset(nil)
	readerPool.Put(br)
}

// Writer returns a pooled writer that writes to w. The caller should flush it and pass it to
// FreeWriter.
func Writer(w io.Writer) *bufio.Writer {
	bw := writerPool.Get().(*bufio.Writer)
	bw.Reset(w)
	return bw
}

// FreeWriter puts a writer back into the pool. Data that was not flushed is lost.
func FreeWriter(bw *bufio.Writer) {
	bw.Reset(nil)
	writerPool.Put(bw)
}

// Bytes returns a pooled growing buffer, which is empty. The caller should pass it to FreeBytes,
// and must not use it or its bytes after that.
func Bytes() *bytes.Buffer { return bytesPool.Get().(*bytes.Buffer) }

// FreeBytes puts a growing buffer back into the pool, unless it has grown too large.
func FreeBytes(b *bytes.Buffer) {
	if b.Cap() > maxPooled {
		return
	}
	b.Reset()
	bytesPool.Put(b)
}

// Copy copies from r to w until EOF, as io.Copy does, but always with a pooled buffer. io.Copy
// would use WriteTo or ReadFrom methods, which may allocate a buffer each time.
func Copy(w io.Writer, r io.Reader) (int64, error) {
	block := blockPool.Get().(*[2 * Size]byte)
	defer blockPool.Put(block)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, block[:])
}
