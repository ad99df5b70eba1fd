package deflate

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"
)

// A Pool compresses the output of many connections. A compressor takes 1.2 MB, so a connection
// borrows one for each piece that it sends, and resets it first. An idle connection holds none. The
// peer's decompressor does not notice the reset. NewPool makes a Pool.
type Pool struct{ writers sync.Pool }

type writer struct {
	out  bytes.Buffer
	flat *flate.Writer
}

// NewPool returns an empty pool.
func NewPool() *Pool {
	return &Pool{sync.Pool{New: func() any {
		w := &writer{}
		w.flat, _ = flate.NewWriter(&w.out, flate.BestSpeed) // it fails only for invalid levels
		return w
	}}}
}

// Write compresses a piece, flushes it, and writes it to out with one call, so that the peer can
// decompress all of it at once.
func (p *Pool) Write(out io.Writer, piece []byte) error {
	w := p.writers.Get().(*writer)
	defer p.writers.Put(w)
	w.out.Reset()
	w.flat.Reset(&w.out)
	if _, err := w.flat.Write(piece); err != nil {
		return fmt.Errorf("compress output: %w", err)
	}
	if err := w.flat.Flush(); err != nil {
		return fmt.Errorf("compress output: %w", err)
	}
	_, err := out.Write(w.out.Bytes())
	return err
}
