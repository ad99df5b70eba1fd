package domains

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

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
