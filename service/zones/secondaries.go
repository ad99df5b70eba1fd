package zones

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/store"
)

// renewCopies is how often every zone gets a new serial, so that secondaries fetch new signatures.
// Signatures in a zone transfer are valid for ten days.
const renewCopies = 4 * 24 * time.Hour

// secondaries are other nameservers that copy our zones. They are notified of changes, and a
// catalog zone lists the zones for them. A nil one does nothing.
type secondaries struct {
	notifier *builtin.Notifier
	catalog  *builtin.Catalog // nil: no catalog
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

// changed notifies secondaries that a zone has changed or is gone.
func (o *secondaries) changed(origin string) {
	if o != nil {
		o.notifier.Changed(origin)
	}
}

// list adds a zone to the catalog or removes it.
func (o *secondaries) list(origin string, member bool) {
	if o != nil && o.catalog != nil && o.catalog.Set(origin, member) {
		o.notifier.Changed(o.catalog.Origin())
	}
}

// notifySecondaries notifies every secondary of every zone, since they may have missed changes, and
// then of each change until ctx ends.
func (s *Service) notifySecondaries(ctx context.Context) {
	if s.memory.secondaries == nil {
		return
	}
	s.notifyAll()
	s.memory.secondaries.notifier.Run(ctx)
}

func (s *Service) notifyAll() {
	o := s.memory.secondaries
	o.notifier.Changed(s.memory.served.Origins()...)
	if o.catalog != nil {
		o.notifier.Changed(o.catalog.Origin())
	}
}

// copied returns the zone or catalog that a secondary copies.
func (s *Service) copied(origin string) (builtin.Copied, bool) {
	zone, ok := s.Zone(origin) // this also updates the catalog
	if catalog, has := s.Catalog(); has && origin == catalog.Origin() {
		return catalog, true
	}
	return zone, ok && zone.Origin == origin
}

// Catalog returns the catalog zone, which lists the zones for secondaries, if there is one.
func (s *Service) Catalog() (*builtin.Catalog, bool) {
	o := s.memory.secondaries
	if o == nil || o.catalog == nil {
		return nil, false
	}
	return o.catalog, true
}

// updateZoneBase updates the record of what all zones have in common, such as this host's
// addresses, if that has changed or if signatures at secondaries must be renewed. This raises the
// serial of every zone: otherwise secondaries would keep the old zones.
func (s *Service) updateZoneBase() (changed bool, err error) {
	digest, err := s.zoneDigest()
	if err != nil {
		return false, err
	}
	unchanged := errors.New("what all zones share has not changed")
	err = s.Store.Update(func(tx *store.Tx) error {
		base, err := store.ZoneBases.Get(tx, store.ZoneBaseID)
		old := s.memory.secondaries != nil && err == nil && tx.Now().Sub(base.ChangedAt) >= renewCopies
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

// renewZones publishes every zone with a new serial if that is due, and notifies secondaries.
func (s *Service) renewZones() error {
	z := s.memory
	if z.secondaries == nil {
		return nil
	}
	z.building.Lock()
	defer z.building.Unlock()
	changed, err := s.updateZoneBase()
	if err != nil || !changed {
		return err
	}
	s.buildChanged() // deleted ones must not be served again
	if err := s.readZones(); err != nil {
		return err
	}
	s.notifyAll()
	return nil
}

// zoneDigest returns a hash of everything that zones depend on besides the domains: the program's
// version and the settings.
func (s *Service) zoneDigest() (string, error) {
	sample := dnsprov.Wanted(s.Spec(&store.Domain{Name: "domain.invalid"}), dnsprov.Builtin)
	text, err := json.Marshal([]any{s.Config.Version, s.Config.Nameservers, s.Config.Elsewhere(), sample})
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:]), nil
}
