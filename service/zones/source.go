package zones

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const challengeTTL = 60 // seconds

// Selectors of the DKIM keys of every domain.
const (
	RSASelector     = "ms1"
	Ed25519Selector = "ms1e"
)

// A zoneSource is what a zone is made from, as a transaction sees it.
type zoneSource struct {
	Spec   dnsprov.Spec
	serial uint32
	key    *builtin.Key // nil: it is not signed
	below  []builtin.Delegation
	now    func() time.Time // of signatures
}

// CheckZone tells why the zone of a domain as a transaction sees it cannot be served.
func (s *Service) CheckZone(tx *store.Tx, d *store.Domain) error {
	_, err := s.zoneSource(tx, d).Zone()
	return err
}

// Records are those of the zone of a domain as a transaction sees it.
func (s *Service) Records(tx *store.Tx, d *store.Domain) []dnsprov.Record {
	return dnsprov.Wanted(s.zoneSpec(tx, d), dnsprov.Builtin)
}

func (s *Service) zoneSource(tx *store.Tx, d *store.Domain) *zoneSource {
	// The serial is the time of the last change, moved on by what all zones have had in common.
	serial := uint32(d.ZoneChangedAt.Unix())
	if base, err := store.ZoneBases.Get(tx, store.ZoneBaseID); err == nil {
		serial += base.Changes
	}
	return &zoneSource{Spec: s.zoneSpec(tx, d), serial: serial, key: s.zoneKey(d), below: s.delegations(tx, d), now: s.Now}
}

// zoneSpec is what all records of a domain are made from, those of the owner's own too.
func (s *Service) zoneSpec(tx *store.Tx, d *store.Domain) dnsprov.Spec {
	spec := s.Spec(d)
	spec.MailKeys = s.mailKeys(tx, d)
	for _, r := range store.CustomRecordsByDomain.Asc(tx, d.ID, "") {
		spec.Custom = append(spec.Custom, ownRecord(r))
	}
	return spec
}

// ownRecord is an owner's record as it is published.
func ownRecord(r *store.CustomRecord) dnsprov.Record {
	return dnsprov.Record{Name: r.Name, Type: r.Type, Value: r.Value, TTL: uint32(r.TTL)}
}

// Spec is what the managed records of a domain are made from.
func (s *Service) Spec(d *store.Domain) dnsprov.Spec {
	c := s.Config
	spec := dnsprov.Spec{
		Domain: d.Name, MailHost: c.Hostname, Nameservers: c.Nameservers, Elsewhere: c.Elsewhere(), DMARC: d.DMARC,
		Redirect: d.RedirectURL != "", RedirectWWW: d.RedirectsWWW(),
		DMARCReports: !c.Sandbox,
	}
	s.clientPorts(&spec)
	spec.SendFrom = c.Sending.Addresses()
	for _, ip := range c.PublicIPs {
		if ip.Unmap().Is4() {
			spec.IPv4 = append(spec.IPv4, ip.Unmap())
		} else {
			spec.IPv6 = append(spec.IPv6, ip)
		}
	}
	for _, c := range d.Challenges {
		spec.Challenges = append(spec.Challenges, dnsprov.Record{Name: c.Name, Type: "TXT", Value: c.Value, TTL: challengeTTL, Purpose: dnsprov.PurposeACME})
	}
	for _, k := range d.DKIM {
		spec.DKIM = append(spec.DKIM, dnsprov.DKIMKey{Selector: k.Selector, Record: k.Record})
	}
	return spec
}

// clientPorts notes in a domain's spec what mail clients find here. Ports without TLS are nobody's
// to find.
func (s *Service) clientPorts(spec *dnsprov.Spec) {
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

// mailKeys are the digests of the keys by which other servers know this host, as its zone has them:
// that of its certificate and the next. None while it has no certificate of which we know the next
// key, such as one from a file, and none for a zone that is not signed or does not have the host's
// name.
func (s *Service) mailKeys(tx *store.Tx, d *store.Domain) []string {
	host := s.Config.Hostname
	if s.Config.ACME == nil || !s.Config.ACME.Host || d.DNSSEC == nil || host != d.Name && !strings.HasSuffix(host, "."+d.Name) {
		return nil
	}
	row, err := store.Certificates.Get(tx, store.HostCertificate)
	if err != nil || len(row.Chain) == 0 || len(row.NextDigest) == 0 || !slices.Contains(row.Names, host) {
		return nil // without them mail comes all the same
	}
	leaf, err := x509.ParseCertificate(row.Chain[0])
	if err != nil {
		return nil
	}
	digest := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return []string{hex.EncodeToString(digest[:]), hex.EncodeToString(row.NextDigest)}
}

// delegations are the zones below a domain that are served here too, without those further below.
func (s *Service) delegations(tx *store.Tx, d *store.Domain) []builtin.Delegation {
	var out []builtin.Delegation
	for _, id := range store.DomainsUnder.Keys(tx, store.TreeKey(d.Name), "") {
		if id == d.ID {
			continue
		}
		sub, err := store.Domains.Get(tx, id)
		if err != nil || sub.Name == d.Name || sub.Gone() || !s.serves(tx, sub) {
			continue
		}
		if n := len(out); n > 0 && strings.HasSuffix(sub.Name, "."+out[n-1].Name) {
			continue // in the order of the index a domain comes right before those below it
		}
		below := builtin.Delegation{Name: sub.Name, Nameservers: s.Config.Nameservers}
		if sub.DNSSEC != nil {
			below.Key = sub.DNSSEC.Public
		}
		out = append(out, below)
	}
	return out
}

func (src *zoneSource) options() builtin.Options {
	return builtin.Options{Nameservers: src.Spec.Nameservers, Serial: src.serial, Key: src.key, Delegations: src.below, Now: src.now}
}

// Zone makes the zone without serving it.
func (src *zoneSource) Zone() (*builtin.Zone, error) {
	return builtin.NewZone(src.Spec.Domain, dnsprov.Wanted(src.Spec, dnsprov.Builtin), src.options())
}

// publish brings what is served of a domain to what it should be.
func (src *zoneSource) publish(served *builtin.Zones) error {
	p := &builtin.Provider{Zones: served, Options: src.options()}
	at := dnsprov.ZoneRef{Domain: src.Spec.Domain}
	have, err := p.Records(context.Background(), at)
	if err != nil {
		return err
	}
	_, err = p.Apply(context.Background(), at, dnsprov.Plan(have, dnsprov.Wanted(src.Spec, dnsprov.Builtin)))
	return err
}

// ManagedRecords are those that can be looked up, without the owner's own; the delegation is looked
// at on its own. With an error come those that there are without regard to the owner's.
func (s *Service) ManagedRecords(d *store.Domain) ([]dnsprov.Record, error) {
	if d.DNSProvider == store.DomainProviderExternal {
		return nil, nil
	}
	spec := s.Spec(d)
	err := s.Store.View(func(tx *store.Tx) error {
		spec = s.zoneSpec(tx, d)
		return nil
	})
	return slices.DeleteFunc(dnsprov.Wanted(spec, d.DNSProvider), func(r dnsprov.Record) bool {
		return r.Type == "CAA" || r.Type == "TLSA" || r.Purpose == dnsprov.PurposeNS || r.Purpose == dnsprov.PurposeCustom || r.Purpose == dnsprov.PurposeACME
	}), err
}

// hostZone is the zone of the installation's own names in the sandbox, where nobody else serves
// them: the host and the nameservers below the host's parent. nil if there is none.
func hostZone(c core.Config) *builtin.Zone {
	_, parent, ok := strings.Cut(c.Hostname, ".")
	if !c.Sandbox || !ok || len(c.Nameservers) == 0 {
		return nil
	}
	var records []dnsprov.Record
	for _, name := range append([]string{c.Hostname}, c.Nameservers...) {
		if strings.HasSuffix(name, "."+parent) {
			ips, ok := c.Elsewhere()[name]
			if !ok {
				ips = c.PublicIPs
			}
			for _, ip := range ips {
				records = append(records, addressRecord(name, ip.Unmap()))
			}
		}
	}
	records = append(records, dnsprov.Record{Name: c.Hostname, Type: "TXT", Value: spf.ForHost(c.Sending.Addresses()), TTL: dnsprov.ManagedTTL})
	zone, err := builtin.NewZone(parent, records, builtin.Options{Nameservers: c.Nameservers, Serial: 1})
	if err != nil { // such as a host name that no zone can hold
		return nil
	}
	return zone
}

func addressRecord(name string, ip netip.Addr) dnsprov.Record {
	r := dnsprov.Record{Name: name, Type: "A", Value: ip.String(), TTL: 3600}
	if ip.Is6() {
		r.Type = "AAAA"
	}
	return r
}
