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

// renewCopies is how often every zone gets a new serial, so that secondaries fetch new signatures:
// those in a transfer hold for ten days.
const renewCopies = 4 * 24 * time.Hour

// secondaries are notified of changes, and learn by a catalog which zones there are. A nil one
// tells nobody.
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
	if s.memory.others == nil {
		return
	}
	s.notifyAll()
	s.memory.others.notifier.Run(ctx)
}

func (s *Service) notifyAll() {
	o := s.memory.others
	o.notifier.Changed(s.memory.served.Origins()...)
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
	o := s.memory.others
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
		old := s.memory.others != nil && err == nil && tx.Now().Sub(base.ChangedAt) >= renewCopies
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
	z := s.memory
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
	sample := dnsprov.Wanted(s.Spec(&store.Domain{Name: "domain.invalid"}), dnsprov.Builtin)
	text, err := json.Marshal([]any{s.Config.Version, s.Config.Nameservers, s.Config.Elsewhere(), sample})
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:]), nil
}
