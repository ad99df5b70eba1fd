package namecomtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
)

// A Direct is a transport that calls a handler without a network, so that a test can use a fake
// clock. Like a server, the handler finishes its work even if the client has gone.
type Direct struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (d Direct) RoundTrip(r *http.Request) (*http.Response, error) {
	type result struct {
		resp *http.Response
		err  error
	}
	done := make(chan result, 1)
	in := r.Clone(context.WithoutCancel(r.Context()))
	in.Body = http.NoBody
	if r.Body != nil { // read here, since a handler that outlives the client must not share the body with it
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
		in.Body = io.NopCloser(bytes.NewReader(text))
	}
	go func() {
		defer func() {
			if v := recover(); v == http.ErrAbortHandler {
				done <- result{err: io.ErrUnexpectedEOF}
			} else if v != nil {
				panic(v)
			}
		}()
		w := httptest.NewRecorder()
		d.ServeHTTP(w, in)
		done <- result{resp: w.Result()}
	}()
	select {
	case got := <-done:
		return got.resp, got.err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
