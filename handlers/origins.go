package handlers

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/service/core"
)

// origin returns the origin at which the browser shows the dashboard.
func origin(r *http.Request) string {
	if isSecure(r) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// base returns the URL by which the client reaches this server: in production the configured one;
// in the sandbox also localhost or an IP address, which no other site can own.
func (s *Server) base(r *http.Request) string {
	if s.svc.Core.Config.Sandbox {
		u, err := url.Parse(origin(r))
		if err == nil && u.Host == r.Host && (isUnnamed(u.Hostname()) || s.isOwnName(u.Hostname())) {
			return origin(r)
		}
	}
	return s.svc.Core.Config.BaseURL
}

// isOwnName reports whether a host is the server's own host name, or the name in its URL.
func (s *Server) isOwnName(host string) bool {
	c := s.svc.Core.Config
	base, err := url.Parse(c.BaseURL)
	return host != "" && (strings.EqualFold(host, c.Hostname) || err == nil && !isUnnamed(host) && strings.EqualFold(host, base.Hostname()))
}

// isUnnamed reports whether a host is an IP address or localhost, which no domain owner can
// redirect.
func isUnnamed(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}

// usesOwnName reports whether the request's host is the server's own host name.
func (s *Server) usesOwnName(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.EqualFold(host, s.svc.Core.Config.Hostname)
}

// needsHTTPS reports whether signing in requires TLS.
func (s *Server) needsHTTPS() bool {
	return !s.svc.Core.Config.Sandbox && strings.HasPrefix(s.svc.Core.Config.BaseURL, "https://")
}

// sameOrigin refuses changing requests that another site made the browser send.
func sameOrigin(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return core.Errorf("cross_origin", "The request came from another site. Use the dashboard's own page.").Because(err)
	}
	return nil
}

// checkOwnPage refuses requests from pages of other sites, also those that only read.
func checkOwnPage(r *http.Request) error {
	for _, from := range r.Header.Values("Origin") {
		if !strings.EqualFold(from, origin(r)) {
			return core.Errorf("cross_origin", "The request came from another site. Use the dashboard's own page.")
		}
	}
	return nil
}
