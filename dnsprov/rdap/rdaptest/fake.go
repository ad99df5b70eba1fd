// Package rdaptest has fake RDAP servers for tests: one for the bootstrap file, and one for each
// top-level domain. They check queries strictly, and can fail in ways that the test chooses. The
// package does not know what is tested.
package rdaptest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Manner is how a server answers queries.
type Manner string

// The manners of servers.
const (
	Good       Manner = ""            // correct answers
	Slow       Manner = "slow"        // no answer
	Drip       Manner = "drip"        // a body that never ends, one byte at a time
	Broken     Manner = "broken"      // status 500
	Busy       Manner = "busy"        // status 429, with Fake.RetryAfter
	Garbage    Manner = "garbage"     // status 200 with a body that is not JSON
	Page       Manner = "page"        // status 200 with a web page
	LostPage   Manner = "lost page"   // status 404 with a web page
	OtherName  Manner = "other name"  // an answer about another domain
	OtherClass Manner = "other class" // an answer about an entity
	Nameless   Manner = "nameless"    // an answer without the name of the domain
	Endless    Manner = "endless"     // a body that never ends, as fast as it is read
	Loop       Manner = "loop"        // a redirect to the same URL
	Downgrade  Manner = "downgrade"   // a redirect to a URL without TLS
	Moved      Manner = "moved"       // one redirect, and then a correct answer
	Hangup     Manner = "hangup"      // the connection is closed
	Mixed      Manner = "mixed"       // correct answers with the deviations that clients must accept
)

const (
	// Bootstrap is used in place of a top-level domain for the server of the bootstrap file.
	Bootstrap = "bootstrap"

	mediaType    = "application/rdap+json"
	unknownTitle = "No such object." // title of the answer about an unknown domain
)

// A Domain is a registered domain.
type Domain struct {
	Registrar   string
	IANAID      string
	Nameservers []string
	ExpiresAt   time.Time
}

// A Fake is a set of RDAP servers. It serves the bootstrap file at /dns.json, and each top-level
// domain (called ending) at /ENDING/domain/NAME.
type Fake struct {
	RetryAfter string // the header for Busy; set it before the first query

	mu         sync.Mutex
	bases      map[string]string      // base URLs by ending
	domains    map[string]Domain      // by name
	manners    map[string]Manner      // by ending
	asked      map[string]int         // numbers of queries by ending
	complaints []string               // queries that broke the rules, with the reason
	peak       map[string]int         // maximum number of queries within one second, by ending
	recent     map[string][]time.Time // times of the queries in the last second, by ending
	url        string                 // URL of the bootstrap file
	ca         []byte                 // certificate of the servers in PEM
	ended      chan struct{}          // closed when the test ends
}

// Start runs a server for the bootstrap file and one for each ending, over TLS, until the test
// ends. The test fails if a query breaks the rules.
func Start(t testing.TB, endings ...string) *Fake {
	t.Helper()
	f := &Fake{
		bases: map[string]string{}, domains: map[string]Domain{}, manners: map[string]Manner{}, asked: map[string]int{},
		peak: map[string]int{}, recent: map[string][]time.Time{}, ended: make(chan struct{}),
	}
	for _, ending := range append([]string{Bootstrap}, endings...) {
		s := httptest.NewUnstartedServer(f)
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // do not log connections that a client has closed
		s.StartTLS()
		t.Cleanup(s.Close)
		f.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		if ending == Bootstrap {
			f.url = s.URL + "/dns.json"
		} else {
			f.bases[ending] = s.URL + "/" + ending
		}
	}
	t.Cleanup(func() {
		close(f.ended)
		for _, complaint := range f.Complaints() {
			t.Errorf("a bad query: %s", complaint)
		}
	})
	return f
}

// URL returns the URL of the bootstrap file.
func (f *Fake) URL() string { return f.url }

// CA returns the certificate of all servers in PEM.
func (f *Fake) CA() []byte { return f.ca }

// Client returns an HTTP client that trusts every server.
func (f *Fake) Client() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(f.ca)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
}

// Add adds a domain, which the server of its ending then knows.
func (f *Fake) Add(name string, d Domain) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.domains[name] = d
}

// Behave sets how the server of an ending answers from now on.
func (f *Fake) Behave(ending string, m Manner) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.manners[ending] = m
}

// Asked returns how many queries the server of an ending has got.
func (f *Fake) Asked(ending string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[ending]
}

// Peak returns the maximum number of queries that the server of an ending has got within one
// second.
func (f *Fake) Peak(ending string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peak[ending]
}

// Complaints returns the queries that broke the rules, each with the reason.
func (f *Fake) Complaints() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.complaints)
}

// ServeHTTP answers one query.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.checkQuery(r)
	ending, name := Bootstrap, ""
	if r.URL.Path != "/dns.json" {
		ending, name, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/domain/")
	}
	ending = strings.TrimPrefix(ending, "moved/")
	manner := f.countQuery(ending)
	moved := strings.HasPrefix(r.URL.Path, "/moved/")
	switch {
	case manner == Moved && !moved:
		http.Redirect(w, r, "/moved"+r.URL.Path, http.StatusFound)
	case manner == Moved, manner == Good, manner == Mixed:
		f.answerCorrectly(w, ending, name, manner)
	default:
		f.misbehave(w, r, manner, name)
	}
}

// checkQuery adds a complaint if a query breaks the rules.
func (f *Fake) checkQuery(r *http.Request) {
	complain := func(what string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.complaints = append(f.complaints, r.Method+" "+r.URL.String()+": "+what)
	}
	accept := mediaType
	if r.URL.Path == "/dns.json" {
		accept = "application/json"
	}
	switch {
	case r.Method != http.MethodGet:
		complain("the method is not GET")
	case !strings.Contains(r.Header.Get("Accept"), accept):
		complain("it does not accept " + accept)
	case r.Header.Get("User-Agent") == "" || strings.HasPrefix(r.Header.Get("User-Agent"), "Go-http"):
		complain("it has no User-Agent of its own")
	case strings.Contains(r.URL.Path, "//") || r.URL.RawQuery != "" || r.URL.Path != strings.ToLower(r.URL.Path):
		complain("the path has //, a query or capital letters")
	case r.Header.Get("Cookie") != "" || r.Header.Get("Authorization") != "":
		complain("it has cookies or credentials")
	}
}

// countQuery counts a query and returns how to answer it.
func (f *Fake) countQuery(ending string) Manner {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.asked[ending]++
	f.recent[ending] = slices.DeleteFunc(append(f.recent[ending], now), func(t time.Time) bool { return now.Sub(t) > time.Second })
	f.peak[ending] = max(f.peak[ending], len(f.recent[ending]))
	return f.manners[ending]
}

// answerCorrectly gives a correct answer.
func (f *Fake) answerCorrectly(w http.ResponseWriter, ending, name string, m Manner) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ending == Bootstrap {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(f.bootstrapFile())
		return
	}
	w.Header().Set("Content-Type", mediaType)
	d, ok := f.domains[name]
	if _, served := f.bases[ending]; !ok || !served || !strings.HasSuffix(name, "."+ending) {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"errorCode": 404, "title": unknownTitle})
		return
	}
	object := wellFormedAnswer(name, d)
	if m == Mixed {
		object = deviatingAnswer(name, d)
	}
	_ = json.NewEncoder(w).Encode(object)
}

// bootstrapFile returns the bootstrap file (RFC 9224 §3).
func (f *Fake) bootstrapFile() map[string]any {
	var services []any
	for _, ending := range slices.Sorted(maps.Keys(f.bases)) {
		base := f.bases[ending]
		services = append(services, []any{[]string{ending}, []string{"http:" + strings.TrimPrefix(base, "https:") + "/", base + "/"}})
	}
	return map[string]any{"version": "1.0", "publication": "2026-01-01T00:00:00Z", "services": services}
}

// wellFormedAnswer returns the answer about a domain in the form of RFC 9083.
func wellFormedAnswer(name string, d Domain) map[string]any {
	servers := []any{}
	for _, ns := range d.Nameservers {
		servers = append(servers, map[string]any{"objectClassName": "nameserver", "ldhName": ns})
	}
	registrar := map[string]any{
		"objectClassName": "entity", "handle": "R-" + d.IANAID, "roles": []string{"registrar"},
		"publicIds":  []any{map[string]any{"type": "IANA Registrar ID", "identifier": d.IANAID}},
		"vcardArray": []any{"vcard", []any{[]any{"version", map[string]any{}, "text", "4.0"}, []any{"fn", map[string]any{}, "text", d.Registrar}}},
	}
	return map[string]any{
		"objectClassName": "domain", "ldhName": name, "handle": "1_DOMAIN", "rdapConformance": []string{"rdap_level_0"},
		"status": []string{"active", "client transfer prohibited"}, "nameservers": servers,
		"entities": []any{map[string]any{"objectClassName": "entity", "roles": []string{"registrant"}}, registrar},
		"events": []any{
			map[string]any{"eventAction": "registration", "eventDate": "2001-02-03T04:05:06Z"},
			map[string]any{"eventAction": "expiration", "eventDate": d.ExpiresAt.UTC().Format(time.RFC3339)},
		},
	}
}

// deviatingAnswer returns the answer about a domain with many deviations from RFC 9083 that real
// servers have.
func deviatingAnswer(name string, d Domain) map[string]any {
	servers := []any{nil, 7, map[string]any{"ldhName": nil}}
	for _, ns := range d.Nameservers {
		servers = append(servers, map[string]any{"ldhName": strings.ToUpper(ns) + "."})
	}
	registrar := map[string]any{
		"roles": "Registrar", "handle": 42, "publicIds": map[string]any{"type": "IANA RegistrarID", "identifier": json.Number(d.IANAID)},
		"vcardArray": []any{"vcard", []any{"no property", []any{"version"}, []any{"FN", nil, "text", " " + d.Registrar + "\n"}}},
	}
	return map[string]any{
		"objectClassName": "Domain", "ldhName": strings.ToUpper(name) + ".", "status": "active", "nameservers": servers,
		"entities": map[string]any{"roles": []any{"technical", 1}, "entities": []any{"none", registrar}},
		"events":   map[string]any{"eventAction": "expiration", "eventDate": d.ExpiresAt.UTC().Format(time.DateOnly)},
	}
}

// misbehave gives the wrong answer of a manner.
func (f *Fake) misbehave(w http.ResponseWriter, r *http.Request, m Manner, name string) {
	switch m {
	case Slow:
		f.wait(r, time.Hour)
	case Drip, Endless:
		f.sendEndless(w, r, m)
	case Broken:
		http.Error(w, "out of order", http.StatusInternalServerError)
	case Busy:
		w.Header().Set("Retry-After", f.RetryAfter)
		w.WriteHeader(http.StatusTooManyRequests)
	case Garbage:
		writeBody(w, mediaType, http.StatusOK, "\x00\x01{not json")
	case Page:
		writeBody(w, "text/html", http.StatusOK, "<html>Welcome</html>")
	case LostPage:
		writeBody(w, "text/html; charset=utf-8", http.StatusNotFound, "<html>Not found</html>")
	case OtherName:
		writeBody(w, mediaType, http.StatusOK, `{"objectClassName":"domain","ldhName":"other-`+name+`"}`)
	case OtherClass:
		writeBody(w, mediaType, http.StatusOK, `{"objectClassName":"entity","ldhName":"`+name+`"}`)
	case Nameless:
		writeBody(w, mediaType, http.StatusOK, `{"objectClassName":"domain"}`)
	case Loop:
		http.Redirect(w, r, r.URL.Path, http.StatusFound)
	case Downgrade:
		http.Redirect(w, r, "http://"+r.Host+r.URL.Path, http.StatusFound)
	case Hangup:
		panic(http.ErrAbortHandler)
	default:
		panic(fmt.Sprintf("there is no manner %q", m))
	}
}

// writeBody sends a response with a content type, status and body.
func writeBody(w http.ResponseWriter, kind string, status int, body string) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// sendEndless sends an endless body: slowly for Drip, else as fast as it is read.
func (f *Fake) sendEndless(w http.ResponseWriter, r *http.Request, m Manner) {
	w.Header().Set("Content-Type", mediaType)
	chunk, gap := strings.Repeat(" ", 64<<10), time.Duration(0)
	if m == Drip {
		chunk, gap = " ", 100*time.Millisecond
	}
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, chunk); err != nil || f.wait(r, gap) {
			return
		}
		w.(http.Flusher).Flush()
	}
}

// wait waits for the duration d. It returns true at once if the client has gone or the test has
// ended.
func (f *Fake) wait(r *http.Request, d time.Duration) bool {
	select {
	case <-time.After(d):
		return false
	case <-r.Context().Done():
	case <-f.ended:
	}
	return true
}
