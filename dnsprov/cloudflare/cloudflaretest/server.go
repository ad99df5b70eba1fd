// Package cloudflaretest is a strict fake of version 4 of Cloudflare's API, which misbehaves on
// request. It does not know its clients.
package cloudflaretest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Permissions of a token.
const (
	ReadZones = 1 << iota
	ReadRecords
	EditRecords
	ReadDomains // of the registrar
	BuyDomains

	DNS = ReadZones | ReadRecords | EditRecords
	All = DNS | ReadDomains | BuyDomains
)

// A Token is a credential of a Server.
type Token struct {
	Rights  int
	Status  string   // active, disabled or expired; "" is active
	Account bool     // it belongs to an account, so that /user does not know it
	Zones   []string // the zones that it can see, by name; nil: all
}

// Kinds of faults.
const (
	TooMany   = "too many requests"  // 429, with Fault.After as the Retry-After
	Broken    = "server error"       // 500 with a body in the API's form
	Garbage   = "garbage"            // 200 with a body that is not JSON
	Empty     = "empty"              // 200 with an empty body
	Endless   = "endless"            // 200 with a body of excessive length
	Hang      = "hang"               // no answer until the client gives up
	Cut       = "cut"                // the connection is closed before the request has an effect
	CutAfter  = "cut after"          // the connection is closed after the request had its effect
	HalfDone  = "half an answer"     // the request has its effect, but only half of the answer is sent
	Elsewhere = "redirect elsewhere" // 302 to another host
)

// A Fault affects requests of a method ("" for any) with a text in their path. It spares the first
// Skip of them, and then affects Times of them.
type Fault struct {
	Kind   string
	Method string
	Path   string
	Skip   int
	Times  int           // 0: once
	After  time.Duration // for TooMany; 0: no Retry-After
}

// A Call is a received request.
type Call struct {
	Method string
	Path   string // with the query
	Body   string
	Status int // the status of the answer; 0: there was none
}

// A Server is an http.Handler for the paths below /client/v4. Set the fields before the first
// request.
type Server struct {
	MaxPerPage    int         // 0: 100; a larger per_page is refused
	LoseComments  bool        // comments are accepted and not stored
	NoBatch       bool        // there is no batch endpoint
	Between       func(n int) // called before request n, from 0, without any lock
	Now           func() time.Time
	Polls         int                  // polls for which a registration is in progress
	Prices        map[string][2]string // by ending: the prices of the first year and of each further year
	FailPurchases string               // the error code with which every registration fails after it was accepted
	Stuck         bool                 // every registration waits for its owner
	NoBilling     bool                 // the account cannot pay
	domains       map[string]*domain

	mu     sync.Mutex
	tokens map[string]Token
	zones  []*zone
	faults []*Fault
	calls  []Call
	serial int
}

// New returns a server without zones and tokens.
func New() *Server {
	return &Server{
		tokens: map[string]Token{}, domains: map[string]*domain{}, Now: time.Now,
		Prices: map[string][2]string{"com": {"10.44", "10.46"}, "dev": {"12.20", "12.20"}, "app": {"14.20", "14.2"}, "org": {"7.5", "10.13"}},
	}
}

// AccountID is the ID of the only account.
const AccountID = "acc0000000000000000000000000000a"

// AddToken adds a token, or replaces the one with the same text.
func (s *Server) AddToken(text string, t Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Status == "" {
		t.Status = "active"
	}
	s.tokens[text] = t
}

// Fail adds a fault. Faults are tried in the order in which they were added.
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

// Calls returns the requests received so far.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count returns how many requests of a method ("" for any) had a text in their path.
func (s *Server) Count(method, path string) int {
	n := 0
	for _, c := range s.Calls() {
		if (method == "" || c.Method == method) && strings.Contains(c.Path, path) {
			n++
		}
	}
	return n
}

// reply is an answer before it is written.
type reply struct {
	status int
	codes  []fault
	result any
	info   map[string]any
	header http.Header
}

type fault struct {
	Code    int     `json:"code"`
	Message string  `json:"message"`
	Chain   []fault `json:"error_chain,omitempty"`
}

func ok(result any) reply { return reply{status: http.StatusOK, result: result} }

func refuse(status, code int, format string, args ...any) reply {
	return reply{status: status, codes: []fault{{Code: code, Message: fmt.Sprintf(format, args...)}}}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		return
	}
	s.mu.Lock()
	n := len(s.calls)
	s.calls = append(s.calls, Call{Method: r.Method, Path: r.URL.RequestURI(), Body: string(body)})
	f := s.fault(r)
	s.mu.Unlock()
	if s.Between != nil {
		s.Between(n)
	}
	if f != nil && s.misbehave(w, r, f) {
		return
	}
	out := s.answer(r, body)
	text, err := json.Marshal(map[string]any{
		"success": out.status < 400, "errors": append([]fault{}, out.codes...), "messages": []fault{}, "result": out.result, "result_info": out.info,
	})
	if err != nil {
		panic(err)
	}
	switch {
	case f != nil && f.Kind == CutAfter:
		panic(http.ErrAbortHandler)
	case f != nil && f.Kind == HalfDone:
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		_, _ = w.Write(text[:len(text)/2])
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	s.calls[n].Status = out.status
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	for name, values := range out.header {
		w.Header()[name] = values
	}
	w.WriteHeader(out.status)
	_, _ = w.Write(text)
}

// fault returns the fault that affects a request; nil if there is none.
func (s *Server) fault(r *http.Request) *Fault {
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

// misbehave answers in place of the API, if the fault is of such a kind.
func (s *Server) misbehave(w http.ResponseWriter, r *http.Request, f *Fault) bool {
	switch f.Kind {
	case TooMany:
		if f.After > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(int(f.After.Seconds())))
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"success":false,"errors":[{"code":10013,"message":"More than 1200 requests per 300 seconds reached. Please wait and consider throttling your request speed"}],"messages":[],"result":null}`)
	case Broken:
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"success":false,"errors":[{"code":10001,"message":"Internal error"}],"messages":[],"result":null}`)
	case Garbage:
		_, _ = io.WriteString(w, "<html><h1>Just a moment…</h1></html>")
	case Empty:
		w.WriteHeader(http.StatusOK)
	case Endless:
		_, _ = io.WriteString(w, `{"success":true,"result":"`)
		for range 1 << 10 {
			if _, err := w.Write(slices.Repeat([]byte("a"), 1<<16)); err != nil {
				break
			}
		}
	case Hang:
		<-r.Context().Done()
	case Cut:
		panic(http.ErrAbortHandler)
	case Elsewhere:
		w.Header().Set("Location", "http://127.0.0.254/client/v4/zones")
		w.WriteHeader(http.StatusFound)
	default:
		return false
	}
	return true
}

// answer authenticates a request and calls its operation.
func (s *Server) answer(r *http.Request, body []byte) reply {
	path, known := strings.CutPrefix(r.URL.Path, "/client/v4/")
	if !known {
		return refuse(http.StatusNotFound, 7000, "No route for that URI")
	}
	text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer || len(text) < 8 {
		out := refuse(http.StatusBadRequest, 6003, "Invalid request headers")
		out.codes[0].Chain = []fault{{Code: 6111, Message: "Invalid format for Authorization header"}}
		return out
	}
	if len(body) > 0 && r.Header.Get("Content-Type") != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, 10400, "Content-Type must be application/json")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, known := s.tokens[text]
	c := &call{Server: s, r: r, body: body, token: t, parts: strings.Split(path, "/")}
	if strings.HasSuffix(path, "tokens/verify") {
		return c.verify(known)
	}
	switch {
	case !known:
		return refuse(http.StatusForbidden, 9109, "Invalid access token")
	case t.Status != "active":
		return refuse(http.StatusForbidden, 9109, "Invalid access token")
	case c.parts[0] == "zones":
		return c.zoneCall()
	case len(c.parts) > 2 && c.parts[0] == "accounts" && c.parts[2] == "registrar":
		return c.registrarCall()
	}
	return refuse(http.StatusNotFound, 7000, "No route for that URI")
}

// A call is an authenticated request.
type call struct {
	*Server
	r     *http.Request
	body  []byte
	token Token
	parts []string // of the path
}

func (c *call) may(right int) bool { return c.token.Rights&right != 0 }

func forbidden() reply { return refuse(http.StatusForbidden, 10000, "Authentication error") }

// read decodes the body, and refuses fields that the API does not have.
func (c *call) read(into any) error {
	d := json.NewDecoder(strings.NewReader(string(c.body)))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func (c *call) verify(known bool) reply {
	path := strings.Join(c.parts, "/")
	if !known || c.token.Account != (path == "accounts/"+AccountID+"/tokens/verify") {
		return refuse(http.StatusUnauthorized, 1000, "Invalid API Token")
	}
	return ok(map[string]string{"id": "tok00000000000000000000000000001", "status": c.token.Status})
}

func (s *Server) newID() string {
	s.serial++
	return fmt.Sprintf("%032x", s.serial)
}
