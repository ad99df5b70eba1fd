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

// zonesAtATime is how many domains one transaction reads.
const zonesAtATime = 500

// memory holds the zones that this server serves. After a commit, the names of changed zones are
// recorded. The next query reads the store and builds these zones, so that the committer does not
// wait for that; all other queries read only memory. A zone that changes a hundred times before a
// query is built once.
type memory struct {
	served      builtin.Zones
	host        *builtin.Zone // zone of the installation's own names, in the sandbox
	stale       atomic.Bool   // changed has names, or the zones were never read
	secondaries *secondaries  // copies of the zones; they are notified of changes

	building sync.Mutex // held while zones are built; other queries wait for the result
	loaded   bool       // every domain was read; guarded by building

	mu        sync.Mutex
	recording bool            // changes are recorded; not before the first query, which reads all zones
	changed   map[string]bool // names of zones that have changed or are gone
}

func newMemory(c core.Config) *memory {
	z := &memory{changed: map[string]bool{}, host: hostZone(c)}
	z.stale.Store(true)
	return z
}

// Zone returns the closest zone at or above a name that is served here. The name is lower-case, in
// the notation of the dns package.
func (s *Service) Zone(name string) (*builtin.Zone, bool) {
	z := s.memory
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

// HostsName reports whether our own DNS server answers for a name: at or below a domain that is
// connected here, or, in the sandbox, at or below one of the installation's own names.
func (s *Service) HostsName(name string) bool {
	_, ok := s.Zone(name)
	return ok
}

// MakeZones builds the zones that have changed; the first time it builds all zones in the store.
func (s *Service) MakeZones() {
	z := s.memory
	z.building.Lock()
	defer z.building.Unlock()
	if !z.loaded {
		if err := s.loadZones(); err != nil {
			s.Log.Error("could not read the zones", "error", err)
			return
		}
		z.loaded = true
	}
	s.buildChanged()
}

// buildChanged rebuilds, from the store, the zones that have recorded changes. The caller must hold
// s.building.
func (s *Service) buildChanged() {
	z := s.memory
	for noted := z.takeChanged(); len(noted) > 0; noted = z.takeChanged() {
		for name := range noted {
			var src *zoneSource
			err := s.Store.View(func(tx *store.Tx) error {
				if d := s.serving(tx, name); d != nil {
					src = s.zoneSource(tx, d)
				}
				return nil
			})
			if err != nil { // the old zones are better than none
				s.Log.Error("could not read a zone", "domain", name, "error", err)
				z.putBack(noted)
				return
			}
			s.buildZone(name, src)
		}
	}
}

// takeChanged returns the recorded names and clears them. If there are none it marks the zones as
// up to date; only then do queries skip the lock.
func (z *memory) takeChanged() map[string]bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	noted := z.changed
	z.changed = map[string]bool{}
	z.stale.Store(len(noted) > 0)
	return noted
}

// putBack records names again, for the next query.
func (z *memory) putBack(names map[string]bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	maps.Copy(z.changed, names)
}

// buildZone builds and serves a zone. If src is nil it removes the zone.
func (s *Service) buildZone(name string, src *zoneSource) {
	if src == nil {
		s.memory.served.Remove(name)
		s.memory.secondaries.list(name, false)
		return
	}
	if err := src.publish(&s.memory.served); err != nil { // the old zone is better than none
		s.Log.Error("could not build a zone", "domain", name, "error", err)
		return
	}
	s.memory.secondaries.list(name, true)
}

// markChanged records that a zone has changed or is gone. It is called after the commit.
func (z *memory) markChanged(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.recording {
		z.changed[name] = true
		z.stale.Store(true)
		z.secondaries.changed(name)
	}
}

// loadZones builds all zones for the first time. Changes are recorded from before the reading, so
// that none is lost.
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

// readZones builds the zone of every domain, some per transaction.
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

// HasZone reports whether our DNS server should answer for a domain: it is builtin or, in the
// sandbox, manual. The sandbox's own resolver asks our server about every connected name, so that
// manual domains can be completed offline.
func (s *Service) HasZone(d *store.Domain) bool {
	return d.DNSProvider == dnsprov.Builtin || d.DNSProvider == store.DomainProviderManual && s.Config.Sandbox
}

// serves reports whether our DNS server answers for a domain now. This depends on its claim too.
func (s *Service) serves(tx *store.Tx, d *store.Domain) bool { return s.HasZone(d) && mayServe(tx, d) }

// PutZone writes a domain whose records have changed, managed or custom ones, and publishes them:
// here, or by a job at Cloudflare.
func (s *Service) PutZone(tx *store.Tx, d *store.Domain) error {
	_, err := s.putZoneBy(tx, d)
	return err
}

// putZoneBy does what PutZone does, and returns the id of the job that writes the change at
// Cloudflare, or "".
func (s *Service) putZoneBy(tx *store.Tx, d *store.Domain) (jobID string, err error) {
	if err := s.ServeZone(tx, d); err != nil {
		return "", err
	}
	return s.AddEdgeSync(tx, d)
}

// ServeZone does what PutZone does, except for Cloudflare: the caller queues a job for that.
func (s *Service) ServeZone(tx *store.Tx, d *store.Domain) error {
	known, err := store.Domains.Get(tx, d.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	d.UpdatedAt = tx.Now()
	if err := s.Publish(tx, d); err != nil || !s.serves(tx, d) {
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

// Publish writes a domain and serves its zone again. The SOA serial rises each time, even with two
// changes in one second or after the clock was set back.
func (s *Service) Publish(tx *store.Tx, d *store.Domain) error {
	changed := tx.Now().Truncate(time.Second)
	if next := d.ZoneChangedAt.Add(time.Second); changed.Before(next) {
		changed = next
	}
	d.ZoneChangedAt = changed
	if err := store.Domains.Put(tx, d); err != nil || !s.serves(tx, d) {
		return err
	}
	name := d.Name
	tx.After(func() { s.memory.markChanged(name) })
	return nil
}

// PublishAbove publishes, once each, the closest zone above every name: that zone has the
// delegation and the DS record of the name's zone. d, if not nil, is the caller's copy of a domain.
// PublishAbove updates it instead of another copy, since the caller may write it again.
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
			if err := s.Publish(tx, above); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// serving returns the domain whose zone is served under a name; nil if there is none.
func (s *Service) serving(tx *store.Tx, name string) *store.Domain {
	if d, err := store.DomainByName.Get(tx, name); err == nil && !d.Gone() {
		if s.serves(tx, d) {
			return d
		}
		return nil // a proven claim excludes the others
	}
	open := ""
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
		switch {
		case d.Gone() || d.Claim == store.ClaimLost || d.Claim == store.ClaimExpired:
			continue
		case s.serves(tx, d):
			return d
		case open != "" && open != d.AccountID:
			return nil // two accounts claim it, so none is served
		}
		open = d.AccountID
	}
	return nil
}

// mayServe reports whether a domain may be active: its zone is served, and it can receive and send
// mail. An unproven domain may as long as no other account claims the name.
func mayServe(tx *store.Tx, d *store.Domain) bool {
	return d.Claim == store.ClaimProven || d.Claim == store.ClaimOpen && !Contested(tx, d)
}

// Contested reports whether another account claims the name, or a name above or below it.
func Contested(tx *store.Tx, d *store.Domain) bool {
	for name, more := d.Name, true; more; _, name, more = strings.Cut(name, ".") {
		for _, o := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
			if rival(d, o) {
				return true
			}
		}
	}
	for _, o := range store.DomainsUnder.Asc(tx, store.TreeKey(d.Name), "") {
		if rival(d, o) {
			return true
		}
	}
	return false
}

// rival reports whether o is a valid claim of another account than d's.
func rival(d, o *store.Domain) bool {
	return o.AccountID != d.AccountID && !o.Gone() && (o.Claim == store.ClaimProven || o.Claim == store.ClaimOpen)
}

// ServeAgain publishes the zones of names, and the zones above them. d is as in PublishAbove.
func (s *Service) ServeAgain(tx *store.Tx, names []string, d *store.Domain) error {
	for _, name := range names {
		now := s.serving(tx, name)
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
