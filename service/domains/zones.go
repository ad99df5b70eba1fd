package domains

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	challengeTTL = 60 // seconds
)

// zonesAtATime is how many domains one transaction reads when the zones are made.
const zonesAtATime = 500

// A zoneSource is what a zone is made from, as a transaction sees it.
type zoneSource struct {
	Spec   dnsprov.Spec
	serial uint32
	key    *builtin.Key // nil: it is not signed
	below  []builtin.Delegation
	now    func() time.Time // of signatures
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

// MakeZones brings the zones to what has been noted, the first time to what the store holds.
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

// Note tells whoever asks next that a zone has changed, or is gone. It is called after the commit.
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
	return d.DNSProvider == dnsprov.Builtin || d.DNSProvider == store.DomainProviderManual && s.Config.Sandbox
}

// serves tells whether our DNS server answers for a domain now, as its claim of the name allows.
func (s *Service) serves(tx *store.Tx, d *store.Domain) bool { return s.hasZone(d) && mayServe(tx, d) }

func (s *Service) ZoneSource(tx *store.Tx, d *store.Domain) *zoneSource {
	// The serial is the time of the last change, moved on by what all zones have had in common.
	serial := uint32(d.ZoneChangedAt.Unix())
	if base, err := store.ZoneBases.Get(tx, store.ZoneBaseID); err == nil {
		serial += base.Changes
	}
	return &zoneSource{Spec: s.zoneSpec(tx, d), serial: serial, key: s.zoneKey(d), below: s.delegations(tx, d), now: s.Now}
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
		Domain: d.Name, MailHost: c.Hostname, Nameservers: c.Nameservers, Elsewhere: c.Elsewhere(), DMARC: d.DMARC,
		Redirect: d.RedirectURL != "", RedirectWWW: RedirectsWWW(d),
		DMARCReports: !c.Sandbox,
	}
	s.mailboxes.ClientPorts(&spec)
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

// putDomain writes a domain whose records are as they were.
func (s *Service) putDomain(tx *store.Tx, d *store.Domain) error {
	d.UpdatedAt = tx.Now()
	return store.Domains.Put(tx, d)
}

// PutZone writes a domain whose records have changed, its own or custom ones, and publishes them:
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
	var before, now []byte // public keys
	if known != nil && known.DNSSEC != nil {
		before = known.DNSSEC.Public
	}
	if d.DNSSEC != nil {
		now = d.DNSSEC.Public
	}
	if known == nil || !bytes.Equal(before, now) {
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

// PublishAbove serves anew the closest zone above each of some names, once: it says where the zones
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
	if d, err := store.DomainByName.Get(tx, name); err == nil && !d.Gone() {
		if s.serves(tx, d) {
			return d
		}
		return nil // it excludes the others
	}
	open := ""
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
		switch {
		case d.Gone() || d.Claim == store.ClaimLost || d.Claim == store.ClaimExpired:
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

const (
	// A secondary keeps signatures that hold for ten days at least, and goes on for seven when it
	// cannot reach us: so it gets new ones before three are over. Domains that changed together are
	// spread over resignSpread.
	resignAfter   = 48 * time.Hour
	resignSpread  = 12 * time.Hour
	resignsAtOnce = 50 // zones in one transaction
)

// What the parent's DS records make of a signed zone (RFC 4035 section 4.3).
const (
	dnssecUnknown     = "unknown"
	dnssecUnpublished = "unpublished" // there are none: the zone counts as unsigned
	dnssecSecure      = "secure"
	dnssecBogus       = "bogus" // they name other keys only: resolvers that validate take no answer of ours
)

// DNSSEC is how a zone that we serve is signed, and what its owner's registrar has to be told for
// that to count.
type DNSSEC struct {
	// unpublished: your registrar has no DS record yet, so nobody checks the signatures. secure: it
	// has this one. bogus: it has only others, and resolvers that validate refuse the domain until
	// they are replaced. unknown: not looked at yet.
	Status string     `json:"status" enum:"unknown|unpublished|secure|bogus"`
	DS     []DSRecord `json:"ds"` // What to give your registrar.
	// The public key, for registrars that want it instead: flags, protocol, algorithm, key.
	DNSKEY string `json:"dnskey" words:"ours" example:"257 3 13 GojIhhXUN/u4v54ZQqGSnyhWJwaubCvTmeexv7bR6edbkrSqQpF64cYbcB7wNcP+e+MAnLr+Wi9xMWyQLc8NAA=="`
}

// A DSRecord is one DS record, in its fields and as a zone file has it.
type DSRecord struct {
	KeyTag     int    `json:"key_tag" example:"55648"`
	Algorithm  int    `json:"algorithm" example:"13"`  // 13: ECDSA P-256 with SHA-256.
	DigestType int    `json:"digest_type" example:"2"` // 2: SHA-256.
	Digest     string `json:"digest" words:"ours" example:"b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17"`
	// The record in zone file format.
	Value string `json:"value" words:"ours" example:"55648 13 2 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17"`
}

func dnssecOf(d *store.Domain) *DNSSEC {
	if d.DNSSEC == nil || d.DNSProvider != dnsprov.Builtin {
		return nil
	}
	public := builtin.PublicKey(d.DNSSEC.Public)
	ds := public.DS(d.Name)
	out := &DNSSEC{Status: d.DNSSEC.Status, DNSKEY: public.String(), DS: []DSRecord{{
		KeyTag: int(ds.KeyTag), Algorithm: int(ds.Algorithm), DigestType: int(ds.DigestType), Digest: ds.Digest, Value: ds.String(),
	}}}
	if out.Status == "" {
		out.Status = dnssecUnknown
	}
	return out
}

// keepDS notes what a check found at the parent of a signed zone; nil: nothing.
func keepDS(d *store.Domain, found *[]dnsprov.DS) {
	if found == nil || d.DNSSEC == nil {
		return
	}
	switch {
	case len(*found) == 0:
		d.DNSSEC.Status = dnssecUnpublished
	case slices.Contains(*found, builtin.PublicKey(d.DNSSEC.Public).DS(d.Name)):
		d.DNSSEC.Status = dnssecSecure
	default:
		d.DNSSEC.Status = dnssecBogus
	}
}

// lacksZoneKey tells that a domain is to be signed and has no key yet.
func lacksZoneKey(d *store.Domain) bool {
	return d.DNSSEC == nil && d.DNSProvider == dnsprov.Builtin
}

// GiveZoneKey makes the key of a zone that lacks one. It takes some microseconds.
func (s *Service) GiveZoneKey(d *store.Domain) error {
	if !lacksZoneKey(d) {
		return nil
	}
	private, public, err := builtin.GenerateKey()
	if err != nil {
		return err
	}
	d.DNSSEC = &store.DNSSECKey{Sealed: s.Keys.Seal(store.DNSSECPlace(d.ID), private), Public: public}
	return nil
}

// zoneKey is what signs a domain's zone; nil: nothing. It is opened when something is to be signed.
func (s *Service) zoneKey(d *store.Domain) *builtin.Key {
	if d.DNSSEC == nil || d.DNSProvider != dnsprov.Builtin {
		return nil
	}
	name, place, sealed := d.Name, store.DNSSECPlace(d.ID), d.DNSSEC.Sealed
	return builtin.NewKey(d.DNSSEC.Public, func() ([]byte, error) {
		private, err := s.Keys.Open(place, sealed)
		if err != nil { // a query cannot tell why it is not answered
			s.Log.Error("open the key of a zone", "domain", name, "error", err)
		}
		return private, err
	})
}

// resignKind gives signed zones a new serial from time to time, so that secondaries fetch
// signatures that hold.
func (s *Service) resignKind() jobs.Kind {
	return jobs.Kind{Name: "zones_resign", Work: s.resign, Timeout: 30 * time.Minute}
}

func (s *Service) resign(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	for after, more := "", true; more; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var due []string
		err := s.Store.View(func(tx *store.Tx) error {
			n := 0
			for key, d := range store.DomainsByName.Asc(tx, "", after) {
				after = key
				if s.resignDue(tx, d) {
					due = append(due, d.ID)
				}
				if n++; n == zonesAtATime {
					return nil
				}
			}
			more = false
			return nil
		})
		if err != nil {
			return nil, err
		}
		for ids := range slices.Chunk(due, resignsAtOnce) {
			if err := s.resignThese(ids); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

func (s *Service) resignDue(tx *store.Tx, d *store.Domain) bool {
	if d.DNSSEC == nil || d.Gone() || !s.serves(tx, d) {
		return false
	}
	h := fnv.New32a()
	h.Write([]byte(d.ID))
	after := resignAfter + time.Duration(h.Sum32())*time.Second%resignSpread
	return s.Now().Sub(d.ZoneChangedAt) >= after
}

func (s *Service) resignThese(ids []string) error {
	return s.Store.Update(func(tx *store.Tx) error {
		for _, id := range ids {
			d, err := store.Domains.Get(tx, id)
			if errors.Is(err, store.ErrNotFound) || err == nil && !s.resignDue(tx, d) {
				continue
			}
			if err != nil {
				return err
			}
			if err := s.publish(tx, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// renewCopies is how often every zone gets a new serial, so that secondaries fetch new signatures:
// those in a transfer hold for ten days.
const renewCopies = 4 * 24 * time.Hour

// secondaries are told about changes, and by a catalog which zones there are. A nil one tells
// nobody.
type secondaries struct {
	notifier *builtin.Notifier
	catalog  *builtin.Catalog // nil: there is none
}

func (s *Service) newSecondaries() *secondaries {
	c := s.Config
	if len(c.Secondaries) == 0 {
		return nil
	}
	o := &secondaries{notifier: builtin.NewNotifier(c.Secondaries, s.copied, s.Log)}
	if c.Catalog != "" {
		o.catalog = builtin.NewCatalog(c.Catalog, s.Now)
	}
	return o
}

// changed says that a zone has changed, or is gone.
func (o *secondaries) changed(origin string) {
	if o != nil {
		o.notifier.Changed(origin)
	}
}

// list puts a zone into the catalog or takes it out.
func (o *secondaries) list(origin string, member bool) {
	if o != nil && o.catalog != nil && o.catalog.Set(origin, member) {
		o.notifier.Changed(o.catalog.Origin())
	}
}

// notifySecondaries tells every secondary about every zone, since they may have missed changes, and
// then about each change until ctx ends.
func (s *Service) notifySecondaries(ctx context.Context) {
	if s.zones.others == nil {
		return
	}
	s.notifyAll()
	s.zones.others.notifier.Run(ctx)
}

func (s *Service) notifyAll() {
	o := s.zones.others
	o.notifier.Changed(s.zones.served.Origins()...)
	if o.catalog != nil {
		o.notifier.Changed(o.catalog.Origin())
	}
}

// copied finds what secondaries copy.
func (s *Service) copied(origin string) (builtin.Copied, bool) {
	zone, ok := s.Zone(origin) // which also brings the catalog up to date
	if catalog, has := s.Catalog(); has && origin == catalog.Origin() {
		return catalog, true
	}
	return zone, ok && zone.Origin == origin
}

// Catalog gives the zone that lists the zones for secondaries, if there is one.
func (s *Service) Catalog() (*builtin.Catalog, bool) {
	o := s.zones.others
	if o == nil || o.catalog == nil {
		return nil, false
	}
	return o.catalog, true
}

// keepZoneBase notes when what all zones have in common has changed, as the addresses of this host,
// or when signatures at secondaries are to be renewed: serials must rise then, or secondaries would
// keep what was before.
func (s *Service) keepZoneBase() (changed bool, err error) {
	digest, err := s.zoneDigest()
	if err != nil {
		return false, err
	}
	unchanged := errors.New("unchanged")
	err = s.Store.Update(func(tx *store.Tx) error {
		base, err := store.ZoneBases.Get(tx, store.ZoneBaseID)
		old := s.zones.others != nil && err == nil && tx.Now().Sub(base.ChangedAt) >= renewCopies
		switch {
		case errors.Is(err, store.ErrNotFound):
			base = &store.ZoneBase{ID: store.ZoneBaseID}
		case err != nil:
			return err
		case base.Digest == digest && !old:
			return unchanged
		default:
			base.Changes++
		}
		base.Digest, base.ChangedAt = digest, tx.Now()
		return store.ZoneBases.Put(tx, base)
	})
	if errors.Is(err, unchanged) {
		return false, nil
	}
	return err == nil, err
}

// renewZones gives every zone a new serial when that is due, and tells secondaries.
func (s *Service) renewZones() error {
	z := s.zones
	if z.others == nil {
		return nil
	}
	z.making.Lock()
	defer z.making.Unlock()
	changed, err := s.keepZoneBase()
	if err != nil || !changed {
		return err
	}
	s.makeNoted() // some of these may be gone
	if err := s.readZones(); err != nil {
		return err
	}
	s.notifyAll()
	return nil
}

// zoneDigest is a hash of all that zones are made from beside the domains: this program and its
// settings.
func (s *Service) zoneDigest() (string, error) {
	sample := dnsprov.Wanted(s.spec(&store.Domain{Name: "domain.invalid"}), dnsprov.Builtin)
	text, err := json.Marshal([]any{s.Config.Version, s.Config.Nameservers, s.Config.Elsewhere(), sample})
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:]), nil
}
