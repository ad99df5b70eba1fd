package handlers

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

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

// A document is a fixed response body, plain and compressed with gzip, with its ETag.
type document struct {
	contentType string
	body        []byte
	gzipped     []byte
	tag         string
}

// newDocument compresses body and computes its ETag.
func newDocument(contentType string, body []byte) document {
	sum := sha256.Sum256(body)
	var gzipped bytes.Buffer
	w := gzip.NewWriter(&gzipped)
	_, _ = w.Write(body) // a bytes.Buffer never fails
	_ = w.Close()
	return document{contentType, body, gzipped.Bytes(), hex.EncodeToString(sum[:12])}
}

// apiDocuments are the documents about the API by their paths: the OpenAPI document and the
// reference.
type apiDocuments map[string]document

// makeDescription makes the documents about the API. They depend only on compiled-in data and the
// server's URL. So an error is a bug, which tests find, and makeDescription panics.
func (s *Server) makeDescription() *apiDocuments {
	doc := openapi.Describe(openapi.API{Operations: s.ops, URL: s.svc.Core.Config.BaseURL, Errors: exampleErrors})
	text, err := doc.JSON()
	if err != nil {
		panic(err)
	}
	yaml, err := doc.YAML()
	if err != nil {
		panic(err)
	}
	reference, err := doc.Reference()
	if err != nil {
		panic(err)
	}
	return &apiDocuments{
		"/v1/openapi.json":    newDocument("application/json", text),
		"/v1/openapi.yaml":    newDocument("application/yaml", yaml),
		"/docs":               newDocument("text/html; charset=utf-8", reference),
		"/docs/reference.css": newDocument("text/css; charset=utf-8", openapi.ReferenceCSS),
	}
}

// sendDescription answers GET and HEAD of a document about the API.
func (s *Server) sendDescription(c *call) {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		s.sendNotAllowed(c, []string{"GET", "HEAD"})
		return
	}
	p := (*s.description())[c.r.URL.Path]
	h := c.w.Header()
	h.Set("Content-Type", p.contentType)
	h.Set("Vary", "Accept-Encoding")
	body, tag := p.body, p.tag
	if acceptsGzip(c.r.Header.Values("Accept-Encoding")) {
		body, tag = p.gzipped, p.tag+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", `"`+tag+`"`)
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	http.ServeContent(c.w, c.r, "", time.Time{}, bytes.NewReader(body))
}
