// Package cloudflaretest is a fake of version 4 of Cloudflare's API for tests. It is strict, and
// can fail in ways that the test chooses. It does not know its clients.
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

// Permissions of a token, to be combined by |.
const (
	ReadZones = 1 << iota
	ReadRecords
	EditRecords
	ReadDomains // read the domains of the registrar
	BuyDomains  // register and change domains

	DNS = ReadZones | ReadRecords | EditRecords
	All = DNS | ReadDomains | BuyDomains
)

// A Token is an API token of a Server.
type Token struct {
	Rights  int      // a combination of permissions, such as DNS
	Status  string   // active, disabled or expired; "" means active
	Account bool     // whether the token belongs to an account, so that /user does not know it
	Zones   []string // names of the zones that the token can read; nil means all
}

// Kinds of faults.
const (
	TooMany   = "too many requests"  // status 429, with Fault.After as Retry-After
	Broken    = "server error"       // status 500 with an error in the API's form
	Garbage   = "garbage"            // status 200 with a body that is not JSON
	Empty     = "empty"              // status 200 with an empty body
	Endless   = "endless"            // status 200 with a body of 64 MiB
	Hang      = "hang"               // no answer until the client gives up
	Cut       = "cut"                // the connection is closed before the request has an effect
	CutAfter  = "cut after"          // the connection is closed after the request has had its effect
	HalfDone  = "half an answer"     // the request has its effect, but only half of the answer is sent
	Elsewhere = "redirect elsewhere" // status 302 to another host
)

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
	Status int // status of the answer; 0 if there was none
}

// A Server is an http.Handler for the paths below /client/v4. Set the exported fields before the
// first request.
type Server struct {
	MaxPerPage    int         // maximum number of records in a page; 0 means 100
	LoseComments  bool        // whether to drop the comments of records
	NoBatch       bool        // whether the batch endpoint is missing
	Between       func(n int) // called before request n, counted from 0
	Now           func() time.Time
	Polls         int                  // number of polls until a registration has ended
	Prices        map[string][2]string // prices of the first year and of each further year, by suffix
	FailPurchases string               // error code with which accepted registrations fail; "" if they succeed
	Stuck         bool                 // whether registrations wait for an action of the owner
	NoBilling     bool                 // whether the account cannot pay
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

// AccountID is the ID of the only account of the server.
const AccountID = "acc0000000000000000000000000000a"

// AddToken adds a token with this text, or replaces it.
func (s *Server) AddToken(text string, t Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Status == "" {
		t.Status = "active"
	}
	s.tokens[text] = t
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

// reply is an answer of the API before it is written.
type reply struct {
	status int
	codes  []fault
	result any
	info   map[string]any
	header http.Header
}

// A fault is an error in an answer of the API.
type fault struct {
	Code    int     `json:"code"`
	Message string  `json:"message"`
	Chain   []fault `json:"error_chain,omitempty"`
}

func ok(result any) reply { return reply{status: http.StatusOK, result: result} }

// refuse returns an answer with an error.
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
	f := s.faultFor(r)
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

// answer checks the token of a request and performs the request.
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
		return c.verifyToken(known)
	}
	switch {
	case !known:
		return refuse(http.StatusForbidden, 9109, "Invalid access token")
	case t.Status != "active":
		return refuse(http.StatusForbidden, 9109, "Invalid access token")
	case c.parts[0] == "zones":
		return c.answerZoneCall()
	case len(c.parts) > 2 && c.parts[0] == "accounts" && c.parts[2] == "registrar":
		return c.answerRegistrarCall()
	}
	return refuse(http.StatusNotFound, 7000, "No route for that URI")
}

// A call is a request with a valid token.
type call struct {
	*Server
	r     *http.Request
	body  []byte
	token Token
	parts []string // parts of the path
}

// hasPermission reports whether the token has a permission.
func (c *call) hasPermission(right int) bool { return c.token.Rights&right != 0 }

func forbidden() reply { return refuse(http.StatusForbidden, 10000, "Authentication error") }

// decodeBody decodes the body of the request. It returns an error for fields that the API does not
// have.
func (c *call) decodeBody(into any) error {
	d := json.NewDecoder(strings.NewReader(string(c.body)))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// verifyToken answers a request for the status of the token. tokenKnown says whether the server has
// the token.
func (c *call) verifyToken(tokenKnown bool) reply {
	path := strings.Join(c.parts, "/")
	if !tokenKnown || c.token.Account != (path == "accounts/"+AccountID+"/tokens/verify") {
		return refuse(http.StatusUnauthorized, 1000, "Invalid API Token")
	}
	return ok(map[string]string{"id": "tok00000000000000000000000000001", "status": c.token.Status})
}

func (s *Server) newID() string {
	s.serial++
	return fmt.Sprintf("%032x", s.serial)
}
