package domains

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	edgeWorksFor  = 2 * time.Minute // one reading and changing of a domain's records
	edgeEraseMost = 5               // readings, until nothing of ours is left
)

// errNotAtEdge says that a domain has nothing to do with the edge provider any more, or not yet.
var errNotAtEdge = errors.New("the domain is not kept at the edge provider")

// An edgeWork is one attempt to bring the records of a domain at the edge provider to what they
// should be. Whoever does it again, after a crash anywhere, comes to the same end: our records
// there carry the domain's mark, and their IDs are noted too, for the day that a mark is lost.
type edgeWork struct {
	s         *Service
	ctx       context.Context
	d         *store.Domain         // as it was when the attempt began; later as it was written
	customs   []*store.CustomRecord // likewise
	provider  dnsprov.Provider
	at        dnsprov.ZoneRef
	conflicts []*dnsprov.Conflict // of managed records
	refused   map[string]string   // custom records that cannot be there, by id, and why
}

// atEdge does something for a domain at the edge provider while nobody else does anything for it
// there.
func (s *Service) atEdge(ctx context.Context, domainID string, do func(*edgeWork) error) error {
	ctx, cancel := context.WithTimeout(ctx, edgeWorksFor)
	defer cancel()
	giveBack, err := s.edgeTurns.Lock(ctx, domainID)
	if err != nil {
		return err
	}
	defer giveBack()
	w := &edgeWork{s: s, ctx: ctx, refused: map[string]string{}}
	err = s.Store.View(func(tx *store.Tx) (err error) {
		if w.d, err = store.Domains.Get(tx, domainID); err != nil {
			return err
		}
		for _, r := range store.CustomRecordsByDomain.Asc(tx, domainID, "") {
			w.customs = append(w.customs, r)
		}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && (w.d.DNSProvider != core.ProviderEdge || len(w.d.EdgeToken) == 0) {
		return errNotAtEdge
	}
	if err != nil {
		return err
	}
	if w.provider, err = s.edgeProvider(w.d.ID, w.d.EdgeToken); err != nil {
		return err
	}
	w.at = dnsprov.ZoneRef{Domain: w.d.Name, OwnerTag: w.d.ID}
	return do(w)
}

// edgeProvider is the edge provider as a domain's sealed token opens it.
func (s *Service) edgeProvider(domainID string, sealed []byte) (dnsprov.Provider, error) {
	if s.Config.Edge == nil {
		return nil, errNoEdge()
	}
	token, err := s.Keys.Open(core.EdgePlace(domainID), sealed)
	if err != nil {
		return nil, err
	}
	return s.Config.Edge(string(token)), nil
}

// sync makes, changes and deletes records until they are as they should be. With strict a conflict
// of a managed record is its error, before anything has changed; else that record is left out, and
// w.conflicts tells of it.
func (w *edgeWork) sync(strict bool) error {
	if w.d.Status == core.DomainDeleting {
		return errNotAtEdge
	}
	for {
		have, err := w.read()
		if err != nil {
			return err
		}
		fits, err := w.fit(have)
		if err != nil {
			return err
		}
		if strict && len(w.conflicts) > 0 {
			return edgeFault{joinConflicts(w.conflicts)}
		}
		changes := dnsprov.Plan(have, fits)
		made, err := w.apply(changes)
		again := w.refuse(err)
		if noted := w.note(have, changes, made, err == nil); noted != nil {
			return noted
		}
		if !again {
			return err
		}
	}
}

// active tells whether the provider serves the zone, as far as it says so.
func (w *edgeWork) active() (bool, error) {
	p, ok := w.provider.(interface {
		Delegated(ctx context.Context, domain string) (bool, error)
	})
	if !ok {
		return true, nil
	}
	active, err := p.Delegated(w.ctx, w.d.Name)
	if err != nil {
		return false, edgeFault{err}
	}
	return active, nil
}

// apply has the provider make changes, if there are any.
func (w *edgeWork) apply(changes []dnsprov.Change) ([]dnsprov.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	made, err := w.provider.Apply(w.ctx, w.at, changes)
	if err != nil {
		err = edgeFault{err}
	}
	return made, err
}

// read lists what is there. What was noted as ours is ours, also without its mark.
func (w *edgeWork) read() ([]dnsprov.Record, error) {
	have, err := w.provider.Records(w.ctx, w.at)
	if err != nil {
		return nil, edgeFault{err}
	}
	for i, r := range have {
		if r.Purpose == "" && r.ID != "" {
			have[i].Purpose = w.d.EdgeRecords[r.ID]
		}
	}
	return have, nil
}

// fit gives the records that are wanted and that can be beside what strangers have.
func (w *edgeWork) fit(have []dnsprov.Record) ([]dnsprov.Record, error) {
	spec := w.s.spec(w.d)
	for _, c := range w.customs {
		if w.refused[c.ID] == "" {
			spec.Custom = append(spec.Custom, ownRecord(c))
		}
	}
	want := dnsprov.Wanted(spec, core.ProviderEdge)
	w.conflicts = nil
	for {
		fits, err := dnsprov.Compatible(have, want)
		conflicts := conflictsIn(err)
		if len(conflicts) == 0 {
			return fits, err
		}
		before := len(want)
		for _, c := range conflicts {
			want = without(want, c.Want)
			told := slices.ContainsFunc(w.conflicts, func(o *dnsprov.Conflict) bool { return o.Have == c.Have })
			if !w.refuseCustom(c.Want, besideText(c)) && !told {
				w.conflicts = append(w.conflicts, c)
			}
		}
		if len(want) == before {
			return nil, err
		}
	}
}

// without gives records without one of them.
func without(records []dnsprov.Record, one dnsprov.Record) []dnsprov.Record {
	var out []dnsprov.Record
	for _, r := range records {
		if r != one {
			out = append(out, r)
		}
	}
	return out
}

// refuse notes which custom records the provider refused, by its error, and tells whether that
// leaves something to do without them.
func (w *edgeWork) refuse(err error) (again bool) {
	for _, c := range conflictsIn(err) {
		again = w.refuseCustom(c.Want, besideText(c)) || again
	}
	var refused *dnsprov.Refused
	if errors.As(err, &refused) {
		again = w.refuseCustom(refused.Want, edgeName+" does not take it: "+clip(refused.Err.Error())) || again
	}
	return again
}

// besideText says why a custom record cannot be there.
func besideText(c *dnsprov.Conflict) string {
	return fmt.Sprintf("It cannot be beside %s, which somebody else made at %s. Remove that there, then change this record or run setup again.",
		recordText(c.Have), edgeName)
}

// refuseCustom notes that a custom record cannot be there; false if the record is none, or is noted
// already.
func (w *edgeWork) refuseCustom(r dnsprov.Record, why string) bool {
	for _, own := range w.customs {
		if r.Purpose == dnsprov.PurposeCustom && w.refused[own.ID] == "" && own.Name == r.Name && own.Type == r.Type && own.Value == r.Value {
			w.refused[own.ID] = why
			return true
		}
	}
	return false
}

// note writes what of ours is there now. done tells that the changes were made, all of them.
func (w *edgeWork) note(have []dnsprov.Record, changes []dnsprov.Change, made []dnsprov.Record, done bool) error {
	ours := map[string]string{}
	for _, r := range append(have[:len(have):len(have)], made...) {
		if r.Purpose != "" && r.ID != "" {
			ours[r.ID] = r.Purpose
		}
	}
	for _, c := range changes {
		if done && c.Op == dnsprov.Delete {
			delete(ours, c.Have.ID)
		}
	}
	return w.s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, w.d.ID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if done {
			if err := w.noteCustoms(tx); err != nil {
				return err
			}
		}
		detail := d.StatusDetail
		if done && d.Status == core.DomainComplete && (len(w.conflicts) > 0 || ofTheEdge(detail)) {
			detail = conflictDetail(d.Name, w.conflicts)
		}
		w.d.EdgeRecords = ours
		if maps.Equal(d.EdgeRecords, ours) && d.StatusDetail == detail {
			return nil
		}
		d.EdgeRecords, d.StatusDetail = ours, detail
		return store.Domains.Put(tx, d)
	})
}

// ofTheEdge tells whether a status detail is one that tells of the edge provider.
func ofTheEdge(detail string) bool {
	code, _, _ := strings.Cut(detail, ": ")
	return slices.Contains([]string{"zone_conflict", "zone_not_found", "edge_token_invalid", "upstream_error", "internal_error"}, code)
}

// conflictDetail is the status detail of a complete domain that lacks records because of others.
func conflictDetail(domain string, conflicts []*dnsprov.Conflict) string {
	if len(conflicts) == 0 {
		return ""
	}
	return fmt.Sprintf("zone_conflict: %s lacks records at %s, since there are others in their place: %s. Remove those there, then run setup again.",
		domain, edgeName, conflictTexts(conflicts))
}

func joinConflicts(conflicts []*dnsprov.Conflict) error {
	var all []error
	for _, c := range conflicts {
		all = append(all, c)
	}
	return errors.Join(all...)
}

// noteCustoms writes what has come of the custom records, those that have changed since excepted.
func (w *edgeWork) noteCustoms(tx *store.Tx) error {
	for _, c := range w.customs {
		now, err := store.CustomRecords.Get(tx, c.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		status, why := "active", w.refused[c.ID]
		if why != "" {
			status = "error"
		}
		if !now.UpdatedAt.Equal(c.UpdatedAt) || now.Status == status && now.Error == why {
			continue
		}
		now.Status, now.Error = status, why
		if err := store.CustomRecords.Put(tx, now); err != nil {
			return err
		}
	}
	return nil
}

// erase deletes what is ours, and looks again until nothing is left: a request that was under way
// when the process was killed may be done late.
func (w *edgeWork) erase() error {
	for range edgeEraseMost {
		have, err := w.read()
		if err != nil {
			return err
		}
		changes := dnsprov.Plan(have, nil)
		if len(changes) == 0 {
			return nil
		}
		if _, err := w.apply(changes); err != nil {
			return err
		}
	}
	return edgeFault{fmt.Errorf("records of %s come back", w.d.Name)}
}
