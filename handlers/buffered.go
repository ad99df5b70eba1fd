package handlers

import (
	"bytes"
	"io"
	"net/http"
)

// A bufferedResponse is an http.ResponseWriter that keeps the answer in memory.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newBufferedResponse(header http.Header) *bufferedResponse {
	return &bufferedResponse{header: header, status: http.StatusOK}
}

func (b *bufferedResponse) Header() http.Header         { return b.header }
func (b *bufferedResponse) WriteHeader(status int)      { b.status = status }
func (b *bufferedResponse) Write(p []byte) (int, error) { return b.body.Write(p) }

// Do gives a handler a request and returns its answer, without a network.
func Do(h http.Handler, r *http.Request) *http.Response {
	b := newBufferedResponse(http.Header{})
	h.ServeHTTP(b, r)
	return &http.Response{
		Status: http.StatusText(b.status), StatusCode: b.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: b.header, Body: io.NopCloser(&b.body), ContentLength: int64(b.body.Len()), Request: r,
	}
}
