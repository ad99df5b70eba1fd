package zones

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

const (
	keptChanges = 100    // changes of a domain's custom records that are kept
	keptRows    = 10_000 // removed records that are kept for them; older changes are dropped if there are more
)

// A ZoneChange is one change of the records that the owner of a domain has added.
type ZoneChange struct {
	ID string `json:"id" words:"ours" example:"zch_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	// set: records of one name were set. delete: they were deleted. import: a zone was imported.
	// undo: another change was undone.
	Kind      string    `json:"kind" enum:"set|delete|import|undo"`
	Name      *string   `json:"name" words:"ours" example:"www"`           // Relative to the domain; null if several record sets changed.
	Type      *string   `json:"type" words:"ours" example:"A"`             // Null if several record sets changed.
	Added     int       `json:"added"`                                     // How many values were added; one whose TTL changed counts as added and removed.
	Removed   int       `json:"removed"`                                   // How many values were removed.
	By        string    `json:"by" words:"ours" example:"ann@example.com"` // The team user or the token, as in the audit log.
	CreatedAt core.Time `json:"created_at"`
}

// zoneChangeOut returns a change in the form of the API.
func zoneChangeOut(domain string, c *store.ZoneChange) ZoneChange {
	out := ZoneChange{ID: c.ID, Kind: c.Kind, Type: core.OrNull(c.Type), Added: c.Added, Removed: c.Removed, By: c.By, CreatedAt: core.Time{Time: c.CreatedAt}}
	if c.Name != "" {
		name := zonedata.RelativeHost(c.Name, domain)
		out.Name = &name
	}
	return out
}

// ListZoneChangesIn is the query of list_zone_changes.
type ListZoneChangesIn struct {
	page.Query
	DomainID string `path:"domain_id"`
}

// ListZoneChanges lists the changes of a domain's own records, the newest first.
func (s *Service) ListZoneChanges(_ context.Context, who core.Actor, in ListZoneChangesIn) (*page.Page[ZoneChange], error) {
	domain := ""
	l := page.Listing[store.ZoneChange, ZoneChange]{
		Operation: "zone_changes", Index: store.ZoneChangesByDomain, Prefix: in.DomainID, Filters: []string{in.DomainID},
		First: func(tx *store.Tx) error {
			d, err := zonedata.ManagedDomain(tx, who, in.DomainID)
			if err == nil {
				domain = d.Name
			}
			return err
		},
		Out: func(_ *store.Tx, c *store.ZoneChange) (ZoneChange, error) { return zoneChangeOut(domain, c), nil },
	}
	return l.Page(s.Core, who, in.Query)
}

// UndoZoneChangeIn names a change.
type UndoZoneChangeIn struct {
	DomainID string `path:"domain_id"`
	ID       string `path:"id" example:"zch_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// UndoZoneChange makes a new change that undoes another one: each record set that it changed
// becomes as it was before. It returns an error if one of them has changed since.
func (s *Service) UndoZoneChange(ctx context.Context, who core.Actor, in UndoZoneChangeIn) (*ZoneChange, error) {
	out, err := s.editZone(ctx, who, in.DomainID, func(st *zoneState) (*zoneEdit, error) {
		change, rows, err := s.changeToUndo(st.domain, in.ID)
		if err != nil {
			return nil, err
		}
		e, err := st.undo(change, rows)
		if err == nil && change.Settings != nil && change.Settings.Apex != nil {
			err = s.undoApex(st, e, change.Settings)
		}
		if err != nil {
			return nil, err
		}
		e.kind, e.name, e.typ, e.mayReplace = store.ZoneChangeUndo, change.Name, change.Type, true
		e.target = store.AuditTarget{Type: "zone_change", ID: change.ID, Name: st.domain.Name}
		e.answer = func(r *zoneResult) any { return zoneChangeOut(r.domain.Name, r.change) }
		return e, nil
	})
	if err != nil {
		return nil, err
	}
	answer := zoneChangeOut(out.domain.Name, out.change)
	return &answer, nil
}

// changeToUndo reads a change of a domain and all custom records of the domain, also those of
// earlier generations. The caller must hold the lock of the account.
func (s *Service) changeToUndo(d *store.Domain, id string) (c *store.ZoneChange, rows []*store.CustomRecord, err error) {
	err = s.Store.View(func(tx *store.Tx) (err error) {
		c, err = store.ZoneChanges.Find(tx, id)
		if err == nil && (c == nil || c.DomainID != d.ID) {
			err = core.NotFound("change")
		}
		if err != nil {
			return err
		}
		for _, r := range store.CustomRecordsByDomain.Asc(tx, d.ID, "") {
			rows = append(rows, r)
		}
		for _, r := range store.CustomRecordsRemoved.Asc(tx, d.ID+".", "") {
			rows = append(rows, r)
		}
		return nil
	})
	return c, rows, err
}

// undo returns the change that undoes another one. rows are all custom records of the domain, also
// those of earlier generations. It returns an error if what the other change has made has changed
// since.
func (st *zoneState) undo(c *store.ZoneChange, rows []*store.CustomRecord) (*zoneEdit, error) {
	type setKey struct{ name, typ string }
	type content struct {
		value string
		ttl   int
	}
	changed := map[setKey]bool{}
	for _, r := range rows {
		if r.From == c.Generation || r.Until == c.Generation {
			changed[setKey{r.Name, r.Type}] = true
		}
	}
	before, after, now := map[setKey][]dnsprov.Record{}, map[setKey]map[content]bool{}, map[setKey][]*store.CustomRecord{}
	for _, r := range rows {
		key := setKey{r.Name, r.Type}
		if !changed[key] {
			continue
		}
		if r.LiveIn(c.Generation - 1) {
			before[key] = append(before[key], zonedata.CustomRecord(r))
		}
		if r.LiveIn(c.Generation) {
			if after[key] == nil {
				after[key] = map[content]bool{}
			}
			after[key][content{r.Value, r.TTL}] = true
		}
		if r.LiveIn(st.domain.ZoneGeneration) {
			now[key] = append(now[key], r)
		}
	}
	e := &zoneEdit{}
	for key := range changed {
		isOther := func(r *store.CustomRecord) bool { return !after[key][content{r.Value, r.TTL}] }
		if len(now[key]) != len(after[key]) || slices.ContainsFunc(now[key], isOther) {
			return nil, changedSince("The " + key.typ + " records of " + key.name + " were")
		}
		e.replaceSet(now[key], before[key])
	}
	if set := c.Settings; set != nil {
		policyChanged, spfChanged := set.DMARC != set.NewDMARC, !sameSPF(set.SPF, set.NewSPF)
		if policyChanged && st.domain.DMARC != set.NewDMARC || spfChanged && !sameSPF(st.domain.SPF, set.NewSPF) {
			return nil, changedSince("The DMARC policy or what is added to the SPF record was")
		}
		e.settings = sameSettings(st.domain)
		if policyChanged {
			e.settings.NewDMARC = set.DMARC
		}
		if spfChanged {
			e.settings.NewSPF = set.SPF
		}
	}
	return e, nil
}

// undoApex adds to a change that where the domain itself leads becomes as before another one.
func (s *Service) undoApex(st *zoneState, e *zoneEdit, set *store.ZoneSettings) error {
	if apexSetting(st.domain) != *set.NewApex {
		return changedSince("Where the domain itself leads was")
	}
	return s.setApex(st, e, store.DomainApex{Mode: set.Apex.Mode, Chosen: true, Alias: set.Apex.Alias})
}

func changedSince(what string) *core.Error {
	return core.Errorf("zone_changed", "%s changed since, so the change cannot be undone as a whole. Set the records as you want them.", what)
}

// forgetHistory deletes the changes of a domain that are too many, and the removed records that
// only they need, several in each transaction. The caller must hold the lock of the account.
func (s *Service) forgetHistory(domainID string) error {
	for {
		var changes, rows []string
		err := s.Store.View(func(tx *store.Tx) error {
			kept, removed, oldest := 0, 0, uint64(0)
			for _, c := range store.ZoneChangesByDomain.Desc(tx, domainID, "") {
				removed += c.Removed
				if len(changes) == 0 && (kept == 0 || kept < keptChanges && removed <= keptRows) {
					kept, oldest = kept+1, c.Generation
					continue
				}
				changes = append(changes, c.ID)
				if len(changes) == zonedata.RowsPerWrite {
					return nil
				}
			}
			for key, id := range store.CustomRecordsRemoved.Keys(tx, domainID+".", "") {
				if key >= store.RemovedKey(domainID, oldest) || len(rows) == zonedata.RowsPerWrite {
					break
				}
				rows = append(rows, id)
			}
			return nil
		})
		if err != nil || len(changes)+len(rows) == 0 {
			return err
		}
		err = s.Store.Update(func(tx *store.Tx) error {
			return errors.Join(core.DeleteAll(tx, store.ZoneChanges, changes), core.DeleteAll(tx, store.CustomRecords, rows))
		})
		if err != nil {
			return err
		}
	}
}
