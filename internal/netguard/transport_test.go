package netguard

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTransportAsksTheGuard(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	get := func(g *Guard, roots *x509.CertPool) error {
		transport := g.Transport(nil, roots)
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := get(&Guard{}, roots); !errors.Is(err, ErrBlocked) {
		t.Errorf("strict: %v", err)
	}
	if err := get(&Guard{AllowPrivate: true}, roots); err != nil {
		t.Errorf("lenient: %v", err)
	}
	var unknown x509.UnknownAuthorityError
	if err := get(&Guard{AllowPrivate: true}, x509.NewCertPool()); !errors.As(err, &unknown) {
		t.Errorf("without roots: %v", err)
	}
}

// TestTransportLimitsTheHeader: a server cannot make us keep a header without end.
func TestTransportLimitsTheHeader(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Long", strings.Repeat("x", 2*maxHeaderBytes))
	}))
	defer server.Close()
	transport := (&Guard{AllowPrivate: true}).Transport(nil, nil)
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := transport.RoundTrip(r); err == nil {
		resp.Body.Close()
		t.Error("a header of 128 KiB was read")
	}
}
