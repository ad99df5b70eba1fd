package domains

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/scans"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

const maxTags = 50

// A Domain is a mail domain as the API shows it.
type Domain struct {
	ID            string           `json:"id" words:"ours" example:"dom_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The same as domain_id.
	DomainID      string           `json:"domain_id" words:"ours"`
	Domain        string           `json:"domain" words:"ours"`
	DomainUnicode string           `json:"domain_unicode" words:"ours"`
	Status        string           `json:"status" enum:"pending|pending_ns|pending_dns_records|in_progress|complete|error|deleting"`
	StatusDetail  *string          `json:"status_detail" words:"theirs" rare:"true"`
	Error         *core.JobFailure `json:"error" rare:"true"`
	DNSProvider   string           `json:"dns_provider" enum:"builtin|cloudflare|rfc2136|route53|hetzner|desec|manual|external"`
	Source        string           `json:"source" enum:"connected|registered"`
	Registrar     *string          `json:"registrar" words:"ours"`
	ExpiresAt     core.Time        `json:"expires_at"`
	AutoRenew     bool             `json:"auto_renew"`
	Nameservers   []string         `json:"nameservers" words:"ours"`
	// The nameservers of others that the domain had when it was scanned. Setting them again at the
	// registrar undoes the change of the nameservers.
	PreviousNameservers []string             `json:"previous_nameservers" words:"theirs" example:"[\"ns1.example.net\",\"ns2.example.net\"]"`
	ScanJobID           *string              `json:"scan_job_id" words:"ours" example:"job_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The job of its newest scan, for get_job and import_zone; null if there was none.
	Delegation          *scans.Delegation    `json:"delegation"`                                                        // What the parent zone answered at the last look. Null if there was none, and for an `external` domain.
	NextLookAt          core.Time            `json:"next_look_at"`                                                      // When Mailstead looks next whether the nameservers or records are set; null unless it waits for them.
	NSStatus            string               `json:"ns_status" enum:"pending|verified|lost|not_required"`
	DNSStatus           string               `json:"dns_status" enum:"pending|propagating|complete|failed"`
	DNSHealth           DNSHealth            `json:"dns_health"`
	DKIMSelector        *string              `json:"dkim_selector" words:"ours"`
	DNSSEC              *zones.DNSSEC        `json:"dnssec"`
	DMARCOverride       *zones.DMARCOverride `json:"dmarc_override"`
	SPF                 zones.SPF            `json:"spf"`  // What is added to the SPF record.
	Apex                *zones.Apex          `json:"apex"` // Where visitors of the domain itself go; null for an `external` domain.
	MX                  *DomainMX            `json:"mx"`   // Which hosts take the mail; null for an `external` domain.
	RedirectURL         *string              `json:"redirect_url" words:"ours"`
	Redirect            *DomainRedirect      `json:"redirect"`
	ForwardAddress      *string              `json:"forward_address" words:"ours"`
	CatchAll            *string              `json:"catch_all" words:"ours"` // Gets mail that matches no mailbox.
	SendingMode         string               `json:"sending_mode" enum:"direct|relay"`
	Relay               *string              `json:"relay" words:"ours"` // The name of the relay for this mail; null for the default route.
	ListUnsubscribe     bool                 `json:"list_unsubscribe"`   // Whether the domain's outgoing mail offers one-click unsubscribe (RFC 8058).
	EmailUsersCount     int                  `json:"email_users_count"`
	// Why and since when the domain cannot send; null if it can. PATCH with null resumes sending.
	SendingPaused *core.SendingPause `json:"sending_paused" rare:"true"`
	// `required`: the domain's outgoing mail is sent only to hosts with a valid certificate. Mail
	// to other hosts stays in the queue.
	TLSPolicy string `json:"tls_policy" enum:"opportunistic|required"`
	// Other servers that send mail of the domain, with the selector of the DKIM key by which each
	// signs. Mail that comes from one of them and has a valid signature by its key counts as sent
	// by the account itself.
	SendsElsewhere  []SendingPlace `json:"sends_elsewhere"`
	DNSCredentialID *string        `json:"dns_credential_id" words:"ours" example:"dnsc_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The DNS credential with which its records are made; null without one.
	// The records of others at the DNS provider that were replaced.
	Replaced    []edge.ReplacedRecord `json:"replaced"`
	Tags        []string              `json:"tags" words:"ours"`
	Notes       *string               `json:"notes" words:"ours"`
	JobID       *string               `json:"job_id" words:"ours"`
	CreatedAt   core.Time             `json:"created_at"`
	UpdatedAt   core.Time             `json:"updated_at"`
	CompletedAt core.Time             `json:"completed_at"`
	// What to look at after a change; only in the answer to one that brings the mail here.
	Warnings []DomainWarning `json:"warnings,omitempty"`
}

// domainOut returns a domain in the form of the API.
func (s *Service) domainOut(tx *store.Tx, d *store.Domain) (Domain, error) {
	out := Domain{
		SendingPaused: core.PauseOut(d.SendingPaused), TLSPolicy: cmp.Or(d.TLSPolicy, "opportunistic"),
		SendsElsewhere: sendingPlacesOut(d.SendsElsewhere),
		ID:             d.ID, DomainID: d.ID, Domain: d.Name, DomainUnicode: core.UnicodeName(d.Name), Status: d.Status,
		StatusDetail: core.OrNull(d.StatusDetail), DNSProvider: d.DNSProvider, Source: d.Source, Registrar: core.OrNull(d.Registrar),
		NextLookAt: core.Time{Time: nextLook(d)},
		ExpiresAt:  core.Time{Time: d.ExpiresAt}, AutoRenew: d.AutoRenew, Nameservers: s.nameserversOf(d), NSStatus: d.NSStatus,
		DNSStatus: d.DNSStatus, DNSHealth: s.healthOf(d), DNSSEC: zones.DNSSECOf(d), DMARCOverride: zones.DMARCOverrideOf(d), SPF: zones.SPFOf(d), RedirectURL: core.OrNull(d.RedirectURL), Redirect: redirectOf(d), ForwardAddress: core.OrNull(d.Forward),
		CatchAll: core.OrNull(d.CatchAll), SendingMode: s.sendingMode(d), Relay: core.OrNull(d.Relay), ListUnsubscribe: d.ListUnsub, Tags: append([]string{}, d.Tags...), Notes: core.OrNull(d.Notes),
		EmailUsersCount: store.MailboxesByDomain.Count(tx, d.ID, 0), JobID: core.OrNull(d.JobID),
		CreatedAt: core.Time{Time: d.CreatedAt}, UpdatedAt: core.Time{Time: d.UpdatedAt}, CompletedAt: core.Time{Time: d.CompletedAt},
	}
	out.PreviousNameservers, out.ScanJobID = []string{}, core.OrNull(d.ScanJobID)
	out.Delegation = scans.DelegationOf(d)
	out.DNSCredentialID, out.Replaced = core.OrNull(d.DNSCredentialID), edge.ReplacedOf(d)
	found, err := s.scans.Issues(tx, d)
	if err != nil {
		return Domain{}, err
	}
	for _, i := range found {
		out.DNSHealth.Issues = append(out.DNSHealth.Issues, DNSIssue{i.Code, i.Purpose, i.Host, i.Message})
		if i.Degrade && out.DNSHealth.Status == healthy {
			out.DNSHealth.Status = "degraded"
		}
	}
	out.Apex, out.MX = zones.ApexOf(d), s.mxOf(d)
	if isWaiting(d) {
		if text := cmp.Or(undecidedText(d), mailAwaitedText(d)); text != "" {
			out.StatusDetail = &text
		}
	}
	if out.StatusDetail == nil {
		out.StatusDetail = core.OrNull(claimProofText(tx, d))
	}
	if out.StatusDetail == nil {
		next, err := s.scans.NextStep(tx, d, found)
		if err != nil {
			return Domain{}, err
		}
		out.StatusDetail = core.OrNull(next)
	}
	if d.PreviousNS != nil {
		out.PreviousNameservers = d.PreviousNS.Names
	}
	issue, err := edge.CredentialIssue(tx, d)
	if err != nil {
		return Domain{}, err
	}
	if issue != "" {
		out.DNSHealth.Issues = append(out.DNSHealth.Issues, DNSIssue{Code: "credential_invalid", Host: "@", Message: issue})
		if out.DNSHealth.Status == healthy {
			out.DNSHealth.Status = "degraded"
		}
	}
	if d.ErrorCode != "" {
		out.Error = &core.JobFailure{Code: d.ErrorCode, Message: d.ErrorMessage}
	}
	if len(d.DKIM) > 0 {
		out.DKIMSelector = &d.DKIM[0].Selector
	}
	return out, nil
}

// nameserversOf returns the nameservers to which a domain must be delegated. The list is empty
// unless its DNS provider is builtin, and while it is not known what would break.
func (s *Service) nameserversOf(d *store.Domain) []string {
	if d.DNSProvider != dnsprov.Builtin || undecidedText(d) != "" {
		return []string{}
	}
	return append([]string{}, s.Config.Nameservers...)
}

// sendingMode returns how mail of a domain is sent: the domain's own setting, or else that of the
// installation.
func (s *Service) sendingMode(d *store.Domain) string {
	switch now := s.Settings(); {
	case d.SendingMode != "":
		return d.SendingMode
	case d.Relay != "":
		return core.ViaRelay
	case now.Outbound == core.ViaCapture && len(now.Relays) == 0:
		return core.ViaDirect
	case now.Outbound == core.ViaCapture:
		return core.ViaRelay
	}
	return s.Outbound()
}

// DomainIn is a request that names one domain.
type DomainIn struct {
	DomainID string `path:"domain_id"`
}

// GetDomain returns one domain.
func (s *Service) GetDomain(_ context.Context, who core.Actor, in DomainIn) (*Domain, error) {
	var out Domain
	err := s.Store.View(func(tx *store.Tx) error {
		d, err := core.DomainOf(tx, who, in.DomainID)
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

// cleanTags trims tags and removes duplicates.
func cleanTags(tags []string) ([]string, error) {
	out := []string{}
	for _, t := range tags {
		t = strings.TrimSpace(t)
		if n := utf8.RuneCountInString(t); n < 1 || n > 50 || strings.ContainsFunc(t, unicode.IsControl) {
			return nil, core.Invalid("tags", "invalid", "each tag must have 1 to 50 characters, and no control characters")
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	if len(out) > maxTags {
		return nil, core.Invalid("tags", "too_many_items", "must have at most %d items", maxTags)
	}
	return out, nil
}

// checkIdle returns the error domain_busy if a job is working on the domain.
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
	return core.DomainBusy(d, "is being worked on")
}

// cancelWaitingJob cancels a job that waits for the domain's delegation or for its next attempt, so
// that another job can start. The error is domain_busy if a job is running.
func (s *Service) cancelWaitingJob(tx *store.Tx, d *store.Domain) error {
	busy := checkIdle(tx, d)
	if busy == nil {
		return nil
	}
	j, err := store.Jobs.Get(tx, d.JobID)
	if err != nil || j.State != store.JobQueued {
		return busy
	}
	if tried := j.Kind == KindSetup && j.Attempt > 0; !tried && j.Kind != kindMove && d.Status != store.DomainPendingNS {
		return busy
	}
	return s.Queue.Cancel(tx, j.ID)
}

// DomainEvent is the data of domain.created and domain.ready. domain.created has only created_at,
// and domain.ready has only ready_at.
type DomainEvent struct {
	DomainID    string     `json:"domain_id" words:"ours"`
	Domain      string     `json:"domain" words:"ours"`
	Status      string     `json:"status" enum:"pending|pending_ns|pending_dns_records|in_progress|complete|error|deleting"`
	DNSProvider string     `json:"dns_provider" enum:"builtin|cloudflare|rfc2136|route53|hetzner|desec|manual|external"`
	Source      string     `json:"source" enum:"connected|registered"`
	JobID       *string    `json:"job_id" words:"ours"`
	CreatedAt   *core.Time `json:"created_at,omitempty"`
	ReadyAt     *core.Time `json:"ready_at,omitempty"`
}

func eventOf(d *store.Domain) DomainEvent {
	return DomainEvent{DomainID: d.ID, Domain: d.Name, Status: d.Status, DNSProvider: d.DNSProvider, Source: d.Source, JobID: core.OrNull(d.JobID)}
}

// emitCreated emits domain.created when the provisioning of a domain is queued for the first time.
func (s *Service) emitCreated(tx *store.Tx, d *store.Domain) error {
	if d.CreatedTold {
		return nil
	}
	d.CreatedTold = true
	data := eventOf(d)
	data.CreatedAt = &core.Time{Time: d.CreatedAt}
	_, err := s.events.Emit(tx, d.AccountID, events.EventDomainCreated, events.About{Domain: d.ID}, data)
	return err
}

// emitReady emits domain.ready.
func (s *Service) emitReady(tx *store.Tx, d *store.Domain) error {
	data := eventOf(d)
	data.ReadyAt = &core.Time{Time: d.CompletedAt}
	_, err := s.events.Emit(tx, d.AccountID, events.EventDomainReady, events.About{Domain: d.ID}, data)
	return err
}

// Steps of the deletion of a domain, in order. Each step can be repeated.
const (
	stepMailboxes     = "mailboxes" // deletes the mailboxes and their mail
	stepDropZone      = "zone"
	stepCustomRecords = "custom_records"
	stepDomain        = "domain"
)

const (
	kindDelete    = "domain_delete"
	marksPerWrite = 50 // mailboxes that one transaction marks as deleted
)

func (s *Service) domainDeleteKind() jobs.Kind {
	return jobs.Kind{Name: kindDelete, Work: s.eraseDomain, Timeout: time.Hour, PerLane: 2, Visible: true}
}

// DeleteDomain marks a domain as deleted and queues a job, which deletes its mailboxes with their
// mail, its records and the domain itself. A second request returns the same job.
func (s *Service) DeleteDomain(ctx context.Context, who core.Actor, in DomainIn) (*core.JobResponse, error) {
	var out core.JobResponse
	mailboxes := 0
	err := s.Store.View(func(tx *store.Tx) error { // not in the write transaction, because it counts many rows
		d, err := core.DomainOf(tx, who, in.DomainID)
		if err == nil {
			mailboxes = store.MailboxesByDomain.Count(tx, d.ID, 0)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		d, err := core.DomainOf(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		if err := s.cancelWaitingJob(tx, d); err != nil {
			if !d.Gone() {
				return err
			}
			j, err := store.Jobs.Get(tx, d.JobID)
			if err == nil {
				out = core.JobOut(j)
			}
			return err
		}
		j, err := s.queueDeletion(tx, d, who, mailboxes)
		if err != nil {
			return err
		}
		out = core.JobOut(j)
		tx.MayUseReserve() // the queued job frees space
		d.Status, d.StatusDetail, d.JobID = store.DomainDeleting, "", j.ID
		if err := errors.Join(s.putDomain(tx, d), core.Audit(tx, who, core.DomainTarget(d))); err != nil || d.Claim != store.ClaimOpen {
			return err
		}
		return s.claimsChanged(tx, d)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// MayFinish reports whether a job must run to its end although its account is being deleted. That
// is so for jobs that delete a domain, for jobs that republish zones after that, and for a running
// setup, which may be buying a domain.
func (s *Service) MayFinish(j *store.Job) bool {
	return j.Kind == kindDelete || j.Kind == kindClaimsChanged || (j.Kind == KindSetup || j.Kind == kindProvision) && j.State == store.JobRunning
}

// DeleteDomains starts the deletion of all domains of an account. left is how many domains still
// exist. A domain on which a job is working is left for the next call.
func (s *Service) DeleteDomains(ctx context.Context, who core.Actor) (left int, err error) {
	var ids []string
	err = s.Store.View(func(tx *store.Tx) error {
		for _, d := range store.DomainsByAccount.Asc(tx, who.AccountID, "") {
			if left++; !d.Gone() {
				ids = append(ids, d.ID)
			}
		}
		return nil
	})
	for _, id := range ids {
		if err != nil {
			break
		}
		_, err = s.DeleteDomain(ctx, who, DomainIn{DomainID: id})
		if e, ok := core.AsError(err); ok && (e.Code == "domain_busy" || e.Code == "not_found") {
			err = nil
		}
	}
	return left, err
}

// queueDeletion queues the job that deletes a domain.
func (s *Service) queueDeletion(tx *store.Tx, d *store.Domain, who core.Actor, mailboxes int) (*store.Job, error) {
	steps := stepNames(s.deleteSteps(context.Background(), d, nil))
	return s.Queue.Add(tx, jobs.New{
		AccountID: who.AccountID, Kind: kindDelete, Lane: "delete " + who.AccountID, CreatedBy: who.UserID,
		Args: domainArgs{d.ID}, Resource: store.JobResource{Type: "domain", ID: d.ID, Name: d.Name}, Steps: steps,
		Total: mailboxes + 1,
	})
}

// deleteSteps lists the steps of a deletion in order. The last step does nothing: the transaction
// that ends the job deletes the domain.
func (s *Service) deleteSteps(ctx context.Context, d *store.Domain, j *store.Job) []jobStep {
	return []jobStep{
		{stepMailboxes, true, func() error { return s.eraseMailboxesOf(ctx, d, j) }},
		{stepEdgeRecords, d.AtEdge() || d.Move != nil, func() error { return s.eraseAtEdge(ctx, d, j) }},
		{stepDropZone, !d.AtEdge(), func() error { return s.dropZone(d) }},
		{stepCustomRecords, true, func() error {
			return errors.Join(s.scans.Erase(d.ID), s.zones.EraseCustomRecords(ctx, d.ID), s.reports.EraseReports(ctx, d.ID))
		}},
		{stepDomain, true, func() error { return nil }},
	}
}

// eraseDomain works on a domain_delete job. After a crash it repeats the steps, and each step skips
// what is already deleted.
func (s *Service) eraseDomain(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d, err := s.DomainByID(args.DomainID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, step := range s.deleteSteps(ctx, d, j) {
		if !step.applies {
			continue
		}
		killpoint.At("deletion.step")
		jobs.Step(ctx, step.name, "in_progress", "")
		switch err := step.do(); {
		case err == nil:
			jobs.Step(ctx, step.name, "completed", "")
		case errors.As(err, new(errPartial)):
			jobs.Step(ctx, step.name, "error", stepErrorText(err))
		default:
			jobs.Step(ctx, step.name, "error", stepErrorText(err))
			return nil, fmt.Errorf("delete domain %s: step %s: %w", d.Name, step.name, err)
		}
	}
	jobs.Progress(ctx, j.Total, j.Total, "")
	return func(tx *store.Tx, _ *store.Job) error {
		for _, kind := range []string{kindCheck, kindClaimCheck, edge.KindSync, "certificate"} {
			if err := s.Queue.CancelKey(tx, kind, d.ID); err != nil {
				return err
			}
		}
		if err := errors.Join(s.certs.DropCertificate(tx, d.ID), store.Domains.Delete(tx, d.ID), s.events.DropFromFilters(tx, d.AccountID, d.ID)); err != nil {
			return err
		}
		return s.claimsChanged(tx, d)
	}, nil
}

// eraseMailboxesOf cancels the queued mail of a domain, deletes its aliases and groups, and then
// deletes its mailboxes one by one. No mailbox can be created in a domain that is being deleted.
func (s *Service) eraseMailboxesOf(ctx context.Context, d *store.Domain, j *store.Job) error {
	if err := s.mail.CancelMailOf(ctx, d); err != nil {
		return err
	}
	if err := s.markMailboxesOf(ctx, d.ID, j.ID); err != nil {
		return err
	}
	for more := true; more; {
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			more, err = s.mailboxes.EraseAddresses(tx, d.ID, marksPerWrite/10) // few in each transaction, because a group may have many members
			return err
		})
		if err != nil {
			return err
		}
	}
	for done := j.Completed; ; done++ {
		id := ""
		err := s.Store.View(func(tx *store.Tx) error {
			for _, id = range store.MailboxesByDomain.Keys(tx, d.ID, "") {
				break
			}
			return nil
		})
		if err != nil || id == "" {
			return err
		}
		if err := s.mailboxes.EraseMailbox(ctx, id); err != nil {
			return err
		}
		jobs.Progress(ctx, min(done+1, j.Total-1), j.Total, "")
	}
}

// markMailboxesOf marks all mailboxes of a domain as deleted, before the mail of the first mailbox
// is erased.
func (s *Service) markMailboxesOf(ctx context.Context, domainID, jobID string) error {
	after := ""
	for n := marksPerWrite; n == marksPerWrite; {
		if err := ctx.Err(); err != nil {
			return err
		}
		last := after
		err := s.Store.Update(func(tx *store.Tx) error {
			n, last = 0, after
			var boxes []*store.Mailbox
			for key, mb := range store.MailboxesByDomain.Asc(tx, domainID, after) {
				last = key
				boxes = append(boxes, mb)
				if len(boxes) == marksPerWrite {
					break
				}
			}
			n = len(boxes)
			for _, mb := range boxes {
				if mb.Gone() {
					continue
				}
				if err := s.mailboxes.DeleteMailbox(tx, mb, jobID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		killpoint.At("deletion.marked")
		after = last
	}
	return nil
}

// putDomain writes a domain whose change does not affect its DNS records.
func (s *Service) putDomain(tx *store.Tx, d *store.Domain) error {
	d.UpdatedAt = tx.Now()
	return store.Domains.Put(tx, d)
}

// dropZone stops serving the zone of a domain that is being deleted.
func (s *Service) dropZone(d *store.Domain) error {
	return s.Store.Update(func(tx *store.Tx) error { return s.claimsChanged(tx, d) })
}

// eraseAtEdge deletes the records that we have written at the DNS provider. The error is an
// errPartial if some records could not be deleted.
func (s *Service) eraseAtEdge(ctx context.Context, d *store.Domain, j *store.Job) error {
	remains, err := s.edge.Erase(ctx, d, j.Attempt)
	if err == nil && remains != "" {
		err = errPartial{remains}
	}
	return err
}
