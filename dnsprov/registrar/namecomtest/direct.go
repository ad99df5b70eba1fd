package namecomtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
)

// A Direct is an HTTP transport that calls a handler without a network, for tests with a fake
// clock. As in a real server, the handler continues if the client gives up.
type Direct struct{ http.Handler }

// RoundTrip implements http.RoundTripper. It returns io.ErrUnexpectedEOF if the handler aborts the
// connection.
func (d Direct) RoundTrip(r *http.Request) (*http.Response, error) {
	type result struct {
		resp *http.Response
		err  error
	}
	done := make(chan result, 1)
	in := r.Clone(context.WithoutCancel(r.Context()))
	in.Body = http.NoBody
	if r.Body != nil { // the handler may continue after the client, so it needs its own copy of the body
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
