package handlers

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/service/core"
)

// pageOrigin returns the origin (RFC 6454) of the page that a browser shows for the request.
func pageOrigin(r *http.Request) string {
	if isSecure(r) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// baseURL returns the URL by which the client reaches this server. In production it is the
// configured URL. A sandbox can also be reached by localhost or an IP address, which no other site
// can own.
func (s *Server) baseURL(r *http.Request) string {
	if s.svc.Core.Config.Sandbox {
		u, err := url.Parse(pageOrigin(r))
		if err == nil && u.Host == r.Host && (isIPOrLocalhost(u.Hostname()) || s.isOwnName(u.Hostname())) {
			return pageOrigin(r)
		}
	}
	return s.svc.Core.Config.BaseURL
}

// isOwnName reports whether host is the server's configured host name, or the host of its
// configured URL.
func (s *Server) isOwnName(host string) bool {
	c := s.svc.Core.Config
	base, err := url.Parse(c.BaseURL)
	return host != "" && (strings.EqualFold(host, c.Hostname) || err == nil && !isIPOrLocalhost(host) && strings.EqualFold(host, base.Hostname()))
}

// isIPOrLocalhost reports whether host is an IP address or localhost. Nobody can point those
// elsewhere in the DNS.
func isIPOrLocalhost(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}

// usesOwnName reports whether the request was sent to the server's configured host name.
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

// checkSameOrigin returns an error if another site made the browser send the request. It lets GET,
// HEAD and OPTIONS pass.
func checkSameOrigin(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return core.Errorf("cross_origin", "The request came from another site. Use the dashboard's own page.").Because(err)
	}
	return nil
}

// checkOwnPage returns an error if a page of another site sent the request, whatever its method.
func checkOwnPage(r *http.Request) error {
	for _, from := range r.Header.Values("Origin") {
		if !strings.EqualFold(from, pageOrigin(r)) {
			return core.Errorf("cross_origin", "The request came from another site. Use the dashboard's own page.")
		}
	}
	return nil
}
