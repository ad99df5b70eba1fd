package domains

import (
	"context"
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
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

const (
	KindSetup     = "domain_setup"     // a setup that a setup_domain request has asked for
	kindProvision = "domain_provision" // a setup without a request, of a connected domain that is delegated to us or need not be
)

const (
	usersPerWrite       = 10  // mailboxes that one transaction creates
	activationsPerWrite = 100 // mailboxes that one transaction activates
)

// Names of steps that jobs of other kinds also have.
const (
	stepEdgeRecords = "edge_records"
	stepVerify      = "verify"
)

// A setupRun is one attempt of a job that sets up a domain.
type setupRun struct {
	s     *Service
	ctx   context.Context
	d     *store.Domain
	args  setupArgs
	check *dnsCheck // the result of the step verify; nil before this step

	edgeZoneAt time.Time // ZoneChangedAt of the zone whose records were written at the DNS provider
}

// A jobStep is one named part of a job.
type jobStep struct {
	name    string
	applies bool // the job has this step
	do      func() error
}

// steps lists the steps of a setup in order. Each step can be repeated: it skips what is already
// done.
func (p *setupRun) steps() []jobStep {
	a := p.args
	ours := a.DNS && p.d.DNSProvider == dnsprov.Builtin
	edge := a.DNS && p.d.AtEdge()
	manual := a.DNS && p.d.DNSProvider == store.DomainProviderManual
	return []jobStep{
		{"edge_token", len(a.EdgeToken) > 0 || a.Credential != "", p.storeEdgeAccess}, // tests the new token or credential at the DNS provider and stores it
		{"apex", a.FindSite || a.Apex != "", p.decideApex},                            // finds out whether the domain has a website elsewhere
		{"register", a.PurchaseID != "", p.buyDomain},                                 // buys the domain, once
		{"keys", true, p.generateKeys},                                                // generates and seals the DKIM keys and the DNSSEC key
		{"zone", ours, p.checkZone},                                                   // checks that our DNS server can serve the records
		{"records", manual, p.checkZone},                                              // checks that the records that the owner must enter are valid
		{"users", len(a.Mailboxes) > 0, p.createMailboxes},
		{"redirect", a.Redirect != "", func() error {
			return p.updateDomain(p.s.zones.ServeZone, func(d *store.Domain) { setRedirect(d, a.Redirect, true, false) })
		}},
		{"forward", a.Forward != "", func() error {
			return p.updateDomain(p.s.putDomain, func(d *store.Domain) { d.Forward = a.Forward })
		}},
		{"delegate", ours && !a.delegated, p.delegate},      // sets our nameservers at the registrar, and waits until the DNS has them, which may take days
		{stepEdgeRecords, edge, p.writeEdgeRecords},         // writes the records at the DNS provider
		{"mail", (ours || edge) && a.Email, p.activateMail}, // checks that the keys can be opened, and activates mailboxes
		{stepVerify, ours || edge, p.verify},                // checks the records live
	}
}

// stepNames returns the names of the steps that a job has.
func stepNames(steps []jobStep) (names []string) {
	for _, step := range steps {
		if step.applies {
			names = append(names, step.name)
		}
	}
	return names
}

// setupKind returns the kind of job that sets up a domain for a setup_domain request.
func (s *Service) setupKind() jobs.Kind {
	return jobs.Kind{Name: KindSetup, Work: s.runSetup, Max: 10, PerLane: 4, Visible: true, Failed: s.setupFailed}
}

// provisionKind returns the kind of job that sets up a connected domain.
func (s *Service) provisionKind() jobs.Kind {
	return jobs.Kind{Name: kindProvision, Work: s.runSetup, Max: 10, PerLane: 4, Visible: true, Failed: s.setupFailed}
}

// domainArgs are the arguments of a job that concerns one domain.
type domainArgs struct {
	DomainID string `json:"domain_id"`
}

// provisionArgs returns the setupArgs of a domain_provision job, which sets up the DNS and mail of
// a domain and nothing else.
func provisionArgs(domainID string) setupArgs {
	return setupArgs{DomainID: domainID, DNS: true, Email: true, delegated: true}
}

// addProvision queues the provisioning of a domain. The caller writes the domain's record.
func (s *Service) addProvision(tx *store.Tx, d *store.Domain, userID string) error {
	steps := stepNames((&setupRun{d: d, args: provisionArgs(d.ID)}).steps())
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

// errNotDelegated is the error of a setup that must wait, because the domain is not delegated to
// Mailstead yet or because other accounts claim its name.
type errNotDelegated struct {
	nameservers []string // the domain's present nameservers
	contested   bool     // the domain is delegated to us, but other accounts claim its name
}

func (errNotDelegated) Error() string { return "the domain is not delegated to Mailstead yet" }

// errPartial is the error of a step that was only partly successful. The job shows what is missing
// and goes on with its next step.
type errPartial struct{ text string }

func (e errPartial) Error() string { return e.text }

// runSetup works on domain_setup and domain_provision jobs. After a restart, each step skips what
// is already done.
func (s *Service) runSetup(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[setupArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	if j.Kind == kindProvision {
		args = provisionArgs(args.DomainID)
	}
	p := &setupRun{s: s, ctx: ctx, args: args}
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
	steps := slices.DeleteFunc(p.steps(), func(s jobStep) bool { return !s.applies })
	for i, step := range steps {
		jobs.Step(ctx, step.name, "in_progress", "")
		err := step.do()
		var wait errNotDelegated
		switch {
		case err == nil:
			jobs.Step(ctx, step.name, "completed", "")
		case errors.As(err, &wait):
			return p.snoozeUntilDelegated(wait, i, len(steps))
		default:
			jobs.Step(ctx, step.name, "error", stepErrorText(err))
			if !errors.As(err, new(errPartial)) {
				return nil, fmt.Errorf("set up domain %s: step %s: %w", p.d.Name, step.name, err)
			}
		}
		if p.d.ClaimEnded() {
			return nil, jobs.Permanent(errClaimEnded(p.d))
		}
		jobs.Progress(ctx, i+1, len(steps), "")
	}
	if p.check != nil {
		if err := s.activateMostMailboxes(ctx, p.d.ID); err != nil {
			return nil, err
		}
	}
	return p.endSetup, nil
}

// stepErrorText returns the text that a job shows for a failed step.
func stepErrorText(err error) string {
	var part errPartial
	if errors.As(err, &part) {
		return part.text
	}
	if e, ok := core.AsError(err); ok {
		return e.Message
	}
	return "It failed. See the log of this installation."
}

// joinNames joins names for use in a sentence.
func joinNames(names []string) string { return strings.Join(names, ", ") }

// resumeSetup wakes the setup job that waits for the delegation of a domain. It returns false if
// there is none.
func (s *Service) resumeSetup(tx *store.Tx, d *store.Domain) (resumed bool, err error) {
	j, err := store.Jobs.Get(tx, d.JobID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (j.Kind != KindSetup || j.Ended()) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.Queue.Wake(tx, j.ID, time.Time{})
}

// updateDomain changes the domain's record with change and writes it with write, in one
// transaction.
func (p *setupRun) updateDomain(write func(*store.Tx, *store.Domain) error, change func(*store.Domain)) error {
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

// storeEdgeAccess tests the request's token or credential at the DNS provider and stores it. If the
// domain is still to be bought, its zone need not exist yet.
func (p *setupRun) storeEdgeAccess() error {
	access := edge.Access{Provider: p.d.DNSProvider, CredentialID: p.args.Credential}
	if p.args.Credential == "" {
		var err error
		access, err = p.s.edge.TokenAccess(p.d.ID, p.args.EdgeToken)
		if err != nil {
			return err
		}
	}
	if err := p.s.edge.Try(p.ctx, p.d, access, p.args.PurchaseID == ""); err != nil {
		return err
	}
	return p.updateDomain(p.s.putDomain, func(d *store.Domain) { d.EdgeToken, d.DNSCredentialID = p.args.EdgeToken, p.args.Credential })
}

// decideApex finds out where the domain itself leads, unless the request says so. If it has a
// website, a redirect would take its place, so the setup ends before anything changes. If its
// nameservers do not answer, later attempts ask them again.
func (p *setupRun) decideApex() error {
	if p.args.Apex != "" && p.args.Apex != p.d.ApexMode() {
		d, err := p.s.changeApex(p.ctx, core.Actor{AccountID: p.d.AccountID}, p.d, ApexIn{Mode: p.args.Apex}, nil)
		if _, refused := core.AsError(err); refused {
			return jobs.Permanent(err)
		}
		if err != nil {
			return err
		}
		p.d = d
	}
	d, err := p.s.withPresentSite(p.ctx, p.d)
	if err != nil {
		return err
	}
	p.d = d
	switch {
	case p.args.Redirect == "" || mayRedirect(d):
		return nil
	case d.ApexMode() == store.ApexUndecided:
		return zones.ErrApexElsewhere(d)
	}
	return jobs.Permanent(zones.ErrApexElsewhere(d))
}

// createMailboxes creates the mailboxes that do not exist yet, as far as the limits allow. They
// become active when the domain is complete.
func (p *setupRun) createMailboxes() error {
	for rest := p.args.Mailboxes; len(rest) > 0; rest = rest[min(usersPerWrite, len(rest)):] {
		some := rest[:min(usersPerWrite, len(rest))]
		err := p.s.Store.Update(func(tx *store.Tx) error {
			d, err := store.Domains.Get(tx, p.d.ID)
			if err != nil {
				return err
			}
			left, _, err := p.s.mailboxes.MailboxesLeft(tx, d)
			if err != nil {
				return err
			}
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

// delegate sets our nameservers at the registrar, if the domain was bought here. Then it checks
// whether the DNS has them.
func (p *setupRun) delegate() error {
	if err := p.setNameservers(); err != nil {
		return err
	}
	var found dnsprov.Delegation
	looked := p.s.zones.WithLookupSlot(p.ctx, p.d.AccountID, p.d.Name, func() (err error) {
		found, err = dnsprov.CheckDelegation(p.ctx, p.s.Resolver, p.d.Name, p.s.Config.Nameservers)
		return err
	})
	if looked == nil && p.d.Claim != store.ClaimProven {
		if err := p.proveClaim(found.Verified); err != nil {
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
		write := func(tx *store.Tx, d *store.Domain) error {
			return errors.Join(p.s.noteNameservers(tx, d, found.Current), p.s.putDomain(tx, d))
		}
		return p.updateDomain(write, func(d *store.Domain) {
			d.NSStatus, d.NSAwaited, d.StatusDetail = store.DomainNSVerified, time.Time{}, ""
			if d.Status == store.DomainPendingNS {
				d.Status = store.DomainInProgress
			}
		})
	case looked != nil && p.d.NSStatus == store.DomainNSVerified, p.d.Status == store.DomainComplete:
		return nil // from now on the scheduled checks look at the delegation
	}
	return errNotDelegated{found.Current, false}
}

// proveClaim proves the claim to a builtin domain if there is a proof. It returns no error if there
// is none.
func (p *setupRun) proveClaim(delegated bool) error {
	by, err := p.s.findBuiltinProof(p.ctx, p.d, delegated)
	if err != nil || by == "" {
		return nil // the next attempt looks for a proof again
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

// snoozeUntilDelegated snoozes the job until a look at the domain finds the delegation and wakes
// it, or until the domain has waited too long.
func (p *setupRun) snoozeUntilDelegated(awaited errNotDelegated, stepsDone, allSteps int) (jobs.Writes, error) {
	now := p.s.Now()
	since := p.d.NSAwaited
	if since.IsZero() {
		since = now
	}
	end := since.Add(waitPeriod)
	if !now.Before(end) {
		return nil, jobs.Permanent(p.s.errWaitOver(p.d))
	}
	detail := p.d.Name + " is not delegated yet. Set only these nameservers at its registrar: " + joinNames(p.s.Config.Nameservers) + "."
	shown := detail
	text := undecidedText(p.d)
	switch {
	case awaited.contested:
		detail = contestedText(p.d)
		shown = detail
	case text != "":
		detail, shown = text, text
	case p.d.ScanJobID != "": // what to do next depends on the scan, so the domain says it whenever it is read
		detail, shown = "", p.d.Name+" is not delegated yet. The status_detail of the domain says what to do next."
	}
	jobs.Progress(p.ctx, stepsDone, allSteps, shown)
	return func(tx *store.Tx, _ *store.Job) error {
		d, err := store.Domains.Get(tx, p.d.ID)
		if err != nil || d.Status == store.DomainPending || d.Gone() || d.ClaimEnded() { // pending: a check-ns request has woken the job
			return err
		}
		d.StatusDetail, d.NSAwaited = detail, since
		return errors.Join(p.s.noteNameservers(tx, d, awaited.nameservers), p.s.await(tx, d, store.DomainPendingNS), p.s.putDomain(tx, d))
	}, jobs.Snooze(end)
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

// setupUsers counts the requested mailboxes.
type setupUsers struct {
	Created int `json:"created"`
	Existed int `json:"existed"`
	Failed  int `json:"failed"`
}

// countUsers counts the requested mailboxes that were created, that existed before, and that do not
// exist.
func (p *setupRun) countUsers(tx *store.Tx) (r setupUsers, err error) {
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

// endSetup updates the domain in the transaction that ends the job.
func (p *setupRun) endSetup(tx *store.Tx, j *store.Job) error {
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
		err = p.finishSetup(tx, d)
	case d.Status == store.DomainComplete:
		err = p.s.zones.PutZone(tx, d)
	default:
		status := store.DomainPendingNS
		if d.DNSProvider != dnsprov.Builtin {
			status = store.DomainPendingDNS
		}
		if d.AtEdge() {
			d.StatusDetail = "The records of " + d.Name + " are not created, since setup_dns was false. Run setup again without it."
		}
		err = errors.Join(p.s.await(tx, d, status), p.s.putDomain(tx, d))
	}
	if err != nil {
		return err
	}
	if j.Kind == kindProvision {
		return nil
	}
	return p.writeResult(tx, d, j)
}

// writeResult writes the job's SetupResult.
func (p *setupRun) writeResult(tx *store.Tx, d *store.Domain, j *store.Job) (err error) {
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

// generateKeys generates the DKIM keys and the DNSSEC key, unless the domain has them.
func (p *setupRun) generateKeys() error {
	if len(p.d.DKIM) > 0 && !zones.LacksZoneKey(p.d) {
		return nil
	}
	var made []dkimKey
	var err error
	if len(p.d.DKIM) == 0 {
		made, err = p.s.generateDKIM()
	}
	if err != nil {
		return err
	}
	err = p.s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, p.d.ID)
		if err != nil {
			return err
		}
		p.d = d
		if len(d.DKIM) > 0 && !zones.LacksZoneKey(d) {
			return nil
		}
		if len(d.DKIM) == 0 {
			p.s.setDKIM(d, made)
		}
		if err := p.s.zones.GenerateZoneKey(d); err != nil {
			return err
		}
		return p.s.zones.PutZone(tx, d)
	})
	p.s.zones.MakeZones() // the records are looked up next
	return err
}

// checkZone checks that the records form a valid zone. The zone is published already.
func (p *setupRun) checkZone() error {
	return p.s.Store.View(func(tx *store.Tx) error {
		if err := p.s.zones.CheckZone(tx, p.d); err != nil {
			return jobs.Permanent(core.Errorf("invalid_record", "The records of %s cannot be served: %s.", p.d.Name, err).Because(err))
		}
		return nil
	})
}

// writeEdgeRecords writes the records at the DNS provider. If Cloudflare serves the zone, this
// proves the claim to the name. Otherwise it does not, because everybody can create a zone there.
func (p *setupRun) writeEdgeRecords() error {
	written, active, err := p.s.edge.Provision(p.ctx, p.d)
	if written != nil {
		p.d, p.edgeZoneAt = written, written.ZoneChangedAt
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

// activateMail checks that the domain's DKIM keys can be opened, and activates waiting mailboxes.
func (p *setupRun) activateMail() error {
	for _, k := range p.d.DKIM {
		text, err := p.s.Keys.Open(store.DKIMBinding(p.d.ID), k.Sealed)
		if err != nil {
			return err
		}
		if _, err := auth.ParseKey(text); err != nil {
			return fmt.Errorf("parse DKIM key %s: %w", k.Selector, err)
		}
	}
	return p.s.activateMostMailboxes(p.ctx, p.d.ID)
}

// activateMostMailboxes activates waiting mailboxes of a domain until at most activationsPerWrite
// are left, so that one transaction can activate these.
func (s *Service) activateMostMailboxes(ctx context.Context, domainID string) error {
	for many := true; many; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Store.Update(func(tx *store.Tx) error {
			many = store.MailboxesWaiting.Count(tx, domainID, activationsPerWrite+1) > activationsPerWrite
			if !many {
				return nil
			}
			_, err := s.mailboxes.ActivateMailboxes(tx, domainID, activationsPerWrite)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// verify checks the records live. The domain becomes complete whatever the result is, because this
// server serves its zone: mail should not wait until caches elsewhere expire or our own resolver
// answers. The scheduled checks follow later.
func (p *setupRun) verify() error {
	p.check = p.s.checkNow(p.ctx, p.d)
	return p.ctx.Err()
}

// finishSetup makes a domain complete. If its records have changed after they were written at the
// DNS provider, it queues a sync.
func (p *setupRun) finishSetup(tx *store.Tx, d *store.Domain) error {
	if err := p.s.completeDomain(tx, d, p.check); err != nil || d.ZoneChangedAt.Equal(p.edgeZoneAt) {
		return err
	}
	_, err := p.s.edge.AddSync(tx, d)
	return err
}

// completeDomain makes a domain complete, saves a live check, and activates the waiting mailboxes.
// The caller must have called activateMostMailboxes.
func (s *Service) completeDomain(tx *store.Tx, d *store.Domain, l *dnsCheck) error {
	if d.Gone() {
		return nil
	}
	if err := s.saveCheck(tx, d, l); err != nil {
		return err
	}
	if d.ClaimEnded() {
		return nil // saveCheck has written the domain
	}
	if d.Claim == store.ClaimOpen && !d.AtEdge() { // another account has claimed the name in the meantime
		status := store.DomainPendingNS
		if d.DNSProvider == store.DomainProviderManual {
			status = store.DomainPendingDNS
		}
		return errors.Join(s.await(tx, d, status), s.putDomain(tx, d))
	}
	if d.MXMode() == store.MXElsewhere {
		d.StatusDetail, d.ErrorCode, d.ErrorMessage = "", "", ""
		return errors.Join(s.await(tx, d, store.DomainPendingDNS), s.putDomain(tx, d))
	}
	first := d.CompletedAt.IsZero()
	d.Status, d.StatusDetail, d.NSAwaited, d.ErrorCode, d.ErrorMessage = store.DomainComplete, "", time.Time{}, "", ""
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
		more, err = s.mailboxes.ActivateMailboxes(tx, d.ID, activationsPerWrite)
		if err != nil {
			return err
		}
	}
	if !first {
		return nil
	}
	return s.emitReady(tx, d)
}

// setupFailed shows the error of a failed setup in the domain. A new setup or a check-ns request
// starts again. A complete domain stays complete.
func (s *Service) setupFailed(tx *store.Tx, j *store.Job, cause error) error {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil // the job names no domain
	}
	d, err := store.Domains.Get(tx, args.DomainID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil || d.JobID != j.ID || d.Status == store.DomainComplete || d.Gone() {
		return err
	}
	if e, ok := core.AsError(cause); ok && e.Code == nsTimeout {
		return s.endWait(tx, d, e)
	}
	d.Status, d.StatusDetail, d.ErrorCode = store.DomainError, "", "internal_error"
	d.NSAwaited, d.NextCheckAt = time.Time{}, time.Time{}
	d.ErrorMessage = "The domain could not be provisioned. See the log of this installation."
	if e, ok := core.AsError(cause); ok {
		d.ErrorCode, d.ErrorMessage = e.Code, e.Message
	}
	return s.putDomain(tx, d)
}
