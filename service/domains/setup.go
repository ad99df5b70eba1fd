package domains

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// SetupDomainIn is the body of setup_domain.
type SetupDomainIn struct {
	Domain     string   `json:"domain" required:"true" log:"true"`
	Register   bool     `json:"register" log:"true"`
	Price      *float64 `json:"price" min:"0" max:"1000000" log:"true"` // In USD.
	Years      *int     `json:"years" min:"1" max:"10" log:"true"`
	AutoRenew  bool     `json:"auto_renew" log:"true"`
	Registrar  string   `json:"registrar" log:"true"`
	SetupDNS   *bool    `json:"setup_dns" log:"true"`
	SetupEmail *bool    `json:"setup_email" log:"true"`
	ManualDNS  bool     `json:"manual_dns" log:"true"`
	// A Cloudflare API token with Zone → Zone → Read and Zone → DNS → Edit for the zone. It is
	// stored encrypted and never shown.
	EdgeAPIToken    *string `json:"edge_api_token" alias:"cloudflare_api_token"`
	DNSCredentialID *string `json:"dns_credential_id" log:"true"` // The DNS credential with which Mailstead makes the records at another DNS provider. Excludes edge_api_token and manual_dns.
	// At a DNS provider: replace MX records of others at the domain itself, and merge their SPF
	// record with ours. What was there stays in the domain's replaced.
	Replace        bool        `json:"replace" log:"true"`
	Users          []SetupUser `json:"users" max:"100"`
	TemplateID     string      `json:"template_id" log:"true"`
	RedirectURL    string      `json:"redirect_url" alias:"url" max:"2048"`
	ForwardAddress string      `json:"forward_address" alias:"address"`
	Tags           *[]string   `json:"tags" max:"50"`
	// here: visitors of the domain itself come to this host, as a redirect needs. elsewhere: its
	// website stays where it is. Without it, Mailstead finds out from its nameservers. A domain
	// that is registered is here.
	Apex string `json:"apex" enum:"here|elsewhere|" log:"true"`
}

// A SetupUser is a mailbox that setup_domain creates. If it has no password, a password is
// generated, which an export of the mailboxes contains.
type SetupUser struct {
	Username string  `json:"username" log:"true"`
	Name     string  `json:"name"`
	Password *string `json:"password"`
}

// setupArgs are the arguments of a domain_setup job. Passwords in them are hashed or sealed.
type setupArgs struct {
	DomainID   string          `json:"domain_id"`
	PurchaseID string          `json:"purchase_id,omitempty"`
	DNS        bool            `json:"dns"`
	Email      bool            `json:"email"`
	Mailboxes  []store.Mailbox `json:"mailboxes,omitempty"`
	Redirect   string          `json:"redirect,omitempty"`
	Forward    string          `json:"forward,omitempty"`
	EdgeToken  []byte          `json:"edge_token,omitempty"` // sealed
	Credential string          `json:"dns_credential_id,omitempty"`
	FindSite   bool            `json:"find_site,omitempty"` // the nameservers of the domain are asked about its website before anything changes
	Apex       string          `json:"apex,omitempty"`      // as SetupDomainIn.Apex, for a domain that exists
	delegated  bool            // the domain is known to be delegated to us, so the job does not wait for that
}

// A setupPlan is a validated setup_domain request.
type setupPlan struct {
	s            *Service
	who          core.Actor
	in           SetupDomainIn
	name         string
	provider     string
	shop         registrar.Registrar // the registrar at which the domain is bought; nil: it is not bought
	newMailboxes []*mailboxes.NewMailbox
	token        string // the API token of Cloudflare in the request; "": none
	credential   *store.DNSCredential
	args         setupArgs
}

// SetupDomain adds a domain to the account and queues a job that sets up its DNS and mail. If the
// request asks for it, the job also buys the domain. For an existing domain, the job does only what
// is not done yet.
func (s *Service) SetupDomain(ctx context.Context, who core.Actor, in SetupDomainIn) (*core.JobResponse, error) {
	p, err := s.planSetup(who, in)
	if err != nil {
		return nil, err
	}
	if err := s.Store.View(p.checkStored); err != nil {
		return nil, err // checked here first, because hashing the passwords is slow
	}
	p.hashPasswords()
	var out core.JobResponse
	err = s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		j, err := p.writeAndQueue(tx)
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

// planSetup validates what can be validated without the store.
func (s *Service) planSetup(who core.Actor, in SetupDomainIn) (*setupPlan, error) {
	p := &setupPlan{s: s, who: who, in: in, provider: dnsprov.Builtin}
	p.args = setupArgs{DNS: in.SetupDNS == nil || *in.SetupDNS, Email: in.SetupEmail == nil || *in.SetupEmail}
	if in.ManualDNS {
		p.provider = store.DomainProviderManual
	}
	var err error
	p.name, _, err = idn.Registrable(in.Domain)
	if err != nil {
		return nil, core.Errorf("invalid_domain", "%s", err).With("domain", "invalid_domain", err.Error())
	}
	if s.IsSimulator(p.name) {
		return nil, core.Errorf("invalid_domain", "%s.", simulatorNameText(p.name)).With("domain", "invalid_domain", "is a name of this host's own")
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
		return nil, core.Invalid("setup_email", "not_allowed", "must be true to create mailboxes; leave out users and template_id, or setup_email")
	}
	if in.EdgeAPIToken != nil && in.ManualDNS {
		return nil, core.Invalid("edge_api_token", "not_allowed", "cannot be combined with manual_dns: the DNS is either at the edge provider or entered by hand")
	}
	p.token, err = edge.CleanToken(in.EdgeAPIToken)
	if err != nil {
		return nil, err
	}
	if p.token != "" {
		p.provider = store.DomainProviderCloudflare
	}
	if err := p.planCredential(); err != nil {
		return nil, err
	}
	return p, s.edge.CheckProvider(p.provider)
}

// planCredential reads the DNS credential of the request, if it has one.
func (p *setupPlan) planCredential() error {
	in := p.in
	if in.DNSCredentialID != nil {
		if in.EdgeAPIToken != nil || in.ManualDNS {
			return core.Invalid("dns_credential_id", "not_allowed", "excludes edge_api_token and manual_dns: one DNS provider serves the DNS")
		}
		err := p.s.Store.View(p.readCredential)
		if err != nil {
			return err
		}
		p.provider, p.args.Credential = p.credential.Provider, p.credential.ID
	}
	return nil
}

func (p *setupPlan) readCredential(tx *store.Tx) (err error) {
	p.credential, err = edge.CredentialFor(tx, p.who, *p.in.DNSCredentialID, p.name)
	return err
}

// planRouting validates the tags, where the domain itself leads, the redirect and the forward.
func (p *setupPlan) planRouting() (err error) {
	switch {
	case p.in.Apex == store.ApexElsewhere && p.in.Register:
		return core.Invalid("apex", "not_allowed", "cannot be elsewhere with register: a new domain has no website yet")
	case p.in.Apex == store.ApexElsewhere && p.in.RedirectURL != "":
		return core.Errorf("apex_elsewhere", "A redirect needs that %s itself leads to this host. Leave out redirect_url, or give apex as here.", p.name).
			With("redirect_url", "apex_elsewhere", "excludes the apex elsewhere")
	}
	if p.in.Tags != nil {
		*p.in.Tags, err = cleanTags(*p.in.Tags)
		if err != nil {
			return err
		}
	}
	if p.in.RedirectURL != "" {
		p.args.Redirect, err = cleanRedirectURL(p.in.RedirectURL, p.name)
		if err != nil {
			return err
		}
	}
	if p.in.ForwardAddress != "" {
		p.args.Forward, err = cleanForwardAddress(p.in.ForwardAddress, p.name)
	}
	return err
}

// checkStored validates the request against the store and prepares the new mailboxes.
func (p *setupPlan) checkStored(tx *store.Tx) error {
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
	if err := p.draftMailboxes(users); err != nil {
		return err
	}
	d, err := p.findDomain(tx)
	if err != nil {
		return err
	}
	return p.checkLimits(tx, d)
}

// draftMailboxes validates the new mailboxes. It skips a username of the template if the request
// also has it among its users.
func (p *setupPlan) draftMailboxes(users []SetupUser) error {
	p.newMailboxes = nil
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
			p.newMailboxes = append(p.newMailboxes, b)
		}
	}
	return nil
}

// checkLimits returns an error if the limits do not allow so many new mailboxes. Mailboxes that
// exist already are not counted.
func (p *setupPlan) checkLimits(tx *store.Tx, d *store.Domain) error {
	if d == nil {
		d = &store.Domain{ID: "new", AccountID: p.who.AccountID, Name: p.name}
	}
	fresh := 0
	for _, b := range p.newMailboxes {
		_, err := store.MailboxByEmail.OfAccount(tx, p.who.AccountID, b.Username+"@"+p.name)
		if errors.Is(err, store.ErrNotFound) {
			fresh++
		} else if err != nil {
			return err
		}
	}
	left, full, err := p.s.mailboxes.MailboxesLeft(tx, d)
	if err == nil && fresh > left {
		err = full
	}
	return err
}

// hashPasswords hashes the passwords of the new mailboxes and adds the mailboxes to the job's
// arguments.
func (p *setupPlan) hashPasswords() {
	var wg sync.WaitGroup
	for _, b := range p.newMailboxes {
		wg.Go(func() { b.HashPassword(p.s.mailboxes) })
	}
	wg.Wait()
	for _, b := range p.newMailboxes {
		mb := b.Mb
		mb.Email = b.Username + "@" + p.name
		p.args.Mailboxes = append(p.args.Mailboxes, mb)
	}
}

// findDomain returns the account's domain with the requested name; nil if it must be created.
func (p *setupPlan) findDomain(tx *store.Tx) (*store.Domain, error) {
	d, err := claimOf(tx, p.who.AccountID, p.name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, p.checkMayAdd(tx)
	case err != nil:
		return nil, err
	case d.Gone():
		return nil, core.DomainBusy(d, "is being deleted")
	case d.DNSProvider == store.DomainProviderExternal:
		return nil, core.Invalid("domain", "not_allowed", "%s is connected as hosted elsewhere, so there is nothing to set up; delete it first to host it here", p.name)
	case p.credential != nil && d.DNSProvider != p.credential.Provider:
		return nil, core.Invalid("dns_credential_id", "not_allowed", "the DNS of %s is served by %s; PATCH /v1/domains/%s with dns_credential_id moves it", p.name, d.DNSProvider, d.ID)
	case p.in.Replace && !d.AtEdge():
		return nil, core.Invalid("replace", "not_allowed", "the DNS of %s is served by %s, where no records of others are replaced", p.name, d.DNSProvider)
	case p.token != "" && d.DNSProvider != store.DomainProviderCloudflare:
		return nil, core.Invalid("edge_api_token", "not_allowed", "the DNS of %s is served by %s; delete the domain first to have its records at the edge provider", p.name, d.DNSProvider)
	case p.in.ManualDNS && d.DNSProvider != store.DomainProviderManual:
		return nil, core.Invalid("manual_dns", "not_allowed", "the DNS of %s is served by %s; delete the domain first to keep its records by hand", p.name, d.DNSProvider)
	case p.args.Redirect != "" && p.in.Apex == "" && !mayRedirect(d) && d.ApexMode() != store.ApexUndecided: // the job asks about an undecided one
		return nil, zones.ErrApexElsewhere(d)
	}
	return d, nil
}

// checkMayAdd returns an error if the account must not add the domain.
func (p *setupPlan) checkMayAdd(tx *store.Tx) error {
	if p.s.isOperatorName(tx, p.who.AccountID, p.name) {
		return core.Invalid("domain", "not_allowed", "%s", notAvailableText(p.name))
	}
	if elsewhere, err := isProvenByOther(tx, p.who.AccountID, p.name); err != nil {
		return err
	} else if elsewhere {
		return core.Invalid("domain", claimedElsewhere, "%s", errClaimedElsewhere(p.name).Message)
	}
	if p.in.Replace && !store.IsEdge(p.provider) {
		return core.Invalid("replace", "not_allowed", "needs dns_credential_id or edge_api_token: only records at such a DNS provider can be replaced")
	}
	a, err := store.Accounts.Read(tx, p.who.AccountID)
	if err != nil {
		return err
	}
	limit := p.s.LimitsOf(a).Domains
	if used := store.DomainsByAccount.Count(tx, p.who.AccountID, 0); limit > 0 && used >= limit {
		return core.Errorf("domain_limit_exceeded", "This account's limit of domains is %d, and it has %d. Delete one first.", limit, used)
	}
	return nil
}

// writeAndQueue writes the domain, the record of the intended purchase, and the job.
func (p *setupPlan) writeAndQueue(tx *store.Tx) (*store.Job, error) {
	if p.credential != nil {
		if err := p.readCredential(tx); err != nil { // it was deleted in the meantime
			return nil, err
		}
	}
	d, err := p.findDomain(tx)
	if err != nil {
		return nil, err
	}
	if err := p.checkLimits(tx, d); err != nil {
		return nil, err
	}
	write, began := p.s.putDomain, d == nil
	if d == nil {
		d, err = p.newDomain(tx)
		if err == nil && p.shop == nil {
			err = p.s.scans.Begin(tx, d, p.who.UserID)
		}
		if err != nil {
			return nil, err
		}
		write = p.s.zones.PutZone
	} else {
		if err := p.s.cancelWaitingJob(tx, d); err != nil {
			return nil, err
		}
		d.Move = nil
		began, err = p.s.reopenClaim(tx, d)
		if err != nil {
			return nil, err
		}
	}
	args := p.args
	args.DomainID, args.FindSite = d.ID, p.s.findsSites() && d.Apex != nil && d.Apex.Mode != store.ApexHere && !d.Apex.Given && !d.AtEdge()
	if p.in.Apex != "" && p.in.Apex != d.ApexMode() {
		args.Apex = p.in.Apex
	}
	if p.shop != nil {
		args.PurchaseID, err = p.addPurchase(tx)
		if err != nil {
			return nil, err
		}
	}
	if p.token != "" {
		args.EdgeToken = p.s.Keys.Seal(store.EdgeBinding(d.ID), []byte(p.token))
	}
	steps := stepNames((&setupRun{d: d, args: args}).steps())
	j, err := p.s.Queue.Add(tx, jobs.New{
		AccountID: d.AccountID, Kind: KindSetup, Lane: "setup " + d.AccountID, CreatedBy: p.who.UserID, Args: args,
		Resource: store.JobResource{Type: "domain", ID: d.ID, Name: d.Name}, Steps: steps, Total: len(steps),
	})
	if err != nil {
		return nil, err
	}
	d.JobID, d.ErrorCode, d.ErrorMessage, d.StatusDetail, d.NSAwaited = j.ID, "", "", "", time.Time{}
	if d.Claim == store.ClaimOpen {
		d.ClaimedAt = tx.Now() // it ends with the new wait
	}
	d.Replace = p.in.Replace
	if d.Status != store.DomainComplete {
		d.Status = store.DomainPending
	}
	if p.in.Tags != nil {
		d.Tags = *p.in.Tags
	}
	if p.shop == nil { // if the domain is bought, the event follows the purchase
		if err := p.s.emitCreated(tx, d); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(write(tx, d), core.Audit(tx, p.who, core.DomainTarget(d))); err != nil || !began {
		return j, err
	}
	return j, p.s.claimsChanged(tx, d)
}

func (p *setupPlan) newDomain(tx *store.Tx) (*store.Domain, error) {
	d := &store.Domain{
		ID: tx.NewID("dom"), AccountID: p.who.AccountID, Name: p.name, DNSProvider: p.provider, Source: store.DomainSourceConnected,
		NSStatus: store.DomainNSPending, DNSStatus: dnsPending, CreatedAt: tx.Now(),
	}
	if p.provider != dnsprov.Builtin {
		d.NSStatus = store.DomainNSNotRequired
	}
	if p.credential != nil {
		d.DNSCredentialID = p.credential.ID
	}
	asked := p.in.Apex
	if asked == "" && (p.shop != nil && !d.AtEdge() || d.AtEdge() && p.args.Redirect != "") {
		asked = store.ApexHere
	}
	d.Apex = p.s.newApex(d, asked, presentSite{})
	d.Apex.Chosen = p.in.Apex != "" || p.shop != nil
	return d, errors.Join(p.s.zones.GenerateZoneKey(d), p.s.beginClaim(tx, d))
}
