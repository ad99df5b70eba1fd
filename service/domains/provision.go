package domains

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	rsaSelector     = "ms1"
	ed25519Selector = "ms1e"
	activateAtATime = 100 // mailboxes that become active in one transaction
)

// Steps of provisioning. Each can be done again: it finds out what is done already.
const (
	stepKeys    = "keys"    // of DKIM and DNSSEC, made and sealed
	stepZone    = "zone"    // our DNS server answers with every record
	stepRecords = "records" // the list of records that the owner is to enter
	stepMail    = "mail"    // the keys open, and mailboxes that waited are ready
	stepVerify  = "verify"  // a live look at the records

	stepEdgeRecords = "edge_records" // the records are at the edge provider
)

type domainArgs struct {
	DomainID string `json:"domain_id"`
}

func (s *Service) provisionKind() jobs.Kind {
	return jobs.Kind{Name: "domain_provision", Work: s.provision, Max: 10, Lanes: 4, Visible: true, Failed: s.provisionFailed}
}

// addProvision queues the provisioning of a domain, whose record the caller writes.
func (s *Service) addProvision(tx *store.Tx, d *store.Domain, userID string) error {
	steps := provisionSteps(d.DNSProvider)
	j, err := s.Queue.Add(tx, jobs.New{
		AccountID: d.AccountID, Kind: "domain_provision", Lane: "provision " + d.AccountID, CreatedBy: userID,
		Args: domainArgs{d.ID}, Resource: store.JobResource{Type: "domain", ID: d.ID, Name: d.Name}, Steps: steps, Total: len(steps),
	})
	if err != nil {
		return err
	}
	d.JobID, d.ErrorCode, d.ErrorMessage = j.ID, "", ""
	return s.tellCreated(tx, d)
}

// provisionSteps names the steps of a provisioning, in their order.
func provisionSteps(provider string) []string {
	switch provider {
	case core.ProviderManual:
		return []string{stepKeys, stepRecords}
	case core.ProviderEdge:
		return []string{stepKeys, stepEdgeRecords, stepMail, stepVerify}
	}
	return []string{stepKeys, stepZone, stepMail, stepVerify}
}

// A provisioning is one attempt at the job.
type provisioning struct {
	s    *Service
	ctx  context.Context
	d    *store.Domain
	look *look

	edgeSeen time.Time // when the records had changed that are at the edge provider
}

// steps are the parts of a provisioning by their names.
func (p *provisioning) steps() map[string]func() error {
	return map[string]func() error{
		stepKeys: p.keys, stepZone: p.zone, stepRecords: p.zone, stepEdgeRecords: p.edgeRecords, stepMail: p.mail, stepVerify: p.verify,
	}
}

// provision is the work of domain_provision.
func (s *Service) provision(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d, err := s.beginProvision(args.DomainID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &provisioning{s: s, ctx: ctx, d: d}
	steps := provisionSteps(d.DNSProvider)
	for i, name := range steps {
		if core.ClaimEnded(p.d) {
			return nil, jobs.Permanent(errClaimEnded(p.d))
		}
		if err := p.step(provisionStep{name, p.steps()[name]}); err != nil {
			return nil, err
		}
		jobs.Progress(ctx, i+1, len(steps), "")
	}
	if d.DNSProvider == core.ProviderManual {
		return p.records, nil
	}
	return p.complete, nil
}

// A provisionStep is one named part of the job.
type provisionStep struct {
	name string
	do   func() error
}

// step does one part, and tells of it.
func (p *provisioning) step(step provisionStep) error {
	jobs.Step(p.ctx, step.name, "in_progress", "")
	err := step.do()
	switch {
	case err == nil:
		jobs.Step(p.ctx, step.name, "completed", "")
		return nil
	case !errors.As(err, new(errAwaited)):
		jobs.Step(p.ctx, step.name, "error", stepText(err))
	}
	return fmt.Errorf("provision %s: %s: %w", p.d.Name, step.name, err)
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
	return "It did not succeed. The log of this installation says why."
}

// beginProvision shows that the job is at work.
func (s *Service) beginProvision(id string) (*store.Domain, error) {
	var d *store.Domain
	err := s.Store.Update(func(tx *store.Tx) (err error) {
		if d, err = store.Domains.Get(tx, id); err != nil || d.Status != core.DomainPending {
			return err
		}
		d.Status = core.DomainInProgress
		return s.putDomain(tx, d)
	})
	return d, err
}

// keys makes the DKIM keys, outside of any transaction, and the key of the zone, unless the domain
// has them.
func (p *provisioning) keys() error {
	if len(p.d.DKIM) > 0 && !lacksZoneKey(p.d) {
		return nil
	}
	var made []store.DKIMKey
	if len(p.d.DKIM) == 0 {
		var err error
		if made, err = p.s.newDKIMKeys(p.d.ID); err != nil {
			return err
		}
	}
	return p.s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, p.d.ID)
		if err != nil {
			return err
		}
		p.d = d
		if len(d.DKIM) > 0 && !lacksZoneKey(d) {
			return nil
		}
		if len(d.DKIM) == 0 {
			d.DKIM = made
		}
		if err := p.s.GiveZoneKey(d); err != nil {
			return err
		}
		return p.s.PutZone(tx, d)
	})
}

// newDKIMKeys makes an RSA key, which every verifier knows, and an ed25519 key (RFC 8463).
func (s *Service) newDKIMKeys(domainID string) ([]store.DKIMKey, error) {
	var out []store.DKIMKey
	for _, kind := range []struct {
		selector string
		generate func() ([]byte, crypto.Signer, error)
	}{{rsaSelector, auth.GenerateRSA}, {ed25519Selector, auth.GenerateEd25519}} {
		text, key, err := kind.generate()
		if err != nil {
			return nil, err
		}
		out = append(out, store.DKIMKey{Selector: kind.selector, Sealed: s.Keys.Seal(core.DKIMPlace(domainID), text), Record: auth.KeyRecord(key)})
	}
	return out, nil
}

// zone makes sure that the records make a zone. It was published with the transaction that changed
// it.
func (p *provisioning) zone() error {
	return p.s.Store.View(func(tx *store.Tx) error {
		if _, err := p.s.ZoneSource(tx, p.d).Zone(); err != nil {
			return jobs.Permanent(core.Errorf("invalid_record", "The records of %s cannot be served: %s.", p.d.Name, err).Because(err))
		}
		return nil
	})
}

// edgeRecords brings the records to the edge provider. That the token can do it proves the claim of
// the name, if the provider serves the zone: anybody may make one that nobody asks.
func (p *provisioning) edgeRecords() error {
	active := false
	err := p.s.atEdge(p.ctx, p.d.ID, func(w *edgeWork) error {
		p.edgeSeen = w.d.ZoneChangedAt
		err := w.sync(true)
		p.d = w.d
		if err == nil && p.d.Claim == store.ClaimOpen {
			active, err = w.active()
		}
		return err
	})
	if err != nil {
		return p.s.edgeOutcome(p.ctx, p.d.Name, err)
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
func (p *provisioning) mail() error {
	for _, k := range p.d.DKIM {
		text, err := p.s.Keys.Open(core.DKIMPlace(p.d.ID), k.Sealed)
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

// verify looks at the records live. Whatever it finds, the domain is complete: its zone is served,
// and receivers that have not seen it yet, or a resolver of ours that does not answer, do not keep
// mail from flowing. The checks by the clock go on from here.
func (p *provisioning) verify() error {
	p.look = p.s.lookAt(p.ctx, p.d)
	return p.ctx.Err()
}

// complete ends the provisioning in the transaction that ends the job.
func (p *provisioning) complete(tx *store.Tx, _ *store.Job) error {
	d, err := store.Domains.Get(tx, p.d.ID)
	if err != nil {
		return err
	}
	return p.finish(tx, d)
}

// finish makes a domain complete. What has changed of its records since they were brought to the
// edge provider follows.
func (p *provisioning) finish(tx *store.Tx, d *store.Domain) error {
	if err := p.s.completeDomain(tx, d, p.look); err != nil || d.ZoneChangedAt.Equal(p.edgeSeen) {
		return err
	}
	_, err := p.s.addEdgeSync(tx, d)
	return err
}

// records ends the part of provisioning that comes before the owner's, in the transaction that ends
// the job.
func (p *provisioning) records(tx *store.Tx, _ *store.Job) error {
	d, err := store.Domains.Get(tx, p.d.ID)
	if err != nil || d.Status != core.DomainInProgress {
		return err
	}
	d.Status = core.DomainPendingDNS
	return p.s.putDomain(tx, d)
}

// completeDomain makes a domain complete, with what a live look at it found, and its last waiting
// mailboxes ready. activateMany has come before.
func (s *Service) completeDomain(tx *store.Tx, d *store.Domain, l *look) error {
	if d.Status == core.DomainDeleting {
		return nil
	}
	if err := s.keepLook(tx, d, l); err != nil {
		return err
	}
	if core.ClaimEnded(d) {
		return nil // which is written
	}
	if d.Claim == store.ClaimOpen && d.DNSProvider != core.ProviderEdge { // others came to claim it meanwhile
		if d.Status = core.DomainPendingNS; d.DNSProvider == core.ProviderManual {
			d.Status = core.DomainPendingDNS
		}
		return s.putDomain(tx, d)
	}
	first := d.CompletedAt.IsZero()
	d.Status, d.StatusDetail, d.ErrorCode, d.ErrorMessage = core.DomainComplete, "", "", ""
	if first {
		d.CompletedAt = tx.Now()
	}
	wait := s.checkInterval()
	if !l.good() {
		wait = s.secondLook()
	}
	if err := s.planCheck(tx, d, wait); err != nil {
		return err
	}
	if err := s.Hooks.PlanCertificate(tx, d); err != nil {
		return err
	}
	if err := s.putDomain(tx, d); err != nil {
		return err
	}
	for more := true; more; {
		var err error
		if more, err = s.mailboxes.ActivateMailboxes(tx, d.ID, activateAtATime); err != nil {
			return err
		}
	}
	if !first {
		return nil
	}
	return s.tellReady(tx, d)
}

// provisionFailed shows why a domain is not provisioned. Setting it up again begins anew, and so
// does checking its nameservers. One that was complete before stays so.
func (s *Service) provisionFailed(tx *store.Tx, j *store.Job, cause error) error {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil // a job that names no domain cannot have failed for one
	}
	d, err := store.Domains.Get(tx, args.DomainID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil || d.JobID != j.ID || d.Status == core.DomainComplete || d.Status == core.DomainDeleting {
		return err
	}
	d.Status, d.StatusDetail, d.NSAwaited, d.ErrorCode = core.DomainError, "", time.Time{}, "internal_error"
	d.ErrorMessage = "The domain could not be provisioned. The log of this installation says why."
	if e, ok := core.AsError(cause); ok {
		d.ErrorCode, d.ErrorMessage = e.Code, e.Message
	}
	return s.putDomain(tx, d)
}
