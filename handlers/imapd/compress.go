package imapd

import (
	"bufio"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"
)

// packers compress what goes to clients (RFC 4978). A packer takes 1.2 MB, so connections borrow
// one for each piece that they send and begin afresh with it: an idle connection holds none, and a
// peer's inflater does not see the difference.
type packers struct{ pool sync.Pool }

type packer struct {
	out  bytes.Buffer
	zips *flate.Writer
}

func newPackers() *packers {
	return &packers{sync.Pool{New: func() any {
		p := &packer{}
		p.zips, _ = flate.NewWriter(&p.out, flate.BestSpeed) // the level is a good one
		return p
	}}}
}

// write compresses a piece and sends it whole.
func (ps *packers) write(w io.Writer, piece []byte) error {
	p := ps.pool.Get().(*packer)
	defer ps.pool.Put(p)
	p.out.Reset()
	p.zips.Reset(&p.out)
	if _, err := p.zips.Write(piece); err != nil {
		return fmt.Errorf("compress answers: %w", err)
	}
	if err := p.zips.Flush(); err != nil {
		return fmt.Errorf("compress answers: %w", err)
	}
	_, err := w.Write(p.out.Bytes())
	return err
}

// compress has all that comes after the answer be compressed, both ways. What comes out of the
// inflater is bounded as any other input is: by line, by literal and by time.
func (w *wire) compress(ps *packers, answer string) error {
	w.tell("%s", answer)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.flushLocked(); err != nil {
		return err
	}
	w.packers = ps
	w.in = bufio.NewReaderSize(newInflater(w.in), 4096)
	return nil
}

func (w *wire) compressed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.packers != nil
}
