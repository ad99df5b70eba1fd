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

// zonesAtATime is how many domains one transaction reads when the zones are made.
const zonesAtATime = 500

// memory holds the zones that this server serves. What a transaction changed is noted once it has
// committed. Whoever asks next reads the store and makes the zone, so that the committer does not
// wait for that; every other query reads memory alone. A zone that changes a hundred times before
// somebody asks is made once.
type memory struct {
	served builtin.Zones
	host   *builtin.Zone // of the installation's own names, in the sandbox
	stale  atomic.Bool   // there is something in noted, or nothing has been read yet
	others *secondaries  // who copies the zones; they are notified of changes

	making sync.Mutex // whoever makes zones; others wait, since they want what is made
	loaded bool       // every domain has been read; guarded by making

	mu     sync.Mutex
	noting bool            // before the first query there is nothing to keep up to date
	noted  map[string]bool // the names of zones that have changed, or are gone
}

func newMemory(c core.Config) *memory {
	z := &memory{noted: map[string]bool{}, host: hostZone(c)}
	z.stale.Store(true)
	return z
}

// Zone gives the zone that encloses a name most closely and is served here. The name is lower-case,
// in the notation of the dns package.
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

// HostsName reports whether our own DNS server answers for a name: one at or below a domain that is
// connected here, or, in the sandbox, one of the installation's own.
func (s *Service) HostsName(name string) bool {
	_, ok := s.Zone(name)
	return ok
}

// MakeZones brings the zones to what has been noted, the first time to what the store holds.
func (s *Service) MakeZones() {
	z := s.memory
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
	z := s.memory
	for noted := z.take(); len(noted) > 0; noted = z.take() {
		for name := range noted {
			var src *zoneSource
			err := s.Store.View(func(tx *store.Tx) error {
				if d := s.serving(tx, name); d != nil {
					src = s.zoneSource(tx, d)
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
func (z *memory) take() map[string]bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	noted := z.noted
	z.noted = map[string]bool{}
	z.stale.Store(len(noted) > 0)
	return noted
}

// putBack leaves names to whoever asks next.
func (z *memory) putBack(names map[string]bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	maps.Copy(z.noted, names)
}

// makeZone serves a zone again; src is nil for one that is gone.
func (s *Service) makeZone(name string, src *zoneSource) {
	if src == nil {
		s.memory.served.Remove(name)
		s.memory.others.list(name, false)
		return
	}
	if err := src.publish(&s.memory.served); err != nil { // the zone of before is better than none
		s.Log.Error("make a zone", "domain", name, "error", err)
		return
	}
	s.memory.others.list(name, true)
}

// note tells whoever asks next that a zone has changed, or is gone. It is called after the commit.
func (z *memory) note(name string) {
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
	z := s.memory
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
					s.makeZone(d.Name, s.zoneSource(tx, d))
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

// HasZone reports whether a domain is one that our DNS server answers for: builtin ones, and in the
// sandbox, where its own resolver asks it about every name that is connected, manual ones too, so
// that they can be completed offline.
func (s *Service) HasZone(d *store.Domain) bool {
	return d.DNSProvider == dnsprov.Builtin || d.DNSProvider == store.DomainProviderManual && s.Config.Sandbox
}

// serves reports whether our DNS server answers for a domain now, as its claim of the name allows.
func (s *Service) serves(tx *store.Tx, d *store.Domain) bool { return s.HasZone(d) && mayServe(tx, d) }

// PutZone writes a domain whose records have changed, its own or custom ones, and publishes them:
// here, or by a job at the edge provider.
func (s *Service) PutZone(tx *store.Tx, d *store.Domain) error {
	_, err := s.putZoneBy(tx, d)
	return err
}

// putZoneBy does what putZone does, and gives the id of the job that brings the change to the edge
// provider, or "".
func (s *Service) putZoneBy(tx *store.Tx, d *store.Domain) (jobID string, err error) {
	if err := s.ServeZone(tx, d); err != nil {
		return "", err
	}
	return s.AddEdgeSync(tx, d)
}

// ServeZone does what putZone does, but for the edge provider, which a job of the caller's sees to.
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

// Publish writes a domain and serves its zone as it is now. The SOA serial rises each time, also
// with two changes in one second or when the clock is set back.
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
	tx.After(func() { s.memory.note(name) })
	return nil
}

// PublishAbove serves again the closest zone above each of some names, once: it says where the
// zones of those names are and who signs them. d, which may be nil, is a record that the caller may
// write again.
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

// mayServe reports whether a domain may serve: answer in our DNS, take mail and send. One whose
// claim is still to be proven may as long as nobody else could miss it.
func mayServe(tx *store.Tx, d *store.Domain) bool {
	return d.Claim == store.ClaimProven || d.Claim == store.ClaimOpen && !Contested(tx, d)
}

// Contested reports whether another account claims the name, a name above or one below it.
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

// rival reports whether a domain is another account's claim that counts.
func rival(d, o *store.Domain) bool {
	return o.AccountID != d.AccountID && !o.Gone() && (o.Claim == store.ClaimProven || o.Claim == store.ClaimOpen)
}

// ServeAgain serves the zones of names as they are to be now, and those above them. d, which may be
// nil, is a record that the caller may write again.
func (s *Service) ServeAgain(tx *store.Tx, names []string, d *store.Domain) error {
	for _, name := range names {
		now := s.serving(tx, name)
		if now == nil {
			tx.After(func() { s.memory.note(name) })
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
