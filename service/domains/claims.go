package domains

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// A domain record is an account's claim to a name. Several accounts may claim the same name at the
// same time, or names above and below it. The first account that proves its claim excludes the
// others. All accounts use the same nameservers, so the delegation of a name to them does not show
// which of several accounts owns it.

// Kinds of proof for a claim, as stored in ProvenBy.
const (
	provenByPurchase   = "registered" // the name was bought here
	provenByEdge       = "cloudflare" // Cloudflare serves the name's zone, which the token can edit
	provenByDKIM       = "dkim"       // a DKIM record of the name has a key that was generated for the claim
	provenByLogin      = "login"      // a mailbox of the domain could be logged in to
	ProvenByTXT        = "txt"        // the name has the TXT record with claimRecordValue
	provenByDelegation = "delegation" // the name is delegated to our nameservers, and nobody else claims it
	provenByOperator   = "operator"   // the operator decided, see DecideClaim
)

// Error codes of domains whose claim has ended without a proof.
const (
	claimedElsewhere = "domain_claimed_elsewhere"
	claimExpired     = "claim_expired"
)

const (
	claimLabel    = "_mailstead"        // first label of the name of the TXT record that proves a claim
	claimPeriod   = 14 * 24 * time.Hour // within this time an account must prove a claim
	claimCheckMin = 5 * time.Minute     // shortest time between two checks of an open claim
	claimCheckMax = 6 * time.Hour       // longest time between two checks of an open claim
)

// claimRecordValue returns the value of the TXT record that proves a claim. The name of the record
// is claimLabel followed by the domain's name.
func claimRecordValue(d *store.Domain) string { return "mailstead-claim=" + d.ID }

// claimRecordText describes the TXT record that proves a claim, for use in a sentence.
func claimRecordText(d *store.Domain) string {
	return fmt.Sprintf("the TXT record %s.%s with the value %s", claimLabel, d.Name, claimRecordValue(d))
}

// claimOf returns the account's domain with the given name. The error is store.ErrNotFound if the
// account does not claim the name.
func claimOf(tx *store.Tx, accountID, name string) (*store.Domain, error) {
	return store.DomainOfAccount.Get(tx, store.AccountDomainKey(accountID, name))
}

// isProvenByOther reports whether another account has proven its claim to the name.
func isProvenByOther(tx *store.Tx, accountID, name string) (bool, error) {
	d, err := store.DomainByName.Get(tx, name)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && d.AccountID != accountID, err
}

// errClaimedElsewhere returns the error that another account has proven its claim to the name.
func errClaimedElsewhere(name string) *core.Error {
	return core.Errorf(claimedElsewhere,
		"%s belongs to another account of this installation, which has proven its ownership. If it is yours, ask the operator of this installation.", name)
}

// errClaimExpired returns the error that a claim was not proven in time. It says how to prove it
// now.
func errClaimExpired(d *store.Domain) *core.Error {
	how := "Set its nameservers, or publish " + claimRecordText(d) + " where its DNS is, and run setup again."
	switch {
	case d.DNSProvider == store.DomainProviderManual:
		how = "Enter the records of dns-records at its DNS provider, then call verify-dns."
	case d.AtEdge():
		how = "Set the nameservers of its DNS provider at its registrar, or publish " + claimRecordText(d) + " where its DNS is, and run setup again."
	case d.DNSProvider == store.DomainProviderExternal:
		how = "Publish " + claimRecordText(d) + " where its DNS is, then call dns-status with refresh=true; or refresh a mailbox of it, so that it is logged in to."
	}
	return core.Errorf(claimExpired, "Ownership of %[2]s was not proven within %[1]d days, so others can connect it now. %[3]s", int(claimPeriod.Hours()/24), d.Name, how)
}

// claimProofText returns a text that says how to prove an open claim. It returns "" if no proof is
// needed, or if the instructions for the domain's setup include the proof.
func claimProofText(tx *store.Tx, d *store.Domain) string {
	if d.Claim != store.ClaimOpen || d.Gone() || d.Status == store.DomainError {
		return ""
	}
	switch {
	case store.IsPublicMail(d.Name):
		return "" // no account can prove its claim to a public mail domain, and none needs to
	case d.DNSProvider == store.DomainProviderExternal:
		return fmt.Sprintf("This account's ownership of %s is not proven yet, so others can connect it too. Proof is a successful log-in to one of its mailboxes at a server that its DNS names, or %s.",
			d.Name, claimRecordText(d))
	case d.DNSProvider == dnsprov.Builtin && zones.Contested(tx, d):
		return contestedText(d)
	case d.DNSProvider == store.DomainProviderCloudflare && d.Status == store.DomainComplete:
		return fmt.Sprintf("Cloudflare does not serve %s yet, so this account's ownership is not proven: no mail is received or sent, and others can connect it too. "+
			"Set the nameservers that Cloudflare shows for it at its registrar.", d.Name)
	case d.AtEdge() && d.Status == store.DomainComplete:
		return fmt.Sprintf("The nameservers that the DNS names for %s do not have its DKIM records yet, so this account's ownership is not proven: no mail is received or sent, and others can connect it too. "+
			"Set the nameservers of its DNS provider at its registrar, or publish %s where its DNS is.", d.Name, claimRecordText(d))
	}
	return ""
}

// contestedText returns a text that says how to prove the claim to a builtin domain that other
// accounts claim, too.
func contestedText(d *store.Domain) string {
	return fmt.Sprintf("Another account claims %s, or a name above or below it, so its nameservers alone do not prove who owns it. "+
		"Publish %s where its DNS is now, and setup continues; or ask the operator of this installation.", d.Name, claimRecordText(d))
}

// beginClaim opens the claim of a domain and schedules its checks. The caller writes the domain.
func (s *Service) beginClaim(tx *store.Tx, d *store.Domain) error {
	d.Claim, d.ClaimedAt = store.ClaimOpen, tx.Now()
	return s.planClaimCheck(tx, d, claimCheckMin)
}

// reopenClaim opens a claim again that has ended without a proof, unless another account has proven
// its claim to the name. The caller must write the domain and, if reopened is true, call
// claimsChanged afterwards.
func (s *Service) reopenClaim(tx *store.Tx, d *store.Domain) (reopened bool, err error) {
	if d.Claim == store.ClaimProven || d.Claim == store.ClaimOpen {
		return false, nil
	}
	if elsewhere, err := isProvenByOther(tx, d.AccountID, d.Name); err != nil {
		return false, err
	} else if elsewhere {
		return false, errClaimedElsewhere(d.Name)
	}
	return true, s.beginClaim(tx, d)
}

// recordProof records that a claim is proven, writes the domain, and ends the claims of other
// accounts to the name. If there are many such claims, a job ends the last of them soon afterwards;
// until then they have no effect. won is false if another account has proven its claim earlier:
// then this claim is lost. won is also false if the proof does not suffice because other accounts
// claim the name.
func (s *Service) recordProof(tx *store.Tx, d *store.Domain, by string) (won bool, err error) {
	if d.Claim == store.ClaimProven {
		return true, nil
	}
	elsewhere, err := isProvenByOther(tx, d.AccountID, d.Name)
	if err != nil {
		return false, err
	}
	if elsewhere {
		return false, s.loseClaim(tx, d)
	}
	if by == provenByDelegation && zones.Contested(tx, d) {
		return false, nil
	}
	a := claimArgs{Name: d.Name, Except: d.AccountID, EndRivals: true}
	rivals, err := s.endRivals(tx, &a, d.ID)
	if err != nil {
		return false, err
	}
	if rivals {
		a.Except = "" // ending the other claims may also change zones of this account
	}
	if d.ClaimEnded() && d.Status == store.DomainError {
		if err := s.restoreStatus(tx, d); err != nil {
			return false, err
		}
	}
	d.Claim, d.ProvenBy, d.ProvenAt = store.ClaimProven, by, tx.Now()
	if err := s.putDomain(tx, d); err != nil {
		return false, err
	}
	name, account := d.Name, d.AccountID
	tx.After(func() { s.Log.Info("domain claim is proven", "domain", name, "account", account, "by", by) })
	return true, s.republishClaimed(tx, a, d)
}

// loseClaim ends a claim because another account has proven its own, and writes the domain.
func (s *Service) loseClaim(tx *store.Tx, d *store.Domain) error {
	d.Claim, d.ProvenBy, d.ProvenAt = store.ClaimLost, "", time.Time{}
	return errors.Join(s.endClaim(tx, d, errClaimedElsewhere(d.Name)), s.claimsChanged(tx, d))
}

// endClaim records in a domain why its claim has ended, and writes the domain. The caller must call
// claimsChanged.
func (s *Service) endClaim(tx *store.Tx, d *store.Domain, why *core.Error) error {
	if !d.Gone() {
		d.Status, d.StatusDetail, d.ErrorCode, d.ErrorMessage = store.DomainError, "", why.Code, why.Message
		d.NSAwaited, d.NextCheckAt = time.Time{}, time.Time{}
	}
	return s.putDomain(tx, d)
}

// cancelSetup cancels the job that sets up a domain, if it is queued or running.
func (s *Service) cancelSetup(tx *store.Tx, d *store.Domain) error {
	j, err := store.Jobs.Get(tx, d.JobID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (j.Ended() || j.Kind != KindSetup && j.Kind != kindProvision) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Queue.Cancel(tx, j.ID)
}

// findClaimProof looks for a proof of an open claim. It returns one of the kinds of proof, or "" if
// it found none. An error means that a lookup failed.
func (s *Service) findClaimProof(ctx context.Context, d *store.Domain) (by string, err error) {
	if d.Claim == store.ClaimProven {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, zones.LookupTimeout)
	defer cancel()
	delegated := false
	err = s.zones.WithLookupSlot(ctx, d.AccountID, d.Name, func() error {
		switch d.DNSProvider {
		case store.DomainProviderExternal:
			by, err = s.proofByTXT(ctx, d)
		case dnsprov.Builtin:
			found, failed := dnsprov.CheckDelegation(ctx, s.Resolver, d.Name, s.Config.Nameservers)
			delegated, err = failed == nil && found.Verified, failed
		case store.DomainProviderManual:
			by = proofByDKIM(d, dnsprov.Verify(ctx, s.Resolver, dkimRecords(zonedata.Spec(s.Core, d), d.DNSProvider)))
		default:
			by, err = s.proofAtServers(ctx, d)
		}
		return err
	})
	if d.DNSProvider != dnsprov.Builtin {
		return by, err
	}
	found, failed := s.findBuiltinProof(ctx, d, delegated)
	return found, errors.Join(err, failed)
}

// findBuiltinProof returns the proof of the claim to a builtin domain: its delegation to our
// nameservers or, if other accounts also claim the name, its TXT record. It returns "" if it found
// none.
func (s *Service) findBuiltinProof(ctx context.Context, d *store.Domain, delegated bool) (by string, err error) {
	others := false
	err = s.Store.View(func(tx *store.Tx) error {
		others = zones.Contested(tx, d)
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case others:
		err = s.zones.WithLookupSlot(ctx, d.AccountID, d.Name, func() error {
			by, err = s.proofByTXT(ctx, d)
			return err
		})
	case delegated:
		by = provenByDelegation
	}
	return by, err
}

// errClaimEnded returns the error that says why a claim has ended.
func errClaimEnded(d *store.Domain) *core.Error {
	if d.Claim == store.ClaimLost {
		return errClaimedElsewhere(d.Name)
	}
	return errClaimExpired(d)
}

// dkimRecords returns the DKIM records that a domain should have.
func dkimRecords(spec dnsprov.Spec, provider string) []dnsprov.Record {
	return slices.DeleteFunc(dnsprov.Wanted(spec, provider), func(r dnsprov.Record) bool { return r.Purpose != dnsprov.PurposeDKIM })
}

// proofByDKIM returns provenByDKIM if one of the checks has found a DKIM record with a key that was
// generated for d, and otherwise "".
func proofByDKIM(d *store.Domain, checks []dnsprov.Check) string {
	for _, c := range checks {
		if c.Verified && c.Record.Purpose == dnsprov.PurposeDKIM && len(d.DKIM) > 0 {
			return provenByDKIM
		}
	}
	return ""
}

// proofAtServers looks for the proof of the claim to a domain at a DNS provider by API. The servers
// to which the parent zone delegates the name are asked directly. The proof is a DKIM record with a
// key that was generated for d, or the TXT record of the claim, in the zone itself: a CNAME or a
// wildcard of the owner may lead to names of somebody else. Neither a credential nor a zone at a
// provider proves anything, since anybody can make a zone of any name.
func (s *Service) proofAtServers(ctx context.Context, d *store.Domain) (by string, err error) {
	if s.Config.Scanner == nil {
		return "", nil
	}
	servers, err := s.Config.Scanner.Find(ctx, d.Name, nil)
	if err != nil || len(servers.Names) == 0 {
		return "", err
	}
	record, names := claimLabel+"."+d.Name, []string{}
	var keys []dnsprov.Record
	if len(d.DKIM) > 0 {
		keys = dkimRecords(zonedata.Spec(s.Core, d), d.DNSProvider)
	}
	for _, r := range keys {
		names = append(names, r.Name)
	}
	texts, err := s.Config.Scanner.OwnTexts(ctx, servers, d.Name, append(names, record)...)
	if err != nil {
		return "", err
	}
	switch {
	case slices.ContainsFunc(keys, func(r dnsprov.Record) bool { return dnsprov.HasKey(texts[r.Name], r) }):
		by = provenByDKIM
	case hasClaimRecord(d, texts[record]):
		by = ProvenByTXT
	}
	return by, nil
}

// hasClaimRecord reports whether one of the texts is that of the TXT record of a claim.
func hasClaimRecord(d *store.Domain, texts []string) bool {
	return slices.ContainsFunc(texts, func(t string) bool { return strings.TrimSpace(t) == claimRecordValue(d) })
}

// proofByTXT returns ProvenByTXT if the TXT record of a claim is published, and otherwise "".
func (s *Service) proofByTXT(ctx context.Context, d *store.Domain) (by string, err error) {
	texts, err := s.Resolver.LookupTXT(lookup.Fresh(ctx), claimLabel+"."+d.Name+".")
	if lookup.IsNotFound(err) {
		return "", nil
	}
	if hasClaimRecord(d, texts) {
		by = ProvenByTXT
	}
	return by, err
}

// claimCheckKind returns the kind of job that checks an open claim repeatedly, until the claim is
// proven or expires.
func (s *Service) claimCheckKind() jobs.Kind {
	return jobs.Kind{Name: kindClaimCheck, Work: s.checkClaim, Timeout: 2 * time.Minute, PerLane: checksAtOnce}
}

// planClaimCheck schedules the next check of an open claim.
func (s *Service) planClaimCheck(tx *store.Tx, d *store.Domain, wait time.Duration) error {
	_, err := s.Queue.Add(tx, jobs.New{Kind: kindClaimCheck, Key: d.ID, Lane: "domain claims", Args: domainArgs{d.ID}, Due: tx.Now().Add(wait)})
	return err
}

// planOpenClaims makes sure at startup that every open claim has a job that checks it.
func (s *Service) planOpenClaims() error {
	const atATime = 200
	for after, more := "", true; more; {
		last := after
		err := s.Store.Update(func(tx *store.Tx) error {
			var open []*store.Domain
			more, last = false, after
			for key, d := range store.DomainsOpen.Asc(tx, "", after) {
				last = key
				open = append(open, d)
				if len(open) == atATime {
					more = true
					break
				}
			}
			for _, d := range open {
				if err := s.planClaimCheck(tx, d, jobs.Jitter(2*claimCheckMin, s.Rand())); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		after = last
	}
	return nil
}

// checkClaim works on a domain_claim job: it checks an open claim once.
func (s *Service) checkClaim(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d, err := s.DomainByID(args.DomainID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (d.Claim != store.ClaimOpen || d.Gone()) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	by, err := s.findClaimProof(ctx, d)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		s.LogOf(ctx).Debug("could not look up the proof of a domain claim", "domain", d.Name, "error", err)
	}
	now, end := s.Now(), d.ClaimedAt.Add(claimPeriod)
	over := by == "" && !now.Before(end) && !isWaiting(d) && !store.IsPublicMail(d.Name) // the claim of a waiting domain ends with the wait; the claim to a public mail domain never expires, because nobody can prove one
	writes := func(tx *store.Tx, _ *store.Job) error {
		d, err := store.Domains.Get(tx, args.DomainID)
		if errors.Is(err, store.ErrNotFound) || err == nil && (d.Claim != store.ClaimOpen || d.Gone()) {
			return nil
		}
		if err != nil {
			return err
		}
		if by != "" {
			_, err := s.recordProof(tx, d, by)
			return err
		}
		if !over || isWaiting(d) || tx.Now().Before(d.ClaimedAt.Add(claimPeriod)) { // the claim was reopened in the meantime
			return nil
		}
		d.Claim = store.ClaimExpired
		if err := s.cancelSetup(tx, d); err != nil {
			return err
		}
		return errors.Join(s.endClaim(tx, d, errClaimExpired(d)), s.claimsChanged(tx, d))
	}
	if over {
		return writes, nil
	}
	next := now.Add(jobs.Jitter(min(max(now.Sub(d.ClaimedAt)/4, claimCheckMin), claimCheckMax), s.Rand()))
	if end.After(now) && next.After(end) {
		next = end
	}
	return writes, jobs.Snooze(next) // if the claim is proven now, the next attempt ends the job
}

// SettleProof records the proof of a claim in its own transaction. The error is
// domain_claimed_elsewhere if another account has proven its claim to the name earlier.
func (s *Service) SettleProof(id, by string) (d *store.Domain, err error) {
	lost := false
	err = s.Store.Update(func(tx *store.Tx) error {
		d, err = store.Domains.Get(tx, id)
		if err != nil || d.Gone() {
			return err
		}
		won, err := s.recordProof(tx, d, by)
		lost = !won && d.Claim == store.ClaimLost
		return err
	})
	if err == nil && lost {
		err = errClaimedElsewhere(d.Name)
	}
	return d, err
}

// A ClaimDecision is the operator's decision about which account owns a domain.
type ClaimDecision struct {
	Account string // the account's ID, or its owner's email address
	Domain  string
}

// ClaimDecided describes the domain after a ClaimDecision.
type ClaimDecided struct {
	AccountID string `json:"account_id"`
	DomainID  string `json:"domain_id"`
	Domain    string `json:"domain"`
	Status    string `json:"status"`
}

// DecideClaim proves an account's claim to a name by the decision of the operator. The account must
// have connected the name. An account that had proven its claim earlier loses the name.
func (s *Service) DecideClaim(_ context.Context, in ClaimDecision) (*ClaimDecided, error) {
	name, _, err := idn.Registrable(in.Domain)
	if err != nil {
		return nil, core.Errorf("invalid_domain", "%s", err)
	}
	if in.Account == "" {
		return nil, core.Invalid("account", "required", "is required: the account's id, or its owner's address")
	}
	var out *ClaimDecided
	err = s.Store.Update(func(tx *store.Tx) error {
		a, err := core.FindAccount(tx, in.Account)
		if err != nil {
			return err
		}
		d, err := claimOf(tx, a.ID, name)
		if errors.Is(err, store.ErrNotFound) || err == nil && d.Gone() {
			return core.Errorf("not_found", "The account %s has not connected %s. Its owner must connect it first.", a.ID, name)
		}
		if err != nil {
			return err
		}
		if d.Claim != store.ClaimProven {
			if err := errors.Join(s.awardClaim(tx, d), core.AuditCommand(tx, "domain claim", a.ID, core.DomainTarget(d))); err != nil {
				return err
			}
		}
		out = &ClaimDecided{a.ID, d.ID, d.Name, d.Status}
		return nil
	})
	return out, err
}

// awardClaim proves the claim by the operator's decision, and ends the proven claim of another
// account.
func (s *Service) awardClaim(tx *store.Tx, d *store.Domain) error {
	holder, err := store.DomainByName.Get(tx, d.Name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err == nil {
		if err := errors.Join(s.loseClaim(tx, holder), s.cancelSetup(tx, holder)); err != nil {
			return err
		}
	}
	_, err = s.recordProof(tx, d, provenByOperator)
	return err
}

// restoreStatus sets the status of a domain whose claim had ended: to complete if it was complete,
// and otherwise to the status that a new domain with this DNS provider has.
func (s *Service) restoreStatus(tx *store.Tx, d *store.Domain) error {
	d.StatusDetail, d.ErrorCode, d.ErrorMessage = "", "", ""
	switch {
	case d.DNSProvider == store.DomainProviderExternal:
		d.Status = store.DomainComplete
	case !d.CompletedAt.IsZero():
		d.Status = store.DomainComplete
		return s.planCheck(tx, d, s.recheckDelay()) // its checks have ended with the error
	case d.DNSProvider == dnsprov.Builtin:
		return s.await(tx, d, store.DomainPendingNS)
	case d.DNSProvider == store.DomainProviderManual && len(d.DKIM) > 0:
		return s.await(tx, d, store.DomainPendingDNS)
	default:
		d.Status = store.DomainInProgress
		return s.addProvision(tx, d, "")
	}
	return nil
}

// claimsPerWrite is how many open claims of other accounts one transaction ends when a claim is
// proven. It is also how many zones one transaction republishes when a claim has changed. A job
// does the rest.
const claimsPerWrite = 50

const (
	kindClaimsChanged = "claims_changed"
	kindClaimCheck    = "domain_claim"
)

// claimArgs are the arguments of a claims_changed job. They say what remains to be done after a
// claim has changed.
type claimArgs struct {
	Name      string `json:"name"`
	Except    string `json:"but"`   // ID of the account whose zones are not republished; "": republish those of all accounts
	EndRivals bool   `json:"lose"`  // first end the other open claims to the name, because this one was proven
	After     string `json:"after"` // the last key that was worked on: of DomainsByName while EndRivals is true, then of DomainsUnder
}

func (s *Service) claimsChangedKind() jobs.Kind {
	return jobs.Kind{Name: kindClaimsChanged, Work: s.continueClaims, Timeout: time.Hour, Most: 4}
}

// continueClaims works on a claims_changed job: it does what did not fit into the transaction that
// changed the claim. Repeating it does no harm.
func (s *Service) continueClaims(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[claimArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for more := true; more; {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		began := time.Now()
		next := args
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			next = args
			more, err = s.continueClaimsIn(tx, &next)
			return err
		})
		if err != nil {
			return nil, err
		}
		args = next
		core.Sleep(ctx, time.Since(began)) // let other transactions run
	}
	return nil, nil
}

// continueClaimsIn does as much of the work of a claims_changed job as fits into the transaction.
// more is true if some remains.
func (s *Service) continueClaimsIn(tx *store.Tx, a *claimArgs) (more bool, err error) {
	if !a.EndRivals {
		names, more := s.affectedZones(tx, a)
		return more, s.zones.Republish(tx, names, nil)
	}
	holder, err := store.DomainByName.Get(tx, a.Name)
	if errors.Is(err, store.ErrNotFound) { // the claim is no longer proven
		a.EndRivals, a.After = false, ""
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, err = s.endRivals(tx, a, holder.ID)
	return true, err
}

// endRivals ends open claims to the name a.Name, as many as fit into the transaction. It keeps the
// claim of the domain with the ID keptID. any is true if it ended claims or some are left. When
// none is left, it sets a.EndRivals to false.
func (s *Service) endRivals(tx *store.Tx, a *claimArgs, keptID string) (any bool, err error) {
	var rivals []*store.Domain
	looked := 0
	a.EndRivals = false
	for key, o := range store.DomainsByName.Asc(tx, store.ClaimsKey(a.Name), a.After) {
		if len(rivals) == claimsPerWrite || looked == 20*claimsPerWrite {
			a.EndRivals = true
			break
		}
		looked++
		a.After = key
		if o.ID != keptID && o.Claim == store.ClaimOpen {
			rivals = append(rivals, o)
		}
	}
	if !a.EndRivals {
		a.After = ""
	}
	for _, o := range rivals {
		o.Claim, o.ProvenBy, o.ProvenAt = store.ClaimLost, "", time.Time{}
		if err := s.endClaim(tx, o, errClaimedElsewhere(o.Name)); err != nil {
			return true, err
		}
		if err := s.cancelSetup(tx, o); err != nil {
			return true, err
		}
	}
	return len(rivals) > 0 || a.EndRivals, nil
}

// claimsChanged republishes the zones that change when a claim is opened, proven or ended: the
// domain's own zone, and the zones of unproven claims to names above and below it. The caller must
// have written the domain.
func (s *Service) claimsChanged(tx *store.Tx, d *store.Domain) error {
	return s.republishClaimed(tx, claimArgs{Name: d.Name, Except: d.AccountID}, d)
}

// republishClaimed republishes the zone of d and the zones that the change of a claim affects,
// which a describes. It queues a job for what does not fit into the transaction.
func (s *Service) republishClaimed(tx *store.Tx, a claimArgs, d *store.Domain) error {
	names, err := s.affectedZonesWithin(tx, a, 0)
	if err != nil {
		return err
	}
	return s.zones.Republish(tx, names, d)
}

// affectedZonesWithin returns the names of zones that the change of a claim affects. The
// transaction already republishes `have` zones; a job is queued for the zones that do not fit into
// it.
func (s *Service) affectedZonesWithin(tx *store.Tx, a claimArgs, have int) (names []string, err error) {
	around := claimArgs{Name: a.Name, Except: a.Except}
	more := true
	if have < 2*claimsPerWrite {
		names, more = s.affectedZones(tx, &around)
	}
	if !more && !a.EndRivals {
		return names, nil
	}
	if !a.EndRivals { // if claims are still to be ended, the job republishes all zones afterwards
		a = around
	}
	_, err = s.Queue.Add(tx, jobs.New{Kind: kindClaimsChanged, Lane: "claims " + a.Name, Args: a})
	return names, err
}

// affectedZones returns the names of zones that a changed claim to a.Name may affect, at most about
// claimsPerWrite. The first call returns a.Name itself, names above it, and some names below it.
// Each further call returns more names below it. Other claims do not affect the zone of a proven
// claim.
func (s *Service) affectedZones(tx *store.Tx, a *claimArgs) (names []string, more bool) {
	depends := func(o *store.Domain) bool {
		return o.AccountID != a.Except && o.Claim == store.ClaimOpen && s.zones.HasZone(o)
	}
	if a.After == "" {
		names = append(names, a.Name)
		for _, name, more := strings.Cut(a.Name, "."); more; _, name, more = strings.Cut(name, ".") {
			for _, o := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
				if depends(o) {
					names = append(names, name)
					break
				}
			}
		}
	}
	looked := 0
	for key, o := range store.DomainsUnder.Asc(tx, store.ReverseLabels(a.Name), a.After) {
		if len(names) >= claimsPerWrite || looked == 20*claimsPerWrite {
			return names, true
		}
		looked++
		a.After = key
		if depends(o) && !slices.Contains(names, o.Name) {
			names = append(names, o.Name)
		}
	}
	return names, false
}
