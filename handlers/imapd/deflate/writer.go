package deflate

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"
)

// A Pool compresses what many connections send. A compressor takes 1.2 MB, so connections borrow
// one for each piece that they send, and reset it before. An idle connection holds none, and the
// peer's decompressor sees no difference. Make it with NewPool.
type Pool struct{ writers sync.Pool }

type writer struct {
	out  bytes.Buffer
	flat *flate.Writer
}

// NewPool returns an empty pool.
func NewPool() *Pool {
	return &Pool{sync.Pool{New: func() any {
		w := &writer{}
		w.flat, _ = flate.NewWriter(&w.out, flate.BestSpeed) // fails for other levels only
		return w
	}}}
}

// Write compresses a piece, and writes it to out with one call. The peer can decompress all of it
// at once.
func (p *Pool) Write(out io.Writer, piece []byte) error {
	w := p.writers.Get().(*writer)
	defer p.writers.Put(w)
	w.out.Reset()
	w.flat.Reset(&w.out)
	if _, err := w.flat.Write(piece); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if err := w.flat.Flush(); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	_, err := out.Write(w.out.Bytes())
	return err
}
