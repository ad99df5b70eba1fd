package main

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"time"

	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/webhooks"
)

// newRDAP makes what asks the registries, or nil. A sandbox talks to nobody unasked: it asks only
// the servers of a list that it was given, and no others where that list cannot be had.
func newRDAP(s *settings, resolver service.Resolver, roots *x509.CertPool, log *slog.Logger) *rdap.Client {
	list := s.RDAP.BootstrapURL.text
	if list == "off" || list == "" && s.Sandbox() {
		return nil
	}
	// A list of the operator's own may name servers of the operator's own.
	guard := &webhooks.Guard{AllowPrivate: bool(s.Private) || list != "" && list != rdap.IANABootstrap}
	return rdap.New(rdap.Config{
		BootstrapURL: list, NoCopy: s.Sandbox(), Log: log,
		HTTP: &http.Client{Transport: &http.Transport{
			DialContext: guard.Dialer(resolver), ForceAttemptHTTP2: true,
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 8 * time.Second, IdleConnTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, MaxIdleConns: 64, MaxIdleConnsPerHost: 4, MaxConnsPerHost: 16,
		}},
	})
}
