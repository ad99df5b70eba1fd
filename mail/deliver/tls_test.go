package deliver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOpportunisticTLS(t *testing.T) {
	config, pool := certificate(t, "mx.example")
	for _, tc := range []struct {
		name, host, by string
		trusted        bool
	}{
		{"verified", "mx.example", ByCertificate, true},
		{"unknown authority", "mx.example", "", false},
		{"other name", "other.example", "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &host{tls: config}
			n := newInternet(t)
			n.host(tc.host, h)
			c := n.client()
			if tc.trusted {
				c.RootCAs = pool
			}
			n.domain("them.example", tc.host)
			r := c.Direct(t.Context(), "them.example", envelope(), hello)
			want(t, r, Delivered, 250, "2.0.0")
			if r.TLS != "TLS 1.3 TLS_AES_128_GCM_SHA256" || r.Attempts[0].TLS != r.TLS || r.Attempts[0].Authenticated != tc.by {
				t.Errorf("attempts %+v, want %q", r.Attempts, tc.by)
			}
			if got := h.heard()[:3]; !slices.Equal(got, []string{"EHLO us.example", "STARTTLS", "EHLO us.example"}) {
				t.Errorf("host heard %q", got)
			}
		})
	}
}

func TestExpiredCertificateIsUnverified(t *testing.T) {
	config, pool := certificateUntil(t, time.Now().Add(-time.Minute), "mx.example")
	n := newInternet(t)
	n.host("mx.example", &host{tls: config})
	n.domain("them.example", "mx.example")
	c := n.client()
	c.RootCAs = pool
	c.Now = func() time.Time { return time.Now().Add(-time.Hour) } // a shifted clock, which has no say in this
	r := c.Direct(t.Context(), "them.example", envelope(), hello)
	if r.Status != Delivered || !strings.HasPrefix(r.TLS, "TLS 1.3") || r.Attempts[0].Authenticated != "" {
		t.Errorf("result %+v", r)
	}
}

// brokenTLS are hosts that offer STARTTLS and cannot do it.
func brokenTLS() map[string]func(p *peer) {
	return map[string]func(p *peer){
		"garbage":     func(p *peer) { p.say("220 go ahead"); p.br.ReadByte(); io.WriteString(p.conn, "not TLS at all\r\n") },
		"hangs up":    func(p *peer) { p.say("220 go ahead"); p.br.ReadByte() },
		"no answer":   func(p *peer) {},
		"no cipher":   func(p *peer) { p.say("220 go ahead"); tls.Server(p.conn, &tls.Config{}).Handshake() },
		"late refuse": func(p *peer) { p.say("220 go ahead"); refuseLate(p) },
	}
}

// refuseLate does the handshake and hangs up, as a host does that wants a certificate of ours.
func refuseLate(p *peer) {
	config := p.h.tls.Clone()
	config.ClientAuth = tls.RequireAnyClientCert
	tls.Server(p.conn, config).Handshake()
}

func TestFailedHandshakeFallsBackToPlain(t *testing.T) {
	for name, act := range brokenTLS() {
		t.Run(name, func(t *testing.T) {
			config, _ := certificate(t, "mx.example")
			h := &host{tls: config}
			h.hook = func(p *peer, verb string) bool {
				if verb != "STARTTLS" {
					return false
				}
				act(p)
				p.hangUp()
				return true
			}
			n := newInternet(t)
			n.host("mx.example", h)
			n.domain("them.example", "mx.example")
			r := n.client().Direct(t.Context(), "them.example", envelope(), hello)
			want(t, r, Delivered, 250, "2.0.0")
			if r.TLS != "" || len(r.Attempts) != 2 || r.Attempts[0].Err == nil || h.connections() != 2 {
				t.Errorf("result %+v", r)
			}
		})
	}
}

func TestRefusedSTARTTLSGoesOnInPlain(t *testing.T) {
	config, _ := certificate(t, "mx.example")
	h := &host{tls: config, answers: map[string]string{"STARTTLS": "454 4.7.0 not now"}}
	n := newInternet(t)
	n.host("mx.example", h)
	n.domain("them.example", "mx.example")
	r := n.client().Direct(t.Context(), "them.example", envelope(), hello)
	want(t, r, Delivered, 250, "2.0.0")
	if r.TLS != "" || h.connections() != 1 {
		t.Errorf("result %+v after %d connections", r, h.connections())
	}
}

// TestInjectedRepliesAreRefused: what comes in plain after the answer to STARTTLS must not count as
// said under TLS.
func TestInjectedRepliesAreRefused(t *testing.T) {
	config, pool := certificate(t, "mx.example")
	h := &host{tls: config}
	h.hook = func(p *peer, verb string) bool {
		if verb != "STARTTLS" {
			return false
		}
		p.say("220 go ahead\r\n250-mx.example\r\n250 AUTH PLAIN")
		p.conn = tls.Server(p.conn, config)
		p.br = bufio.NewReader(p.conn)
		return true
	}
	n := newInternet(t)
	n.host("mx.example", h)
	n.domain("them.example", "mx.example")
	c := n.client()
	c.RootCAs = pool
	relay := Relay{Host: "mx.example", TLS: "starttls", Username: "u", Password: "p"}
	for _, r := range []Result{
		c.Direct(t.Context(), "them.example", envelope(), hello),
		c.Relay(t.Context(), relay, envelope(), hello),
	} {
		want(t, r, Temporary, 0, "4.7.0")
		if len(r.Attempts) != 1 || !errors.Is(r.Attempts[0].Err, errUnsolicited) {
			t.Errorf("attempts %+v", r.Attempts)
		}
	}
	if len(h.received()) != 0 || strings.Contains(strings.Join(h.heard(), " "), "AUTH") {
		t.Errorf("host heard %q", h.heard())
	}
}
