package handlers

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/mailstead/mailstead/internal/buffers"
)

const (
	minCompressed = 1 << 10 // bytes of an answer that is compressed
	maxPadding    = 64      // bytes
)

// A compressor compresses the JSON answers of operations with gzip, if the client accepts that. It
// compresses only an answer whose Content-Length is set and that is written at once.
//
// The length of a compressed answer says whether its parts resemble each other, so somebody who can
// add text to an answer and see its length could guess a secret in it (the attack BREACH). So
// answers with secrets of ours are not compressed, see api.Operation.ShowsSecret. The others have
// mail of strangers beside each other, and a padding of random length, which hides small
// differences.
type compressor struct {
	http.ResponseWriter
	c      *call
	status int // of an answer whose header is sent with its body; 0: there is none
}

// Unwrap lets http.ResponseController find the methods of the wrapped writer.
func (w *compressor) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *compressor) WriteHeader(status int) {
	h := w.Header()
	length, _ := strconv.Atoi(h.Get("Content-Length"))
	if length < minCompressed || !isJSONMedia(h.Get("Content-Type")) || w.c.op == nil || w.c.op.ShowsSecret {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	h.Add("Vary", "Accept-Encoding")
	if !acceptsGzip(w.c.r.Header.Values("Accept-Encoding")) {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.status = status
}

func (w *compressor) Write(p []byte) (int, error) {
	if w.status == 0 {
		return w.ResponseWriter.Write(p)
	}
	status, h, out := w.status, w.Header(), p
	w.status = 0
	if h.Get("Content-Length") == strconv.Itoa(len(p)) {
		buf := buffers.Bytes()
		defer buffers.FreeBytes(buf)
		gzipInto(buf, p, newPadding())
		if buf.Len() < len(p) {
			out = buf.Bytes()
			h.Set("Content-Encoding", "gzip")
			h.Set("Content-Length", strconv.Itoa(len(out)))
		}
	}
	w.ResponseWriter.WriteHeader(status)
	if _, err := w.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// finish sends the header of an answer whose body was not written.
func (w *compressor) finish() {
	if w.status != 0 {
		w.ResponseWriter.WriteHeader(w.status)
		w.status = 0
	}
}

var gzipPool = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, 6) // a valid level: 250 MB/s, and a tenth of the size of a list
	return z
}}

// newPadding returns padding of a random length.
func newPadding() []byte { return make([]byte, rand.IntN(maxPadding)) }

// gzipInto writes p to buf, compressed. padding becomes a header field that readers skip (RFC 1952
// section 2.3.1.1).
func gzipInto(buf *bytes.Buffer, p, padding []byte) {
	z := gzipPool.Get().(*gzip.Writer)
	defer gzipPool.Put(z)
	z.Reset(buf)
	z.Extra = padding
	_, _ = z.Write(p) // a bytes.Buffer never fails
	_ = z.Close()
}

// isJSONMedia reports whether a Content-Type is one of the two that JSON answers have.
func isJSONMedia(contentType string) bool {
	return contentType == jsonMedia || contentType == problemMedia
}

// acceptsGzip reports whether a client accepts gzip, by its Accept-Encoding headers (RFC 9110
// section 12.5.3). Without any, it may not know gzip.
func acceptsGzip(accept []string) bool {
	every := false
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		coding, weight, _ := strings.Cut(part, ";")
		name, value, _ := strings.Cut(strings.ReplaceAll(weight, " ", ""), "=")
		q, err := strconv.ParseFloat(value, 64)
		accepted := !strings.EqualFold(name, "q") || err == nil && q > 0
		switch strings.ToLower(strings.TrimSpace(coding)) {
		case "gzip", "x-gzip":
			return accepted
		case "*":
			every = accepted
		}
	}
	return every
}
