package deliver

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/mail/dane"
	"github.com/mailstead/mailstead/mail/mtasts"
	"github.com/mailstead/mailstead/mail/tlsrpt"
)

// signedDNS serves the names of an internet, and TLSA records, with the AD bit where it is told so.
type signedDNS struct {
	n     *internet
	mu    sync.Mutex
	tlsa  map[string][]string // by host
	plain map[string]bool     // names and types, as "them.example MX", that are not signed
	fail  map[string]bool     // likewise, answered with SERVFAIL
}

func (d *signedDNS) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := strings.TrimSuffix(strings.ToLower(q.Question[0].Name), ".")
	kind := dns.TypeToString[q.Question[0].Qtype]
	m := new(dns.Msg).SetReply(q)
	m.AuthenticatedData = !d.plain[name+" "+kind]
	if d.fail[name+" "+kind] {
		m.Rcode = dns.RcodeServerFailure
	}
	var lines []string
	switch kind {
	case "MX":
		for _, mx := range d.n.mx[name] {
			lines = append(lines, fmt.Sprint(mx.Pref, " ", mx.Host))
		}
	case "A":
		for _, ip := range d.n.ips[name] {
			lines = append(lines, ip.String())
		}
	case "TLSA":
		lines = d.tlsa[strings.TrimPrefix(name, "_25._tcp.")]
	}
	for _, line := range lines {
		rr, err := dns.NewRR(fmt.Sprintf("%s. 0 IN %s %s", name, kind, line))
		if err != nil {
			d.n.t.Error(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	_ = w.WriteMsg(m)
}

// publish makes records the TLSA records of mx.them.example.
func (d *signedDNS) publish(records ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tlsa["mx.them.example"] = records
}

// sign gives the client a resolver that validates.
func (n *internet) sign(c *Client) *signedDNS {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	d := &signedDNS{n: n, tlsa: map[string][]string{}, plain: map[string]bool{}, fail: map[string]bool{}}
	s := &dns.Server{PacketConn: pc, Handler: d}
	go func() { _ = s.ActivateAndServe() }()
	n.t.Cleanup(func() { _ = s.Shutdown() })
	c.DANE = &dane.Resolver{Servers: []string{pc.LocalAddr().String()}}
	return d
}

// digest is a DANE-EE record for the key of a certificate.
func digest(t *testing.T, config *tls.Config) string {
	t.Helper()
	cert, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("3 1 1 %x", sha256.Sum256(cert.RawSubjectPublicKeyInfo))
}

// signedHost is a domain with one MX host that has a certificate for a name.
func signedHost(t *testing.T, certName string) (*Client, *signedDNS, *host) {
	config, _ := certificate(t, certName)
	h := &host{tls: config}
	n := newInternet(t)
	n.host("mx.them.example", h)
	n.domain("them.example", "mx.them.example")
	c := n.client()
	return c, n.sign(c), h
}

func TestDANE(t *testing.T) {
	other, _ := certificate(t, "mx.them.example")
	wrong := digest(t, other)
	for name, tc := range map[string]struct {
		records func(t *testing.T, h *host) []string
		change  func(d *signedDNS, h *host, e *Envelope)
		status  Status
		by      string
		result  string // of the session
		policy  string
	}{
		"right key, wrong name": {records: right, status: Delivered, by: ByDANE, policy: tlsrpt.PolicyTLSA},
		"wrong key":             {records: texts(wrong), status: Temporary, result: tlsrpt.TLSAInvalid, policy: tlsrpt.PolicyTLSA},
		"one of two":            {records: func(t *testing.T, h *host) []string { return append(right(t, h), wrong) }, status: Delivered, by: ByDANE, policy: tlsrpt.PolicyTLSA},
		"nothing usable":        {records: texts("1" + wrong[1:]), status: Delivered, policy: tlsrpt.PolicyTLSA},
		"no record":             {records: texts(), status: Delivered, policy: tlsrpt.PolicyNone},
		"MX not signed": {records: texts(wrong), status: Delivered, policy: tlsrpt.PolicyNone,
			change: func(d *signedDNS, _ *host, _ *Envelope) { d.plain["them.example MX"] = true }},
		"address not signed": {records: texts(wrong), status: Delivered, policy: tlsrpt.PolicyNone,
			change: func(d *signedDNS, _ *host, _ *Envelope) { d.plain["mx.them.example A"] = true }},
		"TLSA not signed": {records: texts(wrong), status: Delivered, policy: tlsrpt.PolicyNone,
			change: func(d *signedDNS, _ *host, _ *Envelope) { d.plain["_25._tcp.mx.them.example TLSA"] = true }},
		"TLSA bogus": {records: right, status: Temporary, result: tlsrpt.DNSSECInvalid, policy: tlsrpt.PolicyTLSA,
			change: func(d *signedDNS, _ *host, _ *Envelope) { d.fail["_25._tcp.mx.them.example TLSA"] = true }},
		"no STARTTLS": {records: right, status: Temporary, result: tlsrpt.NoSTARTTLS, policy: tlsrpt.PolicyTLSA,
			change: func(_ *signedDNS, h *host, _ *Envelope) { h.tls = nil }},
		"no STARTTLS, nothing usable": {records: texts("1" + wrong[1:]), status: Temporary, result: tlsrpt.NoSTARTTLS, policy: tlsrpt.PolicyTLSA,
			change: func(_ *signedDNS, h *host, _ *Envelope) { h.tls = nil }},
		"STARTTLS refused": {records: right, status: Temporary, result: tlsrpt.Failed, policy: tlsrpt.PolicyTLSA,
			change: func(_ *signedDNS, h *host, _ *Envelope) { h.answers = map[string]string{"STARTTLS": "502 5.5.1 no"} }},
		"a report goes out all the same": {records: texts(wrong), status: Delivered, policy: tlsrpt.PolicyNone,
			change: func(_ *signedDNS, _ *host, e *Envelope) { e.TLSOptional = true }},
		"it wins over MTA-STS": {records: right, status: Delivered, by: ByDANE, policy: tlsrpt.PolicyTLSA,
			change: func(_ *signedDNS, _ *host, e *Envelope) { e.STS = policy(mtasts.Enforce, "mx.elsewhere.example") }},
	} {
		t.Run(name, func(t *testing.T) {
			c, d, h := signedHost(t, "not-the-mx.example")
			d.publish(tc.records(t, h)...)
			e := envelope()
			if tc.change != nil {
				d.mu.Lock()
				tc.change(d, h, &e)
				d.mu.Unlock()
			}
			r := c.Direct(t.Context(), "them.example", e, hello)
			checkResult(t, r, h, tc.status, tc.by, tc.policy, tc.result)
			if tc.status == Temporary && !strings.Contains(r.Reply, "DANE is in force for mx.them.example") {
				t.Errorf("it says %q", r.Reply)
			}
		})
	}
}

func texts(lines ...string) func(*testing.T, *host) []string {
	return func(*testing.T, *host) []string { return lines }
}

func right(t *testing.T, h *host) []string { return []string{digest(t, h.tls)} }

// checkResult checks what came of one message to a domain with one host.
func checkResult(t *testing.T, r Result, h *host, status Status, by, policy, result string) {
	t.Helper()
	if r.Status != status || r.Attempts[len(r.Attempts)-1].Authenticated != by {
		t.Errorf("result %+v", r)
	}
	if got := len(h.received()); (got == 1) != (status == Delivered) {
		t.Errorf("the host took %d messages", got)
	}
	if len(r.Sessions) != 1 || r.Sessions[0].Policy != policy || r.Sessions[0].Result != result || (r.Sessions[0].Reason == "") != (result == "") {
		t.Errorf("sessions %+v", r.Sessions)
	}
}

func TestDANETrustAnchor(t *testing.T) {
	for name, tc := range map[string]struct {
		cert string
		good bool
	}{"the host's name": {"mx.them.example", true}, "the domain's name": {"them.example", true}, "another's": {"other.example", false}} {
		t.Run(name, func(t *testing.T) {
			c, d, h := signedHost(t, tc.cert) // its certificate is an authority too
			d.publish("2" + digest(t, h.tls)[1:])
			r := c.Direct(t.Context(), "them.example", envelope(), hello)
			if (r.Status == Delivered) != tc.good {
				t.Errorf("result %+v", r)
			}
			if !tc.good && r.Sessions[0].Result != tlsrpt.HostMismatch {
				t.Errorf("sessions %+v", r.Sessions)
			}
		})
	}
}

// TestNoConnectionIsSharedAcrossPolicies: one that was made when nobody demanded anything is not
// used under DANE.
func TestNoConnectionIsSharedAcrossPolicies(t *testing.T) {
	c, d, h := signedHost(t, "mx.them.example")
	for i, records := range [][]string{nil, right(t, h), right(t, h), nil} {
		d.publish(records...)
		r := c.Direct(t.Context(), "them.example", envelope(), hello)
		if by := map[bool]string{true: ByDANE}[records != nil]; r.Status != Delivered || r.Attempts[0].Authenticated != by {
			t.Errorf("message %d: %+v", i, r)
		}
	}
	if h.connections() != 2 {
		t.Errorf("%d connections", h.connections())
	}
}

func policy(mode string, mx ...string) *mtasts.Policy {
	return &mtasts.Policy{Mode: mode, MX: mx, MaxAge: time.Hour}
}

func TestMTASTS(t *testing.T) {
	for name, tc := range map[string]struct {
		cert    string
		policy  *mtasts.Policy
		trusted bool
		change  func(h *host)
		status  Status
		by      string
		kind    string
		result  string
	}{
		"enforced":     {cert: "mx.them.example", policy: policy(mtasts.Enforce, "*.them.example"), trusted: true, status: Delivered, by: BySTS, kind: tlsrpt.PolicySTS},
		"other name":   {cert: "x.them.example", policy: policy(mtasts.Enforce, "mx.them.example"), trusted: true, kind: tlsrpt.PolicySTS, result: tlsrpt.HostMismatch},
		"untrusted":    {cert: "mx.them.example", policy: policy(mtasts.Enforce, "mx.them.example"), kind: tlsrpt.PolicySTS, result: tlsrpt.NotTrusted},
		"other MX":     {cert: "mx.them.example", policy: policy(mtasts.Enforce, "*.elsewhere.example"), trusted: true, kind: tlsrpt.PolicySTS, result: tlsrpt.Failed},
		"no STARTTLS":  {cert: "mx.them.example", policy: policy(mtasts.Enforce, "mx.them.example"), trusted: true, kind: tlsrpt.PolicySTS, result: tlsrpt.NoSTARTTLS, change: func(h *host) { h.tls = nil }},
		"testing":      {cert: "x.them.example", policy: policy(mtasts.Testing, "mx.them.example"), trusted: true, status: Delivered, kind: tlsrpt.PolicySTS, result: tlsrpt.HostMismatch},
		"none":         {cert: "x.them.example", policy: policy(mtasts.None), trusted: true, status: Delivered, kind: tlsrpt.PolicyNone},
		"no policy":    {cert: "x.them.example", trusted: true, status: Delivered, kind: tlsrpt.PolicyNone},
		"without both": {cert: "x.them.example", trusted: true, status: Delivered, kind: tlsrpt.PolicyNone, result: tlsrpt.NoSTARTTLS, change: func(h *host) { h.tls = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			config, pool := certificate(t, tc.cert)
			h := &host{tls: config}
			n := newInternet(t)
			n.host("mx.them.example", h)
			n.domain("them.example", "mx.them.example")
			c := n.client()
			c.RootCAs = x509.NewCertPool()
			if tc.trusted {
				c.RootCAs = pool
			}
			if tc.change != nil {
				tc.change(h)
			}
			e := envelope()
			e.STS = tc.policy
			r := c.Direct(t.Context(), "them.example", e, hello)
			checkResult(t, r, h, tc.status, tc.by, tc.kind, tc.result)
			if tc.status == Temporary && !strings.Contains(r.Reply, "MTA-STS policy") {
				t.Errorf("it says %q", r.Reply)
			}
		})
	}
}

// TestTestingReportsAnotherMX: an MX host that a policy under test does not name is reported, and
// gets the message.
func TestTestingReportsAnotherMX(t *testing.T) {
	c, _, h := signedHost(t, "mx.them.example")
	e := envelope()
	e.STS = policy(mtasts.Testing, "mx.elsewhere.example")
	r := c.Direct(t.Context(), "them.example", e, hello)
	want(t, r, Delivered, 250, "2.0.0")
	if len(h.received()) != 1 || len(r.Sessions) != 2 || r.Sessions[0].Result != tlsrpt.Failed {
		t.Errorf("sessions %+v", r.Sessions)
	}
}

// TestNextMXServesWhereTheFirstFails: a policy forbids a host, not the domain.
func TestNextMXServesWhereTheFirstFails(t *testing.T) {
	config, pool := certificate(t, "good.them.example")
	bad, good := &host{tls: config}, &host{tls: config}
	n := newInternet(t)
	n.host("bad.them.example", bad)
	n.host("good.them.example", good)
	n.domain("them.example", "bad.them.example", "good.them.example")
	c := n.client()
	c.RootCAs = pool
	e := envelope()
	e.STS = policy(mtasts.Enforce, "*.them.example")
	r := c.Direct(t.Context(), "them.example", e, hello)
	want(t, r, Delivered, 250, "2.0.0")
	if len(bad.received()) != 0 || len(good.received()) != 1 || len(r.Attempts) != 2 || !errors.As(r.Attempts[0].Err, &x509.HostnameError{}) {
		t.Errorf("attempts %+v", r.Attempts)
	}
	if results := []string{r.Sessions[0].Result, r.Sessions[1].Result}; !slices.Equal(results, []string{tlsrpt.HostMismatch, ""}) {
		t.Errorf("sessions %+v", r.Sessions)
	}
}
