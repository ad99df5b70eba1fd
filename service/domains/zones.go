package domains

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	challengeTTL = 60 // seconds
)

// challengeRecord is the record in which a certificate authority looks for a challenge.
func challengeRecord(c store.DNSChallenge) dnsprov.Record {
	return dnsprov.Record{Name: c.Name, Type: "TXT", Value: c.Value, TTL: challengeTTL, Purpose: dnsprov.PurposeACME}
}

// zonesAtATime is how many domains one transaction reads when the zones are made.
const zonesAtATime = 500

// A zoneSource is what a zone is made from, as a transaction sees it.
type zoneSource struct {
	Spec   dnsprov.Spec
	serial uint32
	key    *builtin.Key // nil: it is not signed
	below  []builtin.Delegation
}

// zones are the zones that we serve, in memory. What a transaction changed is noted once it has
// committed. Whoever asks next reads the store and makes the zone, so that the committer does not
// wait for that; every other query reads memory alone. A zone that changes a hundred times before
// somebody asks is made once.
type zones struct {
	served builtin.Zones
	host   *builtin.Zone // of the installation's own names, in the sandbox
	stale  atomic.Bool   // there is something in noted, or nothing has been read yet
	others *secondaries  // who copies the zones; they are told what changes

	making sync.Mutex // whoever makes zones; others wait, since they want what is made
	loaded bool       // every domain has been read; guarded by making

	mu     sync.Mutex
	noting bool            // before the first query there is nothing to keep up to date
	noted  map[string]bool // the names of zones that have changed, or are gone
}

func newZones(c core.Config) *zones {
	z := &zones{noted: map[string]bool{}, host: hostZone(c)}
	z.stale.Store(true)
	return z
}

// Zone gives the zone that encloses a name most closely and is served here. The name is lower-case,
// in the notation of the dns package.
func (s *Service) Zone(name string) (*builtin.Zone, bool) {
	z := s.zones
	if z.stale.Load() {
		s.MakeZones()
	}
	name = strings.TrimSuffix(name, ".")
	if zone, ok := z.served.Zone(name); ok {
		return zone, true
	}
	if z.host != nil && (name == z.host.Origin || strings.HasSuffix(name, "."+z.host.Origin)) {
		return z.host, true
	}
	return nil, false
}

// HostsName tells whether our own DNS server answers for a name: one at or below a domain that is
// connected here, or, in the sandbox, one of the installation's own.
func (s *Service) HostsName(name string) bool {
	_, ok := s.Zone(name)
	return ok
}

// makeZones brings the zones to what has been noted, the first time to what the store holds.
func (s *Service) MakeZones() {
	z := s.zones
	z.making.Lock()
	defer z.making.Unlock()
	if !z.loaded {
		if err := s.loadZones(); err != nil {
			s.Log.Error("read the zones of the domains", "error", err)
			return
		}
		z.loaded = true
	}
	s.makeNoted()
}

// makeNoted makes the zones that have been noted as the store has them now. The caller holds
// making.
func (s *Service) makeNoted() {
	z := s.zones
	for noted := z.take(); len(noted) > 0; noted = z.take() {
		for name := range noted {
			var src *zoneSource
			err := s.Store.View(func(tx *store.Tx) error {
				if d := s.serving(tx, name); d != nil {
					src = s.ZoneSource(tx, d)
				}
				return nil
			})
			if err != nil { // the zones of before are better than none
				s.Log.Error("read a zone", "domain", name, "error", err)
				z.putBack(noted)
				return
			}
			s.makeZone(name, src)
		}
	}
}

// take gives what has been noted, and when that is nothing says that the zones are up to date: only
// then does a query pass by the lock under which they are made.
func (z *zones) take() map[string]bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	noted := z.noted
	z.noted = map[string]bool{}
	z.stale.Store(len(noted) > 0)
	return noted
}

// putBack leaves names to whoever asks next.
func (z *zones) putBack(names map[string]bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	maps.Copy(z.noted, names)
}

// makeZone serves a zone anew; src is nil for one that is gone.
func (s *Service) makeZone(name string, src *zoneSource) {
	if src == nil {
		s.zones.served.Remove(name)
		s.zones.others.list(name, false)
		return
	}
	if err := src.publish(&s.zones.served); err != nil { // the zone of before is better than none
		s.Log.Error("make a zone", "domain", name, "error", err)
		return
	}
	s.zones.others.list(name, true)
}

func (src *zoneSource) options() builtin.Options {
	return builtin.Options{Nameservers: src.Spec.Nameservers, Serial: src.serial, Key: src.key, Delegations: src.below}
}

// zone makes the zone without serving it.
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

// note tells whoever asks next that a zone has changed, or is gone. It is called after the commit.
func (z *zones) Note(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.noting {
		z.noted[name] = true
		z.stale.Store(true)
		z.others.changed(name)
	}
}

// loadZones makes the zones for the first time. What changes meanwhile is noted; both are the
// newest state, or something newer is on its way.
func (s *Service) loadZones() error {
	if _, err := s.keepZoneBase(); err != nil {
		return err
	}
	z := s.zones
	z.mu.Lock()
	z.noting = true
	z.mu.Unlock()
	return s.readZones()
}

// readZones makes the zone of every domain, a page in each transaction.
func (s *Service) readZones() error {
	after, more := "", true
	for more {
		more = false
		err := s.Store.View(func(tx *store.Tx) error {
			n := 0
			for key, d := range store.DomainsByName.Asc(tx, "", after) {
				after = key
				if s.serves(tx, d) {
					s.makeZone(d.Name, s.ZoneSource(tx, d))
				}
				if n++; n == zonesAtATime {
					more = true
					break
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hasZone tells whether a domain is one that our DNS server answers for: builtin ones, and in the
// sandbox, where its own resolver asks it about every name that is connected, manual ones too, so
// that they can be completed offline.
func (s *Service) hasZone(d *store.Domain) bool {
	return d.DNSProvider == dnsprov.Builtin || d.DNSProvider == core.ProviderManual && s.Config.Sandbox
}

// serves tells whether our DNS server answers for a domain now, as its claim of the name allows.
func (s *Service) serves(tx *store.Tx, d *store.Domain) bool { return s.hasZone(d) && mayServe(tx, d) }

func (s *Service) ZoneSource(tx *store.Tx, d *store.Domain) *zoneSource {
	return &zoneSource{Spec: s.zoneSpec(tx, d), serial: s.zoneSerial(tx, d), key: s.zoneKey(d), below: s.delegations(tx, d)}
}

// zoneSpec is what all records of a domain are made from, those of the owner's own too.
func (s *Service) zoneSpec(tx *store.Tx, d *store.Domain) dnsprov.Spec {
	spec := s.spec(d)
	spec.MailKeys = s.Hooks.MailKeys(tx, d)
	for _, r := range store.CustomRecordsByDomain.Asc(tx, d.ID, "") {
		spec.Custom = append(spec.Custom, ownRecord(r))
	}
	return spec
}

// ownRecord is an owner's record as it is published.
func ownRecord(r *store.CustomRecord) dnsprov.Record {
	return dnsprov.Record{Name: r.Name, Type: r.Type, Value: r.Value, TTL: uint32(r.TTL)}
}

// spec is what the managed records of a domain are made from.
func (s *Service) spec(d *store.Domain) dnsprov.Spec {
	c := s.Config
	spec := dnsprov.Spec{
		Domain: d.Name, MailHost: c.Hostname, Nameservers: c.Nameservers, Elsewhere: c.Elsewhere(), DMARC: d.DMARC, Redirect: d.RedirectURL != "",
		DMARCReports: !c.Sandbox,
	}
	s.mailboxes.ClientPorts(&spec)
	for _, ip := range c.PublicIPs {
		if ip.Unmap().Is4() {
			spec.IPv4 = append(spec.IPv4, ip.Unmap())
		} else {
			spec.IPv6 = append(spec.IPv6, ip)
		}
	}
	for _, c := range d.Challenges {
		spec.Challenges = append(spec.Challenges, challengeRecord(c))
	}
	for _, k := range d.DKIM {
		spec.DKIM = append(spec.DKIM, dnsprov.DKIMKey{Selector: k.Selector, Record: k.Record})
	}
	return spec
}

// putDomain writes a domain whose records are as they were.
func (s *Service) putDomain(tx *store.Tx, d *store.Domain) error {
	d.UpdatedAt = tx.Now()
	return store.Domains.Put(tx, d)
}

// putZone writes a domain whose records have changed, its own or custom ones, and publishes them:
// here, or by a job at the edge provider.
func (s *Service) PutZone(tx *store.Tx, d *store.Domain) error {
	_, err := s.putZoneBy(tx, d)
	return err
}

// putZoneBy does what putZone does, and gives the id of the job that brings the change to the edge
// provider, or "".
func (s *Service) putZoneBy(tx *store.Tx, d *store.Domain) (jobID string, err error) {
	if err := s.serveZone(tx, d); err != nil {
		return "", err
	}
	return s.addEdgeSync(tx, d)
}

// serveZone does what putZone does, but for the edge provider, which a job of the caller's sees to.
func (s *Service) serveZone(tx *store.Tx, d *store.Domain) error {
	known, err := store.Domains.Get(tx, d.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	d.UpdatedAt = tx.Now()
	if err := s.publish(tx, d); err != nil || !s.serves(tx, d) {
		return err
	}
	if known == nil || !sameKey(known.DNSSEC, d.DNSSEC) {
		return s.PublishAbove(tx, nil, d.Name)
	}
	return nil
}

// publish writes a domain and serves its zone as it is now. The SOA serial rises each time, also
// with two changes in one second or when the clock is set back.
func (s *Service) publish(tx *store.Tx, d *store.Domain) error {
	changed := tx.Now().Truncate(time.Second)
	if next := d.ZoneChangedAt.Add(time.Second); changed.Before(next) {
		changed = next
	}
	d.ZoneChangedAt = changed
	if err := store.Domains.Put(tx, d); err != nil || !s.serves(tx, d) {
		return err
	}
	name := d.Name
	tx.After(func() { s.zones.Note(name) })
	return nil
}

// publishAbove serves anew the closest zone above each of some names, once: it says where the zones
// of those names are and who signs them. d, which may be nil, is a record that the caller may write
// again.
func (s *Service) PublishAbove(tx *store.Tx, d *store.Domain, names ...string) error {
	seen := map[string]bool{}
	for _, name := range names {
		for _, parent, more := strings.Cut(name, "."); more && !seen[parent]; _, parent, more = strings.Cut(parent, ".") {
			seen[parent] = true
			above := s.serving(tx, parent)
			if above == nil {
				continue
			}
			if d != nil && above.ID == d.ID {
				above = d
			}
			if err := s.publish(tx, above); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// serving gives the domain whose zone is served under a name; nil if there is none.
func (s *Service) serving(tx *store.Tx, name string) *store.Domain {
	if d, err := store.DomainByName.Get(tx, name); err == nil && d.Status != core.DomainDeleting {
		if s.serves(tx, d) {
			return d
		}
		return nil // it excludes the others
	}
	open := ""
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
		switch {
		case d.Status == core.DomainDeleting || d.Claim == store.ClaimLost || d.Claim == store.ClaimExpired:
			continue
		case s.serves(tx, d):
			return d
		case open != "" && open != d.AccountID:
			return nil // they are rivals, and so is whoever else claims it
		}
		open = d.AccountID
	}
	return nil
}

// dropZone serves the zone of a domain that is being deleted no more.
func (s *Service) dropZone(d *store.Domain) error {
	return s.Store.Update(func(tx *store.Tx) error { return s.claimsChanged(tx, d) })
}

// delegations are the zones below a domain that are served here too, without those further below.
func (s *Service) delegations(tx *store.Tx, d *store.Domain) []builtin.Delegation {
	var out []builtin.Delegation
	for _, id := range store.DomainsUnder.Keys(tx, store.TreeKey(d.Name), "") {
		if id == d.ID {
			continue
		}
		sub, err := store.Domains.Get(tx, id)
		if err != nil || sub.Name == d.Name || sub.Status == core.DomainDeleting || !s.serves(tx, sub) {
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
