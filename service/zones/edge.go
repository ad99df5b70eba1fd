package zones

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const maxEdgeToken = 500 // characters

// CleanEdgeToken validates the Cloudflare token of a request. It returns "" if there is none.
func CleanEdgeToken(given *string) (string, error) {
	if given == nil {
		return "", nil
	}
	token := strings.TrimSpace(*given)
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case token == "":
		return "", core.Invalid("edge_api_token", "invalid", "is empty; leave it out to use our own nameservers")
	case len(token) > maxEdgeToken || strings.ContainsFunc(token, odd):
		return "", core.Invalid("edge_api_token", "invalid", "is no API token: it has at most %d letters, digits and signs, without spaces", maxEdgeToken)
	}
	return token, nil
}

// An EdgeAccess is how the records of a domain are reached at a DNS provider: by a token of the
// domain, or by a credential of the account.
type EdgeAccess struct {
	Provider     string
	Token        string // of Cloudflare; "": there is a credential
	CredentialID string // "": there is a token
}

// fault marks an error as caused by the provider.
func (a EdgeAccess) fault(err error) error {
	a.Token = ""
	return edgeFault{err, a}
}

// TokenAccess returns the access by a sealed token of a domain.
func (s *Service) TokenAccess(domainID string, sealed []byte) (EdgeAccess, error) {
	token, err := s.Keys.Open(store.EdgeBinding(domainID), sealed)
	return EdgeAccess{Provider: store.DomainProviderCloudflare, Token: string(token)}, err
}

// edgeAccess returns the access to the provider of a domain.
func (s *Service) edgeAccess(d *store.Domain) (EdgeAccess, error) {
	if d.DNSCredentialID != "" {
		return EdgeAccess{Provider: d.DNSProvider, CredentialID: d.DNSCredentialID}, nil
	}
	return s.TokenAccess(d.ID, d.EdgeToken)
}

// CheckEdge returns an error if a provider is a DNS provider by API that this installation does not
// support.
func (s *Service) CheckEdge(provider string) error {
	if store.IsEdge(provider) && s.Config.DNS[provider] == nil {
		return errNoEdge(provider)
	}
	return nil
}

// openEdge returns the client of a DNS provider. It sends nothing.
func (s *Service) openEdge(a EdgeAccess) (dnsprov.Provider, error) {
	open := s.Config.DNS[a.Provider]
	if open == nil {
		return nil, errNoEdge(a.Provider)
	}
	if a.CredentialID == "" {
		return open(core.DNSAccess{Secrets: map[string]string{"token": a.Token}})
	}
	var c *store.DNSCredential
	err := s.Store.View(func(tx *store.Tx) (err error) {
		c, err = store.DNSCredentials.Find(tx, a.CredentialID)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, core.Errorf("credential_invalid", "The DNS credential %s does not exist any more.", a.CredentialID)
	}
	return s.openCredential(c)
}

const (
	probesAtOnce = 8                // names of one request that are checked at a provider at the same time
	probeTimeout = 45 * time.Second // time limit for all names of a request
)

// A tokenChecker is a provider that can check its token or credential without a zone.
type tokenChecker interface {
	// Check returns dnsprov.ErrCredential if the token is not valid.
	Check(ctx context.Context) error
}

// checkEdge returns an error if the token or credential of a provider is not valid. If the provider
// cannot check it, checkEdge returns nil.
func checkEdge(ctx context.Context, p dnsprov.Provider) error {
	if c, ok := p.(tokenChecker); ok {
		return c.Check(ctx)
	}
	return nil
}

// ProbeEdge asks a DNS provider whether names can be connected there: probesAtOnce names at the
// same time, within probeTimeout. For each name the result says why it cannot be connected; "" if
// it can. With replace, records of others that Mailstead may replace do not count.
func (s *Service) ProbeEdge(ctx context.Context, access EdgeAccess, names []string, replace bool) (map[string]string, error) {
	why := map[string]string{}
	provider, err := s.openEdge(access)
	if e, refused := core.AsError(err); refused {
		for _, name := range names {
			why[name] = e.Error()
		}
		return why, nil
	}
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	dead := checkEdge(within, provider)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		slots = make(chan struct{}, probesAtOnce)
	)
	for _, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := dead
			if err == nil {
				err = s.probeZone(within, provider, access.Provider, name, replace)
			}
			mu.Lock()
			defer mu.Unlock()
			why[name] = ""
			if err != nil {
				why[name] = access.failure(name, err).Error()
			}
		})
	}
	wg.Wait()
	if err := s.noteUse(access, dead); err != nil {
		return nil, err
	}
	return why, ctx.Err()
}

// probeZone returns an error if the provider has no zone for a name, or if the managed records
// conflict with records in it.
func (s *Service) probeZone(ctx context.Context, p dnsprov.Provider, kind, name string, replace bool) error {
	d := &store.Domain{Name: name, DNSProvider: kind, Replace: replace}
	want := dnsprov.Wanted(s.Spec(d), kind)
	have, err := p.Records(ctx, dnsprov.ZoneRef{Domain: name, OwnerTag: "new", Ask: setsToRead(want, nil)})
	if err != nil {
		return err
	}
	mine, want, _ := takeOver(d, have, want)
	_, err = dnsprov.Compatible(mine, want)
	return err
}

// setsToRead returns the sets that a provider is asked for if it cannot list its zone: those of the
// wanted records, those that could conflict with them, and those of records of ours. ours has the
// purposes of our records by their ID.
func setsToRead(want []dnsprov.Record, ours ownRecords) []dnsprov.Set {
	var out []dnsprov.Set
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

const KindEdgeSync = "edge_sync"

// syncArgs are the arguments of an edge_sync job.
type syncArgs struct {
	DomainID string `json:"domain_id"`
}

// syncKind returns the kind of job that changes the records of a complete domain at its DNS
// provider to those in the store.
func (s *Service) syncKind() jobs.Kind {
	return jobs.Kind{
		Name: KindEdgeSync, Work: s.syncAtEdge, Max: 24, Timeout: 2 * syncTimeout, Most: maxSyncs, MostEach: maxSyncsPerAccount, Failed: s.syncFailed,
	}
}

// AddEdgeSync queues an edge_sync job if the domain is complete. Before that, its setup writes the
// records. id is the ID of the job; "" if there is none.
func (s *Service) AddEdgeSync(tx *store.Tx, d *store.Domain) (id string, err error) {
	if !SyncedToEdge(d) {
		return "", nil
	}
	j, err := s.Queue.Add(tx, jobs.New{AccountID: d.AccountID, Kind: KindEdgeSync, Key: d.ID, Lane: "edge " + d.ID, Args: syncArgs{d.ID}})
	if err != nil {
		return "", err
	}
	return j.ID, nil
}

// SyncedToEdge reports whether edge_sync jobs keep the records of a domain at its DNS provider up
// to date, as they do for a complete domain.
func SyncedToEdge(d *store.Domain) bool { return d.AtEdge() && d.Status == store.DomainComplete }

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
	return nil, s.edgeJobError(ctx, name, err)
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
	code, why := "internal_error", "The change failed at "+EdgeName(d.DNSProvider)+". See the log of this installation."
	if e, ok := core.AsError(cause); ok {
		code, why = e.Code, e.Message
	}
	d.EdgeError, d.EdgeErrorAt = why, tx.Now() // the error of all records that wait, see customRecordOut
	if d.Status == store.DomainComplete {
		d.StatusDetail = code + ": " + why
	}
	return store.Domains.Put(tx, d)
}

// awaitEdge waits for the job that makes a change at a DNS provider, up to maxSyncWait. After the
// job, the records in the store show its result.
func (s *Service) awaitEdge(ctx context.Context, jobID string) {
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
	return s.edgeJobError(ctx, d.Name, err)
}

// TryEdge returns an error if the zone of a domain cannot be read at a DNS provider. If needZone is
// false, the zone need not exist.
func (s *Service) TryEdge(ctx context.Context, d *store.Domain, access EdgeAccess, needZone bool) error {
	provider, err := s.openEdge(access)
	if err != nil {
		return s.edgeJobError(ctx, d.Name, err)
	}
	err = checkEdge(ctx, provider)
	if err == nil {
		want := dnsprov.Wanted(s.Spec(d), access.Provider)
		_, err = provider.Records(ctx, dnsprov.ZoneRef{Domain: d.Name, OwnerTag: d.ID, Ask: setsToRead(want, nil)})
	}
	if noted := s.noteUse(access, err); noted != nil {
		return noted
	}
	if err != nil && (needZone || !errors.Is(err, dnsprov.ErrZoneNotFound)) {
		return s.edgeJobError(ctx, d.Name, access.fault(err))
	}
	return nil
}

// ProvisionEdge writes all records of a domain at its DNS provider. It writes none if another
// record conflicts with a managed record. d is the domain as it was at the start; nil if the work
// did not start. If the domain's claim is open, active reports whether Cloudflare serves the zone;
// of other providers it is false, because their customers may have zones of any name.
func (s *Service) ProvisionEdge(ctx context.Context, of *store.Domain) (d *store.Domain, active bool, err error) {
	err = s.withZoneLock(ctx, of.ID, func(w *zoneSync) error {
		d = w.d
		err := w.sync(true)
		if err == nil && d.Claim == store.ClaimOpen {
			active, err = w.isActive()
		}
		return err
	})
	if err != nil {
		err = s.edgeJobError(ctx, of.Name, err)
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
	access        EdgeAccess
	provider      dnsprov.Provider
	moving        bool                // it is about the provider to which the domain moves, see store.DomainMove
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
	giveBack, err := s.edgeLocks.Lock(ctx, domainID)
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
		w.customRecords, known = liveRecords(tx, w.d), ownRecordsOf(tx, domainID)
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
		w.access = EdgeAccess{Provider: w.d.Move.Provider, CredentialID: w.d.Move.CredentialID}
	default:
		w.access, err = s.edgeAccess(w.d)
	}
	if err == nil {
		err = w.loadOwn(known)
	}
	if err == nil {
		w.provider, err = s.openEdge(w.access)
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
		d, err := store.Domains.Get(tx, w.d.ID)
		if errors.Is(err, store.ErrNotFound) || err == nil && !w.isOf(d) {
			return errNotAtEdge
		}
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
	changed := 0
	for {
		want := w.wanted()
		have, err := w.read(want)
		if err != nil {
			return err
		}
		mine, want, replaced := takeOver(w.d, have, want)
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
		if noted := w.storeOwnRecords(have, changes, made, err); noted != nil {
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
	return dnsprov.ZoneRef{Domain: w.d.Name, OwnerTag: w.d.ID, Ask: setsToRead(want, w.own)}
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
	spec := w.s.Spec(w.d)
	for _, c := range w.customRecords {
		if w.refused[c.ID] == "" {
			spec.Custom = append(spec.Custom, customRecord(c))
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
			return fits, err
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
		if r.Purpose == dnsprov.PurposeCustom && w.refused[own.ID] == "" && w.canonical(customRecord(own)).Same(r) {
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
			d, err := store.Domains.Get(tx, w.d.ID)
			if errors.Is(err, store.ErrNotFound) || err == nil && !w.isOf(d) {
				return errNotAtEdge
			}
			if err != nil {
				return err
			}
			addReplaced(d, replaced)
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

// storeOwnRecords stores which of our records now exist at the provider, after changes were applied
// with the result failed.
func (w *zoneSync) storeOwnRecords(have []dnsprov.Record, changes []dnsprov.Change, made []dnsprov.Record, failed error) error {
	done := failed == nil
	err := w.writeOwn(w.ownRecords(have, changes, made, failed))
	if errors.Is(err, errNotAtEdge) {
		return nil
	}
	if err != nil {
		return err
	}
	err = w.s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, w.d.ID)
		if errors.Is(err, store.ErrNotFound) || err == nil && !w.isOf(d) {
			return nil
		}
		if err != nil {
			return err
		}
		detail := d.StatusDetail
		code, _, _ := strings.Cut(detail, ": ")
		ofTheEdge := slices.Contains([]string{"zone_conflict", "zone_not_found", "edge_token_invalid", "credential_invalid", "upstream_error", "internal_error"}, code)
		if done && d.Status == store.DomainComplete && !w.moving && (len(w.conflicts) > 0 || ofTheEdge) {
			detail = conflictDetail(d, w.conflicts)
		}
		why := d.EdgeError
		if done && !w.moving {
			why = ""
		}
		replace := d.Replace && !done // it is meant for the first time alone
		if d.StatusDetail == detail && d.EdgeError == why && d.Replace == replace {
			return nil
		}
		d.StatusDetail, d.EdgeError, d.Replace = detail, why, replace
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
	for part := range slices.Chunk(changed, rowsPerWrite) {
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

// erase deletes our records at the provider. It repeats this until none is left, because requests
// from before a crash may still take effect.
func (w *zoneSync) erase() error {
	for range maxEraseRounds {
		have, err := w.read(nil)
		if err != nil {
			return err
		}
		changes := dnsprov.Plan(have, nil)
		if len(changes) == 0 {
			return nil
		}
		_, err = w.apply(changes, nil)
		if err != nil && !errors.Is(err, dnsprov.ErrChanged) {
			return err
		}
	}
	return w.access.fault(fmt.Errorf("delete records of %s: some remain after several attempts", w.d.Name))
}

// After so many attempts to delete records at a DNS provider, the domain is deleted even if records
// remain there.
const (
	eraseTriesRefused = 3  // for errors that retrying rarely helps: the token is invalid, or the zone does not exist
	eraseTriesFailed  = 10 // for all other errors; about 45 minutes
)

// EraseEdgeRecords deletes our records at the DNS provider, in the given attempt of a job. After
// the last attempt it returns no error even if it failed, so that the domain can be deleted. Then
// remains says which records are left.
func (s *Service) EraseEdgeRecords(ctx context.Context, d *store.Domain, attempt int) (remains string, err error) {
	err = s.withMoveLock(ctx, d.ID, (*zoneSync).erase)
	if err == nil || errors.Is(err, errNotAtEdge) {
		err = s.withZoneLock(ctx, d.ID, (*zoneSync).erase)
	}
	if err == nil || errors.Is(err, errNotAtEdge) {
		return "", nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	e, ours := core.AsError(err)
	var fault edgeFault
	if !ours && !errors.As(err, &fault) {
		return "", err
	}
	if !ours {
		e = fault.access.failure(d.Name, err)
	}
	tries := eraseTriesRefused
	if e.Code == "upstream_error" {
		tries = eraseTriesFailed
	}
	if attempt >= tries {
		mark, err := s.remainsAtEdge(d)
		return e.Code + ": " + e.Message + " " + mark, err
	}
	var wait *dnsprov.Wait
	if errors.As(err, &wait) {
		return "", s.edgeJobError(ctx, d.Name, err)
	}
	return "", e
}

// remainsAtEdge returns a text that says which of our records may remain at the DNS provider.
func (s *Service) remainsAtEdge(d *store.Domain) (string, error) {
	purposes := map[string]int{}
	err := s.Store.View(func(tx *store.Tx) error {
		for _, purpose := range ownRecordsOf(tx, d.ID)[d.EdgePlace] {
			purposes[purpose]++
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	mark := "The domain is deleted here. Its records are to be deleted at " + EdgeName(d.DNSProvider) + " by hand"
	if d.DNSProvider == store.DomainProviderCloudflare {
		mark = "The domain is deleted here. Records with a comment that begins with mailstead:" + d.ID + " are to be deleted at " + EdgeName(d.DNSProvider) + " by hand"
	}
	if len(purposes) == 0 {
		return mark + ", if there are any.", nil
	}
	var names []string
	for _, r := range dnsprov.Wanted(s.Spec(d), d.DNSProvider) {
		if name := r.Type + " " + r.Name; purposes[r.Purpose] > 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := purposes[dnsprov.PurposeCustom]; n > 0 {
		names = append(names, strconv.Itoa(n)+" of your own")
	}
	return mark + ": " + strings.Join(names, ", ") + ".", nil
}
