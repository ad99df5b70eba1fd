package domains

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// A Redirect is where a visitor is sent.
type Redirect struct {
	URL  string
	Code int // 301, 302
}

// RedirectOf says where visitors of a host, as a request names it, are sent; nil if they are at the
// right place. A redirect of a domain is one of its www too.
func (s *Service) RedirectOf(host string, at *url.URL) (*Redirect, error) {
	host = mailboxes.RequestHost(host)
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || !strings.Contains(host, ".") || host == s.Config.Hostname {
		return nil, nil
	}
	d, err := s.redirected(host)
	if d == nil || err != nil {
		return nil, err
	}
	return &Redirect{redirectTarget(d, at), d.RedirectCode}, nil
}

// redirected gives the domain whose redirect a host has; nil if there is none. A domain that nobody
// has proved to hold redirects nothing, since the host may be the operator's.
func (s *Service) redirected(host string) (*store.Domain, error) {
	var found *store.Domain
	err := s.Store.View(func(tx *store.Tx) error {
		for _, name := range []string{host, strings.TrimPrefix(host, "www.")} {
			d, err := store.DomainByName.Get(tx, name)
			if err == nil && d.RedirectURL != "" && core.TakesMail(d) {
				found = d
			}
			if err == nil || !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return nil
	})
	return found, err
}

// redirectTarget is the redirect's URL, with path and query of the request behind it where they are
// kept.
func redirectTarget(d *store.Domain, at *url.URL) string {
	to, err := url.Parse(d.RedirectURL)
	if err != nil || !d.RedirectPath {
		return d.RedirectURL
	}
	path, rest := strings.TrimSuffix(to.EscapedPath(), "/"), at.EscapedPath()
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	to.Path, to.RawPath = "", ""
	query := to.RawQuery
	to.RawQuery, to.Fragment, to.RawFragment = "", "", ""
	if query != "" && at.RawQuery != "" {
		query += "&"
	}
	if query += at.RawQuery; query != "" {
		query = "?" + query
	}
	return to.String() + path + rest + query
}
