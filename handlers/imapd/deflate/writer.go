package deflate

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"
)

// A Pool compresses the output of many connections. A compressor takes 1.2 MB. So a connection
// takes one from the pool for each piece that it sends, resets it first, and returns it. An idle
// connection has none. The peer's decompressor does not notice the reset. Make a Pool with NewPool.
type Pool struct{ writers sync.Pool }

// A writer is a compressor that writes to its buffer out.
type writer struct {
	out        bytes.Buffer
	compressor *flate.Writer
}

// NewPool returns an empty pool.
func NewPool() *Pool {
	return &Pool{sync.Pool{New: func() any {
		w := &writer{}
		w.compressor, _ = flate.NewWriter(&w.out, flate.BestSpeed) // fails only for invalid levels
		return w
	}}}
}

// Write compresses a piece, flushes it and writes it to out in one call. So the peer can decompress
// all of the piece at once.
func (p *Pool) Write(out io.Writer, piece []byte) error {
	w := p.writers.Get().(*writer)
	defer p.writers.Put(w)
	w.out.Reset()
	w.compressor.Reset(&w.out)
	if _, err := w.compressor.Write(piece); err != nil {
		return fmt.Errorf("compress output for a client: %w", err)
	}
	if err := w.compressor.Flush(); err != nil {
		return fmt.Errorf("flush compressed output for a client: %w", err)
	}
	_, err := out.Write(w.out.Bytes())
	return err
}
