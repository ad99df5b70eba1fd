package handlers

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/handlers/docs"
	"github.com/mailstead/mailstead/handlers/openapi"
)

// exampleErrors returns an example of an error response for the OpenAPI document: in our own form,
// and in that of RFC 9457.
func exampleErrors(status int, code, message, requestID string) (own, rfc9457 any) {
	p := problem{Code: code, Message: message, RequestID: requestID}
	if status == http.StatusTooManyRequests {
		p.RetryAfter = 17
	}
	return errorBody{p}, problemBody{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: message, Instance: "/v1/…", problem: p}
}

// A document is a fixed response body with its ETag.
type document struct {
	contentType string
	body        []byte // nil if the body is kept compressed alone
	gzipped     []byte // nil if that would not be smaller
	tag         string
	fixed       bool // the path has a hash of the body, so the body never changes
}

// newDocument compresses body and computes its ETag.
func newDocument(contentType string, body []byte) document {
	sum := sha256.Sum256(body)
	var gzipped bytes.Buffer
	gzipInto(&gzipped, body, nil)
	d := document{contentType: contentType, tag: hex.EncodeToString(sum[:12])}
	if gzipped.Len() < len(body) {
		d.gzipped = bytes.Clone(gzipped.Bytes()) // without the room that the buffer has left
	} else {
		d.body = body
	}
	return d
}

// apiDocuments are the OpenAPI documents by their paths.
type apiDocuments map[string]document

// describe describes the API of this server.
func (s *Server) describe() *openapi.Document {
	return openapi.Describe(openapi.API{Operations: s.ops, URL: s.svc.Core.Config.BaseURL, Errors: exampleErrors})
}

// makeDescription makes the OpenAPI documents. They depend only on compiled-in data and the
// server's URL. So an error is a bug, which tests find, and makeDescription panics.
func (s *Server) makeDescription() *apiDocuments {
	doc := s.describe()
	text, err := doc.JSON()
	if err != nil {
		panic(err)
	}
	yaml, err := doc.YAML()
	if err != nil {
		panic(err)
	}
	return &apiDocuments{
		"/v1/openapi.json": newDocument("application/json", text),
		"/v1/openapi.yaml": newDocument("application/yaml", yaml),
	}
}

// sendDescription answers GET and HEAD of an OpenAPI document.
func (s *Server) sendDescription(c *call) {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		s.sendNotAllowed(c, []string{"GET", "HEAD"})
		return
	}
	d := (*s.description())[c.r.URL.Path]
	c.w.Header().Set("Cache-Control", "public, max-age=300")
	c.w.Header().Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	d.send(c)
}

// send sends a document, compressed if the client accepts that.
func (d *document) send(c *call) {
	h := c.w.Header()
	h.Set("Content-Type", d.contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	body, tag := d.body, d.tag
	if d.gzipped != nil {
		h.Set("Vary", "Accept-Encoding")
		if acceptsGzip(c.r.Header.Values("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
			body, tag = d.gzipped, d.tag+"-gzip"
		} else {
			body = gunzip(d.gzipped)
		}
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(c.w, c.r, "", time.Time{}, bytes.NewReader(body))
}

// gunzip returns what newDocument has compressed.
func gunzip(gzipped []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(gzipped))
	if err != nil {
		panic(err)
	}
	body, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return body
}

// docsPolicy is the Content-Security-Policy of the documentation. It allows scripts, styles,
// pictures and data only from this server, and the search as the only form.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// A library has the documentation, and the documents that were sent from it.
type library struct {
	site *docs.Site
	sent sync.Map // document by path
}

// makeLibrary makes the documentation.
func (s *Server) makeLibrary() *library {
	return &library{site: docs.New(s.describe(), s.svc.Core.Config.BaseURL)}
}

// document returns the page or file at a path. ok is false if there is none.
func (l *library) document(path string) (d document, ok bool) {
	if known, ok := l.sent.Load(path); ok {
		return known.(document), true
	}
	f, ok := l.site.Open(path)
	if !ok {
		return document{}, false
	}
	d = newDocument(f.Type, f.Body)
	d.fixed = f.Fixed
	l.sent.Store(path, d)
	return d, true
}

// sendDocs answers GET and HEAD of pages and files of the documentation.
func (s *Server) sendDocs(c *call) {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		s.sendNotAllowed(c, []string{"GET", "HEAD"})
		return
	}
	l, h, path := s.library(), c.w.Header(), c.r.URL.Path
	h.Set("Content-Security-Policy", docsPolicy)
	h.Set("Cache-Control", "no-cache")
	if path == docs.SearchPath {
		f := l.site.Search(c.r.URL.Query().Get("q"))
		d := newDocument(f.Type, f.Body)
		d.send(c)
		return
	}
	if d, ok := l.document(path); ok {
		if d.fixed {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		d.send(c)
		return
	}
	if bare := strings.TrimRight(path, "/"); bare != path {
		if _, ok := l.document(bare); ok {
			h.Set("Location", bare)
			c.w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
	}
	f := l.site.NotFound(path)
	h.Set("Content-Type", f.Type)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(f.Body)))
	c.w.WriteHeader(http.StatusNotFound)
	_, _ = c.w.Write(f.Body) // a client that has left needs no answer
}
