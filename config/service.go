package config

import (
	"cmp"
	"net"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/service/core"
)

// sandboxHost is the host name of the sandbox.
const sandboxHost = "mail.mailstead.test"

// Service gives the configuration of the service. What depends on the running server is not set:
// resolvers, ports, certificate authorities, the host's addresses.
func (s *Settings) Service() core.Config {
	c := core.Config{
		Hostname: s.Hostname.text, Sandbox: s.Sandbox(), Outbound: s.Outbound.text, MXPort: int(s.MXPort), AllowPrivate: bool(s.Private),
		DNSCheckInterval: s.Zones.CheckInterval.d, Catalog: s.Zones.Catalog.text, Secondaries: s.Zones.secondaries(),
		Limits: s.Limits.service(), Spam: s.Spam.service(), ACME: s.acme(), BaseURL: s.PlannedURL(),
	}
	if s.Sandbox() {
		c.Hostname = sandboxHost
	}
	c.Nameservers = nameservers(c.Hostname, c.Secondaries)
	for i := range s.Relay {
		c.Relays = append(c.Relays, s.Relay[i].service())
	}
	return c
}

// nameservers are the names in the NS records of zones: our own two, beside the host's name, and
// those of the secondaries that have one.
func nameservers(hostname string, secondaries []builtin.Secondary) []string {
	parent := hostname
	if _, after, ok := strings.Cut(hostname, "."); ok {
		parent = after
	}
	out := []string{"ns1." + parent, "ns2." + parent}
	for _, one := range secondaries {
		if one.Nameserver != "" && !slices.Contains(out, one.Nameserver) {
			out = append(out, one.Nameserver)
		}
	}
	return out
}

// TLS tells whether there are certificates, from files or by ACME. Without them no listener speaks
// TLS.
func (s *Settings) TLS() bool { return s.TLSCert != "" || s.Directory.On() }

// acme says which certificate authority gives certificates that are in no file; nil: none.
func (s *Settings) acme() *core.ACME {
	if !s.Directory.On() {
		return nil
	}
	return &core.ACME{
		Directory: s.Directory.text, Email: s.ACMEEmail.text, EABKeyID: s.EABKeyID, EABKey: s.EABKey.key, Host: s.TLSCert == "",
	}
}

// BehindProxy tells whether clients reach this host's name through a proxy, which speaks HTTPS to
// them.
func (s *Settings) BehindProxy() bool { return len(s.Proxies) > 0 && !s.Sandbox() }

// PlannedURL is where a server with these settings will be reached; "" in the sandbox, whose port
// is known only when it listens.
func (s *Settings) PlannedURL() string {
	host := s.Hostname.text
	if host == "" {
		return ""
	}
	if s.BehindProxy() {
		return "https://" + host
	}
	scheme, at, usual := "http", s.HTTP.text, "80"
	if s.HTTPTLS.On() {
		scheme, at, usual = "https", s.HTTPTLS.text, "443"
	}
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return ""
	}
	if port != usual {
		host = net.JoinHostPort(host, port)
	}
	return scheme + "://" + host
}

// limitSettings is the table [limits].
type limitSettings struct {
	Plan               plan  `toml:"plan"`
	Domains            count `toml:"domains"`
	TeamUsers          count `toml:"team_users"`
	Mailboxes          count `toml:"mailboxes"`
	MailboxesPerDomain count `toml:"mailboxes_per_domain"`
	RatePerMinute      count `toml:"rate_per_minute"`
	BurstPerMinute     count `toml:"burst_per_minute"`
}

func (l *limitSettings) service() core.Limits {
	return core.Limits{
		Plan: cmp.Or(l.Plan.text, "startup"), Domains: int(cmp.Or(l.Domains, 500)), TeamUsers: int(cmp.Or(l.TeamUsers, 25)),
		Mailboxes: int(l.Mailboxes), MailboxesPerDomain: int(cmp.Or(l.MailboxesPerDomain, 100)),
		RatePerMinute: int(l.RatePerMinute), BurstPerMinute: int(l.BurstPerMinute),
	}
}
