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
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// renewInterval is how often all zones get a new serial while there are secondaries, so that these
// fetch new signatures. Signatures in a zone transfer are valid for ten days.
const renewInterval = 4 * 24 * time.Hour

// secondaries has the other nameservers that copy our zones. They are notified of changes. A
// catalog zone tells them which zones there are. The methods of a nil secondaries do nothing.
type secondaries struct {
	notifier *builtin.Notifier
	catalog  *builtin.Catalog // the catalog zone; nil: there is none
}

// newSecondaries returns nil if no secondaries are configured.
func (s *Service) newSecondaries() *secondaries {
	c := s.Config
	if len(c.Secondaries) == 0 {
		return nil
	}
	o := &secondaries{notifier: builtin.NewNotifier(c.Secondaries, s.zoneToCopy, s.Log)}
	if c.Catalog != "" {
		o.catalog = builtin.NewCatalog(c.Catalog, s.Now)
	}
	return o
}

// changed notifies the secondaries that a zone has changed or no longer exists.
func (o *secondaries) changed(origin string) {
	if o != nil {
		o.notifier.Changed(origin)
	}
}

// setMember adds a zone to the catalog if member is true, and otherwise removes it.
func (o *secondaries) setMember(origin string, member bool) {
	if o != nil && o.catalog != nil && o.catalog.Set(origin, member) {
		o.notifier.Changed(o.catalog.Origin())
	}
}

// notifySecondaries notifies the secondaries of all zones, because they may have missed changes.
// Then it notifies them of each change until ctx ends.
func (s *Service) notifySecondaries(ctx context.Context) {
	if s.memory.secondaries == nil {
		return
	}
	s.notifyAll()
	s.memory.secondaries.notifier.Run(ctx)
}

// notifyAll notifies the secondaries of all zones.
func (s *Service) notifyAll() {
	o := s.memory.secondaries
	o.notifier.Changed(s.memory.served.Origins()...)
	if o.catalog != nil {
		o.notifier.Changed(o.catalog.Origin())
	}
}

// zoneToCopy returns the zone or the catalog zone that a secondary wants to copy.
func (s *Service) zoneToCopy(origin string) (builtin.CopiedZone, bool) {
	zone, ok := s.Zone(origin) // also updates the catalog
	if catalog, has := s.Catalog(); has && origin == catalog.Origin() {
		return catalog, true
	}
	return zone, ok && zone.Origin == origin
}

// Catalog returns the catalog zone, which lists our zones for secondaries; false if there is none.
func (s *Service) Catalog() (*builtin.Catalog, bool) {
	o := s.memory.secondaries
	if o == nil || o.catalog == nil {
		return nil, false
	}
	return o.catalog, true
}

// updateZoneBase records a change that concerns all zones: of data that they share, such as this
// host's addresses, or because secondaries need new signatures. This raises the serial of every
// zone, so that secondaries fetch the zones again. changed is false if there is no such change.
func (s *Service) updateZoneBase() (changed bool, err error) {
	digest, err := s.zoneDigest()
	if err != nil {
		return false, err
	}
	unchanged := errors.New("update zone base: nothing has changed")
	err = s.Store.Update(func(tx *store.Tx) error {
		base, err := store.ZoneBases.Get(tx, store.ZoneBaseID)
		old := s.memory.secondaries != nil && err == nil && tx.Now().Sub(base.ChangedAt) >= renewInterval
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

// renewZones publishes all zones with a new serial if that is due, and notifies secondaries.
func (s *Service) renewZones() error {
	z := s.memory
	if z.secondaries == nil {
		return nil
	}
	z.building.Lock()
	defer z.building.Unlock()
	return s.renewIfDue()
}

// renewIfDue publishes all zones with a new serial if what they share has changed, or if
// secondaries need new signatures. The caller must hold memory.building.
func (s *Service) renewIfDue() error {
	changed, err := s.updateZoneBase()
	if err != nil || !changed {
		return err
	}
	s.buildChanged() // removes deleted zones first, because readZones does not
	if err := s.readZones(); err != nil {
		return err
	}
	if s.memory.secondaries != nil {
		s.notifyAll()
	}
	return nil
}

// applySettings publishes the zones again if a change of the settings concerns them: the addresses
// that mail is sent from are in SPF records.
func (s *Service) applySettings() {
	z := s.memory
	z.host.Store(hostZone(s.Core))
	z.building.Lock()
	defer z.building.Unlock()
	if !z.loaded.Load() {
		return // the first query builds all zones
	}
	if err := s.renewIfDue(); err != nil {
		s.Log.Error("could not publish the zones with the new settings", "error", err)
	}
}

// zoneDigest returns a hash of everything that zones depend on except their domains: the program's
// version and the settings.
func (s *Service) zoneDigest() (string, error) {
	sample := dnsprov.Wanted(zonedata.Spec(s.Core, &store.Domain{Name: "domain.invalid"}), dnsprov.Builtin)
	text, err := json.Marshal([]any{s.Config.Version, s.Config.Nameservers, s.Config.OtherNameservers(), sample})
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:]), nil
}
