package cloudflaretest

import (
	"io"
	"net/http"
	"net/http/httptest"
)

// HTTP returns a client that calls the server without a network, for tests with a fake clock.
func (s *Server) HTTP() *http.Client { return &http.Client{Transport: transport{s}} }

type transport struct{ s *Server }

// RoundTrip calls the server's handler. It returns io.ErrUnexpectedEOF if the handler aborts the
// connection.
func (t transport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	defer func() {
		if gone := recover(); gone == http.ErrAbortHandler {
			resp, err = nil, io.ErrUnexpectedEOF
		} else if gone != nil {
			panic(gone)
		}
	}()
	t.s.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}
