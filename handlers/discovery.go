package handlers

import (
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service"
)

// What other mail servers and mail clients look for by the name of the host and a path, without a
// token: the MTA-STS policy of a domain (RFC 8461), and the settings of mail clients in the forms
// of Thunderbird, Outlook and Apple. None of them tells whether a mailbox exists.

const (
	discoveriesEach = 1000      // requests from one address in a minute
	discoveryAge    = time.Hour // that an answer may be kept
)

// Labels of hosts below a domain, as service.VisitedHost has them. The domain itself has none.
const (
	stsHost          = "mta-sts"
	autoconfigHost   = "autoconfig"
	autodiscoverHost = "autodiscover"
	domainItself     = ""
)

// A discovery is one document.
type discovery struct {
	at      func(path string) bool
	below   []string // hosts of a domain that have it
	ours    bool     // this host's own name has it too, for every domain
	methods []string
	answer  func(s *Server, v *visit) error
}

// A visit is one request for a document.
type visit struct {
	w  http.ResponseWriter
	r  *http.Request
	to *service.VisitedHost
}

func is(want string) func(string) bool { return func(path string) bool { return path == want } }

var (
	reading  = []string{http.MethodGet, http.MethodHead}
	exchange = []string{autodiscoverHost, domainItself}
)

// discoveries lists every document.
var discoveries = []discovery{
	{at: is("/.well-known/mta-sts.txt"), below: []string{stsHost}, methods: reading, answer: (*Server).sendPolicy},
	{at: is("/mail/config-v1.1.xml"), below: []string{autoconfigHost}, ours: true, methods: reading, answer: (*Server).autoconfig},
	{at: is("/.well-known/autoconfig/mail/config-v1.1.xml"), below: []string{domainItself, autoconfigHost}, ours: true, methods: reading, answer: (*Server).autoconfig},
	{at: isProfile, below: []string{autoconfigHost}, ours: true, methods: reading, answer: (*Server).profile},
	{at: isAutodiscover, below: exchange, ours: true, methods: []string{http.MethodPost, http.MethodGet, http.MethodHead}, answer: (*Server).autodiscover},
	{at: isAutodiscoverJSON, below: exchange, ours: true, methods: reading, answer: (*Server).autodiscoverJSON},
}

func isProfile(at string) bool {
	name, ok := strings.CutPrefix(at, "/mail/")
	return ok && path.Ext(name) == ".mobileconfig" && !strings.Contains(name, "/")
}

// discover answers a request for one of the documents, and any other to a host that is there only
// for them. It tells whether it has.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) bool {
	label, _, _ := strings.Cut(strings.ToLower(r.Host), ".")
	only := label == stsHost || label == autoconfigHost || label == autodiscoverHost
	i := slices.IndexFunc(discoveries, func(d discovery) bool { return d.at(r.URL.Path) })
	if i < 0 && !only {
		return false
	}
	if !s.admit(w, r) {
		return true
	}
	to, err := s.svc.VisitHost(r.Host)
	if err != nil {
		s.discoveryFailed(w, r, err)
		return true
	}
	if to == nil {
		return false
	}
	if i < 0 || !discoveries[i].isAt(to) {
		if to.Label != "" {
			http.NotFound(w, r)
		}
		return to.Label != ""
	}
	d := &discoveries[i]
	if !slices.Contains(d.methods, r.Method) {
		w.Header().Set("Allow", strings.Join(d.methods, ", "))
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return true
	}
	if err := d.answer(s, &visit{w, r, to}); err != nil {
		s.discoveryFailed(w, r, err)
	}
	return true
}

func (d *discovery) isAt(to *service.VisitedHost) bool {
	if to.Domain == "" {
		return d.ours
	}
	return slices.Contains(d.below, to.Label)
}

// isDiscovery tells whether a path is of one of the documents, so that a host that has none says
// so.
func isDiscovery(path string) bool {
	return slices.ContainsFunc(discoveries, func(d discovery) bool { return d.at(path) })
}

// admit counts a request by where it comes from, and refuses what is too much.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	now := s.now()
	if s.visits.take(remoteAddr(r), now) <= discoveriesEach {
		return true
	}
	wait := now.Truncate(time.Minute).Add(time.Minute).Sub(now)
	w.Header().Set("Retry-After", strconv.Itoa(retrySeconds(wait)))
	http.Error(w, "too many requests from this address: wait for the next minute", http.StatusTooManyRequests)
	return false
}

func (s *Server) discoveryFailed(w http.ResponseWriter, r *http.Request, err error) {
	s.Log.Error("answer a look for mail settings", "host", r.Host, "path", r.URL.Path, "error", err)
	http.Error(w, "something went wrong on our side", http.StatusInternalServerError)
}

// send writes a document that others may keep for a while.
func (v *visit) send(contentType string, body []byte) {
	v.w.Header().Set("Cache-Control", "public, max-age="+strconv.Itoa(int(discoveryAge.Seconds())))
	v.write(http.StatusOK, contentType, body)
}

func (v *visit) write(status int, contentType string, body []byte) {
	h := v.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	v.w.WriteHeader(status)
	if v.r.Method != http.MethodHead {
		_, _ = v.w.Write(body) // a client that has gone needs no answer
	}
}

// sendPolicy answers with a domain's MTA-STS policy (RFC 8461 section 3.2).
func (s *Server) sendPolicy(v *visit) error {
	policy, err := s.svc.STSPolicy(v.to.Domain)
	if err != nil {
		return err
	}
	if policy == "" { // it has gone in this moment
		http.NotFound(v.w, v.r)
		return nil
	}
	v.send("text/plain; charset=utf-8", []byte(policy))
	return nil
}

// settingsFor gives an address in its one form and its settings, if the host that was asked is
// there for its domain.
func (s *Server) settingsFor(v *visit, address string) (string, *service.MailSettings, error) {
	email, settings, err := s.svc.MailSettingsOf(address)
	if err != nil || settings == nil || v.to.Domain != "" && v.to.Domain != settings.Domain {
		return "", nil, err
	}
	return email, settings, nil
}
