// Package autoconfig serves documents that mail servers and mail clients fetch by host name and
// path, without a token: the MTA-STS policy of a domain (RFC 8461), and the settings for mail
// clients in the formats of Thunderbird, Outlook and Apple. It does not identify clients, and does
// not reveal whether a mailbox exists.
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

// maxAge is how long clients may cache a document.
const maxAge = time.Hour

// The labels of hosts below a domain, as in mailboxes.VisitedHost.
const (
	stsHost          = "mta-sts"
	autoconfigHost   = "autoconfig"
	autodiscoverHost = "autodiscover"
	domainItself     = ""
)

// A Server serves the documents of one installation.
type Server struct {
	Service *service.Service
	Now     func() time.Time
}

// A Document is one kind of document.
type Document struct {
	Path string // without a host; see PathOf

	hosts   []string // labels of the hosts of a domain that serve the document
	ownHost bool     // the installation's own host serves it too, for every domain
	methods []string
	write   func(*Server, *request) error
}

// Documents returns all documents.
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

// PathOf returns the Document.Path that serves the path of a request. A path that no document
// serves is returned unchanged. Outlook may write its path in capitals and append the address, and
// a profile of Apple's may have any file name.
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

// IsHost reports whether the host of a request has a label that is only for documents.
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

// Answer answers a request for a document (nil: for anything else) if its host has documents. A
// host that exists only for documents answers 404 to all other requests. After an error nothing has
// been written.
func (s *Server) Answer(w http.ResponseWriter, r *http.Request, d *Document) (answered bool, err error) {
	host, err := s.Service.Mailboxes.VisitHost(r.Host)
	if err != nil || host == nil {
		return false, err
	}
	if d == nil || !d.isAt(host) {
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

func (d *Document) isAt(host *mailboxes.VisitedHost) bool {
	if host.Domain == "" {
		return d.ownHost
	}
	return slices.Contains(d.hosts, host.Label)
}

// send sends a document that clients may cache.
func (q *request) send(contentType string, body []byte) {
	q.w.Header().Set("Cache-Control", "public, max-age="+strconv.Itoa(int(maxAge.Seconds())))
	q.write(http.StatusOK, contentType, body)
}

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
	if policy == "" { // it was turned off just now
		http.NotFound(q.w, q.r)
		return nil
	}
	q.send("text/plain; charset=utf-8", []byte(policy))
	return nil
}

// settingsFor returns an address in normal form and its settings; nil settings if the address is
// unknown, or its domain is not that of the request's host.
func (s *Server) settingsFor(q *request, address string) (string, *mailboxes.MailSettings, error) {
	email, settings, err := s.Service.Mailboxes.MailSettingsOf(address)
	if err != nil || settings == nil || q.host.Domain != "" && q.host.Domain != settings.Domain {
		return "", nil, err
	}
	return email, settings, nil
}
