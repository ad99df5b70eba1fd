// Package resttest makes fakes of APIs over HTTP fail in ways that a test chooses, and counts their
// requests. It does not know any API.
package resttest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kinds of faults.
const (
	TooMany   = "too many requests"  // status 429, with Fault.After as Retry-After
	Broken    = "server error"       // status 500
	Garbage   = "garbage"            // status 200 with a body that is not of the API
	Empty     = "empty"              // status 200 with an empty body
	Endless   = "endless"            // status 200 with a body of 8 MiB
	Hang      = "hang"               // no answer until the client gives up
	Cut       = "cut"                // the connection is closed before the request has an effect
	CutAfter  = "cut after"          // the connection is closed after the request has had its effect
	HalfDone  = "half an answer"     // the request has its effect, but only half of the answer is sent
	Elsewhere = "redirect elsewhere" // status 302 to another host
	Late      = "late"               // a GET has the answer that it had before the last change, if there was one
)

// Failures lists the faults after which the outcome of a request is unknown.
var Failures = []string{Broken, Garbage, Empty, Endless, Cut, CutAfter, HalfDone, Elsewhere}

// A Fault makes matching requests fail: those with the method Method and with Path in their path.
type Fault struct {
	Kind   string        // one of the kinds of faults, such as TooMany
	Method string        // "" matches any method
	Path   string        // part of the path; "" matches any path
	Skip   int           // number of matching requests that succeed before the first fault
	Times  int           // number of requests that fail; 0 means 1
	After  time.Duration // Retry-After for TooMany; 0 for none
}

// A Call is a request that the server has received.
type Call struct {
	Method string
	Path   string // with the query
	Body   string
}

// A Server is an http.Handler that passes requests on to an API, but for faults.
type Server struct {
	API     http.Handler
	TooMany func(w http.ResponseWriter, after time.Duration) // writes the API's answer with status 429
	Between func(Call)                                       // called before each request; nil: nothing is

	mu     sync.Mutex
	faults []*Fault
	calls  []Call
	now    map[string]seen // answers to GET requests since the last other request, by path with the query
	before map[string]seen // and those before it
}

// seen is an answer that was given.
type seen struct {
	header http.Header
	text   []byte
}

// Fail adds a fault. If several faults match a request, it uses the one that was added first.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Times = max(f.Times, 1)
	s.faults = append(s.faults, &f)
}

// Heal removes all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Calls returns the requests that were received so far.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count returns how many received requests had a method ("" for any) and a text in their path.
func (s *Server) Count(method, path string) int {
	n := 0
	for _, c := range s.Calls() {
		if (method == "" || c.Method == method) && strings.Contains(c.Path, path) {
			n++
		}
	}
	return n
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		return
	}
	call := Call{Method: r.Method, Path: r.URL.RequestURI(), Body: string(body)}
	s.mu.Lock()
	s.calls = append(s.calls, call)
	f := s.faultFor(r)
	s.mu.Unlock()
	if s.Between != nil {
		s.Between(call)
	}
	if f != nil && s.misbehave(w, r, f) {
		return
	}
	if f != nil && f.Kind == Late && s.answerLate(w, call) {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	s.API.ServeHTTP(answer, r)
	text := answer.Body.Bytes()
	s.note(call, answer)
	if f != nil && f.Kind == CutAfter {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	if f != nil && f.Kind == HalfDone {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)+1))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(text[:len(text)/2])
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(text)
}

// note keeps the answer to a GET request. Any other request may change the answers, so that those
// of now become those of before.
func (s *Server) note(call Call, answer *httptest.ResponseRecorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case call.Method != http.MethodGet:
		if len(s.now) > 0 {
			s.before, s.now = s.now, nil
		}
	case answer.Code == http.StatusOK:
		if s.now == nil {
			s.now = map[string]seen{}
		}
		s.now[call.Path] = seen{answer.Header().Clone(), slices.Clone(answer.Body.Bytes())}
	}
}

// answerLate gives the answer of before the last change. It returns false if there was none.
func (s *Server) answerLate(w http.ResponseWriter, call Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.before[call.Path]
	if !ok || call.Method != http.MethodGet {
		return false
	}
	for name, values := range old.header {
		w.Header()[name] = values
	}
	_, _ = w.Write(old.text)
	return true
}

// faultFor returns the fault that a request gets, or nil if there is none, and counts it.
func (s *Server) faultFor(r *http.Request) *Fault {
	for i, f := range s.faults {
		if f.Method != "" && f.Method != r.Method || !strings.Contains(r.URL.Path, f.Path) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times--; f.Times == 0 {
			s.faults = slices.Delete(s.faults, i, i+1)
		}
		met := *f
		return &met
	}
	return nil
}

// misbehave answers a request as the fault says. It returns false if the API should answer.
func (s *Server) misbehave(w http.ResponseWriter, r *http.Request, f *Fault) bool {
	switch f.Kind {
	case TooMany:
		s.TooMany(w, f.After)
	case Broken:
		w.WriteHeader(http.StatusInternalServerError)
	case Garbage:
		_, _ = io.WriteString(w, "<html><h1>Just a moment…</h1>")
	case Empty:
		w.WriteHeader(http.StatusOK)
	case Endless:
		for range 1 << 7 {
			if _, err := w.Write(slices.Repeat([]byte(" "), 1<<16)); err != nil {
				break
			}
		}
	case Hang:
		<-r.Context().Done()
	case Cut:
		panic(http.ErrAbortHandler)
	case Elsewhere:
		w.Header().Set("Location", "http://127.0.0.254/")
		w.WriteHeader(http.StatusFound)
	default:
		return false
	}
	return true
}

// HTTP returns a client that calls the server without a network, for tests with a fake clock.
func (s *Server) HTTP() *http.Client { return &http.Client{Transport: transport{s}} }

type transport struct{ s *Server }

// RoundTrip calls the server's handler. It returns io.ErrUnexpectedEOF if the handler aborts the
// connection.
func (t transport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	r = r.Clone(r.Context())
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	defer func() {
		gone := recover()
		switch {
		case gone == nil:
		case gone == http.ErrAbortHandler:
			resp, err = nil, io.ErrUnexpectedEOF
		default:
			panic(gone)
		}
	}()
	t.s.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}
