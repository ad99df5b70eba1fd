package domains

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

const (
	KindSetup     = "domain_setup"     // asked for by setup_domain
	kindProvision = "domain_provision" // queued by Mailstead itself, once a connected domain is delegated to us or need not be
)

const (
	delegationTimeout = 72 * time.Hour
	usersAtATime      = 10  // mailboxes created in one transaction
	activateAtATime   = 100 // mailboxes activated in one transaction
)

// Steps that jobs of other kinds have too.
const (
	stepEdgeRecords = "edge_records"
	stepVerify      = "verify"
)

// A setup is one attempt at setting up a domain.
type setup struct {
	s     *Service
	ctx   context.Context
	d     *store.Domain
	args  setupArgs
	check *dnsCheck // the result of the step verify; nil before

	cloudflareZoneAt time.Time // ZoneChangedAt of the zone that was brought to Cloudflare
}

// A step is one named part of a job.
type step struct {
	name string
	when bool // whether the job has this step
	do   func() error
}

// steps lists the steps of a setup, in order. Each can be repeated: it skips what is done already.
func (p *setup) steps() []step {
	a := p.args
	ours := a.DNS && p.d.DNSProvider == dnsprov.Builtin
	edge := a.DNS && p.d.DNSProvider == store.DomainProviderCloudflare
	manual := a.DNS && p.d.DNSProvider == store.DomainProviderManual
	return []step{
		{"edge_token", len(a.EdgeToken) > 0, p.cloudflareToken}, // tries the new token at Cloudflare and stores it
		{"register", a.PurchaseID != "", p.register},            // buys the domain, once
		{"keys", true, p.keys},                                  // generates and seals the keys of DKIM and DNSSEC
		{"zone", ours, p.zone},                                  // checks that our DNS server can serve the records
		{"records", manual, p.zone},                             // checks the records that the owner has to enter
		{"users", len(a.Mailboxes) > 0, p.users},
		{"redirect", a.Redirect != "", func() error {
			return p.change(p.s.zones.ServeZone, func(d *store.Domain) { setRedirect(d, a.Redirect, true, false) })
		}},
		{"forward", a.Forward != "", func() error {
			return p.change(p.s.putDomain, func(d *store.Domain) { d.Forward = a.Forward })
		}},
		{"delegate", ours && !a.delegated, p.delegate}, // has the registrar set our nameservers, and waits until the DNS shows them; this may take days
		{stepEdgeRecords, edge, p.cloudflareRecords},   // writes the records at Cloudflare
		{"mail", (ours || edge) && a.Email, p.mail},    // checks that the keys can be opened, and activates mailboxes
		{stepVerify, ours || edge, p.verify},           // checks the records live
	}
}

// stepNames returns the names of the steps that a job has.
func stepNames(steps []step) (names []string) {
	for _, step := range steps {
		if step.when {
			names = append(names, step.name)
		}
	}
	return names
}

func (s *Service) setupKind() jobs.Kind {
	return jobs.Kind{Name: KindSetup, Work: s.setUp, Max: 10, Lanes: 4, Visible: true, Failed: s.setupFailed}
}

func (s *Service) provisionKind() jobs.Kind {
	return jobs.Kind{Name: kindProvision, Work: s.setUp, Max: 10, Lanes: 4, Visible: true, Failed: s.setupFailed}
}

type domainArgs struct {
	DomainID string `json:"domain_id"`
}

// provisionArgs are the arguments of a domain_provision: everything that mail needs, and nothing
// else.
func provisionArgs(domainID string) setupArgs {
	return setupArgs{DomainID: domainID, DNS: true, Email: true, delegated: true}
}

// addProvision queues the provisioning of a domain. The caller writes the domain's record.
func (s *Service) addProvision(tx *store.Tx, d *store.Domain, userID string) error {
	steps := stepNames((&setup{d: d, args: provisionArgs(d.ID)}).steps())
	j, err := s.Queue.Add(tx, jobs.New{
		AccountID: d.AccountID, Kind: kindProvision, Lane: "provision " + d.AccountID, CreatedBy: userID,
		Args: domainArgs{d.ID}, Resource: store.JobResource{Type: "domain", ID: d.ID, Name: d.Name}, Steps: steps, Total: len(steps),
	})
	if err != nil {
		return err
	}
	d.JobID, d.ErrorCode, d.ErrorMessage = j.ID, "", ""
	return s.emitCreated(tx, d)
}

// errNotDelegated says that a setup must wait: the domain is not delegated to Mailstead yet, or its
// claim is contested.
type errNotDelegated struct {
	current []string
	claimed bool // it is delegated to us, but others claim the name too
}

func (errNotDelegated) Error() string { return "the domain is not delegated to Mailstead yet" }

// errPartial says that a step was only partly done. The job shows what is missing and continues
// with its next step.
type errPartial struct{ what string }

func (e errPartial) Error() string { return e.what }

// setUp is the work of both kinds. After a restart each step skips what is done already.
func (s *Service) setUp(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[setupArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	if j.Kind == kindProvision {
		args = provisionArgs(args.DomainID)
	}
	p := &setup{s: s, ctx: ctx, args: args}
	err = s.Store.Update(func(tx *store.Tx) (err error) {
		p.d, err = store.Domains.Find(tx, args.DomainID)
		if p.d == nil || err != nil || p.d.Status != store.DomainPending {
			return err
		}
		p.d.Status = store.DomainInProgress
		return s.putDomain(tx, p.d)
	})
	if err != nil || p.d == nil || p.d.Gone() {
		return nil, err
	}
	steps := slices.DeleteFunc(p.steps(), func(s step) bool { return !s.when })
	for i, step := range steps {
		jobs.Step(ctx, step.name, "in_progress", "")
		err := step.do()
		var wait errNotDelegated
		switch {
		case err == nil:
			jobs.Step(ctx, step.name, "completed", "")
		case errors.As(err, &wait):
			return p.wait(wait, i, len(steps))
		default:
			jobs.Step(ctx, step.name, "error", stepText(err))
			if !errors.As(err, new(errPartial)) {
				return nil, fmt.Errorf("set up %s: %s: %w", p.d.Name, step.name, err)
			}
		}
		if p.d.ClaimEnded() {
			return nil, jobs.Permanent(errClaimEnded(p.d))
		}
		jobs.Progress(ctx, i+1, len(steps), "")
	}
	if p.check != nil {
		if err := s.activateMany(ctx, p.d.ID); err != nil {
			return nil, err
		}
	}
	return p.end, nil
}

// stepText is the text that the job shows for a step that failed.
func stepText(err error) string {
	var part errPartial
	if errors.As(err, &part) {
		return part.what
	}
	if e, ok := core.AsError(err); ok {
		return e.Message
	}
	return "It failed. See the log of this installation."
}

// namesOf joins names for a text.
func namesOf(names []string) string { return strings.Join(names, ", ") }

// resumeSetup lets the setup that waits for a domain's delegation continue at once. It returns
// false if there is none.
func (s *Service) resumeSetup(tx *store.Tx, d *store.Domain) (bool, error) {
	j, err := store.Jobs.Get(tx, d.JobID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (j.Kind != KindSetup || j.Ended()) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.Queue.Wake(tx, j.ID, time.Time{})
}

// change applies change to the domain's record and writes it with write.
func (p *setup) change(write func(*store.Tx, *store.Domain) error, change func(*store.Domain)) error {
	return p.s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, p.d.ID)
		if err != nil {
			return err
		}
		change(d)
		p.d = d
		return write(tx, d)
	})
}

// cloudflareToken tries the token of the request at Cloudflare, and stores it. The zone of a domain
// that is still to be bought need not exist yet.
func (p *setup) cloudflareToken() error {
	if err := p.s.zones.TryEdge(p.ctx, p.d, p.args.EdgeToken, p.args.PurchaseID == ""); err != nil {
		return err
	}
	return p.change(p.s.putDomain, func(d *store.Domain) { d.EdgeToken = p.args.EdgeToken })
}

// users creates the mailboxes that do not exist yet, until a limit is reached. They become active
// when the domain is complete.
func (p *setup) users() error {
	for rest := p.args.Mailboxes; len(rest) > 0; rest = rest[min(usersAtATime, len(rest)):] {
		some := rest[:min(usersAtATime, len(rest))]
		err := p.s.Store.Update(func(tx *store.Tx) error {
			d, err := store.Domains.Get(tx, p.d.ID)
			if err != nil {
				return err
			}
			left, _ := p.s.mailboxes.RoomForMailboxes(tx, d)
			for _, mb := range some {
				if left <= 0 || store.AddressTaken(tx, d.ID, mb.Email) {
					continue
				}
				if _, err := p.s.mailboxes.CreateMailbox(tx, &mailboxes.NewMailbox{Mb: mb, Domain: d}); err != nil {
					return err
				}
				left--
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	var lacking int
	err := p.s.Store.View(func(tx *store.Tx) error {
		r, err := p.countUsers(tx)
		lacking = r.Failed
		return err
	})
	if err == nil && lacking > 0 {
		err = errPartial{fmt.Sprintf("%d of %d mailboxes were not created, because of the limits of this account.", lacking, len(p.args.Mailboxes))}
	}
	return err
}

// delegate has the registrar set our nameservers, if the domain was bought here, and checks whether
// the DNS shows them.
func (p *setup) delegate() error {
	if err := p.setNameservers(); err != nil {
		return err
	}
	var found dnsprov.Delegation
	looked := p.s.zones.WithLookupSlot(p.ctx, func() (err error) {
		found, err = dnsprov.CheckDelegation(p.ctx, p.s.Resolver, p.d.Name, p.s.Config.Nameservers)
		return err
	})
	if looked == nil && p.d.Claim != store.ClaimProven {
		if err := p.claim(found.Verified); err != nil {
			return err
		}
		if p.d.Claim != store.ClaimProven {
			return errNotDelegated{found.Current, found.Verified}
		}
	}
	switch {
	case p.ctx.Err() != nil:
		return p.ctx.Err()
	case looked == nil && found.Verified:
		return p.change(p.s.putDomain, func(d *store.Domain) {
			d.NSStatus, d.CurrentNS, d.NSAwaited, d.StatusDetail = store.DomainNSVerified, found.Current, time.Time{}, ""
			if d.Status == store.DomainPendingNS {
				d.Status = store.DomainInProgress
			}
		})
	case looked != nil && p.d.NSStatus == store.DomainNSVerified, p.d.Status == store.DomainComplete:
		return nil // the scheduled checks take over
	}
	return errNotDelegated{found.Current, false}
}

// claim proves the claim of a builtin domain if it can. The claim may be unproven afterwards
// without an error.
func (p *setup) claim(delegated bool) error {
	by, err := p.s.proofOfBuiltin(p.ctx, p.d, delegated)
	if err != nil || by == "" {
		return nil // the next attempt looks it up again
	}
	d, err := p.s.SettleProof(p.d.ID, by)
	if _, lost := core.AsError(err); lost {
		return jobs.Permanent(err)
	}
	if err == nil {
		p.d = d
	}
	return err
}

// wait puts the job off until the next check of the delegation. The interval grows with the time
// waited so far.
func (p *setup) wait(awaited errNotDelegated, done, total int) (jobs.Writes, error) {
	now := p.s.Now()
	since := p.d.NSAwaited
	if since.IsZero() {
		since = now
	}
	ours := namesOf(p.s.Config.Nameservers)
	end := since.Add(delegationTimeout)
	if !now.Before(end) {
		return nil, jobs.Permanent(core.Errorf("ns_timeout",
			"%s was not delegated to Mailstead within %d hours. Set these nameservers, and only these, at its registrar, and run setup again: %s.", p.d.Name, int(delegationTimeout.Hours()), ours))
	}
	next := now.Add(jobs.Awaiting(now.Sub(since), p.s.Rand()))
	if next.After(end) {
		next = end
	}
	detail := p.d.Name + " is not delegated yet. Set only these nameservers at its registrar: " + ours + "."
	if awaited.claimed {
		detail = contestedText(p.d)
	}
	jobs.Progress(p.ctx, done, total, detail)
	return func(tx *store.Tx, _ *store.Job) error {
		d, err := store.Domains.Get(tx, p.d.ID)
		if err != nil || d.Status == store.DomainPending || d.Gone() || d.ClaimEnded() { // pending: check-ns has queued it already
			return err
		}
		d.Status, d.StatusDetail, d.NSAwaited, d.CurrentNS = store.DomainPendingNS, detail, since, awaited.current
		return p.s.putDomain(tx, d)
	}, jobs.Snooze(next)
}

// SetupResult is the result of a domain_setup job.
type SetupResult struct {
	DomainID   string     `json:"domain_id" words:"ours"`
	Domain     string     `json:"domain" words:"ours"`
	Status     string     `json:"status" words:"ours"`
	Registrar  *string    `json:"registrar" words:"ours"`
	Price      *float64   `json:"price"`
	Currency   string     `json:"currency" words:"ours"`
	ExpiresAt  core.Time  `json:"expires_at"`
	EmailUsers setupUsers `json:"email_users"`
}

// setupUsers counts the mailboxes of the request.
type setupUsers struct {
	Created int `json:"created"`
	Existed int `json:"existed"`
	Failed  int `json:"failed"`
}

func (p *setup) countUsers(tx *store.Tx) (r setupUsers, err error) {
	for _, want := range p.args.Mailboxes {
		mb, err := store.MailboxByAddress.Get(tx, store.AddressKey(p.d.ID, want.Email))
		switch {
		case errors.Is(err, store.ErrNotFound):
			r.Failed++
		case err != nil:
			return r, err
		case mb.ID == want.ID:
			r.Created++
		default:
			r.Existed++
		}
	}
	return r, nil
}

// end writes the new state of the domain in the transaction that ends the job.
func (p *setup) end(tx *store.Tx, j *store.Job) error {
	d, err := store.Domains.Get(tx, p.d.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && d.Gone() {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case d.ClaimEnded():
	case p.check != nil:
		err = p.finish(tx, d)
	case d.Status == store.DomainComplete:
		err = p.s.zones.PutZone(tx, d)
	default:
		d.Status = store.DomainPendingNS
		if d.DNSProvider != dnsprov.Builtin {
			d.Status = store.DomainPendingDNS
		}
		if d.DNSProvider == store.DomainProviderCloudflare {
			d.StatusDetail = "The records of " + d.Name + " are not created, since setup_dns was false. Run setup again without it."
		}
		err = p.s.putDomain(tx, d)
	}
	if err != nil {
		return err
	}
	if j.Kind == kindProvision {
		return nil
	}
	return p.result(tx, d, j)
}

func (p *setup) result(tx *store.Tx, d *store.Domain, j *store.Job) (err error) {
	r := SetupResult{DomainID: d.ID, Domain: d.Name, Status: d.Status, Registrar: core.OrNull(d.Registrar), Currency: currency, ExpiresAt: core.Time{Time: d.ExpiresAt}}
	r.EmailUsers, err = p.countUsers(tx)
	if err != nil {
		return err
	}
	if p.args.PurchaseID != "" {
		pu, err := store.Purchases.Get(tx, p.args.PurchaseID)
		if err != nil {
			return err
		}
		r.Price = dollars(pu.Price)
	}
	j.Detail = ""
	if d.Registrar == registrar.SandboxName {
		j.Detail = d.Name + " was registered at the sandbox registrar: nothing was paid, and it does not exist on the internet."
	}
	j.Result, err = json.Marshal(r)
	return err
}

// keys generates the DKIM keys and the zone key, unless the domain has them. It generates the DKIM
// keys outside of a transaction, since that is slow.
func (p *setup) keys() error {
	if len(p.d.DKIM) > 0 && !zones.LacksZoneKey(p.d) {
		return nil
	}
	var made []store.DKIMKey
	if len(p.d.DKIM) == 0 { // an RSA key, which every verifier knows, and an ed25519 key (RFC 8463)
		for _, kind := range []struct {
			selector string
			generate func() ([]byte, crypto.Signer, error)
		}{{zones.RSASelector, auth.GenerateRSA}, {zones.Ed25519Selector, auth.GenerateEd25519}} {
			text, key, err := kind.generate()
			if err != nil {
				return err
			}
			made = append(made, store.DKIMKey{Selector: kind.selector, Sealed: p.s.Keys.Seal(store.DKIMBinding(p.d.ID), text), Record: auth.KeyRecord(key)})
		}
	}
	return p.s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, p.d.ID)
		if err != nil {
			return err
		}
		p.d = d
		if len(d.DKIM) > 0 && !zones.LacksZoneKey(d) {
			return nil
		}
		if len(d.DKIM) == 0 {
			d.DKIM = made
		}
		if err := p.s.zones.GiveZoneKey(d); err != nil {
			return err
		}
		return p.s.zones.PutZone(tx, d)
	})
}

// zone checks that the records form a valid zone. The transaction that changed the zone has
// published it already.
func (p *setup) zone() error {
	return p.s.Store.View(func(tx *store.Tx) error {
		if err := p.s.zones.CheckZone(tx, p.d); err != nil {
			return jobs.Permanent(core.Errorf("invalid_record", "The records of %s cannot be served: %s.", p.d.Name, err).Because(err))
		}
		return nil
	})
}

// cloudflareRecords writes the records at Cloudflare. This proves the claim of the name if
// Cloudflare is active for the zone; anybody can create a zone that is not.
func (p *setup) cloudflareRecords() error {
	written, active, err := p.s.zones.ProvisionEdge(p.ctx, p.d)
	if written != nil {
		p.d, p.cloudflareZoneAt = written, written.ZoneChangedAt
	}
	if err != nil {
		return err
	}
	if !active {
		return nil
	}
	d, err := p.s.SettleProof(p.d.ID, provenByEdge)
	if _, lost := core.AsError(err); lost {
		return jobs.Permanent(err)
	}
	if err == nil {
		p.d = d
	}
	return err
}

// mail checks that the domain can sign, and activates waiting mailboxes until few enough are left
// for the transaction that completes the domain.
func (p *setup) mail() error {
	for _, k := range p.d.DKIM {
		text, err := p.s.Keys.Open(store.DKIMBinding(p.d.ID), k.Sealed)
		if err != nil {
			return err
		}
		if _, err := auth.ParseKey(text); err != nil {
			return fmt.Errorf("DKIM key %s: %w", k.Selector, err)
		}
	}
	return p.s.activateMany(p.ctx, p.d.ID)
}

// activateMany activates waiting mailboxes of a domain until at most activateAtATime are left.
func (s *Service) activateMany(ctx context.Context, domainID string) error {
	for many := true; many; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Store.Update(func(tx *store.Tx) error {
			many = store.MailboxesWaiting.Count(tx, domainID, activateAtATime+1) > activateAtATime
			if !many {
				return nil
			}
			_, err := s.mailboxes.ActivateMailboxes(tx, domainID, activateAtATime)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// verify checks the records live. The domain becomes complete whatever the result is, since we
// serve its zone: mail should not wait until caches elsewhere expire, or until our own resolver
// answers. The scheduled checks follow later.
func (p *setup) verify() error {
	p.check = p.s.checkNow(p.ctx, p.d)
	return p.ctx.Err()
}

// finish makes a domain complete. If its records have changed since they were written at
// Cloudflare, it queues a sync.
func (p *setup) finish(tx *store.Tx, d *store.Domain) error {
	if err := p.s.completeDomain(tx, d, p.check); err != nil || d.ZoneChangedAt.Equal(p.cloudflareZoneAt) {
		return err
	}
	_, err := p.s.zones.AddEdgeSync(tx, d)
	return err
}

// completeDomain makes a domain complete, saves a live check of it, and activates its last waiting
// mailboxes. The caller has called activateMany before.
func (s *Service) completeDomain(tx *store.Tx, d *store.Domain, l *dnsCheck) error {
	if d.Gone() {
		return nil
	}
	if err := s.saveCheck(tx, d, l); err != nil {
		return err
	}
	if d.ClaimEnded() {
		return nil // saveCheck has written it
	}
	if d.Claim == store.ClaimOpen && d.DNSProvider != store.DomainProviderCloudflare { // others have claimed the name since
		d.Status = store.DomainPendingNS
		if d.DNSProvider == store.DomainProviderManual {
			d.Status = store.DomainPendingDNS
		}
		return s.putDomain(tx, d)
	}
	first := d.CompletedAt.IsZero()
	d.Status, d.StatusDetail, d.ErrorCode, d.ErrorMessage = store.DomainComplete, "", "", ""
	if first {
		d.CompletedAt = tx.Now()
	}
	wait := s.checkInterval()
	if !l.healthy() {
		wait = s.recheckDelay()
	}
	if err := s.planCheck(tx, d, wait); err != nil {
		return err
	}
	if err := s.certs.PlanCertificate(tx, d); err != nil {
		return err
	}
	if err := s.putDomain(tx, d); err != nil {
		return err
	}
	for more := true; more; {
		var err error
		more, err = s.mailboxes.ActivateMailboxes(tx, d.ID, activateAtATime)
		if err != nil {
			return err
		}
	}
	if !first {
		return nil
	}
	return s.emitReady(tx, d)
}

// setupFailed shows the error at a domain that could not be provisioned. A new setup, or check-ns,
// starts again. A domain that was complete stays complete.
func (s *Service) setupFailed(tx *store.Tx, j *store.Job, cause error) error {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil // a job that names no domain cannot have failed for one
	}
	d, err := store.Domains.Get(tx, args.DomainID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil || d.JobID != j.ID || d.Status == store.DomainComplete || d.Gone() {
		return err
	}
	d.Status, d.StatusDetail, d.NSAwaited, d.ErrorCode = store.DomainError, "", time.Time{}, "internal_error"
	d.ErrorMessage = "The domain could not be provisioned. See the log of this installation."
	if e, ok := core.AsError(cause); ok {
		d.ErrorCode, d.ErrorMessage = e.Code, e.Message
	}
	return s.putDomain(tx, d)
}
