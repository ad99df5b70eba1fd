package zones

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

const (
	EdgeName              = "Cloudflare" // the edge provider's name in texts
	cloudflarePermissions = "Zone → Zone → Read and Zone → DNS → Edit"
	maxCloudflareToken    = 500       // characters
	maxCloudflareWait     = time.Hour // longest delay before a job is retried, if Cloudflare asks for a delay
)

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
	case len(token) > maxCloudflareToken || strings.ContainsFunc(token, odd):
		return "", core.Invalid("edge_api_token", "invalid", "is no API token: it has at most %d letters, digits and signs, without spaces", maxCloudflareToken)
	}
	return token, nil
}

// ErrNoEdge returns the error for a request that needs Cloudflare if this installation does not use
// it.
func ErrNoEdge() *core.Error {
	return core.Errorf("not_configured", "This installation has no edge provider. Leave edge_api_token out to use Mailstead's nameservers, or set manual_dns.")
}

// cloudflareFailure converts an error of Cloudflare to an error with a text for people.
func cloudflareFailure(domain string, err error) *core.Error {
	var (
		wait    *dnsprov.Wait
		refused *dnsprov.Refused
	)
	switch conflicts := conflictsIn(err); {
	case len(conflicts) > 0:
		return core.Errorf("zone_conflict",
			"The zone of %s at %s has other records where Mailstead's belong: %s. None of them was changed. Remove them there, or change them to the expected values, then try again.",
			domain, EdgeName, conflictTexts(conflicts)).Because(err)
	case errors.Is(err, dnsprov.ErrCredential):
		return core.Errorf("edge_token_invalid",
			"%s does not accept the API token for %s, or the token lacks a permission. It needs %s for that zone. Create such a token there, and give it as edge_api_token.",
			EdgeName, domain, cloudflarePermissions).Because(err)
	case errors.Is(err, dnsprov.ErrZoneNotFound):
		return core.Errorf("zone_not_found",
			"%s has no zone for %s that the API token can see. Add the domain there, or give a token with the permissions %s for its zone.",
			EdgeName, domain, cloudflarePermissions).Because(err)
	case errors.As(err, &refused):
		return core.Errorf("upstream_error", "%s rejected the record %s: %s.", EdgeName, recordText(refused.Want), ClipName(refused.Err.Error())).
			With(store.DomainProviderCloudflare, "upstream_error", "does not take a record").Because(err)
	case errors.As(err, &wait):
		return core.Errorf("upstream_error", "%s is rate limiting us: retry in %s for %s.", EdgeName, wait.For.Round(time.Second), domain).
			With(store.DomainProviderCloudflare, "upstream_error", "asks to come again later").Because(err)
	}
	return core.Errorf("upstream_error", "%s could not complete the request for %s. Try again in a few minutes.", EdgeName, domain).
		With(store.DomainProviderCloudflare, "upstream_error", "did not answer as it should").Because(err)
}

// A cloudflareFault marks an error as caused by Cloudflare, not by this program.
type cloudflareFault struct{ error }

func (f cloudflareFault) Unwrap() error { return f.error }

// cloudflareJobError converts an error of Cloudflare to the error of a job. The job ends if a retry
// cannot help. It is retried at the time that Cloudflare asked for, if it asked for one. Otherwise
// it is retried after the Backoff of its kind.
func (s *Service) cloudflareJobError(ctx context.Context, domain string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ours := core.AsError(err); ours {
		return jobs.Permanent(err)
	}
	if !errors.As(err, new(cloudflareFault)) {
		return err
	}
	e := cloudflareFailure(domain, err)
	var wait *dnsprov.Wait
	switch {
	case errors.As(err, &wait):
		return jobs.RetryAt(s.Now().Add(min(max(wait.For, time.Second), maxCloudflareWait)), e)
	case e.Code == "upstream_error":
		return e
	}
	return jobs.Permanent(e)
}

// conflictsIn returns all conflicts that an error wraps.
func conflictsIn(err error) []*dnsprov.Conflict {
	switch e := err.(type) {
	case nil:
		return nil
	case *dnsprov.Conflict:
		return []*dnsprov.Conflict{e}
	case interface{ Unwrap() []error }:
		var out []*dnsprov.Conflict
		for _, one := range e.Unwrap() {
			out = append(out, conflictsIn(one)...)
		}
		return out
	}
	return conflictsIn(errors.Unwrap(err))
}

func conflictTexts(conflicts []*dnsprov.Conflict) string {
	var out []string
	for _, c := range conflicts {
		text := recordText(c.Have) + " where " + recordText(c.Want) + " is wanted"
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// ClipName shortens a name that is not valid, for use in an error text.
func ClipName(text string) string {
	const most = 253
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// recordText describes a record for use in a sentence. It shortens long values.
func recordText(r dnsprov.Record) string {
	const most = 80
	value := r.Value
	if r.Type == dnsprov.Flattened {
		r.Type = "CNAME"
	}
	if r.Type == "MX" {
		value = strconv.Itoa(int(r.Priority)) + " " + value
	}
	if len(value) > most {
		value = strings.ToValidUTF8(value[:most], "") + "…"
	}
	if value == "" { // a DKIM record whose key does not exist yet
		return r.Type + " " + r.Name
	}
	return fmt.Sprintf("%s %s %q", r.Type, r.Name, value)
}

const (
	probesAtOnce = 8                // names of one request that are checked at Cloudflare at the same time
	probeTimeout = 45 * time.Second // time limit for all names of a request
)

// A tokenChecker is a provider that can check an API token without a zone.
type tokenChecker interface {
	// Check returns dnsprov.ErrCredential if the token is not valid.
	Check(ctx context.Context) error
}

// checkCloudflareToken returns an error if a token is not valid. If the provider cannot check
// tokens, it returns nil.
func checkCloudflareToken(ctx context.Context, p dnsprov.Provider) error {
	if c, ok := p.(tokenChecker); ok {
		return c.Check(ctx)
	}
	return nil
}

// ProbeEdge asks Cloudflare whether names can be connected with a token: probesAtOnce names at the
// same time, within probeTimeout. For each name the result says why it cannot be connected; "" if
// it can.
func (s *Service) ProbeEdge(ctx context.Context, token string, names []string) (map[string]string, error) {
	why := map[string]string{}
	if s.Config.Edge == nil {
		for _, name := range names {
			why[name] = ErrNoEdge().Error()
		}
		return why, nil
	}
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	provider := s.Config.Edge(token)
	dead := checkCloudflareToken(within, provider)
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
				err = s.probeZone(within, provider, name)
			}
			mu.Lock()
			defer mu.Unlock()
			why[name] = ""
			if err != nil {
				why[name] = cloudflareFailure(name, err).Error()
			}
		})
	}
	wg.Wait()
	return why, ctx.Err()
}

// probeZone returns an error if Cloudflare has no zone for a name, or if the managed records
// conflict with records in it.
func (s *Service) probeZone(ctx context.Context, p dnsprov.Provider, name string) error {
	have, err := p.Records(ctx, dnsprov.ZoneRef{Domain: name, OwnerTag: "new"})
	if err != nil {
		return err
	}
	spec := s.Spec(&store.Domain{Name: name, DNSProvider: store.DomainProviderCloudflare})
	_, err = dnsprov.Compatible(have, dnsprov.Wanted(spec, store.DomainProviderCloudflare))
	return err
}

const (
	maxSyncWait        = 5 * time.Second // how long a request waits for its change to be made at Cloudflare
	maxSyncs           = 32              // syncs that run at the same time
	maxSyncsPerAccount = 8               // syncs that run at the same time for one account
)

const KindEdgeSync = "edge_sync"

// syncArgs are the arguments of an edge_sync job.
type syncArgs struct {
	DomainID string `json:"domain_id"`
}

// syncKind returns the kind of job that changes the records of a complete domain at Cloudflare to
// those in the store.
func (s *Service) syncKind() jobs.Kind {
	return jobs.Kind{
		Name: KindEdgeSync, Work: s.syncCloudflare, Max: 24, Timeout: 2 * syncTimeout, Most: maxSyncs, MostEach: maxSyncsPerAccount, Failed: s.syncFailed,
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

// SyncedToEdge reports whether edge_sync jobs keep the records of a domain at Cloudflare up to
// date, as they do for a complete domain.
func SyncedToEdge(d *store.Domain) bool {
	return d.DNSProvider == store.DomainProviderCloudflare && d.Status == store.DomainComplete
}

// syncCloudflare works on an edge_sync job.
func (s *Service) syncCloudflare(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[syncArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	name := ""
	err = s.withZoneLock(ctx, args.DomainID, func(w *zoneSync) error {
		name = w.d.Name
		return w.sync(false)
	})
	if err == nil || errors.Is(err, errNotAtCloudflare) {
		return nil, nil
	}
	return nil, s.cloudflareJobError(ctx, name, err)
}

// syncFailed shows in the domain and its custom records why the changes could not be made at
// Cloudflare.
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
	code, why := "internal_error", "The change failed at "+EdgeName+". See the log of this installation."
	if e, ok := core.AsError(cause); ok {
		code, why = e.Code, e.Message
	}
	d.EdgeError, d.EdgeErrorAt = why, tx.Now() // the error of all records that wait, see customRecordOut
	if d.Status == store.DomainComplete {
		d.StatusDetail = code + ": " + why
	}
	return store.Domains.Put(tx, d)
}

// awaitCloudflare waits for the job that makes a change at Cloudflare, up to maxSyncWait. After the
// job, the records in the store show its result.
func (s *Service) awaitCloudflare(ctx context.Context, jobID string) {
	if jobID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxSyncWait)
	defer cancel()
	_, _ = s.Queue.Wait(ctx, jobID)
}

// ApplyRedirect writes or deletes the address records of a redirect at Cloudflare. If another
// record conflicts with one of them, it writes the others and returns an error.
func (s *Service) ApplyRedirect(ctx context.Context, d *store.Domain) error {
	err := s.withZoneLock(ctx, d.ID, func(w *zoneSync) error {
		if err := w.sync(false); err != nil || len(w.conflicts) == 0 {
			return err
		}
		return cloudflareFault{joinConflicts(w.conflicts)}
	})
	if err == nil || errors.Is(err, errNotAtCloudflare) {
		return nil
	}
	return s.cloudflareJobError(ctx, d.Name, err)
}

// TryEdge returns an error if a sealed token cannot read the zone of a domain at Cloudflare. If
// needZone is false, the zone need not exist.
func (s *Service) TryEdge(ctx context.Context, d *store.Domain, sealed []byte, needZone bool) error {
	provider, err := s.cloudflareProvider(d.ID, sealed)
	if err != nil {
		return s.cloudflareJobError(ctx, d.Name, err)
	}
	if err = checkCloudflareToken(ctx, provider); err == nil {
		_, err = provider.Records(ctx, dnsprov.ZoneRef{Domain: d.Name, OwnerTag: d.ID})
	}
	if err != nil && (needZone || !errors.Is(err, dnsprov.ErrZoneNotFound)) {
		return s.cloudflareJobError(ctx, d.Name, cloudflareFault{err})
	}
	return nil
}

// ProvisionEdge writes all records of a domain at Cloudflare. It writes none if another record
// conflicts with a managed record. d is the domain as it was at the start; nil if the work did not
// start. If the domain's claim is open, active reports whether Cloudflare serves the zone.
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
		err = s.cloudflareJobError(ctx, of.Name, err)
	}
	return d, active, err
}

const (
	syncTimeout    = 2 * time.Minute // time limit for reading and writing a domain's records
	maxEraseRounds = 5               // how often records are read and deleted until none of ours is left
)

// errNotAtCloudflare is returned by withZoneLock and sync if a domain has no records at Cloudflare,
// or is being deleted.
var errNotAtCloudflare = errors.New("sync zone: the domain has no records at Cloudflare")

// A zoneSync is one attempt to change the records of a domain at Cloudflare to the wanted ones. It
// can be repeated after a crash at any point. To recognize our records there, they have a comment
// with the domain's ID. Their IDs are stored, too, in case somebody removes a comment.
type zoneSync struct {
	s             *Service
	ctx           context.Context
	d             *store.Domain         // the domain as it was at the start, but with its current EdgeRecords
	customRecords []*store.CustomRecord // the custom records as they were at the start
	provider      dnsprov.Provider
	at            dnsprov.ZoneRef
	conflicts     []*dnsprov.Conflict // conflicts of managed records with other records
	refused       map[string]string   // why the provider refuses a custom record, by the record's ID
}

// withZoneLock calls do for a domain at Cloudflare. For each domain only one call runs at a time.
// It returns errNotAtCloudflare if the domain has no records there.
func (s *Service) withZoneLock(ctx context.Context, domainID string, do func(*zoneSync) error) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	giveBack, err := s.cloudflareLocks.Lock(ctx, domainID)
	if err != nil {
		return err
	}
	defer giveBack()
	w := &zoneSync{s: s, ctx: ctx, refused: map[string]string{}}
	err = s.Store.View(func(tx *store.Tx) (err error) {
		w.d, err = store.Domains.Get(tx, domainID)
		if err != nil {
			return err
		}
		w.customRecords = liveRecords(tx, w.d)
		return nil
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && (w.d.DNSProvider != store.DomainProviderCloudflare || len(w.d.EdgeToken) == 0) {
		return errNotAtCloudflare
	}
	if err != nil {
		return err
	}
	w.provider, err = s.cloudflareProvider(w.d.ID, w.d.EdgeToken)
	if err != nil {
		return err
	}
	w.at = dnsprov.ZoneRef{Domain: w.d.Name, OwnerTag: w.d.ID}
	return do(w)
}

// cloudflareProvider returns a client for Cloudflare that uses a domain's sealed token.
func (s *Service) cloudflareProvider(domainID string, sealed []byte) (dnsprov.Provider, error) {
	if s.Config.Edge == nil {
		return nil, ErrNoEdge()
	}
	token, err := s.Keys.Open(store.EdgeBinding(domainID), sealed)
	if err != nil {
		return nil, err
	}
	return s.Config.Edge(string(token)), nil
}

// sync creates, changes and deletes records until they are the wanted ones. If another record
// conflicts with a managed record, strict decides: with strict, sync returns an error and changes
// nothing; otherwise it leaves out the managed record and adds the conflict to w.conflicts.
func (w *zoneSync) sync(strict bool) error {
	if w.d.Gone() {
		return errNotAtCloudflare
	}
	for {
		have, err := w.read()
		if err != nil {
			return err
		}
		fits, err := w.compatibleRecords(have)
		if err != nil {
			return err
		}
		if strict && len(w.conflicts) > 0 {
			return cloudflareFault{joinConflicts(w.conflicts)}
		}
		changes := dnsprov.Plan(have, fits)
		made, err := w.apply(changes)
		again := w.refuseCustomRecords(err)
		if noted := w.storeOwnRecords(have, changes, made, err == nil); noted != nil {
			return noted
		}
		if !again {
			return err
		}
	}
}

// isActive reports whether the provider serves the zone. If the provider cannot tell, active
// returns true.
func (w *zoneSync) isActive() (bool, error) {
	p, ok := w.provider.(interface {
		Delegated(ctx context.Context, domain string) (bool, error)
	})
	if !ok {
		return true, nil
	}
	active, err := p.Delegated(w.ctx, w.d.Name)
	if err != nil {
		return false, cloudflareFault{err}
	}
	return active, nil
}

// apply makes the changes at the provider, if there are any.
func (w *zoneSync) apply(changes []dnsprov.Change) ([]dnsprov.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	made, err := w.provider.Apply(w.ctx, w.at, changes)
	if err != nil {
		err = cloudflareFault{err}
	}
	return made, err
}

// read returns the records at the provider. A record counts as ours if it has our comment or its ID
// is stored.
func (w *zoneSync) read() ([]dnsprov.Record, error) {
	have, err := w.provider.Records(w.ctx, w.at)
	if err != nil {
		return nil, cloudflareFault{err}
	}
	for i, r := range have {
		if r.Purpose == "" && r.ID != "" {
			have[i].Purpose = w.d.EdgeRecords[r.ID]
		}
	}
	return have, nil
}

// compatibleRecords returns the wanted records that do not conflict with records of others.
func (w *zoneSync) compatibleRecords(have []dnsprov.Record) ([]dnsprov.Record, error) {
	spec := w.s.Spec(w.d)
	for _, c := range w.customRecords {
		if w.refused[c.ID] == "" {
			spec.Custom = append(spec.Custom, customRecord(c))
		}
	}
	want := dnsprov.Wanted(spec, store.DomainProviderCloudflare)
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
			if !w.refuseCustomRecord(c.Want, conflictText(c)) && !told {
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
		again = w.refuseCustomRecord(c.Want, conflictText(c)) || again
	}
	var refused *dnsprov.Refused
	if errors.As(err, &refused) {
		again = w.refuseCustomRecord(refused.Want, EdgeName+" does not take it: "+ClipName(refused.Err.Error())) || again
	}
	return again
}

// conflictText returns a text that says with which record a custom record conflicts.
func conflictText(c *dnsprov.Conflict) string {
	return fmt.Sprintf("It conflicts with %s, which exists at %s and is not Mailstead's. Remove that record there, then change this record or run setup again.",
		recordText(c.Have), EdgeName)
}

// refuseCustomRecord records why the provider refuses a custom record. It returns false if r is not
// a custom record, or if that was recorded before.
func (w *zoneSync) refuseCustomRecord(r dnsprov.Record, why string) bool {
	for _, own := range w.customRecords {
		if r.Purpose == dnsprov.PurposeCustom && w.refused[own.ID] == "" && own.Name == r.Name && own.Type == r.Type && own.Value == r.Text() {
			w.refused[own.ID] = why
			return true
		}
	}
	return false
}

// storeOwnRecords stores which of our records now exist at the provider. done means that all
// changes were made.
func (w *zoneSync) storeOwnRecords(have []dnsprov.Record, changes []dnsprov.Change, made []dnsprov.Record, done bool) error {
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
	err := w.s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, w.d.ID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		detail := d.StatusDetail
		code, _, _ := strings.Cut(detail, ": ")
		ofTheEdge := slices.Contains([]string{"zone_conflict", "zone_not_found", "edge_token_invalid", "upstream_error", "internal_error"}, code)
		if done && d.Status == store.DomainComplete && (len(w.conflicts) > 0 || ofTheEdge) {
			detail = conflictDetail(d.Name, w.conflicts)
		}
		w.d.EdgeRecords = ours
		failed := d.EdgeError
		if done {
			failed = ""
		}
		if maps.Equal(d.EdgeRecords, ours) && d.StatusDetail == detail && d.EdgeError == failed {
			return nil
		}
		d.EdgeRecords, d.StatusDetail, d.EdgeError = ours, detail, failed
		return store.Domains.Put(tx, d)
	})
	if err != nil || !done {
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

// conflictDetail returns the status_detail of a complete domain that lacks records because of
// conflicts.
func conflictDetail(domain string, conflicts []*dnsprov.Conflict) string {
	if len(conflicts) == 0 {
		return ""
	}
	return fmt.Sprintf("zone_conflict: %s lacks records at %s, since other records are in their place: %s. Remove those there, then run setup again.",
		domain, EdgeName, conflictTexts(conflicts))
}

// joinConflicts returns the conflicts as one error.
func joinConflicts(conflicts []*dnsprov.Conflict) error {
	var all []error
	for _, c := range conflicts {
		all = append(all, c)
	}
	return errors.Join(all...)
}

// erase deletes our records at the provider. It repeats this until none is left, because requests
// from before a crash may still take effect.
func (w *zoneSync) erase() error {
	for range maxEraseRounds {
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
	return cloudflareFault{fmt.Errorf("delete records of %s at Cloudflare: some remain after several attempts", w.d.Name)}
}

// After so many attempts to delete records at Cloudflare, the domain is deleted even if records
// remain there.
const (
	eraseTriesRefused = 3  // for errors that retrying rarely helps: the token is invalid, or the zone does not exist
	eraseTriesFailed  = 10 // for all other errors; about 45 minutes
)

// EraseEdgeRecords deletes our records at Cloudflare, in the given attempt of a job. After the last
// attempt it returns no error even if it failed, so that the domain can be deleted. Then remains
// says which records are left.
func (s *Service) EraseEdgeRecords(ctx context.Context, d *store.Domain, attempt int) (remains string, err error) {
	err = s.withZoneLock(ctx, d.ID, (*zoneSync).erase)
	if err == nil || errors.Is(err, errNotAtCloudflare) {
		return "", nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	e, ours := core.AsError(err)
	if !ours && !errors.As(err, new(cloudflareFault)) {
		return "", err
	}
	if !ours {
		e = cloudflareFailure(d.Name, err)
	}
	tries := eraseTriesRefused
	if e.Code == "upstream_error" {
		tries = eraseTriesFailed
	}
	if attempt >= tries {
		return e.Code + ": " + e.Message + " " + s.remainsAtCloudflare(d), nil
	}
	var wait *dnsprov.Wait
	if errors.As(err, &wait) {
		return "", s.cloudflareJobError(ctx, d.Name, err)
	}
	return "", e
}

// remainsAtCloudflare returns a text that says which of our records may remain at Cloudflare.
func (s *Service) remainsAtCloudflare(d *store.Domain) string {
	mark := "The domain is deleted here. Records with a comment that begins with mailstead:" + d.ID + " are to be deleted at " + EdgeName + " by hand"
	if len(d.EdgeRecords) == 0 {
		return mark + ", if there are any."
	}
	purposes := map[string]int{}
	for _, p := range d.EdgeRecords {
		purposes[p]++
	}
	var names []string
	for _, r := range dnsprov.Wanted(s.Spec(d), store.DomainProviderCloudflare) {
		if name := r.Type + " " + r.Name; purposes[r.Purpose] > 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := purposes[dnsprov.PurposeCustom]; n > 0 {
		names = append(names, strconv.Itoa(n)+" of your own")
	}
	return mark + ": " + strings.Join(names, ", ") + "."
}
