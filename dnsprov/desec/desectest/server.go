// Package desectest is a fake of version 1 of deSEC's API for tests. It is strict, and can fail in
// ways that the test chooses. It does not know its clients.
package desectest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/rest/resttest"
)

// MinimumTTL is the shortest TTL of a set, as for the domains of most accounts.
const MinimumTTL = 3600

// A Set is a set of records in the form of the API.
type Set struct {
	Domain  string   `json:"domain"`
	Subname string   `json:"subname"`
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	TTL     int      `json:"ttl"`
	Records []string `json:"records"`
	Created string   `json:"created"`
	Touched string   `json:"touched"`
}

// A Server is the API with one account. Set the exported fields before the first request.
type Server struct {
	resttest.Server
	PageSize int                                    // items of a page; 0 means 500
	Writable func(domain, subname, typ string) bool // what a token with policies may write; nil: everything

	mu      sync.Mutex
	token   string
	domains map[string][]*Set // by name, the newest last
}

// New returns a server whose account has one token and no domains.
func New(token string) *Server {
	s := &Server{token: token, domains: map[string][]*Set{}}
	s.API = http.HandlerFunc(s.serve)
	s.Server.TooMany = func(w http.ResponseWriter, after time.Duration) {
		if after > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(int(after.Seconds())))
		}
		answer(w, http.StatusTooManyRequests, detail("Request was throttled. Expected available in %d seconds.", int(after.Seconds())))
	}
	return s
}

// AddDomain adds a domain with the nameservers of deSEC.
func (s *Server) AddDomain(name string) {
	s.Put(name, "", "NS", MinimumTTL, "ns1.desec.test.", "ns2.desec.test.")
}

// RemoveDomain removes a domain with its records.
func (s *Server) RemoveDomain(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.domains, name)
}

// Put replaces a set without checks, as if somebody had done so in deSEC's web interface. No
// records delete it.
func (s *Server) Put(domain, subname, typ string, ttl int, records ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(domain, Set{Subname: subname, Type: typ, TTL: ttl, Records: records})
}

func (s *Server) put(domain string, n Set) *Set {
	n.Domain, n.Created, n.Touched = domain, "2026-01-02T03:04:05.000006Z", "2026-01-02T03:04:05.000006Z"
	n.Name = strings.TrimPrefix(n.Subname+"."+domain+".", ".")
	for i, o := range s.domains[domain] {
		if o.Subname == n.Subname && o.Type == n.Type {
			if len(n.Records) == 0 {
				s.domains[domain] = slices.Delete(slices.Clone(s.domains[domain]), i, i+1)
				return nil
			}
			s.domains[domain][i] = &n
			return &n
		}
	}
	if len(n.Records) > 0 {
		s.domains[domain] = append(s.domains[domain], &n)
	}
	return &n
}

// Sets returns the sets of a domain.
func (s *Server) Sets(domain string) []Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Set
	for _, o := range s.domains[domain] {
		out = append(out, *o)
	}
	return out
}

func detail(format string, args ...any) map[string]string {
	return map[string]string{"detail": fmt.Sprintf(format, args...)}
}

func answer(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// serve answers a request that has no fault.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, known := strings.CutPrefix(r.URL.Path, "/api/v1/domains/")
	parts := strings.Split(path, "/")
	switch token := r.Header.Get("Authorization"); {
	case token != "Token "+s.token:
		w.Header().Set("WWW-Authenticate", "Token")
		answer(w, http.StatusUnauthorized, detail("Invalid token."))
	case known && path == "" && r.Method == http.MethodGet:
		s.listDomains(w, r)
	case !known || len(parts) != 3 || parts[1] != "rrsets" || parts[2] != "" || s.domains[parts[0]] == nil:
		answer(w, http.StatusNotFound, detail("Not found."))
	case r.Method == http.MethodGet:
		newest := slices.Clone(s.domains[parts[0]])
		slices.Reverse(newest)
		page(s, w, r, newest)
	case r.Method == http.MethodPatch || r.Method == http.MethodPost:
		s.write(w, r, parts[0])
	default:
		answer(w, http.StatusMethodNotAllowed, detail("Method %q not allowed.", r.Method))
	}
}

func (s *Server) listDomains(w http.ResponseWriter, r *http.Request) {
	found := []map[string]any{}
	name := r.URL.Query().Get("owns_qname")
	best := ""
	for domain := range s.domains {
		if (name == domain || strings.HasSuffix(name, "."+domain)) && len(domain) > len(best) {
			best = domain
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(s.domains)) {
		if name == "" || domain == best {
			found = append(found, map[string]any{"name": domain, "minimum_ttl": MinimumTTL, "created": "2026-01-02T03:04:05.000006Z"})
		}
	}
	page(s, w, r, found)
}

// page answers with a part of a list. Where the list is longer, the request must have a cursor.
func page[T any](s *Server, w http.ResponseWriter, r *http.Request, all []T) {
	size, from := s.PageSize, 0
	if size == 0 {
		size = 500
	}
	q := r.URL.Query()
	_, _ = fmt.Sscanf(q.Get("cursor"), "p=%d", &from)
	link := func(cursor, rel string) string {
		return fmt.Sprintf(`<https://desec.test%s?%s>; rel="%s"`, r.URL.Path, url.Values{"cursor": {cursor}}.Encode(), rel)
	}
	if len(all) > size {
		links := []string{link("", "first")}
		if !q.Has("cursor") {
			w.Header().Set("Link", links[0])
			answer(w, http.StatusBadRequest, detail("Pagination required. You can query up to %d items at a time (%d total). Please use the `first` page link (see Link header).", size, len(all)))
			return
		}
		if from > 0 {
			links = append(links, link(fmt.Sprint("p=", max(from-size, 0)), "prev"))
		}
		if from+size < len(all) {
			links = append(links, link(fmt.Sprint("p=", from+size), "next"))
		}
		w.Header().Set("Link", strings.Join(links, ", "))
	}
	from = min(from, len(all))
	answer(w, http.StatusOK, all[from:min(from+size, len(all))])
}

// write makes all changes of a request with a list of sets, or none.
func (s *Server) write(w http.ResponseWriter, r *http.Request, domain string) {
	var in []struct {
		Subname *string   `json:"subname"`
		Type    string    `json:"type"`
		TTL     *int      `json:"ttl"`
		Records *[]string `json:"records"`
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.DisallowUnknownFields()
		err = d.Decode(&in)
	}
	if err != nil || r.Header.Get("Content-Type") != "application/json" {
		answer(w, http.StatusBadRequest, detail("JSON parse error - %v", err))
		return
	}
	there := map[string]bool{} // subname and type of what is there afterwards
	for _, o := range s.domains[domain] {
		there[o.Subname+" "+o.Type] = true
	}
	for _, n := range in {
		if n.Subname != nil && n.Records != nil {
			there[*n.Subname+" "+n.Type] = len(*n.Records) > 0 || r.Method == http.MethodPost
		}
	}
	wrong, faults := false, []map[string]any{}
	seen := map[string]bool{}
	for _, n := range in {
		bad := map[string]any{}
		faults = append(faults, bad)
		switch {
		case n.Subname == nil || n.Records == nil || n.TTL == nil && len(*n.Records) > 0:
			bad["non_field_errors"] = []string{"This field is required."}
		case s.Writable != nil && !s.Writable(domain, *n.Subname, n.Type):
			answer(w, http.StatusForbidden, detail("Insufficient token permissions."))
			return
		case seen[*n.Subname+" "+n.Type]:
			bad["non_field_errors"] = []string{"Same subname and type as in position(s) 0, but must be unique."}
		case r.Method == http.MethodPost && len(*n.Records) == 0:
			bad["records"] = []string{"This field must not be empty when using POST."}
		case r.Method == http.MethodPost && slices.ContainsFunc(s.domains[domain], func(o *Set) bool { return o.Subname == *n.Subname && o.Type == n.Type }):
			bad["non_field_errors"] = []string{"Another RRset with the same subdomain and type exists for this domain. (Try modifying it.)"}
		case n.TTL != nil && *n.TTL < MinimumTTL:
			bad["ttl"] = []string{fmt.Sprintf("Ensure this value is greater than or equal to %d.", MinimumTTL)}
		case n.TTL != nil && *n.TTL > 86400:
			bad["ttl"] = []string{"Ensure this value is less than or equal to 86400."}
		case slices.Contains([]string{"SOA", "RRSIG", "NSEC3PARAM"}, n.Type):
			bad["type"] = []string{"You cannot tinker with the " + n.Type + " RR set. It is managed automatically."}
		case strings.HasPrefix(n.Type, "TYPE"):
			bad["type"] = []string{"Generic type format is not supported."}
		case dns.StringToType[n.Type] == 0 || n.Type == "ALIAS":
			bad["type"] = []string{"The " + n.Type + " RR set type is currently unsupported."}
		case len(*n.Records) > 0 && s.hasConflict(there, *n.Subname, n.Type):
			bad["non_field_errors"] = []string{"RRset with conflicting type present at same subname. (No other RRsets are allowed alongside CNAME.)"}
		default:
			if n.Type == "CNAME" && *n.Subname == "" && len(*n.Records) > 0 {
				bad["non_field_errors"] = []string{"CNAME RRset cannot have empty subname."}
			}
			if why := canonical(n.Type, *n.Records); why != "" {
				bad["non_field_errors"] = []string{why}
			}
		}
		if n.Subname != nil {
			seen[*n.Subname+" "+n.Type] = true
		}
		wrong = wrong || len(bad) > 0
	}
	if wrong {
		answer(w, http.StatusBadRequest, faults)
		return
	}
	done := []*Set{}
	for _, n := range in {
		made := Set{Subname: *n.Subname, Type: n.Type, Records: *n.Records}
		if n.TTL != nil {
			made.TTL = *n.TTL
		}
		if out := s.put(domain, made); out != nil && len(out.Records) > 0 {
			done = append(done, out)
		}
	}
	answer(w, map[string]int{http.MethodPost: http.StatusCreated, http.MethodPatch: http.StatusOK}[r.Method], done)
}

// hasConflict reports whether a set cannot be beside others at its name.
func (s *Server) hasConflict(there map[string]bool, subname, typ string) bool {
	for key, is := range there {
		at, other, _ := strings.Cut(key, " ")
		if is && at == subname && (typ == "CNAME") != (other == "CNAME") {
			return true
		}
	}
	return false
}

// canonical replaces records by their canonical form, and returns what is wrong with them.
func canonical(typ string, records []string) (wrong string) {
	seen := map[string]bool{}
	for i, text := range records {
		rr, err := dns.NewRR("x.test. 0 IN " + typ + " " + text)
		if err != nil || rr == nil || typ == "TXT" && !strings.HasPrefix(text, `"`) {
			return "Cannot parse record contents: " + text
		}
		switch rr := rr.(type) {
		case *dns.MX:
			rr.Mx = strings.ToLower(rr.Mx)
		case *dns.CNAME:
			rr.Target = strings.ToLower(rr.Target)
		}
		for _, name := range strings.Fields(text) {
			if slices.Contains([]string{"MX", "CNAME", "NS", "SRV"}, typ) && strings.Contains(name, ".") && !strings.HasSuffix(name, ".") {
				return "Hostname must be fully-qualified (i.e., end in a dot: \"example.com.\")"
			}
		}
		records[i] = strings.TrimPrefix(rr.String(), rr.Header().String())
		if typ == "SSHFP" || typ == "DS" || typ == "TLSA" {
			records[i] = strings.ToLower(records[i])
		}
		if seen[records[i]] {
			return "Duplicate: records must be semantically unique"
		}
		seen[records[i]] = true
	}
	if typ == "CNAME" && len(records) > 1 {
		return "RRset of type CNAME can have only one record."
	}
	return ""
}
