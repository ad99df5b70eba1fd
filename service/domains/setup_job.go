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
	KindSetup     = "domain_setup"     // somebody asked for it
	kindProvision = "domain_provision" // a domain that was connected is delegated to us, or needs nothing of the sort
)

const (
	delegationAwaited = 72 * time.Hour
	usersAtATime      = 10  // mailboxes made in one transaction
	activateAtATime   = 100 // mailboxes that become active in one transaction
)

// Steps that other jobs have too.
const (
	stepEdgeRecords = "edge_records"
	stepVerify      = "verify"
)

// A setup is one attempt at setting a domain up.
type setup struct {
	s     *Service
	ctx   context.Context
	d     *store.Domain
	args  setupArgs
	check *dnsCheck // what a live check of the records found

	edgeSeen time.Time // when the records had changed that are at the edge provider
}

// A step is one named part of a job.
type step struct {
	name string
	when bool // the job has it
	do   func() error
}

// steps is the whole set-up of a domain, in order. Each step can be done again: it finds out what
// is done already.
func (p *setup) steps() []step {
	a := p.args
	ours := a.DNS && p.d.DNSProvider == dnsprov.Builtin
	edge := a.DNS && p.d.DNSProvider == store.DomainProviderCloudflare
	manual := a.DNS && p.d.DNSProvider == store.DomainProviderManual
	return []step{
		{"edge_token", len(a.EdgeToken) > 0, p.edgeToken}, // the edge provider takes the new token, which the domain has from then on
		{"register", a.PurchaseID != "", p.register},      // the domain is bought, once
		{"keys", true, p.keys},                            // of DKIM and DNSSEC, made and sealed
		{"zone", ours, p.zone},                            // our DNS server answers with every record
		{"records", manual, p.zone},                       // the list of records that the owner is to enter
		{"users", len(a.Mailboxes) > 0, p.users},
		{"redirect", a.Redirect != "", func() error {
			return p.change(p.s.zones.ServeZone, func(d *store.Domain) { setRedirect(d, a.Redirect, true, false) })
		}},
		{"forward", a.Forward != "", func() error {
			return p.change(p.s.putDomain, func(d *store.Domain) { d.Forward = a.Forward })
		}},
		{"delegate", ours && !a.delegated, p.delegate}, // the registrar and the DNS name our nameservers; it may take days
		{stepEdgeRecords, edge, p.edgeRecords},         // the records are at the edge provider
		{"mail", (ours || edge) && a.Email, p.mail},    // the keys open, and mailboxes that waited are ready
		{stepVerify, ours || edge, p.verify},           // a live check of the records
	}
}

// stepNames names the steps that a job has.
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

// provisionArgs are those of a domain_provision: all that a domain needs for mail, and no more.
func provisionArgs(domainID string) setupArgs {
	return setupArgs{DomainID: domainID, DNS: true, Email: true, delegated: true}
}

// addProvision queues the provisioning of a domain, whose record the caller writes.
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
	return s.tellCreated(tx, d)
}

// errAwaited says that the domain is not delegated to Mailstead yet.
type errAwaited struct {
	current []string
	claimed bool // it is, and others claim the name too
}

func (errAwaited) Error() string { return "the domain is not delegated to Mailstead yet" }

// errPartly says that a step did what it could, and that the job goes on.
type errPartly struct{ what string }

func (e errPartly) Error() string { return e.what }

// setUp is the work of both kinds. Begun again it finds out what is done.
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
		var wait errAwaited
		switch {
		case err == nil:
			jobs.Step(ctx, step.name, "completed", "")
		case errors.As(err, &wait):
			return p.wait(wait, i, len(steps))
		default:
			jobs.Step(ctx, step.name, "error", stepText(err))
			if !errors.As(err, new(errPartly)) {
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

// stepText says to people why a step did not succeed.
func stepText(err error) string {
	var part errPartly
	if errors.As(err, &part) {
		return part.what
	}
	if e, ok := core.AsError(err); ok {
		return e.Message
	}
	return "It failed. See the log of this installation."
}

// namesOf joins names for people.
func namesOf(names []string) string { return strings.Join(names, ", ") }

// wakeSetup has the setup that waits for a domain's delegation go on; false if there is none.
func (s *Service) wakeSetup(tx *store.Tx, d *store.Domain) (bool, error) {
	j, err := store.Jobs.Get(tx, d.JobID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (j.Kind != KindSetup || j.Ended()) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.Queue.Wake(tx, j.ID, time.Time{})
}

// change writes the domain as change makes it, and gives up quietly on one that is being deleted.
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

// edgeToken looks whether the edge provider takes the token of the request, and keeps it. The zone
// of a domain that is yet to be bought need not be there.
func (p *setup) edgeToken() error {
	if err := p.s.zones.TryEdge(p.ctx, p.d, p.args.EdgeToken, p.args.PurchaseID == ""); err != nil {
		return err
	}
	return p.change(p.s.putDomain, func(d *store.Domain) { d.EdgeToken = p.args.EdgeToken })
}

// users makes the mailboxes that are not there, as far as the limits allow. They are pending until
// the domain is complete.
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
		err = errPartly{fmt.Sprintf("%d of %d mailboxes were not created, because of the limits of this account.", lacking, len(p.args.Mailboxes))}
	}
	return err
}

// delegate has the registrar name our nameservers, if the domain was bought here, and looks whether
// the DNS does.
func (p *setup) delegate() error {
	if err := p.tellRegistrar(); err != nil {
		return err
	}
	var found dnsprov.Delegation
	looked := p.s.zones.Looking(p.ctx, func() (err error) {
		found, err = dnsprov.CheckDelegation(p.ctx, p.s.Resolver, p.d.Name, p.s.Config.Nameservers)
		return err
	})
	if looked == nil && p.d.Claim != store.ClaimProven {
		if err := p.claim(found.Verified); err != nil {
			return err
		}
		if p.d.Claim != store.ClaimProven {
			return errAwaited{found.Current, found.Verified}
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
		return nil // the checks by the clock see to it
	}
	return errAwaited{found.Current, false}
}

// claim proves the claim of a builtin domain if it can.
func (p *setup) claim(delegated bool) error {
	by, err := p.s.proofOfBuiltin(p.ctx, p.d, delegated)
	if err != nil || by == "" {
		return nil // it is looked at again
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

// wait puts the job off until the next look at the delegation. The longer it has waited, the longer
// it waits.
func (p *setup) wait(awaited errAwaited, done, total int) (jobs.Writes, error) {
	now := p.s.Now()
	since := p.d.NSAwaited
	if since.IsZero() {
		since = now
	}
	ours := namesOf(p.s.Config.Nameservers)
	end := since.Add(delegationAwaited)
	if !now.Before(end) {
		return nil, jobs.Permanent(core.Errorf("ns_timeout",
			"%s was not delegated to Mailstead within %d hours. Set these nameservers, and only these, at its registrar, and run setup again: %s.", p.d.Name, int(delegationAwaited.Hours()), ours))
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
		if err != nil || d.Status == store.DomainPending || d.Gone() || d.ClaimEnded() { // pending: check-ns was faster
			return err
		}
		d.Status, d.StatusDetail, d.NSAwaited, d.CurrentNS = store.DomainPendingNS, detail, since, awaited.current
		return p.s.putDomain(tx, d)
	}, jobs.Snooze(next)
}

// SetupResult is what a domain_setup came to.
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

// setupUsers counts the mailboxes that were asked for.
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

// end brings the domain into its new state in the transaction that ends the job.
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

// keys makes the DKIM keys, outside of any transaction, and the key of the zone, unless the domain
// has them.
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
			made = append(made, store.DKIMKey{Selector: kind.selector, Sealed: p.s.Keys.Seal(store.DKIMPlace(p.d.ID), text), Record: auth.KeyRecord(key)})
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

// zone makes sure that the records make a zone. It was published with the transaction that changed
// it.
func (p *setup) zone() error {
	return p.s.Store.View(func(tx *store.Tx) error {
		if err := p.s.zones.CheckZone(tx, p.d); err != nil {
			return jobs.Permanent(core.Errorf("invalid_record", "The records of %s cannot be served: %s.", p.d.Name, err).Because(err))
		}
		return nil
	})
}

// edgeRecords brings the records to the edge provider. That the token can do it proves the claim of
// the name, if the provider serves the zone: anybody may make one that nobody asks.
func (p *setup) edgeRecords() error {
	written, active, err := p.s.zones.ProvisionEdge(p.ctx, p.d)
	if written != nil {
		p.d, p.edgeSeen = written, written.ZoneChangedAt
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

// mail makes sure that the domain can sign, and makes mailboxes ready as long as there are more
// than fit into the transaction that completes the domain.
func (p *setup) mail() error {
	for _, k := range p.d.DKIM {
		text, err := p.s.Keys.Open(store.DKIMPlace(p.d.ID), k.Sealed)
		if err != nil {
			return err
		}
		if _, err := auth.ParseKey(text); err != nil {
			return fmt.Errorf("DKIM key %s: %w", k.Selector, err)
		}
	}
	return p.s.activateMany(p.ctx, p.d.ID)
}

// activateMany makes waiting mailboxes of a domain ready until few are left.
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

// verify checks the records live. Whatever it finds, the domain is complete: its zone is served,
// and receivers that have not seen it yet, or a resolver of ours that does not answer, do not keep
// mail from flowing. The checks by the clock go on from here.
func (p *setup) verify() error {
	p.check = p.s.checkNow(p.ctx, p.d)
	return p.ctx.Err()
}

// finish makes a domain complete. What has changed of its records since they were brought to the
// edge provider follows.
func (p *setup) finish(tx *store.Tx, d *store.Domain) error {
	if err := p.s.completeDomain(tx, d, p.check); err != nil || d.ZoneChangedAt.Equal(p.edgeSeen) {
		return err
	}
	_, err := p.s.zones.AddEdgeSync(tx, d)
	return err
}

// completeDomain makes a domain complete, with what a live check at it found, and its last waiting
// mailboxes ready. activateMany has come before.
func (s *Service) completeDomain(tx *store.Tx, d *store.Domain, l *dnsCheck) error {
	if d.Gone() {
		return nil
	}
	if err := s.saveCheck(tx, d, l); err != nil {
		return err
	}
	if d.ClaimEnded() {
		return nil // which is written
	}
	if d.Claim == store.ClaimOpen && d.DNSProvider != store.DomainProviderCloudflare { // others came to claim it meanwhile
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
		wait = s.secondLook()
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
	return s.tellReady(tx, d)
}

// setupFailed shows why a domain is not provisioned. Setting it up again begins again, and so
// does checking its nameservers. One that was complete before stays so.
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
