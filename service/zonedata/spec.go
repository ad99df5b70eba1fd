// Package zonedata says what the zone of a domain has: the records that mail needs, and those that
// its owner has added. It does not know where they go: service/zones serves them, and service/edge
// writes them at the DNS providers of others.
package zonedata

import (
	"net/netip"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Selectors of the DKIM keys of every domain.
const (
	RSASelector     = "ms1"
	Ed25519Selector = "ms1e"
)

// Spec returns the specification of the managed records of a domain.
func Spec(s *core.Core, d *store.Domain) dnsprov.Spec {
	c := s.Config
	spec := dnsprov.Spec{
		Domain: d.Name, MailHost: c.Hostname, Nameservers: c.Nameservers, Elsewhere: c.OtherNameservers(), DMARC: d.DMARC,
		Apex: ApexSpec(s, d), RedirectWWW: d.RedirectsWWW(), MXElsewhere: d.MXMode() == store.MXElsewhere,
		DMARCReports: !c.Sandbox,
	}
	if d.MX != nil {
		for _, mx := range d.MX.Records {
			spec.MX = append(spec.MX, dnsprov.Record{Name: d.Name, Type: "MX", Value: mx.Host, Priority: mx.Priority, TTL: mx.TTL})
		}
	}
	if d.SPF != nil {
		spec.SPFExtra, spec.SPFAll = d.SPF.Extra, d.SPF.All
	}
	setClientPorts(s, &spec)
	spec.SendFrom = s.Settings().Sending.Addresses()
	for _, ip := range c.PublicIPs {
		if ip.Unmap().Is4() {
			spec.IPv4 = append(spec.IPv4, ip.Unmap())
		} else {
			spec.IPv6 = append(spec.IPv6, ip)
		}
	}
	for _, c := range d.Challenges {
		spec.Challenges = append(spec.Challenges, dnsprov.Record{Name: c.Name, Value: c.Value})
	}
	for _, k := range d.DKIM {
		spec.DKIM = append(spec.DKIM, dnsprov.DKIMKey{Selector: k.Selector, Record: k.Record})
	}
	return spec
}

// ApexSpec says where the addresses of a domain itself lead. Those of the owner that are custom
// records are not part of it.
func ApexSpec(s *core.Core, d *store.Domain) dnsprov.Apex {
	out := dnsprov.Apex{Elsewhere: d.ApexMode() != store.ApexHere, Critical: d.CompletedAt.IsZero(), Accepts: dnsprov.AcceptsPublic}
	if s.Config.Sandbox {
		out.Accepts = dnsprov.AcceptsAny
	}
	if !out.Elsewhere || d.Apex == nil {
		return out
	}
	texts := d.Apex.AliasAddresses
	if d.DNSProvider == store.DomainProviderManual {
		texts, out.Alias = d.Apex.Addresses, d.Apex.Alias
	}
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil { // else it was not stored by us
			out.Addresses = append(out.Addresses, ip)
		}
	}
	return out
}

// setClientPorts sets the ports for mail clients in a specification. It leaves out ports without
// TLS.
func setClientPorts(s *core.Core, spec *dnsprov.Spec) {
	c := s.Config
	spec.HTTPS, spec.HTTPSPort = c.HTTPS, uint16(c.HTTPSPort)
	for _, of := range []struct {
		servers       []core.MailServer
		tls, starttls *uint16
	}{
		{core.MailServers(c.Hostname, c.SubmissionPort, c.SubmissionBeside, c.SMTPSecurity), &spec.Submissions, &spec.Submission},
		{core.MailServers(c.Hostname, c.IMAPPort, c.IMAPBeside, c.IMAPSecurity), &spec.IMAPS, &spec.IMAP},
	} {
		for _, server := range of.servers {
			switch server.Security {
			case "tls":
				*of.tls = uint16(server.Port)
			case "starttls":
				*of.starttls = uint16(server.Port)
			}
		}
	}
}
