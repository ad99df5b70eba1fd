// Package hetznertest is a fake of the zones of Hetzner's Cloud API for tests. It is strict, and
// can fail in ways that the test chooses. It does not know its clients.
package hetznertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/rest/resttest"
)

// ZoneTTL is the TTL of the sets that have none of their own.
const ZoneTTL = 10800

// A Set is a set of records in the form of the API.
type Set struct {
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	TTL        *int            `json:"ttl"`
	Records    []Record        `json:"records"`
	Protection map[string]bool `json:"protection"`
	Zone       int             `json:"zone"`
}

// A Record is one value of a Set.
type Record struct {
	Value   string `json:"value"`
	Comment string `json:"comment,omitempty"`
}

type zone struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	TTL  int    `json:"ttl"`
	Mode string `json:"mode"`
	sets []*Set
}

type action struct {
	ID      int            `json:"id"`
	Command string         `json:"command"`
	Status  string         `json:"status"`
	Error   map[string]any `json:"error"`
	polls   int            // looks until it has its effect
	effect  func()
}

// A Server is the API with one project. Set the exported fields before the first request.
type Server struct {
	resttest.Server
	PageSize int    // maximum number of items of a page; 0 means 50
	ReadOnly bool   // whether the token may only read
	Polls    int    // how often an action is looked at until it has its effect
	Failing  string // a command whose actions fail

	mu      sync.Mutex
	token   string
	zones   []*zone
	actions []*action
}

// New returns a server whose project has one token and no zones.
func New(token string) *Server {
	s := &Server{token: token}
	s.API = http.HandlerFunc(s.serve)
	s.Server.TooMany = func(w http.ResponseWriter, after time.Duration) {
		w.Header().Set("RateLimit-Limit", "3600")
		w.Header().Set("RateLimit-Remaining", "0")
		w.Header().Set("RateLimit-Reset", fmt.Sprint(time.Now().Add(after).Unix()))
		refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", "limit of 3600 requests per hour reached")
	}
	return s
}

// AddZone adds a zone with Hetzner's nameservers. The mode is primary or secondary.
func (s *Server) AddZone(name, mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	z := &zone{ID: 1000 + len(s.zones), Name: name, TTL: ZoneTTL, Mode: mode}
	s.zones = append(s.zones, z)
	z.put("@", "SOA", nil, "hydrogen.ns.hetzner.test. dns.hetzner.test. 2026010100 86400 10800 3600000 3600")
	z.put("@", "NS", nil, "hydrogen.ns.hetzner.test.", "oxygen.ns.hetzner.test.")
}

// RemoveZones removes all zones.
func (s *Server) RemoveZones() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zones = nil
}

// Put replaces a set without checks, as if somebody had done so in Hetzner's console. A TTL of 0 is
// that of the zone. No values delete the set.
func (s *Server) Put(zone, name, typ string, ttl int, values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range s.zones {
		if z.Name == zone {
			own := &ttl
			if ttl == 0 {
				own = nil
			}
			z.put(name, typ, own, values...)
		}
	}
}

func (z *zone) put(name, typ string, ttl *int, values ...string) *Set {
	z.sets = slices.DeleteFunc(slices.Clone(z.sets), func(o *Set) bool { return o.Name == name && o.Type == typ })
	n := &Set{ID: name + "/" + typ, Name: name, Type: typ, TTL: ttl, Protection: map[string]bool{"change": false}, Zone: z.ID}
	for _, v := range values {
		n.Records = append(n.Records, Record{Value: v})
	}
	if len(values) > 0 {
		z.sets = append(z.sets, n)
	}
	return n
}

func (z *zone) find(name, typ string) *Set {
	for _, o := range z.sets {
		if o.Name == name && o.Type == typ {
			return o
		}
	}
	return nil
}

// Protect forbids changes of a set.
func (s *Server) Protect(zone, name, typ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range s.zones {
		if o := z.find(name, typ); z.Name == zone && o != nil {
			o.Protection["change"] = true
		}
	}
}

// Sets returns the sets of a zone but the SOA. What is under way has its effect first.
func (s *Server) Sets(zone string) []Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.actions {
		a.end()
	}
	var out []Set
	for _, z := range s.zones {
		for _, o := range z.sets {
			if z.Name == zone && o.Type != "SOA" {
				out = append(out, *o)
			}
		}
	}
	return out
}

func (a *action) end() {
	if a.Status == "running" {
		a.Status = "success"
		a.effect()
	}
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func refuse(w http.ResponseWriter, status int, code, format string, args ...any) {
	answer(w, status, map[string]any{"error": map[string]any{"code": code, "message": fmt.Sprintf(format, args...), "details": nil}})
}

// serve answers a request that has no fault.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, known := strings.CutPrefix(r.URL.Path, "/v1/")
	parts := strings.Split(path, "/")
	if r.Header.Get("Authorization") != "Bearer "+s.token {
		refuse(w, http.StatusUnauthorized, "unauthorized", "unable to authenticate")
		return
	}
	if s.ReadOnly && r.Method != http.MethodGet {
		refuse(w, http.StatusForbidden, "token_readonly", "the token is only allowed to perform GET requests")
		return
	}
	switch {
	case known && len(parts) == 1 && parts[0] == "zones" && r.Method == http.MethodGet:
		var found []*zone
		for _, z := range s.zones {
			if name := r.URL.Query().Get("name"); name == "" || name == z.Name {
				found = append(found, z)
			}
		}
		page(s, w, r, "zones", found)
	case known && len(parts) == 2 && parts[0] == "actions" && r.Method == http.MethodGet:
		id, _ := strconv.Atoi(parts[1])
		if id < 1 || id > len(s.actions) {
			refuse(w, http.StatusNotFound, "not_found", "action not found")
			return
		}
		a := s.actions[id-1]
		a.polls--
		if a.polls <= 0 {
			a.end()
		}
		answer(w, http.StatusOK, map[string]any{"action": a})
	case known && len(parts) >= 3 && parts[0] == "zones" && parts[2] == "rrsets":
		for _, z := range s.zones {
			if fmt.Sprint(z.ID) == parts[1] {
				s.zone(w, r, z, parts[3:])
				return
			}
		}
		refuse(w, http.StatusNotFound, "not_found", "zone not found")
	default:
		refuse(w, http.StatusNotFound, "not_found", "page not found")
	}
}

// page answers with a page of a list.
func page[T any](s *Server, w http.ResponseWriter, r *http.Request, name string, all []T) {
	number, size, limit := 1, 25, 50
	if s.PageSize > 0 {
		limit = s.PageSize
	}
	q := r.URL.Query()
	if q.Has("page") {
		number, _ = strconv.Atoi(q.Get("page"))
	}
	if q.Has("per_page") {
		size, _ = strconv.Atoi(q.Get("per_page"))
	}
	if number < 1 || size < 1 || size > 50 {
		refuse(w, http.StatusUnprocessableEntity, "invalid_input", "invalid input in field 'page' or 'per_page'")
		return
	}
	size = min(size, limit)
	from := min((number-1)*size, len(all))
	to := min(from+size, len(all))
	var next *int
	if to < len(all) {
		next = new(int)
		*next = number + 1
	}
	answer(w, http.StatusOK, map[string]any{name: append([]T{}, all[from:to]...), "meta": map[string]any{"pagination": map[string]any{
		"page": number, "per_page": size, "next_page": next, "last_page": (len(all) + size - 1) / size, "total_entries": len(all),
	}}})
}

// body is that of any change.
type body struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	TTL     *int     `json:"ttl"`
	Records []Record `json:"records"`
}

// zone answers requests about the sets of a zone.
func (s *Server) zone(w http.ResponseWriter, r *http.Request, z *zone, parts []string) {
	if len(parts) == 0 && r.Method == http.MethodGet {
		page(s, w, r, "rrsets", z.sets)
		return
	}
	if r.Method != http.MethodPost || len(parts) != 0 && (len(parts) != 4 || parts[2] != "actions") {
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "method not allowed")
		return
	}
	var in body
	text, err := io.ReadAll(r.Body)
	if err == nil {
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.DisallowUnknownFields()
		err = d.Decode(&in)
	}
	if err != nil || r.Header.Get("Content-Type") != "application/json" {
		refuse(w, http.StatusBadRequest, "json_error", "invalid JSON: %v", err)
		return
	}
	command := "create_rrset"
	if len(parts) > 0 {
		if in.Name != "" || in.Type != "" {
			refuse(w, http.StatusUnprocessableEntity, "invalid_input", "unknown field")
			return
		}
		in.Name, in.Type, command = parts[0], parts[1], parts[3]
	}
	there := z.find(in.Name, in.Type)
	invalid := func(format string, args ...any) {
		refuse(w, http.StatusUnprocessableEntity, "invalid_input", format, args...)
	}
	wrong := valid(in.Type, in.Records, z)
	for _, a := range s.actions {
		if a.Status == "running" {
			a.polls--
			if a.polls <= 0 {
				a.end()
			}
			refuse(w, http.StatusLocked, "locked", "zone is locked")
			return
		}
	}
	status := http.StatusCreated
	var effect func()
	switch {
	case z.Mode != "primary":
		refuse(w, http.StatusUnprocessableEntity, "incorrect_zone_mode", "this operation is not supported for this zone's mode")
		return
	case in.Name == "" || strings.HasSuffix(in.Name, ".") || strings.HasSuffix(in.Name, z.Name) || in.Name != strings.ToLower(in.Name):
		invalid("invalid input in field 'name'")
		return
	case dns.StringToType[in.Type] == 0 || in.Type == "SOA" || in.Type == "SSHFP" || strings.HasPrefix(in.Type, "TYPE"):
		invalid("invalid input in field 'type'")
		return
	case in.TTL != nil && *in.TTL < 60:
		invalid("invalid input in field 'ttl'")
		return
	case there != nil && there.Protection["change"]:
		refuse(w, http.StatusLocked, "protected", "rrset is protected")
		return
	case (command == "create_rrset" || command == "add_records") && slices.ContainsFunc(z.sets, func(o *Set) bool {
		return o.Name == in.Name && o.Type != in.Type && (o.Type == "CNAME" || in.Type == "CNAME")
	}):
		invalid("a CNAME cannot be beside other records")
		return
	case command != "change_ttl" && (len(in.Records) == 0 || wrong != ""):
		invalid("invalid input in field 'records': %s", wrong)
		return
	case command == "create_rrset" && there != nil:
		refuse(w, http.StatusConflict, "uniqueness_error", "rrset with this name and type exists already")
		return
	case command == "create_rrset":
		effect = func() { z.put(in.Name, in.Type, in.TTL, texts(in.Records)...) }
	case command == "add_records":
		var ttl *int
		var old []Record
		if there != nil {
			ttl, old = there.TTL, there.Records
			if in.TTL != nil && (ttl == nil || *ttl != *in.TTL) {
				invalid("invalid input in field 'ttl': the rrset has another one")
				return
			}
		} else {
			ttl = in.TTL
		}
		if slices.ContainsFunc(in.Records, func(n Record) bool { return slices.Contains(texts(old), n.Value) }) {
			refuse(w, http.StatusConflict, "uniqueness_error", "record exists already")
			return
		}
		if in.Type == "CNAME" && len(old)+len(in.Records) > 1 {
			invalid("a CNAME has one record")
			return
		}
		effect = func() { z.put(in.Name, in.Type, ttl, append(texts(old), texts(in.Records)...)...) }
	case there == nil:
		refuse(w, http.StatusNotFound, "not_found", "rrset not found")
		return
	case command == "remove_records":
		for _, n := range in.Records {
			if !slices.Contains(texts(there.Records), n.Value) {
				invalid("invalid input in field 'records': %s does not exist", n.Value)
				return
			}
		}
		effect = func() {
			left := slices.DeleteFunc(texts(there.Records), func(v string) bool { return slices.Contains(texts(in.Records), v) })
			z.put(in.Name, in.Type, there.TTL, left...)
		}
	case command == "change_ttl" && in.Records == nil:
		effect = func() { there.TTL = in.TTL }
	default:
		refuse(w, http.StatusNotFound, "not_found", "action not found")
		return
	}
	a := &action{ID: len(s.actions) + 1, Command: command, Status: "running", polls: s.Polls, effect: effect}
	s.actions = append(s.actions, a)
	switch {
	case command == s.Failing:
		a.Status, a.Error = "error", map[string]any{"code": "action_failed", "message": "Action failed"}
	case s.Polls == 0:
		a.end()
	}
	answer(w, status, map[string]any{"action": a})
}

func texts(records []Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, r.Value)
	}
	return out
}

// valid returns what is wrong with records.
func valid(typ string, records []Record, z *zone) string {
	seen := map[string]bool{}
	for _, r := range records {
		parser := dns.NewZoneParser(strings.NewReader("x 60 IN "+typ+" "+r.Value+"\n"), z.Name+".", "")
		rr, ok := parser.Next()
		if !ok || rr == nil || typ == "TXT" && !strings.HasPrefix(r.Value, `"`) {
			return "cannot parse " + r.Value
		}
		if seen[r.Value] {
			return "values must be distinct"
		}
		seen[r.Value] = true
	}
	return ""
}
