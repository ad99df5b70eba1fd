package netguard

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
)

// maxHeaderBytes limits the header of an answer.
const maxHeaderBytes = 64 << 10

// Transport returns an HTTP transport that dials through the guard, resolving names as Dialer does.
// It trusts roots (nil is the system's), speaks TLS 1.2 or later, uses no proxy, and reads at most
// 64 KiB of an answer's header. Its other fields are zero: the caller sets time-outs and how many
// connections are kept before the first request.
func (g *Guard) Transport(resolver Resolver, roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext:            g.Dialer(resolver),
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}
