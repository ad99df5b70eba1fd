package handlers

import (
	"bytes"
	"html/template"
	"net/http"
	"strconv"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
)

// explainError gives the error that a page shows, and logs it if it is our fault.
func (s *Server) explainError(c *call, what string, err error) *core.Error {
	e := core.Explain(err)
	if openapi.Status(e.Code) >= http.StatusInternalServerError {
		s.Log.Error(what, "request_id", c.id, "error", err)
	}
	if e.RetryAfter > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(retrySeconds(e.RetryAfter)))
	}
	return e
}

// showPage answers with a page of HTML.
func (s *Server) showPage(c *call, form *template.Template, status int, view any) {
	var page bytes.Buffer
	if err := form.Execute(&page, view); err != nil {
		s.fail(c, err)
		return
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.Header().Set("Content-Length", strconv.Itoa(page.Len()))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(page.Bytes()) // a client that has gone needs no answer
}
