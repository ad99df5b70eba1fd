package domains

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// SetupDomainIn is the body of setup_domain.
type SetupDomainIn struct {
	Domain         string      `json:"domain" required:"true"`
	Register       bool        `json:"register"`
	Price          *float64    `json:"price" min:"0" max:"1000000"`
	Years          *int        `json:"years" min:"1" max:"10"`
	AutoRenew      bool        `json:"auto_renew"`
	Registrar      string      `json:"registrar"`
	SetupDNS       *bool       `json:"setup_dns"`
	SetupEmail     *bool       `json:"setup_email"`
	ManualDNS      bool        `json:"manual_dns"`
	EdgeAPIToken   *string     `json:"edge_api_token" alias:"cloudflare_api_token"`
	Users          []SetupUser `json:"users" max:"100"`
	TemplateID     string      `json:"template_id"`
	RedirectURL    string      `json:"redirect_url" alias:"url" max:"2048"`
	ForwardAddress string      `json:"forward_address" alias:"address"`
	Tags           *[]string   `json:"tags" max:"50"`
}

// A SetupUser is one mailbox that setup_domain makes. Without a password it gets one, which an
// export shows.
type SetupUser struct {
	Username string  `json:"username"`
	Name     string  `json:"name"`
	Password *string `json:"password"`
}

// setupArgs are what domain_setup is given. Passwords are in it hashed and sealed only.
type setupArgs struct {
	DomainID   string          `json:"domain_id"`
	PurchaseID string          `json:"purchase_id,omitempty"`
	DNS        bool            `json:"dns"`
	Email      bool            `json:"email"`
	Mailboxes  []store.Mailbox `json:"mailboxes,omitempty"`
	Redirect   string          `json:"redirect,omitempty"`
	Forward    string          `json:"forward,omitempty"`
	EdgeToken  []byte          `json:"edge_token,omitempty"` // sealed
}

// A setupPlan is one setup_domain, checked as far as that goes without the domain's record.
type setupPlan struct {
	s        *Service
	who      core.Actor
	in       SetupDomainIn
	name     string
	provider string
	shop     registrar.Registrar // nil: nothing is bought
	births   []*mailboxes.NewMailbox
	token    string // of the edge provider; "": none was given
	args     setupArgs
}

// SetupDomain makes a domain of the account, buys it if asked to, and sets up its DNS and mail by a
// job. For a domain that is there it does again whatever is not done.
func (s *Service) SetupDomain(_ context.Context, who core.Actor, in SetupDomainIn) (*core.JobResponse, error) {
	p, err := s.planSetup(who, in)
	if err != nil {
		return nil, err
	}
	if err := s.Store.View(p.look); err != nil {
		return nil, err // before the hashes, which take their time
	}
	p.hash()
	var out core.JobResponse
	err = s.Store.Update(func(tx *store.Tx) error {
		j, err := p.begin(tx)
		if err == nil {
			out = core.JobOut(j)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// planSetup checks the request on its own.
func (s *Service) planSetup(who core.Actor, in SetupDomainIn) (*setupPlan, error) {
	p := &setupPlan{s: s, who: who, in: in, provider: dnsprov.Builtin}
	p.args = setupArgs{DNS: in.SetupDNS == nil || *in.SetupDNS, Email: in.SetupEmail == nil || *in.SetupEmail}
	if in.ManualDNS {
		p.provider = core.ProviderManual
	}
	var err error
	if p.name, _, err = idn.Registrable(in.Domain); err != nil {
		return nil, core.Errorf("invalid_domain", "%s", err).With("domain", "invalid_domain", err.Error())
	}
	if in.Register {
		if err := p.planPurchase(); err != nil {
			return nil, err
		}
	}
	if err := p.planRouting(); err != nil {
		return nil, err
	}
	if !p.args.Email && (len(in.Users) > 0 || in.TemplateID != "") {
		return nil, core.Invalid("setup_email", "not_allowed", "must be true for mailboxes to be made; leave out users and template_id, or setup_email")
	}
	if in.EdgeAPIToken != nil && in.ManualDNS {
		return nil, core.Invalid("edge_api_token", "not_allowed", "excludes manual_dns: either the edge provider serves the DNS or somebody else does")
	}
	if p.token, err = givenEdgeToken(in.EdgeAPIToken); err != nil {
		return nil, err
	}
	if p.token != "" {
		p.provider = core.ProviderEdge
	}
	if p.token != "" && s.Config.Edge == nil {
		return nil, errNoEdge()
	}
	return p, nil
}

// planRouting checks tags, redirect and forward.
func (p *setupPlan) planRouting() (err error) {
	if p.in.Tags != nil {
		if *p.in.Tags, err = cleanTags(*p.in.Tags); err != nil {
			return err
		}
	}
	if p.in.RedirectURL != "" {
		if p.args.Redirect, err = checkRedirect(p.in.RedirectURL, p.name); err != nil {
			return err
		}
	}
	if p.in.ForwardAddress != "" {
		p.args.Forward, err = checkDomainForward(p.in.ForwardAddress, p.name)
	}
	return err
}

// look checks the request against the store, and drafts the mailboxes, before anything is hashed.
func (p *setupPlan) look(tx *store.Tx) error {
	users := p.in.Users
	if p.in.TemplateID != "" {
		t, err := store.Templates.Get(tx, p.in.TemplateID)
		if errors.Is(err, store.ErrNotFound) || err == nil && t.AccountID != p.who.AccountID {
			return core.Invalid("template_id", "not_found", "is not a template of this account")
		}
		if err != nil {
			return err
		}
		for _, name := range t.Usernames {
			users = append(users[:len(users):len(users)], SetupUser{Username: name, Name: t.Name})
		}
	}
	if err := p.draft(users); err != nil {
		return err
	}
	d, err := p.find(tx)
	if err != nil {
		return err
	}
	return p.checkRoom(tx, d)
}

// draft checks the mailboxes on their own. A name of the template that is among the users counts
// once.
func (p *setupPlan) draft(users []SetupUser) error {
	p.births = nil
	seen := map[string]bool{}
	for i, u := range users {
		b, err := p.s.mailboxes.DraftMailbox(mailboxes.CreateEmailUserIn{Username: u.Username, Domain: p.name, Name: u.Name, Password: u.Password})
		if e, bad := core.AsError(err); bad {
			for n := range e.Details {
				e.Details[n].Field = fmt.Sprintf("users.%d.%s", i, e.Details[n].Field)
			}
			e.Message = fmt.Sprintf("users.%d: %s", i, e.Message)
		}
		if err != nil {
			return err
		}
		if seen[b.Username] && i < len(p.in.Users) {
			return core.Invalid(fmt.Sprintf("users.%d.username", i), "duplicate", "is given twice: %s", b.Username)
		}
		if !seen[b.Username] {
			seen[b.Username] = true
			p.births = append(p.births, b)
		}
	}
	return nil
}

// checkRoom refuses more mailboxes than the limits allow. Those that exist are not made again.
func (p *setupPlan) checkRoom(tx *store.Tx, d *store.Domain) error {
	if d == nil {
		d = &store.Domain{ID: "new", AccountID: p.who.AccountID, Name: p.name}
	}
	fresh := 0
	for _, b := range p.births {
		_, err := store.MailboxByEmail.Of(tx, p.who.AccountID, b.Username+"@"+p.name)
		if errors.Is(err, store.ErrNotFound) {
			fresh++
		} else if err != nil {
			return err
		}
	}
	if left, full := p.s.mailboxes.RoomForMailboxes(tx, d); fresh > left {
		return full
	}
	return nil
}

func (p *setupPlan) hash() {
	var wg sync.WaitGroup
	for _, b := range p.births {
		wg.Go(func() { b.Hash(p.s.mailboxes) })
	}
	wg.Wait()
	for _, b := range p.births {
		mb := b.Mb
		mb.Email = b.Username + "@" + p.name
		p.args.Mailboxes = append(p.args.Mailboxes, mb)
	}
}

// find gives the account's domain of the name; nil if it is to be made.
func (p *setupPlan) find(tx *store.Tx) (*store.Domain, error) {
	d, err := claimOf(tx, p.who.AccountID, p.name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, p.mayMake(tx)
	case err != nil:
		return nil, err
	case d.Status == core.DomainDeleting:
		return nil, errBusy(d, "is being deleted")
	case d.DNSProvider == core.ProviderExternal:
		return nil, core.Invalid("domain", "not_allowed", "%s is connected as hosted elsewhere, so there is nothing to set up; delete it first to host it here", p.name)
	case p.token != "" && d.DNSProvider != core.ProviderEdge:
		return nil, core.Invalid("edge_api_token", "not_allowed", "the DNS of %s is served by %s; delete the domain first to have its records at the edge provider", p.name, d.DNSProvider)
	case p.in.ManualDNS && d.DNSProvider != core.ProviderManual:
		return nil, core.Invalid("manual_dns", "not_allowed", "the DNS of %s is served by %s; delete the domain first to keep its records by hand", p.name, d.DNSProvider)
	}
	return d, nil
}

// mayMake tells whether the account may have the domain.
func (p *setupPlan) mayMake(tx *store.Tx) error {
	if p.s.operatorsOnly(tx, p.who.AccountID, p.name) {
		return core.Invalid("domain", "not_allowed", "%s", notAvailable(p.name))
	}
	if elsewhere, err := provenElsewhere(tx, p.who.AccountID, p.name); err != nil {
		return err
	} else if elsewhere {
		return core.Invalid("domain", claimedElsewhere, "%s", errClaimedElsewhere(p.name).Message)
	}
	limit := p.s.Config.Limits.Domains
	if used := store.DomainsByAccount.Count(tx, p.who.AccountID, 0); limit > 0 && used >= limit {
		return core.Errorf("domain_limit_exceeded", "This account may have %d domains and has %d. Delete one first.", limit, used)
	}
	return nil
}

// begin writes the domain, the intent to buy it and the job.
func (p *setupPlan) begin(tx *store.Tx) (*store.Job, error) {
	d, err := p.find(tx)
	if err != nil {
		return nil, err
	}
	if err := p.checkRoom(tx, d); err != nil {
		return nil, err
	}
	write, began := p.s.putDomain, d == nil
	if d == nil {
		if d, err = p.newDomain(tx); err != nil {
			return nil, err
		}
		write = p.s.PutZone
	} else {
		if err := p.s.makeIdle(tx, d); err != nil {
			return nil, err
		}
		if began, err = p.s.reopenClaim(tx, d); err != nil {
			return nil, err
		}
	}
	args := p.args
	args.DomainID = d.ID
	if p.shop != nil {
		if args.PurchaseID, err = p.intend(tx); err != nil {
			return nil, err
		}
	}
	if p.token != "" {
		args.EdgeToken = p.s.Keys.Seal(core.EdgePlace(d.ID), []byte(p.token))
	}
	steps := setupSteps(d.DNSProvider, args)
	j, err := p.s.Queue.Add(tx, jobs.New{
		AccountID: d.AccountID, Kind: "domain_setup", Lane: "setup " + d.AccountID, CreatedBy: p.who.UserID, Args: args,
		Resource: store.JobResource{Type: "domain", ID: d.ID, Name: d.Name}, Steps: steps, Total: len(steps),
	})
	if err != nil {
		return nil, err
	}
	d.JobID, d.ErrorCode, d.ErrorMessage, d.StatusDetail, d.NSAwaited = j.ID, "", "", "", time.Time{}
	if d.Status != core.DomainComplete {
		d.Status = core.DomainPending
	}
	if p.in.Tags != nil {
		d.Tags = *p.in.Tags
	}
	if p.shop == nil { // else once it is bought
		if err := p.s.tellCreated(tx, d); err != nil {
			return nil, err
		}
	}
	if err := write(tx, d); err != nil || !began {
		return j, err
	}
	return j, p.s.claimsChanged(tx, d)
}

func (p *setupPlan) newDomain(tx *store.Tx) (*store.Domain, error) {
	d := &store.Domain{
		ID: tx.NewID("dom"), AccountID: p.who.AccountID, Name: p.name, DNSProvider: p.provider, Source: "connected",
		NSStatus: nsPending, DNSStatus: dnsPending, CreatedAt: tx.Now(),
	}
	if p.provider != dnsprov.Builtin {
		d.NSStatus = nsNotRequired
	}
	return d, errors.Join(p.s.GiveZoneKey(d), p.s.beginClaim(tx, d))
}

// setupSteps names the steps of a setup, in their order.
func setupSteps(provider string, a setupArgs) []string {
	var out []string
	add := func(when bool, names ...string) {
		if when {
			out = append(out, names...)
		}
	}
	ours := a.DNS && provider == dnsprov.Builtin
	edge := a.DNS && provider == core.ProviderEdge
	add(len(a.EdgeToken) > 0, stepEdgeToken)
	add(a.PurchaseID != "", stepRegister)
	add(true, stepKeys)
	add(ours, stepZone)
	add(a.DNS && provider == core.ProviderManual, stepRecords)
	add(len(a.Mailboxes) > 0, stepUsers)
	add(a.Redirect != "", stepRedirect)
	add(a.Forward != "", stepForward)
	add(ours, stepDelegate)
	add(edge, stepEdgeRecords)
	add((ours || edge) && a.Email, stepMail)
	add(ours || edge, stepVerify)
	return out
}

// wakeSetup has the setup that waits for a domain's delegation go on; false if there is none.
func (s *Service) wakeSetup(tx *store.Tx, d *store.Domain) (bool, error) {
	j, err := store.Jobs.Get(tx, d.JobID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (j.Kind != "domain_setup" || j.Ended()) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.Queue.Wake(tx, j.ID, time.Time{})
}

// namesOf joins names for people.
func namesOf(names []string) string { return strings.Join(names, ", ") }

// Steps of a setup beside those of provisioning. Each can be done again.
const (
	stepEdgeToken = "edge_token" // the edge provider takes the new token; it is the domain's from then on

	stepRegister = "register"
	stepUsers    = "users"
	stepRedirect = "redirect"
	stepForward  = "forward"
	stepDelegate = "delegate" // the registrar and the DNS name our nameservers; it may take days
)

const (
	delegationAwaited = 72 * time.Hour
	usersAtATime      = 10 // mailboxes made in one transaction
)

func (s *Service) setupKind() jobs.Kind {
	return jobs.Kind{Name: "domain_setup", Work: s.setUp, Max: 10, Lanes: 4, Visible: true, Failed: s.provisionFailed}
}

// A setup is one attempt at a domain_setup.
type setup struct {
	provisioning
	args setupArgs
}

// errAwaited says that the domain is not delegated to us yet.
type errAwaited struct {
	current []string
	claimed bool // it is, and others claim the name too
}

func (errAwaited) Error() string { return "the domain is not delegated to us yet" }

// errPartly says that a step did what it could, and that the job goes on.
type errPartly struct{ what string }

func (e errPartly) Error() string { return e.what }

// setUp is the work of domain_setup. Begun again it finds out what is done.
func (s *Service) setUp(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[setupArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d, err := s.beginProvision(args.DomainID)
	if errors.Is(err, store.ErrNotFound) || err == nil && d.Status == core.DomainDeleting {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &setup{provisioning: provisioning{s: s, ctx: ctx, d: d}, args: args}
	steps := setupSteps(d.DNSProvider, args)
	for i, name := range steps {
		err := p.step(provisionStep{name, p.steps()[name]})
		var wait errAwaited
		if errors.As(err, &wait) {
			return p.wait(wait)
		}
		if err != nil && !errors.As(err, new(errPartly)) {
			return nil, err
		}
		if core.ClaimEnded(p.d) {
			return nil, jobs.Permanent(errClaimEnded(p.d))
		}
		jobs.Progress(ctx, i+1, len(steps), "")
	}
	if slices.Contains(steps, stepVerify) {
		if err := s.activateMany(ctx, d.ID); err != nil {
			return nil, err
		}
	}
	return p.end, nil
}

func (p *setup) steps() map[string]func() error {
	all := p.provisioning.steps()
	maps.Copy(all, map[string]func() error{
		stepEdgeToken: p.edgeToken, stepRegister: p.register, stepUsers: p.users, stepRedirect: p.redirect, stepForward: p.forward, stepDelegate: p.delegate,
	})
	return all
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
	provider, err := p.s.edgeProvider(p.d.ID, p.args.EdgeToken)
	if err != nil {
		return p.s.edgeOutcome(p.ctx, p.d.Name, err)
	}
	if err = checkEdgeToken(p.ctx, provider); err == nil {
		_, err = provider.Records(p.ctx, dnsprov.ZoneRef{Domain: p.d.Name, OwnerTag: p.d.ID})
	}
	if err != nil && (p.args.PurchaseID == "" || !errors.Is(err, dnsprov.ErrZoneNotFound)) {
		return p.s.edgeOutcome(p.ctx, p.d.Name, edgeFault{err})
	}
	return p.change(p.s.putDomain, func(d *store.Domain) { d.EdgeToken = p.args.EdgeToken })
}

func (p *setup) redirect() error {
	return p.change(p.s.serveZone, func(d *store.Domain) { setRedirect(d, p.args.Redirect, true, false) })
}

func (p *setup) forward() error {
	return p.change(p.s.putDomain, func(d *store.Domain) { d.Forward = p.args.Forward })
}

// users makes the mailboxes that are not there. They are pending until the domain is complete.
func (p *setup) users() error {
	for rest := p.args.Mailboxes; len(rest) > 0; rest = rest[min(usersAtATime, len(rest)):] {
		some := rest[:min(usersAtATime, len(rest))]
		if err := p.s.Store.Update(func(tx *store.Tx) error { return p.bear(tx, some) }); err != nil {
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
		err = errPartly{fmt.Sprintf("%d of %d mailboxes were not made, since the limits of this account allow no more.", lacking, len(p.args.Mailboxes))}
	}
	return err
}

// bear makes some of the mailboxes, as far as the limits allow.
func (p *setup) bear(tx *store.Tx, some []store.Mailbox) error {
	d, err := store.Domains.Get(tx, p.d.ID)
	if err != nil {
		return err
	}
	left, _ := p.s.mailboxes.RoomForMailboxes(tx, d)
	for _, mb := range some {
		_, err := store.MailboxByAddress.Get(tx, store.AddressKey(d.ID, mb.Email))
		if err == nil || left <= 0 {
			continue
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if _, err := p.s.mailboxes.CreateMailbox(tx, &mailboxes.NewMailbox{Mb: mb, Domain: d}); err != nil {
			return err
		}
		left--
	}
	return nil
}

// delegate has the registrar name our nameservers, if the domain was bought here, and looks whether
// the DNS does.
func (p *setup) delegate() error {
	if err := p.tellRegistrar(); err != nil {
		return err
	}
	var found dnsprov.Delegation
	looked := p.s.Looking(p.ctx, func() (err error) {
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
			d.NSStatus, d.CurrentNS, d.NSAwaited, d.StatusDetail = NSVerified, found.Current, time.Time{}, ""
			if d.Status == core.DomainPendingNS {
				d.Status = core.DomainInProgress
			}
		})
	case looked != nil && p.d.NSStatus == NSVerified, p.d.Status == core.DomainComplete:
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
func (p *setup) wait(awaited errAwaited) (jobs.Writes, error) {
	now := p.s.Now()
	since := p.d.NSAwaited
	if since.IsZero() {
		since = now
	}
	ours := namesOf(p.s.Config.Nameservers)
	end := since.Add(delegationAwaited)
	if !now.Before(end) {
		return nil, jobs.Permanent(core.Errorf("ns_timeout",
			"%s was not delegated to us within %d hours. Set these nameservers, and only these, at its registrar, and run setup again: %s.", p.d.Name, int(delegationAwaited.Hours()), ours))
	}
	next := now.Add(Awaiting(now.Sub(since), p.s.Rand()))
	if next.After(end) {
		next = end
	}
	detail := p.d.Name + " waits to be delegated. Set only these nameservers at its registrar: " + ours + "."
	if awaited.claimed {
		detail = contestedText(p.d)
	}
	jobs.Progress(p.ctx, slices.Index(setupSteps(p.d.DNSProvider, p.args), stepDelegate), len(setupSteps(p.d.DNSProvider, p.args)), detail)
	return func(tx *store.Tx, _ *store.Job) error {
		d, err := store.Domains.Get(tx, p.d.ID)
		if err != nil || d.Status == core.DomainPending || d.Status == core.DomainDeleting || core.ClaimEnded(d) { // pending: check-ns was faster
			return err
		}
		d.Status, d.StatusDetail, d.NSAwaited, d.CurrentNS = core.DomainPendingNS, detail, since, awaited.current
		return p.s.putDomain(tx, d)
	}, jobs.Snooze(next)
}

// awaiting is how long to wait for the next look after so long a wait: a fourth of it, from a
// minute to an hour.
func Awaiting(waited time.Duration, r float64) time.Duration {
	return jobs.Jitter(min(max(waited/4, time.Minute), time.Hour), r)
}

// setupResult is what a domain_setup came to.
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
	if errors.Is(err, store.ErrNotFound) || err == nil && d.Status == core.DomainDeleting {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case core.ClaimEnded(d):
	case p.look != nil:
		err = p.finish(tx, d)
	case d.Status == core.DomainComplete:
		err = p.s.PutZone(tx, d)
	default:
		d.Status = core.DomainPendingNS
		if d.DNSProvider != dnsprov.Builtin {
			d.Status = core.DomainPendingDNS
		}
		if d.DNSProvider == core.ProviderEdge {
			d.StatusDetail = "The records of " + d.Name + " are not made, since setup_dns was false. Run setup again without it."
		}
		err = p.s.putDomain(tx, d)
	}
	if err != nil {
		return err
	}
	return p.result(tx, d, j)
}

func (p *setup) result(tx *store.Tx, d *store.Domain, j *store.Job) (err error) {
	r := SetupResult{DomainID: d.ID, Domain: d.Name, Status: d.Status, Registrar: core.OrNull(d.Registrar), Currency: currency, ExpiresAt: core.Time{Time: d.ExpiresAt}}
	if r.EmailUsers, err = p.countUsers(tx); err != nil {
		return err
	}
	if p.args.PurchaseID != "" {
		pu, err := store.Purchases.Get(tx, p.args.PurchaseID)
		if err != nil {
			return err
		}
		r.Price = dollars(pu.Price)
	}
	if j.Detail = ""; d.Registrar == registrar.SandboxName {
		j.Detail = d.Name + " is a pretend name of the sandbox registrar: nothing was paid, and nobody else knows it."
	}
	j.Result, err = json.Marshal(r)
	return err
}
