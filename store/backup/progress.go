package backup

import (
	"context"
	"io"
)

// progressKey is the key of a function in a context, see WithProgress.
type progressKey struct{}

// WithProgress returns a context for work of this package that calls report from time to time: with
// the name of the work, how much of it is done, and how much there is (0 if that is not known). The
// units are bytes if the name begins with "bytes of ", else things that the name names. Calls may
// come from several goroutines, and many in a second.
func WithProgress(ctx context.Context, report func(what string, done, all int64)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// reportProgress calls the function of WithProgress, if there is one.
func reportProgress(ctx context.Context, what string, done, all int64) {
	if report, ok := ctx.Value(progressKey{}).(func(string, int64, int64)); ok {
		report(what, done, all)
	}
}

// A byteProgress reports how many of the bytes of a work are done.
type byteProgress struct {
	ctx       context.Context
	what      string
	done, all int64
}

func newByteProgress(ctx context.Context, what string, all int64) *byteProgress {
	return &byteProgress{ctx: ctx, what: "bytes of " + what, all: all}
}

func (p *byteProgress) add(n int64) {
	p.done += n
	reportProgress(p.ctx, p.what, p.done, p.all)
}

// counting returns a writer that counts what is written to w.
func (p *byteProgress) counting(w io.Writer) io.Writer {
	return io.MultiWriter(w, writerFunc(func(b []byte) { p.add(int64(len(b))) }))
}

// countingReader returns a reader that counts what is read from r.
func (p *byteProgress) countingReader(r io.Reader) io.Reader {
	return io.TeeReader(r, writerFunc(func(b []byte) { p.add(int64(len(b))) }))
}

type writerFunc func(b []byte)

// Write calls the function.
func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
