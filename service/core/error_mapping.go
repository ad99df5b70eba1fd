package core

import (
	"context"
	"errors"
	"io"

	"github.com/mailstead/mailstead/store"
)

// Explain turns any error into the one that a person outside may see.
func Explain(err error) *Error {
	if e, ok := AsError(err); ok {
		return e
	}
	switch {
	case errors.Is(err, store.ErrFull):
		return Errorf("internal_error", "The server's disk is full, so nothing was changed. Its operator must make room; then try again.").Because(err)
	case errors.Is(err, store.ErrFailed):
		return Errorf("internal_error", "The server's disk has failed, so it takes no changes until its operator has mended it.").Because(err)
	case errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled):
		return Errorf("shutting_down", "The server is stopping. Try again in a moment.").Because(err)
	}
	return Errorf("internal_error", "Something went wrong on our side. Try again; if it stays, report the request id.").Because(err)
}

// Healthy says why the store takes no more writes; nil while it does.
func (s *Core) Healthy() error { return s.Store.Failed() }

// NewRequestID names one request.
func (s *Core) NewRequestID() string { return s.Store.NewID("req") }

// A File is an answer that is not JSON. Size is -1 when it is not known beforehand.
type File struct {
	Name        string
	ContentType string
	Size        int64
	Body        io.ReadCloser
}
