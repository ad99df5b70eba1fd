// Package autoconfig serves documents that mail servers and mail clients fetch without a token: the
// MTA-STS policy of a domain (RFC 8461), and the settings for mail clients in the formats of
// Thunderbird, Outlook and Apple. The host name of a request says which domain it is about. The
// package does not know who a client is, and does not reveal whether a mailbox exists.
package autoconfig

import (
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/mailboxes"
)

// cacheMaxAge is how long clients may cache a document.
const cacheMaxAge = time.Hour

// First labels of the hosts that serve documents for a domain, as in mailboxes.VisitedHost.
const (
	stsHost          = "mta-sts"
	autoconfigHost   = "autoconfig"
	autodiscoverHost = "autodiscover"
	domainItself     = "" // the host is the domain
)

// A Server serves the documents of one installation.
type Server struct {
	Service *service.Service
	Now     func() time.Time
}

// A Document is one kind of document that the server has.
type Document struct {
	Path string // without a host; see PathOf

	hosts   []string // first labels of the hosts that serve it for their domain
	ownHost bool     // the installation's own host serves it too, for all domains
	methods []string
	write   func(*Server, *request) error
}

// Documents returns all kinds of documents.
func Documents() []*Document {
	get := []string{http.MethodGet, http.MethodHead}
	post := []string{http.MethodPost, http.MethodGet, http.MethodHead}
	outlook := []string{autodiscoverHost, domainItself}
	return []*Document{
		{"/.well-known/mta-sts.txt", []string{stsHost}, false, get, (*Server).writePolicy},
		{"/mail/config-v1.1.xml", []string{autoconfigHost}, true, get, (*Server).writeClientConfig},
		{"/.well-known/autoconfig/mail/config-v1.1.xml", []string{domainItself, autoconfigHost}, true, get, (*Server).writeClientConfig},
		{profilePath, []string{autoconfigHost}, true, get, (*Server).writeProfile},
		{autodiscoverPath, outlook, true, post, (*Server).writeAutodiscover},
		{autodiscoverV2, outlook, true, get, (*Server).writeAutodiscoverV2},
	}
}

// PathOf returns the Document.Path for the path of a request. Outlook may write its path in
// capitals and append the address. A profile for Apple devices may have any file name. Paths that
// no document has are returned unchanged.
func PathOf(asked string) string {
	lower := strings.ToLower(asked)
	name, isMail := strings.CutPrefix(asked, "/mail/")
	switch {
	case lower == autodiscoverPath, lower == autodiscoverV2:
		return lower
	case strings.HasPrefix(lower, autodiscoverV2+"/v1.0/"):
		return autodiscoverV2
	case isMail && path.Ext(name) == ".mobileconfig" && !strings.Contains(name, "/"):
		return profilePath
	}
	return asked
}

// IsHost reports whether a host name has a first label that is only for documents.
func IsHost(host string) bool {
	label, _, _ := strings.Cut(strings.ToLower(host), ".")
	return label == stsHost || label == autoconfigHost || label == autodiscoverHost
}

// A request is one request for a document.
type request struct {
	w    http.ResponseWriter
	r    *http.Request
	host *mailboxes.VisitedHost
}

// Answer answers a request for the document d if the host of the request serves d. d is nil if the
// path has no document. A host that exists only for documents answers 404 to all other requests.
// answered is false if the request is left to the caller. If Answer returns an error, it has
// written nothing.
func (s *Server) Answer(w http.ResponseWriter, r *http.Request, d *Document) (answered bool, err error) {
	host, err := s.Service.Mailboxes.VisitHost(r.Host)
	if err != nil || host == nil {
		return false, err
	}
	if d == nil || !d.isServedBy(host) {
		if host.Label != "" {
			http.NotFound(w, r)
		}
		return host.Label != "", nil
	}
	if !slices.Contains(d.methods, r.Method) {
		w.Header().Set("Allow", strings.Join(d.methods, ", "))
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return true, nil
	}
	return true, d.write(s, &request{w, r, host})
}

// isServedBy reports whether a host serves the document.
func (d *Document) isServedBy(host *mailboxes.VisitedHost) bool {
	if host.Domain == "" {
		return d.ownHost
	}
	return slices.Contains(d.hosts, host.Label)
}

// send sends a document that clients may cache.
func (q *request) send(contentType string, body []byte) {
	q.w.Header().Set("Cache-Control", "public, max-age="+strconv.Itoa(int(cacheMaxAge.Seconds())))
	q.write(http.StatusOK, contentType, body)
}

// write sends a response. For HEAD it leaves out the body.
func (q *request) write(status int, contentType string, body []byte) {
	h := q.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	q.w.WriteHeader(status)
	if q.r.Method != http.MethodHead {
		_, _ = q.w.Write(body) // a client that has left needs no answer
	}
}

// writePolicy sends a domain's MTA-STS policy (RFC 8461 section 3.2).
func (s *Server) writePolicy(q *request) error {
	policy, err := s.Service.Mailboxes.STSPolicy(q.host.Domain)
	if err != nil {
		return err
	}
	if policy == "" { // the policy was just turned off
		http.NotFound(q.w, q.r)
		return nil
	}
	q.send("text/plain; charset=utf-8", []byte(policy))
	return nil
}

// settingsFor returns an address in normal form and its settings. The settings are nil if the
// address is unknown, or if the request's host belongs to another domain.
func (s *Server) settingsFor(q *request, address string) (email string, settings *mailboxes.MailSettings, err error) {
	email, settings, err = s.Service.Mailboxes.MailSettingsOf(address)
	if err != nil || settings == nil || q.host.Domain != "" && q.host.Domain != settings.Domain {
		return "", nil, err
	}
	return email, settings, nil
}
