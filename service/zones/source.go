package zones

import (
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
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// A zoneSource has everything that a zone is built from. All of it was read in one transaction.
type zoneSource struct {
	Spec   dnsprov.Spec
	serial uint32
	key    *builtin.Key         // nil: the zone is not signed
	below  []builtin.Delegation // zones below this one that are served here
	now    func() time.Time     // the clock for signatures
	owner  string               // the ID of the domain whose questions are counted; "": they are not
}

// CheckZone returns an error if the zone of a domain, as the data in the transaction describes it,
// could not be served.
func (s *Service) CheckZone(tx *store.Tx, d *store.Domain) error {
	_, err := s.zoneSource(tx, d).Zone()
	return err
}

// Records returns the records of a domain's zone with the data in the transaction.
func (s *Service) Records(tx *store.Tx, d *store.Domain) []dnsprov.Record {
	return dnsprov.Wanted(s.zoneSpec(tx, d, zonedata.LiveRecords(tx, d)), dnsprov.Builtin)
}

// zoneSource reads what the zone of a domain is built from.
func (s *Service) zoneSource(tx *store.Tx, d *store.Domain) *zoneSource {
	return s.zoneSourceOf(tx, d, zonedata.LiveRecords(tx, d))
}

// zoneSourceOf is like zoneSource for a caller that has read the custom records.
func (s *Service) zoneSourceOf(tx *store.Tx, d *store.Domain, custom []*store.CustomRecord) *zoneSource {
	// The serial is the time of the zone's last change in Unix seconds, plus the number of changes
	// that concerned all zones.
	serial := uint32(d.ZoneChangedAt.Unix())
	if base, err := store.ZoneBases.Get(tx, store.ZoneBaseID); err == nil {
		serial += base.Changes
	}
	src := &zoneSource{Spec: s.zoneSpec(tx, d, custom), serial: serial, key: s.zoneKey(d), below: s.delegations(tx, d), now: s.Now}
	if d.DNSProvider == dnsprov.Builtin {
		src.owner = d.ID
	}
	return src
}

// zoneSpec returns the specification of all records of a domain, including the custom records.
func (s *Service) zoneSpec(tx *store.Tx, d *store.Domain, custom []*store.CustomRecord) dnsprov.Spec {
	spec := zonedata.Spec(s.Core, d)
	spec.MailKeys = s.tlsaDigests(tx, d)
	for _, r := range custom {
		spec.Custom = append(spec.Custom, zonedata.CustomRecord(r))
	}
	return spec
}

// tlsaDigests returns the digests for the TLSA records (DANE) of this host: that of the key in use,
// and that of the key of the next certificate. It returns none if the zone of d does not contain
// the host's name or is not signed. It also returns none if the next key is not known, as for a
// certificate from a file.
func (s *Service) tlsaDigests(tx *store.Tx, d *store.Domain) []string {
	host := s.Config.Hostname
	if s.Config.ACME == nil || !s.Config.ACME.Host || d.DNSSEC == nil || !dnsprov.IsWithin(host, d.Name) {
		return nil
	}
	row, err := store.Certificates.Get(tx, store.HostCertificate)
	if err != nil || len(row.Chain) == 0 || len(row.NextDigest) == 0 || !slices.Contains(row.Names, host) {
		return nil // without TLSA records mail still arrives
	}
	leaf, err := x509.ParseCertificate(row.Chain[0])
	if err != nil {
		return nil
	}
	digest := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return []string{hex.EncodeToString(digest[:]), hex.EncodeToString(row.NextDigest)}
}

// delegations returns the zones directly below a domain that are also served here.
func (s *Service) delegations(tx *store.Tx, d *store.Domain) []builtin.Delegation {
	var out []builtin.Delegation
	for _, id := range store.DomainsUnder.Keys(tx, store.ReverseLabels(d.Name), "") {
		if id == d.ID {
			continue
		}
		sub, err := store.Domains.Get(tx, id)
		if err != nil || sub.Name == d.Name || sub.Gone() || !s.serves(tx, sub) {
			continue
		}
		if n := len(out); n > 0 && strings.HasSuffix(sub.Name, "."+out[n-1].Name) {
			continue // sub is below the zone that was added last
		}
		below := builtin.Delegation{Name: sub.Name, Nameservers: s.Config.Nameservers}
		if sub.DNSSEC != nil {
			below.Key = sub.DNSSEC.Public
		}
		out = append(out, below)
	}
	return out
}

// options returns the options of the zone.
func (src *zoneSource) options() builtin.Options {
	return builtin.Options{Nameservers: src.Spec.Nameservers, Serial: src.serial, Key: src.key, Delegations: src.below, Now: src.now, Owner: src.owner}
}

// Zone builds the zone but does not serve it.
func (src *zoneSource) Zone() (*builtin.Zone, error) {
	return builtin.NewZone(src.Spec.Domain, dnsprov.Wanted(src.Spec, dnsprov.Builtin), src.options())
}

// publish serves the zone instead of the previous one.
func (src *zoneSource) publish(served *builtin.Zones) error {
	zone, err := src.Zone()
	if err != nil {
		return err
	}
	served.Put(zone)
	return nil
}

// ManagedRecords returns the managed records that a DNS check looks up. It leaves out custom
// records, and NS records, which are checked separately. If it returns an error, it also returns
// the records that do not depend on custom records.
func (s *Service) ManagedRecords(d *store.Domain) ([]dnsprov.Record, error) {
	if d.DNSProvider == store.DomainProviderExternal {
		return nil, nil
	}
	spec := zonedata.Spec(s.Core, d)
	err := s.Store.View(func(tx *store.Tx) error {
		spec = s.zoneSpec(tx, d, zonedata.LiveRecords(tx, d))
		return nil
	})
	return slices.DeleteFunc(dnsprov.Wanted(spec, d.DNSProvider), func(r dnsprov.Record) bool {
		return r.Type == "CAA" || r.Type == "TLSA" || r.Purpose == dnsprov.PurposeNS || r.Purpose == dnsprov.PurposeCustom || r.Purpose == dnsprov.PurposeACME
	}), err
}

// hostZone returns the zone of the installation's own names: the host and the nameservers below the
// host's parent domain. It is used in the sandbox, where nobody else serves these names. It returns
// nil otherwise.
func hostZone(s *core.Core) *builtin.Zone {
	c := s.Config
	_, parent, ok := strings.Cut(c.Hostname, ".")
	if !c.Sandbox || !ok || len(c.Nameservers) == 0 {
		return nil
	}
	var records []dnsprov.Record
	for _, name := range append([]string{c.Hostname}, c.Nameservers...) {
		if strings.HasSuffix(name, "."+parent) {
			ips, ok := c.OtherNameservers()[name]
			if !ok {
				ips = c.PublicIPs
			}
			for _, ip := range ips {
				records = append(records, addressRecord(name, ip.Unmap()))
			}
		}
	}
	records = append(records, dnsprov.Record{Name: c.Hostname, Type: "TXT", Value: spf.ForHost(s.Settings().Sending.Addresses()), TTL: dnsprov.ManagedTTL})
	zone, err := builtin.NewZone(parent, records, builtin.Options{Nameservers: c.Nameservers, Serial: 1})
	if err != nil { // for example, the host name is not valid
		return nil
	}
	return zone
}

// addressRecord returns an A or AAAA record.
func addressRecord(name string, ip netip.Addr) dnsprov.Record {
	r := dnsprov.Record{Name: name, Type: "A", Value: ip.String(), TTL: 3600}
	if ip.Is6() {
		r.Type = "AAAA"
	}
	return r
}
