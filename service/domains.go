package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// Who serves a domain's DNS, beside dnsprov.Builtin.
const (
	providerEdge     = dnsprov.Cloudflare
	providerManual   = dnsprov.Manual
	providerExternal = dnsprov.External
)

// Status of a domain.
const (
	domainPending    = "pending"    // a job waits
	domainPendingNS  = "pending_ns" // its owner must change the nameservers
	domainPendingDNS = "pending_dns_records"
	domainInProgress = "in_progress" // a job runs
	domainComplete   = "complete"
	domainError      = "error"
	domainDeleting   = "deleting"
)

// Where a domain's nameservers stand.
const (
	nsPending     = "pending"
	nsVerified    = "verified"
	nsLost        = "lost" // they were ours once
	nsNotRequired = "not_required"
)

const (
	maxTags = 50
)

// A Domain is a mail domain as the API shows it.
type Domain struct {
	ID              string          `json:"id" words:"ours"`
	DomainID        string          `json:"domain_id" words:"ours"`
	Domain          string          `json:"domain" words:"ours"`
	DomainUnicode   string          `json:"domain_unicode" words:"ours"`
	Status          string          `json:"status" enum:"pending|pending_ns|pending_dns_records|in_progress|complete|error|deleting"`
	StatusDetail    *string         `json:"status_detail" words:"theirs"`
	Error           *JobFailure     `json:"error"`
	DNSProvider     string          `json:"dns_provider" enum:"builtin|cloudflare|manual|external"`
	Source          string          `json:"source" enum:"connected|registered"`
	Registrar       *string         `json:"registrar" words:"ours"`
	ExpiresAt       Time            `json:"expires_at"`
	AutoRenew       bool            `json:"auto_renew"`
	Nameservers     []string        `json:"nameservers" words:"ours"`
	NSStatus        string          `json:"ns_status" enum:"pending|verified|lost|not_required"`
	DNSStatus       string          `json:"dns_status" enum:"pending|propagating|complete|failed"`
	DNSHealth       DNSHealth       `json:"dns_health"`
	DKIMSelector    *string         `json:"dkim_selector" words:"ours"`
	DNSSEC          *DNSSEC         `json:"dnssec"`
	DMARCOverride   *DMARCOverride  `json:"dmarc_override"`
	RedirectURL     *string         `json:"redirect_url" words:"ours"`
	Redirect        *DomainRedirect `json:"redirect"`
	ForwardAddress  *string         `json:"forward_address" words:"ours"`
	CatchAll        *string         `json:"catch_all" words:"ours"`
	SendingMode     string          `json:"sending_mode" enum:"direct|relay"`
	Relay           *string         `json:"relay" words:"ours"`
	ListUnsubscribe bool            `json:"list_unsubscribe"`
	EmailUsersCount int             `json:"email_users_count"`
	Tags            []string        `json:"tags" words:"ours"`
	Notes           *string         `json:"notes" words:"ours"`
	JobID           *string         `json:"job_id" words:"ours"`
	CreatedAt       Time            `json:"created_at"`
	UpdatedAt       Time            `json:"updated_at"`
	CompletedAt     Time            `json:"completed_at"`
}

// A DMARCOverride is the policy that the owner chose in place of the default.
type DMARCOverride struct {
	Value     string `json:"value" words:"ours"`
	UpdatedAt Time   `json:"updated_at"`
}

// domainOut shows a domain as it is in tx.
func (s *Service) domainOut(tx *store.Tx, d *store.Domain) (Domain, error) {
	out := Domain{
		ID: d.ID, DomainID: d.ID, Domain: d.Name, DomainUnicode: unicodeName(d.Name), Status: d.Status,
		StatusDetail: orNull(d.StatusDetail), DNSProvider: d.DNSProvider, Source: d.Source, Registrar: orNull(d.Registrar),
		ExpiresAt: Time{d.ExpiresAt}, AutoRenew: d.AutoRenew, Nameservers: s.nameserversOf(d.DNSProvider), NSStatus: d.NSStatus,
		DNSStatus: d.DNSStatus, DNSHealth: s.healthOf(d), DNSSEC: dnssecOf(d), DMARCOverride: dmarcOverride(d), RedirectURL: orNull(d.RedirectURL), Redirect: redirectOf(d), ForwardAddress: orNull(d.Forward),
		CatchAll: orNull(d.CatchAll), SendingMode: s.sendingMode(d), Relay: orNull(d.Relay), ListUnsubscribe: d.ListUnsub, Tags: append([]string{}, d.Tags...), Notes: orNull(d.Notes),
		EmailUsersCount: store.MailboxesByDomain.Count(tx, d.ID, 0), JobID: orNull(d.JobID),
		CreatedAt: Time{d.CreatedAt}, UpdatedAt: Time{d.UpdatedAt}, CompletedAt: Time{d.CompletedAt},
	}
	if out.StatusDetail == nil {
		out.StatusDetail = orNull(claimDetail(tx, d))
	}
	if d.ErrorCode != "" {
		out.Error = &JobFailure{d.ErrorCode, d.ErrorMessage}
	}
	if len(d.DKIM) > 0 {
		out.DKIMSelector = &d.DKIM[0].Selector
	}
	return out, nil
}

// unicodeName is a domain in its own letters.
func unicodeName(ascii string) string {
	_, name, err := idn.Registrable(ascii)
	if err != nil {
		return ascii
	}
	return name
}

// nameserversOf are those that a domain must be delegated to; none where that is nobody's business.
func (s *Service) nameserversOf(provider string) []string {
	if provider != dnsprov.Builtin {
		return []string{}
	}
	return append([]string{}, s.Config.Nameservers...)
}

// sendingMode is the domain's own, else what the installation does.
func (s *Service) sendingMode(d *store.Domain) string {
	switch {
	case d.SendingMode != "":
		return d.SendingMode
	case d.Relay != "":
		return viaRelay
	case s.Config.Outbound == viaCapture && len(s.Config.Relays) == 0:
		return viaDirect
	case s.Config.Outbound == viaCapture:
		return viaRelay
	}
	return s.outbound()
}

// outbound is where mail to others goes unless its domain says otherwise; if it is captured, no
// domain does.
func (s *Service) outbound() string {
	switch {
	case s.Config.Outbound != "":
		return s.Config.Outbound
	case len(s.Config.Relays) > 0:
		return viaRelay
	}
	return viaDirect
}

// ListDomainsIn is the query of list_domains.
type ListDomainsIn struct {
	PageIn
	Status      string `query:"status" enum:"pending|pending_ns|pending_dns_records|in_progress|complete|error|deleting|"`
	Tag         string `query:"tag" max:"50"`
	Q           string `query:"q" max:"254"`
	DNSProvider string `query:"dns_provider" enum:"builtin|cloudflare|manual|external|"`
}

// ListDomains lists the account's domains, newest first. q is looked for in both forms of the name.
func (s *Service) ListDomains(_ context.Context, who Actor, in ListDomainsIn) (*Page[Domain], error) {
	q := strings.ToLower(in.Q)
	l := list[store.Domain, Domain]{
		operation: "domains", index: store.DomainsByAccount, prefix: who.AccountID,
		filters: []string{in.Status, in.Tag, q, in.DNSProvider},
		keep: func(d *store.Domain) bool {
			return (in.Status == "" || d.Status == in.Status) && (in.Tag == "" || slices.Contains(d.Tags, in.Tag)) &&
				(in.DNSProvider == "" || d.DNSProvider == in.DNSProvider) &&
				(q == "" || strings.Contains(d.Name, q) || strings.Contains(unicodeName(d.Name), q))
		},
		out: s.domainOut,
	}
	return l.page(s, who, in.PageIn)
}

// DomainIn names one domain.
type DomainIn struct {
	DomainID string `path:"domain_id"`
}

// GetDomain shows one domain.
func (s *Service) GetDomain(_ context.Context, who Actor, in DomainIn) (*Domain, error) {
	var out Domain
	err := s.Store.View(func(tx *store.Tx) error {
		d, err := domainOf(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		out, err = s.domainOut(tx, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// UpdateDomainIn is the body of update_domain. Null takes the catch-all, the relay or the notes
// away.
type UpdateDomainIn struct {
	DomainID    string      `path:"domain_id"`
	Tags        *[]string   `json:"tags" max:"50"`
	AutoRenew   *bool       `json:"auto_renew"`
	SendingMode *string     `json:"sending_mode" enum:"direct|relay"`
	Relay       Opt[string] `json:"relay" max:"100"`
	ListUnsub   *bool       `json:"list_unsubscribe"`
	CatchAll    Opt[string] `json:"catch_all"`
	Notes       Opt[string] `json:"notes" max:"5000"`
}

// check looks at the fields on their own, and brings them into the form in which they are kept.
func (in *UpdateDomainIn) check(c Config) (err error) {
	if in.Tags == nil && in.AutoRenew == nil && in.SendingMode == nil && !in.Relay.Set && in.ListUnsub == nil && !in.CatchAll.Set && !in.Notes.Set {
		return Errorf(400, "nothing_to_update", "Give at least one of tags, auto_renew, sending_mode, relay, list_unsubscribe, catch_all and notes.")
	}
	if in.SendingMode != nil && *in.SendingMode == "relay" && len(c.Relays) == 0 && c.Outbound != "capture" {
		return Invalid("sending_mode", "not_allowed", "cannot be relay: this installation has none; its operator adds one to mailstead.toml")
	}
	if in.Tags != nil {
		if *in.Tags, err = cleanTags(*in.Tags); err != nil {
			return err
		}
	}
	if in.CatchAll.Value != "" {
		in.CatchAll.Value, err = normalizeEmail("catch_all", in.CatchAll.Value)
	}
	return err
}

// cleanTags trims tags and leaves out what is given twice.
func cleanTags(tags []string) ([]string, error) {
	out := []string{}
	for _, t := range tags {
		t = strings.TrimSpace(t)
		if n := utf8.RuneCountInString(t); n < 1 || n > 50 || strings.ContainsFunc(t, unicode.IsControl) {
			return nil, Invalid("tags", "invalid", "each tag must have 1 to 50 characters, and no control characters")
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	if len(out) > maxTags {
		return nil, Invalid("tags", "too_many_items", "must have at most %d items", maxTags)
	}
	return out, nil
}

// UpdateDomain changes what about a domain is the owner's choice. Only auto_renew of a domain that
// was bought here is somebody else's business, and its registrar is told first.
func (s *Service) UpdateDomain(ctx context.Context, who Actor, in UpdateDomainIn) (*Domain, error) {
	if err := in.check(s.Config); err != nil {
		return nil, err
	}
	if err := s.checkRelay(in.Relay.Value); err != nil {
		return nil, err
	}
	if in.AutoRenew != nil {
		if err := s.tellRenewal(ctx, who, in); err != nil {
			return nil, err
		}
	}
	var out Domain
	var changed *store.Domain
	err := s.Store.Update(func(tx *store.Tx) error {
		d, err := domainOf(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		if d.Status == domainDeleting {
			return errBusy(d, "is being deleted, so it cannot be changed")
		}
		if err := in.apply(tx, d); err != nil {
			return err
		}
		changed = d
		return s.putDomain(tx, d)
	})
	if err != nil {
		return nil, err
	}
	err = s.Store.View(func(tx *store.Tx) (err error) { // which counts the mailboxes
		out, err = s.domainOut(tx, changed)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func (in *UpdateDomainIn) apply(tx *store.Tx, d *store.Domain) error {
	if in.Tags != nil {
		d.Tags = *in.Tags
	}
	if in.AutoRenew != nil {
		d.AutoRenew = *in.AutoRenew
	}
	if in.SendingMode != nil {
		d.SendingMode = *in.SendingMode
	}
	if in.Relay.Set {
		d.Relay = in.Relay.Value
	}
	if in.ListUnsub != nil {
		d.ListUnsub = *in.ListUnsub
	}
	if in.Notes.Set {
		d.Notes = in.Notes.Value
	}
	if in.CatchAll.Set {
		d.CatchAll = in.CatchAll.Value
		return checkCatchAll(tx, d)
	}
	return nil
}

// checkCatchAll refuses an address of the domain itself that is no mailbox: mail to it would come
// back for ever. An address elsewhere is forwarded to, as any other.
func checkCatchAll(tx *store.Tx, d *store.Domain) error {
	if _, at, _ := msg.SplitEmail(d.CatchAll); d.CatchAll == "" || at != d.Name {
		return nil
	}
	mb, err := store.MailboxByAddress.Get(tx, store.AddressKey(d.ID, d.CatchAll))
	if errors.Is(err, store.ErrNotFound) || err == nil && mb.Status == "deleting" {
		return Invalid("catch_all", "not_found", "%s is no mailbox; make it first, or give an address of another domain", d.CatchAll)
	}
	return err
}

// errBusy says that a job works on the domain, and names it.
func errBusy(d *store.Domain, why string) *Error {
	return Errorf(409, "domain_busy", "%s %s. Wait for the job %s.", d.Name, why, d.JobID).With(d.JobID, "domain_busy", "works on the domain")
}

// checkIdle refuses while a job works on the domain.
func checkIdle(tx *store.Tx, d *store.Domain) error {
	if d.JobID == "" {
		return nil
	}
	j, err := store.Jobs.Get(tx, d.JobID)
	if errors.Is(err, store.ErrNotFound) || err == nil && j.Ended() {
		return nil
	}
	if err != nil {
		return err
	}
	return errBusy(d, "is being worked on")
}

// makeIdle ends the job that waits for a domain's delegation, and a setup that waits for its next
// try, so that something else can begin. While a job is at work it refuses.
func (s *Service) makeIdle(tx *store.Tx, d *store.Domain) error {
	busy := checkIdle(tx, d)
	if busy == nil {
		return nil
	}
	j, err := store.Jobs.Get(tx, d.JobID)
	if err != nil || j.State != store.JobQueued {
		return busy
	}
	if tried := j.Kind == "domain_setup" && j.Attempt > 0; !tried && d.Status != domainPendingNS {
		return busy
	}
	return s.Queue.Cancel(tx, j.ID)
}

// domainEvent is the data of domain.created and domain.ready; the time that is not told of is
// absent.
type domainEvent struct {
	DomainID    string  `json:"domain_id" words:"ours"`
	Domain      string  `json:"domain" words:"ours"`
	Status      string  `json:"status" enum:"pending|pending_ns|pending_dns_records|in_progress|complete|error|deleting"`
	DNSProvider string  `json:"dns_provider" enum:"builtin|cloudflare|manual|external"`
	Source      string  `json:"source" enum:"connected|registered"`
	JobID       *string `json:"job_id" words:"ours"`
	CreatedAt   *Time   `json:"created_at,omitempty"`
	ReadyAt     *Time   `json:"ready_at,omitempty"`
}

func eventOf(d *store.Domain) domainEvent {
	return domainEvent{DomainID: d.ID, Domain: d.Name, Status: d.Status, DNSProvider: d.DNSProvider, Source: d.Source, JobID: orNull(d.JobID)}
}

// tellCreated emits domain.created when provisioning begins for the first time.
func (s *Service) tellCreated(tx *store.Tx, d *store.Domain) error {
	if d.CreatedTold {
		return nil
	}
	d.CreatedTold = true
	data := eventOf(d)
	data.CreatedAt = &Time{d.CreatedAt}
	_, err := s.emit(tx, d.AccountID, EventDomainCreated, data)
	return err
}

// tellReady emits domain.ready.
func (s *Service) tellReady(tx *store.Tx, d *store.Domain) error {
	data := eventOf(d)
	data.ReadyAt = &Time{d.CompletedAt}
	_, err := s.emit(tx, d.AccountID, EventDomainReady, data)
	return err
}
