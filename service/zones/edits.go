package zones

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

const (
	maxCustomRecords  = 5_000   // custom records of one domain
	maxAccountRecords = 100_000 // custom records of the domains of one account
	maxEditTries      = 5       // how often a change of the custom records is planned again because the domain has changed meanwhile
)

// A zoneState is what a change of the custom records of a domain starts from. All of it was read in
// one transaction.
type zoneState struct {
	domain   *store.Domain
	live     []*store.CustomRecord // the present custom records, the oldest first
	source   *zoneSource
	reserved []dnsprov.Record // managed records, see reservedRecords
	fixed    []dnsprov.Record // those of reserved that no set of the owner replaces
	below    []string         // names of connected domains below this one
	others   int              // custom records of the account's other domains
}

// A zoneEdit is a change of the custom records of a domain.
type zoneEdit struct {
	kind      string                // one of the store.ZoneChange… constants
	name, typ string                // of the record set that changes; "": several
	add       []*store.CustomRecord // new records, without IDs
	change    []*store.CustomRecord // present records with new content
	end       []*store.CustomRecord // records that are removed
	settings  *store.ZoneSettings   // what changes beside records; nil: nothing
	apex      *store.DomainApex     // where the domain itself leads then, without the owner's addresses; nil: as before
	target    store.AuditTarget     // of the audit row; if it has no ID, it gets that of the store.ZoneChange
	// mayReplace lets records replace ours at www, which are there for a redirect.
	mayReplace bool
	// within changes other fields of the domain in the transaction of the change; nil: none change.
	within func(*store.Tx, *store.Domain) error
	// answer returns the answer of the operation, to be stored with its Idempotency-Key; nil: the
	// operation accepts no such key.
	answer func(*zoneResult) any
	also   func(*store.Tx) error // what is written with the change, also if nothing changes; nil: nothing
}

// rows returns how many custom records a change writes.
func (e *zoneEdit) rows() int { return len(e.add) + 2*len(e.change) + len(e.end) }

// isEmpty reports whether an edit need not be written. One that undoes another always is, so that
// it is among the changes.
func (e *zoneEdit) isEmpty() bool {
	return e.rows() == 0 && e.settings == nil && e.apex == nil && e.within == nil && e.kind != store.ZoneChangeUndo
}

// A zoneResult is what a change of custom records has written.
type zoneResult struct {
	domain  *store.Domain
	change  *store.ZoneChange     // nil: there was nothing to change
	records []*store.CustomRecord // the new and the changed records
	job     string                // ID of the job that makes the change at the DNS provider; "": none
}

// editZone changes the custom records of a domain: draft returns the change. Changes of one
// account's zones are made one after the other, so that they see each other's records. editZone
// returns when our own server serves the change. At a DNS provider it takes longer, so it
// waits up to maxSyncWait.
func (s *Service) editZone(ctx context.Context, who core.Actor, domainID string, draft func(*zoneState) (*zoneEdit, error)) (*zoneResult, error) {
	out, err := s.editLocked(ctx, who, domainID, draft)
	if err != nil {
		return nil, err
	}
	s.awaitZone(ctx, out.domain, out.job)
	return out, nil
}

// awaitZone waits until our own server serves the zone of a domain as it is in the store, and for
// the job that makes a change at a DNS provider, see edge.Service.Wait.
func (s *Service) awaitZone(ctx context.Context, d *store.Domain, job string) {
	if s.HasZone(d) {
		s.MakeZones()
	}
	s.edge.Wait(ctx, job)
}

func (s *Service) editLocked(ctx context.Context, who core.Actor, domainID string, draft func(*zoneState) (*zoneEdit, error)) (*zoneResult, error) {
	unlock, err := s.zoneLocks.Lock(ctx, who.AccountID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for range maxEditTries {
		st, err := s.readState(ctx, who, domainID)
		if err != nil {
			return nil, err
		}
		e, err := draft(st)
		if err != nil {
			return nil, err
		}
		if err := st.checkEdit(e); err != nil {
			return nil, err
		}
		out, err := s.writeEdit(ctx, who, st, e)
		if errors.Is(err, errZoneMoved) {
			continue
		}
		if err == nil && out.change != nil {
			if err := s.forgetHistory(out.domain.ID); err != nil { // the next change tries again
				s.LogOf(ctx).Error("could not delete the old changes of a zone", "domain", out.domain.Name, "error", err)
			}
		}
		return out, err
	}
	return nil, core.Errorf("domain_busy", "The records of the domain are being changed by another request. Try again in a moment.")
}

// errZoneMoved is returned by writeEdit if the domain has changed since the change was planned.
var errZoneMoved = errors.New("write zone: the domain has changed in the meantime")

// readState reads what a change of custom records starts from. Before that it removes what an
// interrupted change has left. The caller must hold the lock of the account.
func (s *Service) readState(ctx context.Context, who core.Actor, domainID string) (*zoneState, error) {
	for {
		var st *zoneState
		err := s.Store.View(func(tx *store.Tx) error {
			d, err := zonedata.ChangeableDomain(tx, who, domainID)
			if err != nil {
				return err
			}
			st = &zoneState{domain: d}
			if d.ZoneStaged {
				return nil
			}
			st = s.stateOf(tx, d)
			for _, id := range store.DomainsByAccount.Keys(tx, d.AccountID, "") {
				if id != d.ID {
					st.others += store.CustomRecordsByDomain.Count(tx, id, 0)
				}
			}
			return nil
		})
		if err != nil || !st.domain.ZoneStaged {
			return st, err
		}
		if err := s.sweepStaged(ctx, st.domain.ID); err != nil {
			return nil, err
		}
	}
}

// stateOf returns the state of a domain, without the records of the account's other domains.
func (s *Service) stateOf(tx *store.Tx, d *store.Domain) *zoneState {
	st := &zoneState{domain: d, live: zonedata.LiveRecords(tx, d)}
	st.source = s.zoneSourceOf(tx, d, st.live)
	s.setReserved(st)
	st.below = s.domainsBelow(tx, d)
	return st
}

// setReserved sets the managed records of a state from the specification of its zone.
func (s *Service) setReserved(st *zoneState) {
	st.reserved = s.reservedRecords(st.source.Spec, st.domain.DNSProvider)
	st.fixed = slices.DeleteFunc(slices.Clone(st.reserved), func(r dnsprov.Record) bool {
		return r.Purpose == dnsprov.PurposeA && !r.Critical && r.Name == "www."+st.domain.Name
	})
}

// domainsBelow returns the names of the domains below d that belong to the same account or are
// served here.
func (s *Service) domainsBelow(tx *store.Tx, d *store.Domain) []string {
	var out []string
	for _, sub := range store.DomainsUnder.Asc(tx, store.ReverseLabels(d.Name), "") {
		if sub.Name != d.Name && !sub.Gone() && (sub.AccountID == d.AccountID || s.serves(tx, sub)) {
			out = append(out, sub.Name)
		}
	}
	return out
}

// writeEdit writes a change that was planned for a state. If it has more than zonedata.RowsPerWrite
// records, it first writes them in several transactions, which changes no zone yet. The last
// transaction makes them the present generation. It returns errZoneMoved if the state is out of
// date; then it has changed nothing.
func (s *Service) writeEdit(ctx context.Context, who core.Actor, st *zoneState, e *zoneEdit) (*zoneResult, error) {
	if e.isEmpty() {
		out := &zoneResult{domain: st.domain}
		if e.answer == nil {
			return out, nil
		}
		return out, s.Store.Update(func(tx *store.Tx) error {
			if e.also != nil {
				if err := e.also(tx); err != nil {
					return err
				}
			}
			return once.KeepAnswer(ctx, s.Core, tx, e.answer(out))
		})
	}
	next := st.domain.ZoneGeneration + 1
	var staged []*store.CustomRecord
	large := e.rows() > zonedata.RowsPerWrite
	if large {
		var err error
		staged, err = s.stageEdit(ctx, st, e, next)
		if err != nil {
			return nil, errors.Join(err, s.sweepStaged(context.WithoutCancel(ctx), st.domain.ID))
		}
		killpoint.At("zone.staged")
	}
	var out *zoneResult
	addresses := st.apexAddresses(e)
	err := s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		d, err := zonedata.ChangeableDomain(tx, who, st.domain.ID)
		if err != nil {
			return err
		}
		if d.ZoneGeneration != st.domain.ZoneGeneration || !d.ZoneChangedAt.Equal(st.domain.ZoneChangedAt) || d.ZoneStaged != large {
			return errZoneMoved
		}
		out = &zoneResult{domain: d, records: staged}
		if !large {
			out.records, err = writeRows(tx, d, e, next)
			if err != nil {
				return err
			}
		}
		d.ZoneGeneration, d.ZoneStaged = next, false
		if e.settings != nil {
			applySettings(tx, d, e.settings)
		}
		e.applyApex(d, addresses)
		if e.within != nil {
			if err := e.within(tx, d); err != nil {
				return err
			}
		}
		out.change = &store.ZoneChange{
			ID: tx.NewID("zch"), DomainID: d.ID, Generation: next, Kind: e.kind, By: actorName(who), Name: e.name, Type: e.typ,
			Added: len(e.add) + len(e.change), Removed: len(e.end) + len(e.change), CreatedAt: tx.Now(), Settings: e.settings,
		}
		target := e.target
		target.ID = cmp.Or(target.ID, out.change.ID)
		if err := errors.Join(store.ZoneChanges.Put(tx, out.change), core.Audit(tx, who, target)); err != nil {
			return err
		}
		if e.also != nil {
			if err := e.also(tx); err != nil {
				return err
			}
		}
		out.job, err = s.putZoneWithJob(tx, d)
		if err != nil || e.answer == nil {
			return err
		}
		return once.KeepAnswer(ctx, s.Core, tx, e.answer(out))
	})
	if err != nil && large {
		err = errors.Join(err, s.sweepStaged(context.WithoutCancel(ctx), st.domain.ID))
	}
	return out, err
}

// actorName returns the name of whoever makes a request, as in the audit log.
func actorName(who core.Actor) string {
	switch {
	case who.Request == nil:
		return "Mailstead"
	case who.TokenID == core.LocalToken:
		return "operator"
	case who.TokenKind == core.SessionKind:
		return who.Email
	}
	return who.TokenName
}

// sameSettings returns the settings of a domain as a change has them that changes none.
func sameSettings(d *store.Domain) *store.ZoneSettings {
	return &store.ZoneSettings{DMARC: d.DMARC, NewDMARC: d.DMARC, SPF: d.SPF, NewSPF: d.SPF}
}

// applySettings sets the settings of a domain that a change of its zone sets.
func applySettings(tx *store.Tx, d *store.Domain, set *store.ZoneSettings) {
	if set.NewDMARC != d.DMARC {
		d.DMARC, d.DMARCAt = set.NewDMARC, time.Time{}
		if d.DMARC != "" {
			d.DMARCAt = tx.Now()
		}
	}
	d.SPF = set.NewSPF
}

// stageEdit writes the records of a change for the generation next, in several transactions. They
// have no effect before the domain has that generation. If it fails, or the program ends,
// sweepStaged removes what it has written.
func (s *Service) stageEdit(ctx context.Context, st *zoneState, e *zoneEdit, next uint64) (written []*store.CustomRecord, err error) {
	err = s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, st.domain.ID)
		if err != nil {
			return err
		}
		if d.ZoneGeneration != st.domain.ZoneGeneration {
			return errZoneMoved
		}
		d.ZoneStaged = true
		return store.Domains.Put(tx, d)
	})
	if err != nil {
		return nil, err
	}
	var parts []*zoneEdit
	for rows := range slices.Chunk(e.end, zonedata.RowsPerWrite) {
		parts = append(parts, &zoneEdit{end: rows})
	}
	for rows := range slices.Chunk(e.change, zonedata.RowsPerWrite/2) {
		parts = append(parts, &zoneEdit{change: rows})
	}
	for rows := range slices.Chunk(e.add, zonedata.RowsPerWrite) {
		parts = append(parts, &zoneEdit{add: rows})
	}
	for _, part := range parts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var rows []*store.CustomRecord
		err := s.Store.Update(func(tx *store.Tx) error {
			tx.For(ctx)
			d, err := store.Domains.Get(tx, st.domain.ID)
			if err != nil {
				return err
			}
			if d.Gone() {
				return errZoneMoved // its records are being deleted
			}
			rows, err = writeRows(tx, d, part, next)
			return err
		})
		if err != nil {
			return nil, err
		}
		written = append(written, rows...)
		killpoint.At("zone.part")
	}
	return written, nil
}

// writeRows writes the records of a change for the generation next. It returns the new and the
// changed records.
func writeRows(tx *store.Tx, d *store.Domain, e *zoneEdit, next uint64) (written []*store.CustomRecord, err error) {
	put := func(r *store.CustomRecord) {
		r.DomainID, r.From, r.UpdatedAt = d.ID, next, tx.Now()
		if d.AtEdge() {
			r.Status, r.Error = store.CustomRecordPending, ""
		}
		written = append(written, r)
		err = errors.Join(err, store.CustomRecords.Put(tx, r))
	}
	for _, r := range e.end {
		gone := *r
		gone.Until = next
		err = errors.Join(err, store.CustomRecords.Put(tx, &gone))
	}
	for _, r := range e.change {
		before, getErr := store.CustomRecords.Get(tx, r.ID)
		if getErr != nil {
			return nil, getErr
		}
		before.ID, before.Was, before.Until = tx.NewID("rec"), r.ID, next
		err = errors.Join(err, store.CustomRecords.Put(tx, before))
		changed := *r
		put(&changed)
	}
	for _, r := range e.add {
		added := *r
		added.ID, added.CreatedAt = tx.NewID("rec"), tx.Now()
		put(&added)
	}
	return written, err
}

// sweepStaged removes what a change of the custom records has written that did not end: new records
// are deleted, and removed and changed ones are as before. The caller must hold the lock of the
// account.
func (s *Service) sweepStaged(ctx context.Context, domainID string) error {
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var removed, added []string
		err := s.Store.View(func(tx *store.Tx) error {
			d, err := store.Domains.Find(tx, domainID)
			if d == nil || err != nil {
				return err
			}
			for _, r := range store.CustomRecordsRemoved.Asc(tx, d.ID+".", store.RemovedKey(d.ID, d.ZoneGeneration+1)) {
				removed = append(removed, r.ID)
				if len(removed) == zonedata.RowsPerWrite/2 {
					break
				}
			}
			if len(removed) > 0 { // they may bring back the content of records that were changed
				return nil
			}
			for _, r := range store.CustomRecordsByDomain.Asc(tx, d.ID, "") {
				if r.From > d.ZoneGeneration {
					added = append(added, r.ID)
				}
				if len(added) == zonedata.RowsPerWrite {
					return nil
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		more = len(removed)+len(added) > 0
		err = s.Store.Update(func(tx *store.Tx) error {
			tx.MayUseReserve()
			d, err := store.Domains.Find(tx, domainID)
			if d == nil || err != nil || !d.ZoneStaged {
				return err
			}
			for _, id := range removed {
				r, err := store.CustomRecords.Find(tx, id)
				if r == nil || err != nil {
					return err
				}
				r.Until = 0
				if r.Was != "" { // the old content of a record that was changed
					r.ID, r.Was = r.Was, ""
					err = store.CustomRecords.Delete(tx, id)
				}
				if err := errors.Join(err, store.CustomRecords.Put(tx, r)); err != nil {
					return err
				}
			}
			if more {
				return core.DeleteAll(tx, store.CustomRecords, added)
			}
			d.ZoneStaged = false
			return store.Domains.Put(tx, d)
		})
		if err != nil {
			return err
		}
		killpoint.At("zone.swept")
	}
	return nil
}

// sweepZones removes what changes of custom records have left that the end of the program has
// interrupted.
func (s *Service) sweepZones(ctx context.Context) error {
	var staged []*store.Domain
	err := s.Store.View(func(tx *store.Tx) error {
		for _, d := range store.DomainsStaged.Asc(tx, "staged", "") {
			staged = append(staged, d)
		}
		return nil
	})
	for _, d := range staged {
		unlock, lockErr := s.zoneLocks.Lock(ctx, d.AccountID)
		if lockErr != nil {
			return errors.Join(err, lockErr)
		}
		err = errors.Join(err, s.sweepStaged(ctx, d.ID))
		unlock()
	}
	return err
}
