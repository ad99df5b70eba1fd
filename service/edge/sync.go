package edge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// setsToRead returns the sets that a provider is asked for if it cannot list its zone: those of the
// wanted records, those that could conflict with them, those for mail of the domain itself, and
// those of records of ours. ours has the purposes of our records by their ID.
func setsToRead(domain string, want []dnsprov.Record, ours ownRecords) []dnsprov.Set {
	out := []dnsprov.Set{{Name: domain, Type: "MX"}, {Name: domain, Type: "TXT"}, {Name: "_dmarc." + domain, Type: "TXT"}}
	for _, r := range want {
		switch r.Type {
		case "A", "AAAA":
			out = append(out, dnsprov.Set{Name: r.Name, Type: "A"}, dnsprov.Set{Name: r.Name, Type: "AAAA"})
		default:
			out = append(out, dnsprov.Set{Name: r.Name, Type: r.Type})
		}
	}
	for key := range ours {
		if typ, rest, isKey := strings.Cut(key, " "); isKey {
			name, _, _ := strings.Cut(rest, " ")
			out = append(out, dnsprov.Set{Name: name, Type: typ})
		}
	}
	slices.SortFunc(out, func(a, b dnsprov.Set) int { return strings.Compare(a.Name+" "+a.Type, b.Name+" "+b.Type) })
	return slices.Compact(out)
}

const (
	maxSyncWait        = 5 * time.Second // how long a request waits for its change to be made at the DNS provider
	maxSyncs           = 32              // syncs that run at the same time
	maxSyncsPerAccount = 8               // syncs that run at the same time for one account
)

// KindSync is the kind of job that changes the records of a complete domain at its DNS provider.
const KindSync = "edge_sync"

// syncArgs are the arguments of an edge_sync job.
type syncArgs struct {
	DomainID string `json:"domain_id"`
}

// syncKind returns the kind of job that changes the records of a complete domain at its DNS
// provider to those in the store.
func (s *Service) syncKind() jobs.Kind {
	return jobs.Kind{
		Name: KindSync, Work: s.syncAtEdge, Max: 24, Timeout: 2 * syncTimeout, Most: maxSyncs, MostEach: maxSyncsPerAccount, Failed: s.syncFailed,
	}
}

// AddSync queues an edge_sync job if the domain is complete. Before that, its setup writes the
// records. id is the ID of the job; "" if there is none.
func (s *Service) AddSync(tx *store.Tx, d *store.Domain) (id string, err error) {
	if !IsSynced(d) {
		return "", nil
	}
	j, err := s.Queue.Add(tx, jobs.New{AccountID: d.AccountID, Kind: KindSync, Key: d.ID, Lane: "edge " + d.ID, Args: syncArgs{d.ID}})
	if err != nil {
		return "", err
	}
	return j.ID, nil
}

// IsSynced reports whether edge_sync jobs keep the records of a domain at its DNS provider up
// to date, as they do for a complete domain.
func IsSynced(d *store.Domain) bool { return d.AtEdge() && d.Status == store.DomainComplete }

// syncAtEdge works on an edge_sync job.
func (s *Service) syncAtEdge(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[syncArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	name := ""
	err = s.withZoneLock(ctx, args.DomainID, func(w *zoneSync) error {
		name = w.d.Name
		return w.sync(false)
	})
	if err == nil || errors.Is(err, errNotAtEdge) {
		return nil, nil
	}
	return nil, s.jobError(ctx, name, err)
}

// syncFailed shows in the domain and its custom records why the changes could not be made at its
// DNS provider.
func (s *Service) syncFailed(tx *store.Tx, j *store.Job, cause error) error {
	args, err := jobs.Args[syncArgs](j)
	if err != nil {
		return nil // the job names no domain
	}
	d, err := store.Domains.Get(tx, args.DomainID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	code, why := "internal_error", "The change failed at "+Name(d.DNSProvider)+". See the log of this installation."
	if e, ok := core.AsError(cause); ok {
		code, why = e.Code, e.Message
	}
	d.EdgeError, d.EdgeErrorAt = why, tx.Now() // the error of all records that wait, see customRecordOut
	if d.Status == store.DomainComplete {
		d.StatusDetail = code + ": " + why
	}
	return store.Domains.Put(tx, d)
}

// Wait waits for the job that makes a change at a DNS provider, up to maxSyncWait. After the
// job, the records in the store show its result.
func (s *Service) Wait(ctx context.Context, jobID string) {
	if jobID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxSyncWait)
	defer cancel()
	_, _ = s.Queue.Wait(ctx, jobID)
}

// ApplyRedirect writes or deletes the address records of a redirect at the DNS provider. If another
// record conflicts with one of them, it writes the others and returns an error.
func (s *Service) ApplyRedirect(ctx context.Context, d *store.Domain) error {
	err := s.withZoneLock(ctx, d.ID, func(w *zoneSync) error {
		if err := w.sync(false); err != nil || len(w.conflicts) == 0 {
			return err
		}
		return w.access.fault(joinConflicts(w.conflicts))
	})
	if err == nil || errors.Is(err, errNotAtEdge) {
		return nil
	}
	return s.jobError(ctx, d.Name, err)
}

// Provision writes all records of a domain at its DNS provider. It writes none if another
// record conflicts with a managed record. d is the domain as it was at the start; nil if the work
// did not start. If the domain's claim is open, active reports whether Cloudflare serves the zone;
// of other providers it is false, because their customers may have zones of any name.
func (s *Service) Provision(ctx context.Context, of *store.Domain) (d *store.Domain, active bool, err error) {
	err = s.withZoneLock(ctx, of.ID, func(w *zoneSync) error {
		d = w.d
		err := w.sync(true)
		if err == nil && d.Claim == store.ClaimOpen {
			active, err = w.isActive()
		}
		return err
	})
	if err != nil {
		err = s.jobError(ctx, of.Name, err)
	}
	return d, active, err
}

const (
	syncTimeout     = 2 * time.Minute // time limit for reading and writing a domain's records
	maxEraseRounds  = 5               // how often records are read and deleted until none of ours is left
	maxChangedTimes = 5               // how often records are read anew because somebody else has changed them
)

// errNotAtEdge is returned by withZoneLock and sync if the records of a domain are not kept at a
// DNS provider, or the domain is being deleted.
var errNotAtEdge = errors.New("sync zone: the records of the domain are not kept at a DNS provider")

// A zoneSync is one attempt to change the records of a domain at a DNS provider to the wanted ones.
// It can be repeated after a crash at any point. To recognize our records at Cloudflare, they have
// a comment with the domain's ID; their IDs are stored, too, in case somebody removes a comment.
// Other providers cannot mark records. There the ID of a record is its dnsprov.Record.Key, and the
// IDs of the records that are about to be made are stored before they are made.
type zoneSync struct {
	s             *Service
	ctx           context.Context
	d             *store.Domain         // the domain as it was at the start, but with its current records
	customRecords []*store.CustomRecord // the custom records as they were at the start
	own           ownRecords            // the records that we have made at the provider
	access        Access
	provider      dnsprov.Provider
	moving        bool                // it is about the provider to which the domain moves, see store.DomainMove
	otherMX       []dnsprov.Record    // MX records of others at the domain itself
	conflicts     []*dnsprov.Conflict // conflicts of managed records with other records
	refused       map[string]string   // why the provider refuses a custom record, by the record's ID
}

// withZoneLock calls do for a domain whose records are kept at a DNS provider. For each domain only
// one call runs at a time. It returns errNotAtEdge if the records are not kept there.
func (s *Service) withZoneLock(ctx context.Context, domainID string, do func(*zoneSync) error) error {
	return s.lockZone(ctx, domainID, false, do)
}

// withMoveLock is like withZoneLock for the provider to which a domain moves.
func (s *Service) withMoveLock(ctx context.Context, domainID string, do func(*zoneSync) error) error {
	return s.lockZone(ctx, domainID, true, do)
}

func (s *Service) lockZone(ctx context.Context, domainID string, moving bool, do func(*zoneSync) error) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	giveBack, err := s.locks.Lock(ctx, domainID)
	if err != nil {
		return err
	}
	defer giveBack()
	w := &zoneSync{s: s, ctx: ctx, moving: moving, refused: map[string]string{}}
	var known map[uint32]ownRecords
	err = s.Store.View(func(tx *store.Tx) (err error) {
		w.d, err = store.Domains.Get(tx, domainID)
		if err != nil {
			return err
		}
		w.customRecords, known = zonedata.LiveRecords(tx, w.d), ownRecordsOf(tx, domainID)
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return errNotAtEdge
	}
	if err != nil {
		return err
	}
	switch {
	case moving && w.d.Move == nil, !moving && (!w.d.AtEdge() || len(w.d.EdgeToken) == 0 && w.d.DNSCredentialID == ""):
		return errNotAtEdge
	case moving:
		w.access = Access{Provider: w.d.Move.Provider, CredentialID: w.d.Move.CredentialID, replaceCall: moveCall(w.d)}
	default:
		w.access, err = s.accessOf(w.d)
		w.access.replaceCall = ReplaceCall(w.d)
	}
	w.access.replaces = w.d.Replace
	if err == nil {
		err = w.loadOwn(known)
	}
	if err == nil {
		w.provider, err = s.open(w.access)
	}
	if err != nil {
		return err
	}
	err = do(w)
	if noted := s.noteUse(w.access, err); noted != nil {
		return noted
	}
	return err
}

// place returns the EdgeRecord.Place of the provider.
func (w *zoneSync) place() uint32 {
	if w.moving {
		return w.d.Move.Place
	}
	return w.d.EdgePlace
}

// loadOwn finds the records that we have made at the provider among those that are known by their
// place. It forgets those at places that are not used any more. At the beginning of a move to the
// same provider it copies them, since they may be in the same zone. It writes nothing for a domain
// that is being deleted, whose rows may be erased already.
func (w *zoneSync) loadOwn(known map[uint32]ownRecords) error {
	copies := w.moving && w.d.Move.CopyRecords
	if w.d.Gone() {
		w.own = known[w.place()]
		if copies {
			w.own = w.own.with(known[w.d.EdgePlace])
		}
		return nil
	}
	for place, records := range known {
		if place == w.d.EdgePlace || w.d.Move != nil && place == w.d.Move.Place {
			continue
		}
		if err := writeOwnRecords(w.s.Store, w.d.ID, place, records, nil, w.check); err != nil {
			return err
		}
	}
	w.own = known[w.place()]
	if !copies {
		return nil
	}
	if err := w.writeOwn(w.own.with(known[w.d.EdgePlace])); err != nil {
		return err
	}
	return w.s.Store.Update(func(tx *store.Tx) error {
		d, err := w.current(tx)
		if err != nil {
			return err
		}
		d.Move.CopyRecords = false
		return store.Domains.Put(tx, d)
	})
}

// writeOwn stores which records at the provider are ours.
func (w *zoneSync) writeOwn(now ownRecords) error {
	before := w.own
	w.own = now
	return writeOwnRecords(w.s.Store, w.d.ID, w.place(), before, now, w.check)
}

// check returns errNotAtEdge if the records of the domain are not those at the provider any more.
func (w *zoneSync) check(tx *store.Tx) error {
	d, err := store.Domains.FindShared(tx, w.d.ID)
	if err == nil && (d == nil || !w.isOf(d)) {
		err = errNotAtEdge
	}
	return err
}

// current returns the domain as it is now. The error is that of check.
func (w *zoneSync) current(tx *store.Tx) (*store.Domain, error) {
	if err := w.check(tx); err != nil {
		return nil, err
	}
	return store.Domains.Get(tx, w.d.ID)
}

// isOf reports whether the records of a domain are still those at the provider.
func (w *zoneSync) isOf(d *store.Domain) bool {
	if w.moving {
		return d.Move != nil && d.Move.Place == w.d.Move.Place
	}
	return d.DNSProvider == w.access.Provider && d.DNSCredentialID == w.access.CredentialID && d.EdgePlace == w.d.EdgePlace
}

// marks reports whether the provider marks our records, so that they need not be known by their
// values.
func (w *zoneSync) marks() bool { return w.access.Provider == store.DomainProviderCloudflare }

// sync creates, changes and deletes records until they are the wanted ones. If another record
// conflicts with a managed record, strict decides: with strict, sync returns an error and changes
// nothing; otherwise it leaves out the managed record and adds the conflict to w.conflicts. If
// somebody else changes records at the same time, sync begins anew.
func (w *zoneSync) sync(strict bool) error {
	if w.d.Gone() {
		return errNotAtEdge
	}
	if err := w.leaveMail(); err != nil {
		return err
	}
	changed := 0
	for {
		have, err := w.read(w.wanted())
		if err != nil {
			return err
		}
		if err := w.adoptPolicy(have); err != nil {
			return err
		}
		mine, want, replaced := takeOver(w.d, have, w.wanted())
		w.otherMX = otherMX(w.d, mine, want)
		fits, err := w.compatibleRecords(mine, want)
		if err != nil {
			return err
		}
		if strict && len(w.conflicts) > 0 {
			return w.access.fault(joinConflicts(w.conflicts))
		}
		changes := dnsprov.Plan(mine, fits)
		made, err := w.apply(changes, replaced)
		again := w.refuseCustomRecords(err)
		if noted := w.storeResult(have, changes, made, replaced, err); noted != nil {
			return noted
		}
		if errors.Is(err, dnsprov.ErrChanged) && changed < maxChangedTimes {
			changed++
			again = true
		}
		if !again {
			return err
		}
	}
}

// isActive reports whether the provider is known to serve the zone.
func (w *zoneSync) isActive() (bool, error) {
	p, ok := w.provider.(interface {
		Delegated(ctx context.Context, domain string) (bool, error)
	})
	if !ok {
		return false, nil
	}
	active, err := p.Delegated(w.ctx, w.d.Name)
	if err != nil {
		return false, w.access.fault(err)
	}
	return active, nil
}

// apply makes the changes at the provider, if there are any. Before that it stores what is about to
// be made, and what of others is about to be replaced.
func (w *zoneSync) apply(changes []dnsprov.Change, replaced []dnsprov.Record) ([]dnsprov.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	if err := w.storeIntents(changes, replaced); err != nil {
		return nil, err
	}
	made, err := w.provider.Apply(w.ctx, w.at(nil), changes)
	if err != nil {
		err = w.access.fault(err)
	}
	return made, err
}

// at returns the records of the domain at the provider; want has those that are wanted.
func (w *zoneSync) at(want []dnsprov.Record) dnsprov.ZoneRef {
	return dnsprov.ZoneRef{Domain: w.d.Name, OwnerTag: w.d.ID, Ask: setsToRead(w.d.Name, want, w.own)}
}

// read returns the records at the provider. A record counts as ours if it has our comment or its ID
// is stored.
func (w *zoneSync) read(want []dnsprov.Record) ([]dnsprov.Record, error) {
	have, err := w.provider.Records(w.ctx, w.at(want))
	if err != nil {
		return nil, w.access.fault(err)
	}
	for i, r := range have {
		if r.Purpose == "" && r.ID != "" {
			have[i].Purpose = w.own[r.ID]
		}
	}
	return have, nil
}

// wanted returns the records that the domain should have at the provider, without custom records
// that were refused.
func (w *zoneSync) wanted() []dnsprov.Record {
	spec := zonedata.Spec(w.s.Core, w.d)
	for _, c := range w.customRecords {
		if w.refused[c.ID] == "" {
			spec.Custom = append(spec.Custom, zonedata.CustomRecord(c))
		}
	}
	want := dnsprov.Wanted(spec, w.access.Provider)
	for i, r := range want {
		want[i] = w.canonical(r)
	}
	return want
}

// canonical returns a wanted record with its value in the form in which the provider returns it.
// Cloudflare returns texts as they are.
func (w *zoneSync) canonical(r dnsprov.Record) dnsprov.Record {
	rr, err := r.RR()
	if err != nil || w.marks() && r.Type == "TXT" {
		return r
	}
	out := dnsprov.RecordOf(rr)
	out.Purpose, out.Critical = r.Purpose, r.Critical
	return out
}

// compatibleRecords returns the wanted records that do not conflict with records of others.
func (w *zoneSync) compatibleRecords(have, want []dnsprov.Record) ([]dnsprov.Record, error) {
	w.conflicts = nil
	for {
		fits, err := dnsprov.Compatible(have, want)
		conflicts := conflictsIn(err)
		if len(conflicts) == 0 {
			return besideOthers(fits, have, w.conflicts), err
		}
		before := len(want)
		for _, c := range conflicts {
			want = withoutRecord(want, c.Want)
			told := slices.ContainsFunc(w.conflicts, func(o *dnsprov.Conflict) bool { return o.Have == c.Have })
			if !w.refuseCustomRecord(c.Want, conflictText(w.access.Provider, c)) && !told {
				w.conflicts = append(w.conflicts, c)
			}
		}
		if len(want) == before {
			return nil, err
		}
	}
}

// withoutRecord returns the records except the given one.
func withoutRecord(records []dnsprov.Record, one dnsprov.Record) []dnsprov.Record {
	var out []dnsprov.Record
	for _, r := range records {
		if r != one {
			out = append(out, r)
		}
	}
	return out
}

// refuseCustomRecords records which custom records the provider has refused, according to its
// error. It reports whether the sync must be repeated without them.
func (w *zoneSync) refuseCustomRecords(err error) (again bool) {
	for _, c := range conflictsIn(err) {
		again = w.refuseCustomRecord(c.Want, conflictText(w.access.Provider, c)) || again
	}
	for _, refused := range errorsIn[*dnsprov.Refused](err) {
		again = w.refuseCustomRecord(refused.Want, "The DNS provider does not take it: "+ClipName(refused.Err.Error())) || again
	}
	return again
}

// refuseCustomRecord records why the provider refuses a custom record. It returns false if r is not
// a custom record, or if that was recorded before.
func (w *zoneSync) refuseCustomRecord(r dnsprov.Record, why string) bool {
	for _, own := range w.customRecords {
		if r.Purpose == dnsprov.PurposeCustom && w.refused[own.ID] == "" && w.canonical(zonedata.CustomRecord(own)).Same(r) {
			w.refused[own.ID] = why
			return true
		}
	}
	return false
}

// storeIntents stores the IDs of the records that are about to be made, unless the provider marks
// them, and the records of others that are about to be replaced. So neither a crash nor a lost
// answer makes us forget them.
func (w *zoneSync) storeIntents(changes []dnsprov.Change, replaced []dnsprov.Record) error {
	intents := ownRecords{}
	for _, c := range changes {
		if c.Want != nil && !w.marks() {
			intents[c.Want.Key()] = c.Want.Purpose
		}
	}
	if len(replaced) > 0 {
		err := w.s.Store.Update(func(tx *store.Tx) error {
			d, err := w.current(tx)
			if err != nil {
				return err
			}
			addReplaced(d, replaced)
			if slices.ContainsFunc(replaced, dnsprov.Record.IsSPF) {
				d.SPF = addSPF(d.SPF, w.d.SPF)
			}
			w.d.Replaced = d.Replaced
			return store.Domains.Put(tx, d)
		})
		if err != nil {
			return err
		}
	}
	return w.writeOwn(w.own.with(intents))
}

// ownRecords returns the IDs and purposes of the records that are ours at the provider after
// changes were applied with the result err. If it is not known what was made, what may have been
// made counts as ours.
func (w *zoneSync) ownRecords(have []dnsprov.Record, changes []dnsprov.Change, made []dnsprov.Record, err error) ownRecords {
	ours := ownRecords{}
	for _, r := range append(have[:len(have):len(have)], made...) {
		if r.Purpose != "" && r.ID != "" {
			ours[r.ID] = r.Purpose
		}
	}
	nothingElse := err == nil || errors.Is(err, dnsprov.ErrChanged) || len(conflictsIn(err)) > 0
	for _, c := range changes {
		if c.Want != nil && !nothingElse && !w.marks() {
			ours[c.Want.Key()] = c.Want.Purpose
		}
	}
	if err != nil {
		return ours
	}
	remain := map[string]bool{} // what an update has made may have the ID of what it has replaced
	for _, r := range made {
		remain[r.ID] = true
	}
	for _, c := range changes {
		if c.Have != nil && !remain[c.Have.ID] && (c.Op == dnsprov.Delete || !w.marks()) {
			delete(ours, c.Have.ID)
		}
	}
	return ours
}

// storeResult stores which of our records now exist at the provider, and what that means for the
// domain, after changes were applied with the result failed. replaced are the records of others
// among those that were changed.
func (w *zoneSync) storeResult(have []dnsprov.Record, changes []dnsprov.Change, made, replaced []dnsprov.Record, failed error) error {
	done := failed == nil
	err := w.writeOwn(w.ownRecords(have, changes, made, failed))
	if errors.Is(err, errNotAtEdge) {
		return nil
	}
	if err != nil {
		return err
	}
	err = w.s.Store.Update(func(tx *store.Tx) error {
		d, err := w.current(tx)
		if errors.Is(err, errNotAtEdge) {
			return nil
		}
		if err != nil {
			return err
		}
		detail := d.StatusDetail
		code, _, _ := strings.Cut(detail, ": ")
		ofTheEdge := slices.Contains([]string{"zone_conflict", "zone_not_found", "edge_token_invalid", "credential_invalid", "upstream_error", "internal_error"}, code)
		if done && d.Status == store.DomainComplete && !w.moving && (len(w.conflicts) > 0 || ofTheEdge) {
			detail = conflictDetail(d, w.access, w.conflicts)
		}
		why := d.EdgeError
		if done && !w.moving {
			why = ""
		}
		// They are meant for the first time alone. One that was set meanwhile is for the next.
		replace, replaceDMARC := d.Replace && !(done && w.d.Replace), d.ReplaceDMARC && !(done && w.d.ReplaceDMARC)
		others, policy := d.ForeignMX, d.ForeignDMARC
		if done && !w.moving {
			others = storedMX(w.otherMX)
			if slices.ContainsFunc(replaced, func(r dnsprov.Record) bool { return isPolicy(d, r) }) {
				policy = ""
			}
		}
		if d.StatusDetail == detail && d.EdgeError == why && d.Replace == replace && d.ReplaceDMARC == replaceDMARC &&
			d.ForeignDMARC == policy && slices.Equal(d.ForeignMX, others) {
			return nil
		}
		d.StatusDetail, d.EdgeError, d.Replace, d.ReplaceDMARC, d.ForeignDMARC, d.ForeignMX = detail, why, replace, replaceDMARC, policy, others
		return store.Domains.Put(tx, d)
	})
	if err != nil || !done || w.moving {
		return err
	}
	return w.storeStatuses()
}

// storeStatuses stores which custom records the provider has, and which it has refused, several in
// each transaction. It leaves out records that have changed in the meantime.
func (w *zoneSync) storeStatuses() error {
	var changed []*store.CustomRecord
	for _, c := range w.customRecords {
		now := *c
		now.Status, now.Error = store.CustomRecordActive, w.refused[c.ID]
		if now.Error != "" {
			now.Status = store.CustomRecordError
		}
		if now != *c {
			changed = append(changed, &now)
		}
	}
	for part := range slices.Chunk(changed, zonedata.RowsPerWrite) {
		err := w.s.Store.Update(func(tx *store.Tx) error {
			for _, c := range part {
				now, err := store.CustomRecords.Find(tx, c.ID)
				if err != nil {
					return err
				}
				if now == nil || !now.UpdatedAt.Equal(c.UpdatedAt) {
					continue
				}
				now.Status, now.Error = c.Status, c.Error
				if err := store.CustomRecords.Put(tx, now); err != nil {
					return err
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

// ForeignRecords returns the records at the DNS provider of a domain that are neither wanted nor
// ours.
func (s *Service) ForeignRecords(ctx context.Context, d *store.Domain, wanted []dnsprov.Record) ([]dnsprov.Record, error) {
	var have []dnsprov.Record
	err := s.withZoneLock(ctx, d.ID, func(w *zoneSync) (err error) {
		have, err = w.read(wanted)
		return err
	})
	if errors.Is(err, errNotAtEdge) {
		return nil, nil
	}
	var fault providerFault
	if errors.As(err, &fault) {
		return nil, fault.access.failure(d.Name, err)
	}
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, r := range wanted {
		known[r.Key()] = true
	}
	var out []dnsprov.Record
	for _, r := range have {
		if r.Type == dnsprov.Flattened {
			r.Type = "CNAME"
		}
		if r.Purpose == "" && !known[r.Key()] {
			out = append(out, r)
		}
	}
	return out, nil
}
