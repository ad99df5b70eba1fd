package zones

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// zonesPerView is how many domains one read transaction reads.
const zonesPerView = 500

// zoneMemory holds the zones that this server serves. After a commit that changes zones, the names
// of these zones are recorded. The request that has changed them, or the next query, reads these
// zones from the store and builds them, so that the committer need not wait for that. Meanwhile
// other queries get the zones of before; all queries else use memory only. A zone that changes a
// hundred times before it is built is built only once.
type zoneMemory struct {
	served      builtin.Zones
	host        atomic.Pointer[builtin.Zone] // the zone of the installation's own names; nil outside the sandbox
	stale       atomic.Bool                  // changed may have names, or the zones have not been read yet
	secondaries *secondaries                 // other nameservers, which are notified of changes

	building sync.Mutex  // held while zones are built
	loaded   atomic.Bool // all zones have been built once; set while building is held

	mu        sync.Mutex
	recording bool            // changes are recorded; false before the first query, which reads all zones
	changed   map[string]bool // names of zones that have changed or no longer exist
}

func newZoneMemory(c *core.Core) *zoneMemory {
	z := &zoneMemory{changed: map[string]bool{}}
	z.host.Store(hostZone(c))
	z.stale.Store(true)
	return z
}

// Zone returns the zone that is served here and contains a name: the closest one at or above it.
// The name must be in lower case. It may have a dot at the end. The result is false if there is no
// such zone.
func (s *Service) Zone(name string) (*builtin.Zone, bool) {
	z := s.memory
	name = strings.TrimSuffix(name, ".")
	s.aliases.noteQuery(name, s.Now)
	if z.stale.Load() {
		s.makeZonesFor(name)
	}
	if zone, ok := z.served.Zone(name); ok {
		return zone, true
	}
	if host := z.host.Load(); host != nil && dnsprov.IsWithin(name, host.Origin) {
		return host, true
	}
	return nil, false
}

// HostsName reports whether our own DNS server answers for a name: whether the name is in the zone
// of a domain here or, in the sandbox, in that of the installation's own names.
func (s *Service) HostsName(name string) bool {
	_, ok := s.Zone(name)
	return ok
}

// MakeZones builds the zones that have changed, and returns when they are served. The first call
// builds all zones.
func (s *Service) MakeZones() {
	s.memory.building.Lock()
	defer s.memory.building.Unlock()
	s.makeZones()
}

// makeZonesFor is like MakeZones, but if another caller builds zones, and a zone with the name is
// served already, it returns at once.
func (s *Service) makeZonesFor(name string) {
	z := s.memory
	if !z.building.TryLock() {
		if _, served := z.served.Zone(name); served && z.loaded.Load() {
			return
		}
		z.building.Lock()
	}
	defer z.building.Unlock()
	s.makeZones()
}

// makeZones builds the zones that have changed. The caller must hold memory.building.
func (s *Service) makeZones() {
	z := s.memory
	if !z.loaded.Load() {
		if err := s.loadZones(); err != nil {
			s.Log.Error("could not read the zones", "error", err)
			return
		}
		z.loaded.Store(true)
	}
	s.buildChanged()
}

// buildChanged builds the zones with recorded changes. The caller must hold memory.building.
func (s *Service) buildChanged() {
	z := s.memory
	for noted := z.takeChanged(); len(noted) > 0; noted = z.takeChanged() {
		for name := range noted {
			var src *zoneSource
			err := s.Store.View(func(tx *store.Tx) error {
				if d := s.servedDomain(tx, name); d != nil {
					src = s.zoneSource(tx, d)
				}
				return nil
			})
			if err != nil { // the old zones remain
				s.Log.Error("could not read a zone", "domain", name, "error", err)
				z.restoreChanged(noted)
				return
			}
			s.buildZone(name, src)
		}
	}
}

// takeChanged returns the recorded names and clears them. If there are none, it marks the zones as
// up to date, so that queries need no lock.
func (z *zoneMemory) takeChanged() map[string]bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	noted := z.changed
	z.changed = map[string]bool{}
	z.stale.Store(len(noted) > 0)
	return noted
}

// restoreChanged records the names again, so that the next query tries again to build these zones.
func (z *zoneMemory) restoreChanged(names map[string]bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	maps.Copy(z.changed, names)
}

// buildZone builds a zone and serves it. If src is nil, it removes the zone.
func (s *Service) buildZone(name string, src *zoneSource) {
	if src == nil {
		s.memory.served.Remove(name)
		s.memory.secondaries.setMember(name, false)
		return
	}
	if err := src.publish(&s.memory.served); err != nil { // the old zone remains
		s.Log.Error("could not build a zone", "domain", name, "error", err)
		return
	}
	s.memory.secondaries.setMember(name, true)
}

// markChanged records that a zone has changed or no longer exists. It must be called after the
// commit.
func (z *zoneMemory) markChanged(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.recording {
		z.changed[name] = true
		z.stale.Store(true)
		z.secondaries.changed(name)
	}
}

// loadZones builds all zones for the first time. It starts to record changes before it reads the
// zones, so that no change is missed.
func (s *Service) loadZones() error {
	if _, err := s.updateZoneBase(); err != nil {
		return err
	}
	z := s.memory
	z.mu.Lock()
	z.recording = true
	z.mu.Unlock()
	return s.readZones()
}

// readZones builds the zones of all domains, several in each transaction.
func (s *Service) readZones() error {
	after, more := "", true
	for more {
		more = false
		err := s.Store.View(func(tx *store.Tx) error {
			n := 0
			for key, d := range store.DomainsByName.Asc(tx, "", after) {
				after = key
				if s.serves(tx, d) {
					s.buildZone(d.Name, s.zoneSource(tx, d))
				}
				if n++; n == zonesPerView {
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

// HasZone reports whether our DNS server should answer for a domain: for builtin domains and, in
// the sandbox, also for manual ones. There, our server is asked for all connected names, so that
// manual domains can be completed offline.
func (s *Service) HasZone(d *store.Domain) bool {
	return d.DNSProvider == dnsprov.Builtin || d.DNSProvider == store.DomainProviderManual && s.Config.Sandbox
}

// serves reports whether our DNS server answers for a domain now, which also depends on its claim.
func (s *Service) serves(tx *store.Tx, d *store.Domain) bool { return s.HasZone(d) && mayServe(tx, d) }

// PutZone writes a domain whose managed or custom records have changed, and publishes the records.
// For a domain at another DNS provider it queues a job for that.
func (s *Service) PutZone(tx *store.Tx, d *store.Domain) error {
	_, err := s.putZoneWithJob(tx, d)
	return err
}

// putZoneWithJob is like PutZone, and returns the ID of the job that makes the change at the DNS
// provider; "" if there is none.
func (s *Service) putZoneWithJob(tx *store.Tx, d *store.Domain) (jobID string, err error) {
	if err := s.ServeZone(tx, d); err != nil {
		return "", err
	}
	return s.edge.AddSync(tx, d)
}

// ServeZone is like PutZone, but queues no job for a DNS provider.
func (s *Service) ServeZone(tx *store.Tx, d *store.Domain) error {
	known, err := store.Domains.Get(tx, d.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	d.UpdatedAt = tx.Now()
	if err := s.Publish(tx, d); err != nil || !s.serves(tx, d) {
		return err
	}
	var before, now []byte // public keys of the zone
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

// Publish writes a domain and rebuilds its zone. It raises the SOA serial, even if the zone changes
// twice in a second or the clock was set back.
func (s *Service) Publish(tx *store.Tx, d *store.Domain) error {
	changed := tx.Now().Truncate(time.Second)
	if next := d.ZoneChangedAt.Add(time.Second); changed.Before(next) {
		changed = next
	}
	d.ZoneChangedAt = changed
	named, id, host, edge := d.Name, d.ID, apexSetting(d).Alias, d.AtEdge()
	tx.After(func() { s.aliases.set(named, id, host, edge) })
	if err := store.Domains.Put(tx, d); err != nil || !s.serves(tx, d) {
		return err
	}
	name := d.Name
	tx.After(func() { s.memory.markChanged(name) })
	return nil
}

// PublishAbove publishes, for each name, the closest zone above it, which has the delegation and
// the DS record of the name's zone. It publishes each zone once. If d is not nil, d is the caller's
// copy of a domain: if that domain must be published, PublishAbove changes this copy, because the
// caller may write it again.
func (s *Service) PublishAbove(tx *store.Tx, d *store.Domain, names ...string) error {
	seen := map[string]bool{}
	for _, name := range names {
		for _, parent, more := strings.Cut(name, "."); more && !seen[parent]; _, parent, more = strings.Cut(parent, ".") {
			seen[parent] = true
			above := s.servedDomain(tx, parent)
			if above == nil {
				continue
			}
			if d != nil && above.ID == d.ID {
				above = d
			}
			if err := s.Publish(tx, above); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// servedDomain returns the domain whose zone is served for a name; nil if there is none.
func (s *Service) servedDomain(tx *store.Tx, name string) *store.Domain {
	if d, err := store.DomainByName.Get(tx, name); err == nil && !d.Gone() {
		if s.serves(tx, d) {
			return d
		}
		return nil // the proven claim excludes all others
	}
	open := ""
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
		switch {
		case d.Gone() || d.Claim == store.ClaimLost || d.Claim == store.ClaimExpired:
			continue
		case s.serves(tx, d):
			return d
		case open != "" && open != d.AccountID:
			return nil // two accounts claim the name, so neither is served
		}
		open = d.AccountID
	}
	return nil
}

// mayServe reports whether a domain may be active: whether its zone may be served and it may
// receive and send mail. A domain with an unproven claim may, as long as no other account claims
// the name.
func mayServe(tx *store.Tx, d *store.Domain) bool {
	return d.Claim == store.ClaimProven || d.Claim == store.ClaimOpen && !Contested(tx, d)
}

// Contested reports whether another account claims the domain's name, or a name above or below it.
func Contested(tx *store.Tx, d *store.Domain) bool {
	for name, more := d.Name, true; more; _, name, more = strings.Cut(name, ".") {
		for _, o := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
			if isRival(d, o) {
				return true
			}
		}
	}
	for _, o := range store.DomainsUnder.Asc(tx, store.ReverseLabels(d.Name), "") {
		if isRival(d, o) {
			return true
		}
	}
	return false
}

// isRival reports whether o is an open or proven claim of another account than that of d.
func isRival(d, o *store.Domain) bool {
	return o.AccountID != d.AccountID && !o.Gone() && (o.Claim == store.ClaimProven || o.Claim == store.ClaimOpen)
}

// Republish publishes the zones with the given names, and the closest zones above them. For d see
// PublishAbove.
func (s *Service) Republish(tx *store.Tx, names []string, d *store.Domain) error {
	for _, name := range names {
		now := s.servedDomain(tx, name)
		if now == nil {
			tx.After(func() { s.memory.markChanged(name) })
			continue
		}
		if d != nil && now.ID == d.ID {
			now = d
		}
		if err := s.Publish(tx, now); err != nil {
			return err
		}
	}
	return s.PublishAbove(tx, d, names...)
}
