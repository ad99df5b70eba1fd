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
	EdgeName     = "Cloudflare" // the edge provider, for people
	edgeRights   = "Zone → Zone → Read and Zone → DNS → Edit"
	maxEdgeToken = 500 // characters
	edgeWaitMost = time.Hour
)

// EdgeToken gives the token of a request in its one form; "" if there is none.
func EdgeToken(given *string) (string, error) {
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

// ErrNoEdge refuses what needs Cloudflare where this installation does not use it.
func ErrNoEdge() *core.Error {
	return core.Errorf("not_configured", "This installation has no edge provider. Leave edge_api_token out to use Mailstead's nameservers, or set manual_dns.")
}

// edgeFailure says to people, in the error of a job or of a name, what became of a question to the
// edge provider.
func edgeFailure(domain string, err error) *core.Error {
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
			EdgeName, domain, edgeRights).Because(err)
	case errors.Is(err, dnsprov.ErrZoneNotFound):
		return core.Errorf("zone_not_found",
			"%s has no zone for %s that the API token can see. Add the domain there, or give a token with the permissions %s for its zone.",
			EdgeName, domain, edgeRights).Because(err)
	case errors.As(err, &refused):
		return core.Errorf("upstream_error", "%s rejected the record %s: %s.", EdgeName, recordText(refused.Want), Clip(refused.Err.Error())).
			With(store.DomainProviderCloudflare, "upstream_error", "does not take a record").Because(err)
	case errors.As(err, &wait):
		return core.Errorf("upstream_error", "%s is rate limiting us: retry in %s for %s.", EdgeName, wait.For.Round(time.Second), domain).
			With(store.DomainProviderCloudflare, "upstream_error", "asks to come again later").Because(err)
	}
	return core.Errorf("upstream_error", "%s could not complete the request for %s. Try again in a few minutes.", EdgeName, domain).
		With(store.DomainProviderCloudflare, "upstream_error", "did not answer as it should").Because(err)
}

// An edgeFault is an error of the edge provider's, in contrast to our own.
type edgeFault struct{ error }

func (f edgeFault) Unwrap() error { return f.error }

// edgeOutcome is the error of a job that an error of the edge provider leads to: given up at once,
// at another time, or as the kind has it.
func (s *Service) edgeOutcome(ctx context.Context, domain string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ours := core.AsError(err); ours {
		return jobs.Permanent(err)
	}
	if !errors.As(err, new(edgeFault)) {
		return err
	}
	e := edgeFailure(domain, err)
	var wait *dnsprov.Wait
	switch {
	case errors.As(err, &wait):
		return jobs.RetryAt(s.Now().Add(min(max(wait.For, time.Second), edgeWaitMost)), e)
	case e.Code == "upstream_error":
		return e
	}
	return jobs.Permanent(e)
}

// conflictsIn finds every conflict in the tree of an error.
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

// Clip shortens what is no name for the answer that says so.
func Clip(text string) string {
	const most = 253
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// recordText is a record as a person knows it. The value of a text is cut.
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
	if value == "" { // of a key that is not made yet
		return r.Type + " " + r.Name
	}
	return fmt.Sprintf("%s %s %q", r.Type, r.Name, value)
}

const (
	probesAtOnce = 8                // names of one request that the edge provider is asked about
	probesFor    = 45 * time.Second // all of one request
)

// A tokenChecker is a provider that can tell of a token at once whether it is good for anything.
type tokenChecker interface {
	// Check is dnsprov.ErrCredential for a token that is not.
	Check(ctx context.Context) error
}

// checkEdgeToken asks whether a token is good, as far as that can be known without a zone.
func checkEdgeToken(ctx context.Context, p dnsprov.Provider) error {
	if c, ok := p.(tokenChecker); ok {
		return c.Check(ctx)
	}
	return nil
}

// ScoutEdge asks the edge provider about names that are to be connected by a token, a bounded
// number at a time and for a bounded time in all. For each name that it asked about it gives why it
// cannot be connected, or "".
func (s *Service) ScoutEdge(ctx context.Context, token string, names []string) (map[string]string, error) {
	why := map[string]string{}
	if s.Config.Edge == nil {
		for _, name := range names {
			why[name] = ErrNoEdge().Error()
		}
		return why, nil
	}
	within, cancel := context.WithTimeout(ctx, probesFor)
	defer cancel()
	provider := s.Config.Edge(token)
	dead := checkEdgeToken(within, provider)
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
				err = s.scoutZone(within, provider, name)
			}
			mu.Lock()
			defer mu.Unlock()
			why[name] = ""
			if err != nil {
				why[name] = edgeFailure(name, err).Error()
			}
		})
	}
	wg.Wait()
	return why, ctx.Err()
}

// scoutZone looks whether there is a zone for a name, with room for the records that it will need.
func (s *Service) scoutZone(ctx context.Context, p dnsprov.Provider, name string) error {
	have, err := p.Records(ctx, dnsprov.ZoneRef{Domain: name, OwnerTag: "new"})
	if err != nil {
		return err
	}
	spec := s.Spec(&store.Domain{Name: name, DNSProvider: store.DomainProviderCloudflare})
	_, err = dnsprov.Compatible(have, dnsprov.Wanted(spec, store.DomainProviderCloudflare))
	return err
}

const (
	edgeAwaited   = 5 * time.Second // by a request, until its change is at the edge provider
	edgeSyncsMost = 32              // at a time
	edgeSyncsEach = 8               // of one account
)

const KindEdgeSync = "edge_sync"

// syncArgs are those of an edge_sync.
type syncArgs struct {
	DomainID string `json:"domain_id"`
}

// edgeSyncKind brings the records of a complete domain at the edge provider to what a transaction
// has made of them here.
func (s *Service) edgeSyncKind() jobs.Kind {
	return jobs.Kind{
		Name: KindEdgeSync, Work: s.syncEdge, Max: 24, Timeout: 2 * edgeWorksFor, Most: edgeSyncsMost, MostEach: edgeSyncsEach, Failed: s.edgeSyncFailed,
	}
}

// AddEdgeSync queues it, if the domain is complete: until then its provisioning sees to its
// records. The job's id is "" if there is none.
func (s *Service) AddEdgeSync(tx *store.Tx, d *store.Domain) (id string, err error) {
	if !AtEdgeNow(d) {
		return "", nil
	}
	j, err := s.Queue.Add(tx, jobs.New{AccountID: d.AccountID, Kind: KindEdgeSync, Key: d.ID, Lane: "edge " + d.ID, Args: syncArgs{d.ID}})
	if err != nil {
		return "", err
	}
	return j.ID, nil
}

// AtEdgeNow reports whether the records of a domain are to be kept at the edge provider at any
// time.
func AtEdgeNow(d *store.Domain) bool {
	return d.DNSProvider == store.DomainProviderCloudflare && d.Status == store.DomainComplete
}

func (s *Service) syncEdge(ctx context.Context, j *store.Job) (jobs.Writes, error) {
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
	return nil, s.edgeOutcome(ctx, name, err)
}

// edgeSyncFailed shows why changes are not at the edge provider.
func (s *Service) edgeSyncFailed(tx *store.Tx, j *store.Job, cause error) error {
	args, err := jobs.Args[syncArgs](j)
	if err != nil {
		return nil // a job that names no domain cannot have failed for one
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
	var waiting []*store.CustomRecord
	for _, r := range store.CustomRecordsByDomain.Asc(tx, d.ID, "") {
		if r.Status == store.CustomRecordPending {
			waiting = append(waiting, r)
		}
	}
	for _, r := range waiting {
		r.Status, r.Error = store.CustomRecordError, why
		if err := store.CustomRecords.Put(tx, r); err != nil {
			return err
		}
	}
	if d.Status != store.DomainComplete {
		return nil
	}
	d.StatusDetail = code + ": " + why
	return store.Domains.Put(tx, d)
}

// awaitEdge waits a while for the job that brings a change to the edge provider; what came of it
// the records say.
func (s *Service) awaitEdge(ctx context.Context, jobID string) {
	if jobID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, edgeAwaited)
	defer cancel()
	_, _ = s.Queue.Wait(ctx, jobID)
}

// ApplyRedirect brings the addresses that a redirect needs to the edge provider, or takes them
// away. If a web site of somebody else's is in their place, that is the error, and all other
// records are as they should be.
func (s *Service) ApplyRedirect(ctx context.Context, d *store.Domain) error {
	err := s.withZoneLock(ctx, d.ID, func(w *zoneSync) error {
		if err := w.sync(false); err != nil || len(w.conflicts) == 0 {
			return err
		}
		return edgeFault{joinConflicts(w.conflicts)}
	})
	if err == nil || errors.Is(err, errNotAtEdge) {
		return nil
	}
	return s.edgeOutcome(ctx, d.Name, err)
}

// TryEdge asks the edge provider whether a sealed token can read the zone of a domain. Without
// needZone it is enough that the token is good.
func (s *Service) TryEdge(ctx context.Context, d *store.Domain, sealed []byte, needZone bool) error {
	provider, err := s.edgeProvider(d.ID, sealed)
	if err != nil {
		return s.edgeOutcome(ctx, d.Name, err)
	}
	if err = checkEdgeToken(ctx, provider); err == nil {
		_, err = provider.Records(ctx, dnsprov.ZoneRef{Domain: d.Name, OwnerTag: d.ID})
	}
	if err != nil && (needZone || !errors.Is(err, dnsprov.ErrZoneNotFound)) {
		return s.edgeOutcome(ctx, d.Name, edgeFault{err})
	}
	return nil
}

// ProvisionEdge brings all records of a domain to the edge provider, or none if others are in their
// place. d is the domain as the work began with it, nil if there was none; active tells, while its
// claim is open, whether the provider serves the zone.
func (s *Service) ProvisionEdge(ctx context.Context, of *store.Domain) (d *store.Domain, active bool, err error) {
	err = s.withZoneLock(ctx, of.ID, func(w *zoneSync) error {
		d = w.d
		err := w.sync(true)
		if err == nil && d.Claim == store.ClaimOpen {
			active, err = w.active()
		}
		return err
	})
	if err != nil {
		err = s.edgeOutcome(ctx, of.Name, err)
	}
	return d, active, err
}

const (
	edgeWorksFor  = 2 * time.Minute // one reading and changing of a domain's records
	edgeEraseMost = 5               // readings, until nothing of ours is left
)

// errNotAtEdge says that a domain has nothing to do with the edge provider any more, or not yet.
var errNotAtEdge = errors.New("the domain is not kept at the edge provider")

// An zoneSync is one attempt to bring the records of a domain at the edge provider to what they
// should be. Whoever does it again, after a crash anywhere, comes to the same end: our records
// there carry the domain's mark, and their IDs are noted too, for the day that a mark is lost.
type zoneSync struct {
	s         *Service
	ctx       context.Context
	d         *store.Domain         // as it was when the attempt began; later as it was written
	customs   []*store.CustomRecord // likewise
	provider  dnsprov.Provider
	at        dnsprov.ZoneRef
	conflicts []*dnsprov.Conflict // of managed records
	refused   map[string]string   // custom records that cannot be there, by id, and why
}

// withZoneLock does something for a domain at the edge provider while nobody else does anything for
// it there.
func (s *Service) withZoneLock(ctx context.Context, domainID string, do func(*zoneSync) error) error {
	ctx, cancel := context.WithTimeout(ctx, edgeWorksFor)
	defer cancel()
	giveBack, err := s.edgeTurns.Lock(ctx, domainID)
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
		for _, r := range store.CustomRecordsByDomain.Asc(tx, domainID, "") {
			w.customs = append(w.customs, r)
		}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && (w.d.DNSProvider != store.DomainProviderCloudflare || len(w.d.EdgeToken) == 0) {
		return errNotAtEdge
	}
	if err != nil {
		return err
	}
	w.provider, err = s.edgeProvider(w.d.ID, w.d.EdgeToken)
	if err != nil {
		return err
	}
	w.at = dnsprov.ZoneRef{Domain: w.d.Name, OwnerTag: w.d.ID}
	return do(w)
}

// edgeProvider is the edge provider as a domain's sealed token opens it.
func (s *Service) edgeProvider(domainID string, sealed []byte) (dnsprov.Provider, error) {
	if s.Config.Edge == nil {
		return nil, ErrNoEdge()
	}
	token, err := s.Keys.Open(store.EdgePlace(domainID), sealed)
	if err != nil {
		return nil, err
	}
	return s.Config.Edge(string(token)), nil
}

// sync makes, changes and deletes records until they are as they should be. With strict a conflict
// of a managed record is its error, before anything has changed; else that record is left out, and
// w.conflicts tells of it.
func (w *zoneSync) sync(strict bool) error {
	if w.d.Gone() {
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

// active reports whether the provider serves the zone, as far as it says so.
func (w *zoneSync) active() (bool, error) {
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
func (w *zoneSync) apply(changes []dnsprov.Change) ([]dnsprov.Record, error) {
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
func (w *zoneSync) read() ([]dnsprov.Record, error) {
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
func (w *zoneSync) fit(have []dnsprov.Record) ([]dnsprov.Record, error) {
	spec := w.s.Spec(w.d)
	for _, c := range w.customs {
		if w.refused[c.ID] == "" {
			spec.Custom = append(spec.Custom, ownRecord(c))
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

// refuse notes which custom records the provider refused, by its error, and reports whether that
// leaves something to do without them.
func (w *zoneSync) refuse(err error) (again bool) {
	for _, c := range conflictsIn(err) {
		again = w.refuseCustom(c.Want, besideText(c)) || again
	}
	var refused *dnsprov.Refused
	if errors.As(err, &refused) {
		again = w.refuseCustom(refused.Want, EdgeName+" does not take it: "+Clip(refused.Err.Error())) || again
	}
	return again
}

// besideText says why a custom record cannot be there.
func besideText(c *dnsprov.Conflict) string {
	return fmt.Sprintf("It conflicts with %s, which exists at %s and is not Mailstead's. Remove that record there, then change this record or run setup again.",
		recordText(c.Have), EdgeName)
}

// refuseCustom notes that a custom record cannot be there; false if the record is none, or is noted
// already.
func (w *zoneSync) refuseCustom(r dnsprov.Record, why string) bool {
	for _, own := range w.customs {
		if r.Purpose == dnsprov.PurposeCustom && w.refused[own.ID] == "" && own.Name == r.Name && own.Type == r.Type && own.Value == r.Value {
			w.refused[own.ID] = why
			return true
		}
	}
	return false
}

// note writes what of ours is there now. done tells that the changes were made, all of them.
func (w *zoneSync) note(have []dnsprov.Record, changes []dnsprov.Change, made []dnsprov.Record, done bool) error {
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
			for _, c := range w.customs { // but those that have changed since
				now, err := store.CustomRecords.Find(tx, c.ID)
				if err != nil {
					return err
				}
				status, why := store.CustomRecordActive, w.refused[c.ID]
				if why != "" {
					status = store.CustomRecordError
				}
				if now == nil || !now.UpdatedAt.Equal(c.UpdatedAt) || now.Status == status && now.Error == why {
					continue
				}
				now.Status, now.Error = status, why
				if err := store.CustomRecords.Put(tx, now); err != nil {
					return err
				}
			}
		}
		detail := d.StatusDetail
		code, _, _ := strings.Cut(detail, ": ")
		ofTheEdge := slices.Contains([]string{"zone_conflict", "zone_not_found", "edge_token_invalid", "upstream_error", "internal_error"}, code)
		if done && d.Status == store.DomainComplete && (len(w.conflicts) > 0 || ofTheEdge) {
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

// conflictDetail is the status detail of a complete domain that lacks records because of others.
func conflictDetail(domain string, conflicts []*dnsprov.Conflict) string {
	if len(conflicts) == 0 {
		return ""
	}
	return fmt.Sprintf("zone_conflict: %s lacks records at %s, since other records are in their place: %s. Remove those there, then run setup again.",
		domain, EdgeName, conflictTexts(conflicts))
}

func joinConflicts(conflicts []*dnsprov.Conflict) error {
	var all []error
	for _, c := range conflicts {
		all = append(all, c)
	}
	return errors.Join(all...)
}

// erase deletes what is ours, and looks again until nothing is left: a request that was under way
// when the process was killed may be done late.
func (w *zoneSync) erase() error {
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

// How often a deletion asks the edge provider before the domain goes without it.
const (
	eraseTriesRefused = 3  // by an answer that will hardly change: the token is dead, the zone is gone
	eraseTriesFailed  = 10 // by any other; three quarters of an hour
)

// EraseEdgeRecords deletes what we made at the edge provider, in one attempt of several of a job.
// If it cannot be had in the end, the domain is to go all the same, and remains says to people what
// is still there.
func (s *Service) EraseEdgeRecords(ctx context.Context, d *store.Domain, attempt int) (remains string, err error) {
	err = s.withZoneLock(ctx, d.ID, (*zoneSync).erase)
	if err == nil || errors.Is(err, errNotAtEdge) {
		return "", nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	e, ours := core.AsError(err)
	if !ours && !errors.As(err, new(edgeFault)) {
		return "", err
	}
	if !ours {
		e = edgeFailure(d.Name, err)
	}
	tries := eraseTriesRefused
	if e.Code == "upstream_error" {
		tries = eraseTriesFailed
	}
	if attempt >= tries {
		return e.Code + ": " + e.Message + " " + s.remainsAtEdge(d), nil
	}
	var wait *dnsprov.Wait
	if errors.As(err, &wait) {
		return "", s.edgeOutcome(ctx, d.Name, err)
	}
	return "", e
}

// remainsAtEdge says which of our records may still be at the edge provider.
func (s *Service) remainsAtEdge(d *store.Domain) string {
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
