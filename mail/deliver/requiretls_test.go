package deliver

import (
	"crypto/x509"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/mtasts"
)

// TestRequireTLS: a message with REQUIRETLS goes only to a host that offers it, whose certificate
// is valid and whose name is proven; nothing else hears a word of it (RFC 8689 section 4.2.1).
func TestRequireTLS(t *testing.T) {
	for name, tc := range map[string]struct {
		cert      string
		policy    *mtasts.Policy
		untrusted bool
		signed    bool // DNSSEC vouches for the MX
		noMX      bool
		change    func(h *host)
		optional  bool
		delivered bool
	}{
		"MTA-STS":                  {cert: "mx.them.example", policy: policy(mtasts.Enforce, "mx.them.example"), delivered: true},
		"MTA-STS in its test":      {cert: "mx.them.example", policy: policy(mtasts.Testing, "mx.them.example"), delivered: true},
		"DNSSEC":                   {cert: "mx.them.example", signed: true, delivered: true},
		"no MX":                    {cert: "them.example", noMX: true, delivered: true},
		"nothing proves the name":  {cert: "mx.them.example"},
		"a policy that is none":    {cert: "mx.them.example", policy: policy(mtasts.None)},
		"a policy of other names":  {cert: "mx.them.example", policy: policy(mtasts.Testing, "mx.elsewhere.example")},
		"another name":             {cert: "x.them.example", policy: policy(mtasts.Enforce, "mx.them.example")},
		"untrusted":                {cert: "mx.them.example", policy: policy(mtasts.Enforce, "mx.them.example"), untrusted: true},
		"no STARTTLS":              {cert: "mx.them.example", policy: policy(mtasts.Enforce, "mx.them.example"), change: func(h *host) { h.tls = nil }},
		"no REQUIRETLS":            {cert: "mx.them.example", policy: policy(mtasts.Enforce, "mx.them.example"), change: func(h *host) { h.offers = nil }},
		"TLS-Required: No as well": {cert: "x.them.example", policy: policy(mtasts.Enforce, "mx.them.example"), optional: true},
	} {
		t.Run(name, func(t *testing.T) {
			config, pool := certificate(t, tc.cert)
			h := &host{tls: config, offers: []string{"REQUIRETLS", "PIPELINING"}}
			n := newInternet(t)
			if tc.noMX {
				n.host("them.example", h)
			} else {
				n.host("mx.them.example", h)
				n.domain("them.example", "mx.them.example")
			}
			c := n.client()
			c.RootCAs = pool
			if tc.untrusted {
				c.RootCAs = x509.NewCertPool()
			}
			if tc.signed {
				n.sign(c)
			}
			if tc.change != nil {
				tc.change(h)
			}
			e := envelope()
			e.STS, e.RequireTLS, e.TLSOptional = tc.policy, true, tc.optional
			r := c.Direct(t.Context(), "them.example", e, hello)
			if !tc.delivered {
				if r.Status != Permanent || r.Enhanced != "5.7.30" || r.RecipientFault {
					t.Errorf("%v %s %s", r.Status, r.Enhanced, r.Reply)
				}
				if slices.ContainsFunc(h.heard(), func(line string) bool { return strings.HasPrefix(line, "MAIL") }) || len(h.received()) > 0 {
					t.Errorf("the host heard %q", h.heard())
				}
				return
			}
			want(t, r, Delivered, 250, "2.0.0")
			if !slices.ContainsFunc(h.heard(), func(line string) bool {
				return strings.HasPrefix(line, "MAIL FROM:<a@us.example>") && strings.HasSuffix(line, " REQUIRETLS")
			}) {
				t.Errorf("the host heard %q", h.heard())
			}
		})
	}
}

// TestRequireTLSAtAnotherHost: where the first host cannot keep the message encrypted, the next one
// gets it.
func TestRequireTLSAtAnotherHost(t *testing.T) {
	config, pool := certificate(t, "mx1.them.example", "mx2.them.example")
	first, second := &host{tls: config}, &host{tls: config, offers: []string{"REQUIRETLS"}}
	n := newInternet(t)
	n.host("mx1.them.example", first)
	n.host("mx2.them.example", second)
	n.domain("them.example", "mx1.them.example", "mx2.them.example")
	c := n.client()
	c.RootCAs = pool
	e := envelope()
	e.STS, e.RequireTLS = policy(mtasts.Enforce, "*.them.example"), true
	want(t, c.Direct(t.Context(), "them.example", e, hello), Delivered, 250, "2.0.0")
	if len(first.received()) != 0 || len(second.received()) != 1 {
		t.Errorf("%d and %d messages", len(first.received()), len(second.received()))
	}
}

// TestRequireTLSThroughARelay: the operator's relay needs no proof of its name, but must offer
// REQUIRETLS over TLS.
func TestRequireTLSThroughARelay(t *testing.T) {
	for name, tc := range map[string]struct {
		tls       string
		offers    []string
		delivered bool
	}{"offered": {"starttls", []string{"REQUIRETLS"}, true}, "not offered": {"starttls", nil, false}, "without TLS": {"none", []string{"REQUIRETLS"}, false}} {
		t.Run(name, func(t *testing.T) {
			config, pool := certificate(t, "relay.example")
			h := &host{tls: config, offers: tc.offers}
			n := newInternet(t)
			n.host("relay.example", h)
			c := n.client()
			c.RootCAs = pool
			e := envelope()
			e.RequireTLS = true
			r := c.Relay(t.Context(), Relay{Host: "relay.example", TLS: tc.tls}, e, hello)
			if tc.delivered {
				want(t, r, Delivered, 250, "2.0.0")
			} else if r.Status != Permanent || r.Enhanced != "5.7.30" || len(h.received()) > 0 {
				t.Errorf("%v %s %s; it got %d", r.Status, r.Enhanced, r.Reply, len(h.received()))
			}
		})
	}
}

// TestVerifyTLS: a domain's own policy wants a valid certificate for any name of the MX, and the
// message waits otherwise.
func TestVerifyTLS(t *testing.T) {
	for name, tc := range map[string]struct {
		cert   string
		change func(h *host)
		status Status
	}{
		"valid":       {"mx.them.example", nil, Delivered},
		"other name":  {"x.them.example", nil, Temporary},
		"no STARTTLS": {"mx.them.example", func(h *host) { h.tls = nil }, Temporary},
	} {
		t.Run(name, func(t *testing.T) {
			config, pool := certificate(t, tc.cert)
			h := &host{tls: config}
			n := newInternet(t)
			n.host("mx.them.example", h)
			n.domain("them.example", "mx.them.example")
			c := n.client()
			c.RootCAs = pool
			if tc.change != nil {
				tc.change(h)
			}
			e := envelope()
			e.VerifyTLS = true
			r := c.Direct(t.Context(), "them.example", e, hello)
			if r.Status != tc.status || (len(h.received()) == 1) != (tc.status == Delivered) {
				t.Errorf("%v %s %s", r.Status, r.Enhanced, r.Reply)
			}
		})
	}
}
