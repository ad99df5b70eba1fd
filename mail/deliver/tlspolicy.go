package deliver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/dane"
	"github.com/mailstead/mailstead/mail/mtasts"
	"github.com/mailstead/mailstead/mail/tlsrpt"
)

// Values of Attempt.Authenticated: how the host was authenticated.
const (
	ByDANE        = "dane"
	BySTS         = "mta-sts"
	ByCertificate = "certificate" // a valid certificate for a name that comes from DNS without DNSSEC
)

// A Session is the TLS result of one new connection, or of the failure to connect, as TLS reports
// count it (RFC 8460).
type Session struct {
	Policy   string   // tlsrpt.PolicyTLSA, PolicySTS or PolicyNone
	Strings  []string // the lines of the policy as published
	MXHosts  []string // MX patterns of an MTA-STS policy
	Host, IP string
	Result   string // result type of RFC 8460 section 4.3; "" for success
	Reason   string // error text of a failure
}

var (
	errNoTLS        = errors.New("the host does not offer STARTTLS")
	errNotInSTS     = errors.New("the MTA-STS policy does not name this MX host")
	errTLSRefused   = errors.New("the host refused STARTTLS")
	errNotProven    = errors.New("the message requires TLS, and neither DNSSEC nor MTA-STS validates the name of the host")
	errNoRequireTLS = errors.New("the message requires TLS for all hops, which the host does not offer (REQUIRETLS)")
)

// requiresTLS reports whether the policy forbids sending without TLS.
func (p tlsPolicy) requiresTLS() bool { return p != tlsOpportunistic && p != tlsNone }

// requireTLS sets the TLS policy of a target to what the recipient's domain and the message
// require. It returns a failure if the target cannot meet these requirements.
func (d *delivery) requireTLS(ctx context.Context, t *target) *failure {
	if f := d.requirePublishedTLS(ctx, t); f != nil {
		return f
	}
	if !d.env.RequireTLS && !d.env.VerifyTLS {
		return nil
	}
	published := t.hop.tls
	if published == tlsOpportunistic || published == tlsEncrypted {
		t.hop.tls = tlsVerified
	}
	if t.hop.tls == tlsNone {
		return d.tlsUnavailableFailure(t.hop, &failure{stage: stageConnect, err: fmt.Errorf("%s: %w", t.hop.host, errNoTLS), enhanced: "4.7.4"})
	}
	proven := t.secure || t.implicitMX || t.hop.relay || published == tlsSTS || d.env.STS != nil && d.env.STS.Mode == mtasts.Testing && d.env.STS.Matches(t.hop.host)
	if d.env.RequireTLS && (!proven || t.literal) {
		return d.tlsUnavailableFailure(t.hop, &failure{err: fmt.Errorf("%s: %w", t.hop.host, errNotProven), tls: tlsrpt.Failed})
	}
	return nil
}

// tlsUnavailableFailure returns the failure for a host that cannot be reached over the required
// TLS. That is f, unless the message has RequireTLS (RFC 8689): then the failure is permanent, and
// other hosts are tried.
func (d *delivery) tlsUnavailableFailure(h hop, f *failure) *failure {
	if !d.env.RequireTLS {
		return f
	}
	out := &failure{stage: stageConnect, status: Permanent, enhanced: "5.7.30", err: f.err, tls: f.tls}
	if out.err == nil {
		out.err = fmt.Errorf("%s: %s", h.host, f.reply)
	}
	if h.relay {
		out.stage = stageHello // a relay is the only host
	}
	return out
}

// requirePublishedTLS sets the TLS policy of a target to what the recipient's domain publishes:
// DANE if DNSSEC validates the name of the host, otherwise MTA-STS (RFC 8461 section 2).
func (d *delivery) requirePublishedTLS(ctx context.Context, t *target) *failure {
	if d.env.TLSOptional && !d.env.RequireTLS || t.hop.relay || t.literal {
		return nil
	}
	if t.secure {
		if f := d.requireDANE(ctx, t); f != nil || t.hop.tls != tlsOpportunistic {
			return f
		}
	}
	p := d.env.STS
	if p == nil || p.Mode == mtasts.None {
		return nil
	}
	if p.Matches(t.hop.host) {
		if p.Mode == mtasts.Enforce {
			t.hop.tls = tlsSTS
		}
		return nil
	}
	f := &failure{stage: stageConnect, err: fmt.Errorf("%s: %w", t.hop.host, errNotInSTS), enhanced: "4.7.5", tls: tlsrpt.Failed}
	d.addSession(t.hop, netip.Addr{}, nil, f)
	if p.Mode == mtasts.Testing {
		return nil
	}
	return f
}

// requireDANE looks up the addresses of the host and its TLSA records with DNSSEC (RFC 7672 section
// 2.2). Records that are secure but unusable still require TLS. If a look-up fails, requireDANE
// returns a failure, so that no connection without TLS is made.
func (d *delivery) requireDANE(ctx context.Context, t *target) *failure {
	ctx, cancel := context.WithTimeout(ctx, d.client.Timeouts.withDefaults().DNS)
	defer cancel()
	addrs, answer, err := d.client.DANE.LookupHost(ctx, t.hop.host)
	if err != nil {
		return &failure{stage: stageConnect, err: err, enhanced: "4.4.3"}
	}
	if len(addrs) == 0 {
		return &failure{stage: stageConnect, err: fmt.Errorf("look up %s: %w", t.hop.host, errNoAddress), enhanced: "5.4.4", status: Permanent}
	}
	t.addrs = addrs
	if !answer.Secure {
		return nil
	}
	for _, base := range slices.Compact([]string{answer.Name, t.hop.host}) {
		records, secure, err := d.client.DANE.LookupTLSA(ctx, base, t.hop.port)
		if err != nil {
			f := &failure{stage: stageConnect, err: err, enhanced: "4.7.5", tls: tlsrpt.DNSSECInvalid}
			t.hop.tls = tlsDANE
			d.addSession(t.hop, netip.Addr{}, nil, f)
			return f
		}
		if secure && len(records) > 0 {
			t.hop.requireTLSA(records, base, d.domain())
			return nil
		}
	}
	return nil
}

// requireTLSA makes the hop require the TLSA records. base is the name at which they were found,
// domain the recipient's domain.
func (h *hop) requireTLSA(records []dane.Record, base, domain string) {
	h.tls, h.sni = tlsEncrypted, base
	var lines []string
	for _, r := range records {
		lines = append(lines, r.String())
		if r.Usable() {
			h.tls = tlsDANE
		}
	}
	slices.Sort(lines)
	h.tlsa = strings.Join(lines, "\n")
	if slices.ContainsFunc(records, func(r dane.Record) bool { return r.Usable() && r.Usage == dane.UsageTA }) {
		h.names = base + " " + domain // RFC 7672 section 3.2.2
	}
}

// tlsaRecords returns the TLSA records of the hop.
func (h hop) tlsaRecords() []dane.Record {
	var out []dane.Record
	for line := range strings.SplitSeq(h.tlsa, "\n") {
		if r, err := dane.ParseRecord(line); err == nil {
			out = append(out, r)
		}
	}
	return out
}

// tlsConfig returns the TLS configuration for a handshake with the hop.
func (c *Client) tlsConfig(h hop, policy tlsPolicy) *tls.Config {
	config := &tls.Config{ServerName: h.host, RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12}
	switch policy {
	case tlsOpportunistic, tlsEncrypted:
		config.InsecureSkipVerify = true     // a connection that fails verification is still better than plain text
		config.MinVersion = tls.VersionTLS10 // an old version of TLS is better than plain text too (RFC 7435 section 3)
	case tlsDANE:
		config.InsecureSkipVerify = true // VerifyConnection verifies by DANE
		config.VerifyConnection = func(state tls.ConnectionState) error {
			return dane.Verify(h.tlsaRecords(), state.PeerCertificates, strings.Fields(h.names), time.Now())
		}
	}
	if h.sni != "" {
		config.ServerName = h.sni
	}
	return config
}

// recordTLS stores in the session the TLS version, the cipher and how the host was authenticated.
func (s *session) recordTLS(c *Client, policy tlsPolicy, state tls.ConnectionState) {
	s.tls = tls.VersionName(state.Version) + " " + tls.CipherSuiteName(state.CipherSuite)
	switch policy {
	case tlsDANE:
		s.auth = ByDANE
	case tlsSTS:
		s.auth = BySTS
	case tlsVerified, tlsImplicit:
		s.auth = ByCertificate
	default:
		s.unverified = c.verifyCertificate(state, s.hop.host)
		if s.unverified == nil {
			s.auth = ByCertificate
		}
	}
}

// verifyCertificate verifies the certificate of a connection whose policy does not require a valid
// one.
func (c *Client) verifyCertificate(state tls.ConnectionState, host string) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the host sent no certificate")
	}
	opts := x509.VerifyOptions{DNSName: host, Roots: c.RootCAs, Intermediates: x509.NewCertPool()}
	for _, cert := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(opts)
	return err
}

// tlsResult returns the result type for a handshake error in a TLS report (RFC 8460 section 4.3).
func tlsResult(err error) string {
	invalid := x509.CertificateInvalidError{}
	switch {
	case errors.Is(err, errNoTLS):
		return tlsrpt.NoSTARTTLS
	case errors.As(err, &x509.HostnameError{}):
		return tlsrpt.HostMismatch
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return tlsrpt.Expired
	case errors.As(err, &x509.UnknownAuthorityError{}), errors.As(err, &invalid):
		return tlsrpt.NotTrusted
	case errors.Is(err, dane.ErrMismatch):
		return tlsrpt.TLSAInvalid
	}
	return tlsrpt.Failed
}

// addSession appends to d.sessions the TLS result of a session, or of the failure f to make one.
// It skips relays and failures that are not about TLS.
func (d *delivery) addSession(h hop, ip netip.Addr, s *session, f *failure) {
	if h.relay || f != nil && f.tls == "" || s != nil && f == nil && h.tls == tlsNone {
		return
	}
	out := Session{Policy: tlsrpt.PolicyNone, Host: h.host}
	if ip.IsValid() {
		out.IP = ip.String()
	}
	p := d.env.STS
	switch {
	case h.tls == tlsDANE || h.tls == tlsEncrypted:
		out.Policy, out.Strings = tlsrpt.PolicyTLSA, strings.FieldsFunc(h.tlsa, func(r rune) bool { return r == '\n' })
	case p != nil && p.Mode != mtasts.None:
		out.Policy, out.Strings, out.MXHosts = tlsrpt.PolicySTS, p.Lines(), p.MX
	}
	switch {
	case f != nil:
		out.Result, out.Reason = f.tls, f.text()
	case s.tls == "":
		out.Result, out.Reason = tlsrpt.NoSTARTTLS, errNoTLS.Error()
	case out.Policy == tlsrpt.PolicySTS && s.unverified != nil: // the policy is in mode testing; otherwise there would be no session
		out.Result, out.Reason = tlsResult(s.unverified), printableLine(s.unverified.Error(), maxReplyText)
	}
	d.sessions = append(d.sessions, out)
}

// explainPolicy adds to the error of f which policy requires TLS.
func (d *delivery) explainPolicy(h hop, f *failure) *failure {
	if f.tls == "" || f.err == nil {
		return f
	}
	switch {
	case f.tls == tlsrpt.DNSSECInvalid:
		f.err = fmt.Errorf("cannot determine whether DANE is in force for %s: %w", h.host, f.err)
	case h.tls == tlsSTS:
		f.err = fmt.Errorf("the MTA-STS policy of %s is enforced: %w", d.domain(), f.err)
	case h.tls == tlsDANE, h.tls == tlsEncrypted:
		f.err = fmt.Errorf("DANE is in force for %s: %w", h.host, f.err)
	}
	return f
}

// domain returns the recipient's domain.
func (d *delivery) domain() string { return d.env.To[strings.LastIndexByte(d.env.To, '@')+1:] }
