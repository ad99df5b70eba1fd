package domains

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// A domain is an account's claim of a name. Several accounts may claim the same name, or names
// above and below it, at once. The first account that proves its claim excludes the others. All
// accounts share our nameservers, so a delegation to us does not say which of several claims is
// right.

// What proves a claim.
const (
	provenByPurchase   = "registered" // the name was bought here
	provenByEdge       = "cloudflare" // the Cloudflare token can edit the name's zone
	provenByDKIM       = "dkim"       // the published record holds this claim's key
	provenByLogin      = "login"      // a login to an external mailbox of the domain
	ProvenByTXT        = "txt"        // the TXT record with claimText
	provenByDelegation = "delegation" // delegation to us, if nobody else claims the name
	provenByOperator   = "operator"
)

// Error codes of domains that lost their claim.
const (
	claimedElsewhere = "domain_claimed_elsewhere"
	claimExpired     = "claim_expired"
)

const (
	claimLabel    = "_mailstead"
	claimFor      = 14 * 24 * time.Hour // how long an account may take to prove a claim
	claimCheckMin = 5 * time.Minute     // shortest and longest time between two checks of an open claim
	claimCheckMax = 6 * time.Hour
)

// claimText is the value of the TXT record, at claimLabel below the name, that proves a claim.
func claimText(d *store.Domain) string { return "mailstead-claim=" + d.ID }

// claimRecord describes that record in a text.
func claimRecord(d *store.Domain) string {
	return fmt.Sprintf("the TXT record %s.%s with the value %s", claimLabel, d.Name, claimText(d))
}

// claimOf returns the account's own domain of that name, or store.ErrNotFound.
func claimOf(tx *store.Tx, accountID, name string) (*store.Domain, error) {
	return store.DomainOfAccount.Get(tx, store.OwnKey(accountID, name))
}

// provenElsewhere reports whether another account has proven its claim of the name.
func provenElsewhere(tx *store.Tx, accountID, name string) (bool, error) {
	d, err := store.DomainByName.Get(tx, name)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && d.AccountID != accountID, err
}

// errClaimedElsewhere says that another account holds the name.
func errClaimedElsewhere(name string) *core.Error {
	return core.Errorf(claimedElsewhere,
		"%s belongs to another account of this installation, which has proven its ownership. If it is yours, ask the operator of this installation.", name)
}

func errClaimExpired(d *store.Domain) *core.Error {
	how := "Set its nameservers, or publish " + claimRecord(d) + " where its DNS is, and run setup again."
	switch d.DNSProvider {
	case store.DomainProviderManual:
		how = "Enter the records of dns-records at its DNS provider, then call verify-dns."
	case store.DomainProviderCloudflare:
		how = "Run setup again with an edge_api_token that may edit its zone."
	case store.DomainProviderExternal:
		how = "Publish " + claimRecord(d) + " where its DNS is, then call dns-status with refresh=true; or refresh a mailbox of it, so that it is logged in to."
	}
	return core.Errorf(claimExpired, "Ownership of %[2]s was not proven within %[1]d days, so others can connect it now. %[3]s", int(claimFor.Hours()/24), d.Name, how)
}

// claimDetail says how to prove an open claim; "" if the setup of the domain asks for the proof
// anyway.
func claimDetail(tx *store.Tx, d *store.Domain) string {
	if d.Claim != store.ClaimOpen || d.Gone() || d.Status == store.DomainError {
		return ""
	}
	switch {
	case store.PublicMail(d.Name):
		return "" // no account here can hold the name, and none needs to
	case d.DNSProvider == store.DomainProviderExternal:
		return fmt.Sprintf("This account's ownership of %s is not proven yet, so others can connect it too. Proof is a successful log-in to one of its mailboxes at a server that its DNS names, or %s.",
			d.Name, claimRecord(d))
	case d.DNSProvider == dnsprov.Builtin && zones.Contested(tx, d):
		return contestedText(d)
	case d.DNSProvider == store.DomainProviderCloudflare && d.Status == store.DomainComplete:
		return fmt.Sprintf("Cloudflare does not serve %s yet, so this account's ownership is not proven: no mail is received or sent, and others can connect it too. "+
			"Set the nameservers that Cloudflare shows for it at its registrar.", d.Name)
	}
	return ""
}

// contestedText says how to prove a builtin domain that several accounts claim.
func contestedText(d *store.Domain) string {
	return fmt.Sprintf("Another account claims %s, or a name above or below it, so its nameservers alone do not prove who owns it. "+
		"Publish %s where its DNS is now, then call check-ns; or ask the operator of this installation.", d.Name, claimRecord(d))
}

// beginClaim opens the claim of a domain. The caller writes the domain.
func (s *Service) beginClaim(tx *store.Tx, d *store.Domain) error {
	d.Claim, d.ClaimedAt = store.ClaimOpen, tx.Now()
	return s.planClaim(tx, d, claimCheckMin)
}

// reopenClaim opens a claim again that was lost or has expired, if no other account has proven its
// claim of the name. The caller writes the domain, and then calls claimsChanged if reopened is
// true.
func (s *Service) reopenClaim(tx *store.Tx, d *store.Domain) (reopened bool, err error) {
	if d.Claim == store.ClaimProven || d.Claim == store.ClaimOpen {
		return false, nil
	}
	if elsewhere, err := provenElsewhere(tx, d.AccountID, d.Name); err != nil {
		return false, err
	} else if elsewhere {
		return false, errClaimedElsewhere(d.Name)
	}
	return true, s.beginClaim(tx, d)
}

// prove records that a claim is proven, and ends the rival claims. If these are many, a job ends
// the last of them soon after; they do not exclude anybody and are not served any more. If another
// account was first, won is false and the domain has lost its claim. won is also false if the proof
// is not enough because others claim the name. prove writes the domain.
func (s *Service) prove(tx *store.Tx, d *store.Domain, by string) (won bool, err error) {
	if d.Claim == store.ClaimProven {
		return true, nil
	}
	elsewhere, err := provenElsewhere(tx, d.AccountID, d.Name)
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
		a.Except = "" // zones of this account may have waited for the rivals to end
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
	return true, s.changeClaims(tx, a, d)
}

// loseClaim ends the claim of a domain that another account has proven, and writes the domain.
func (s *Service) loseClaim(tx *store.Tx, d *store.Domain) error {
	d.Claim, d.ProvenBy, d.ProvenAt = store.ClaimLost, "", time.Time{}
	return errors.Join(s.endClaim(tx, d, errClaimedElsewhere(d.Name)), s.claimsChanged(tx, d))
}

// endClaim writes a domain whose claim has ended, with the reason. The caller calls claimsChanged.
func (s *Service) endClaim(tx *store.Tx, d *store.Domain, why *core.Error) error {
	if !d.Gone() {
		d.Status, d.StatusDetail, d.NSAwaited, d.ErrorCode, d.ErrorMessage = store.DomainError, "", time.Time{}, why.Code, why.Message
	}
	return s.putDomain(tx, d)
}

// cancelWork cancels the job that sets up a domain, whether it is running or queued.
func (s *Service) cancelWork(tx *store.Tx, d *store.Domain) error {
	j, err := store.Jobs.Get(tx, d.JobID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (j.Ended() || j.Kind != KindSetup && j.Kind != kindProvision) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Queue.Cancel(tx, j.ID)
}

// claimProof looks up what proves an open claim. It returns one of provenBy…, or "" for no proof.
// An error means that the lookup failed.
func (s *Service) claimProof(ctx context.Context, d *store.Domain) (by string, err error) {
	if d.Claim == store.ClaimProven {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, zones.LookupTimeout)
	defer cancel()
	delegated := false
	err = s.zones.WithLookupSlot(ctx, func() error {
		switch d.DNSProvider {
		case store.DomainProviderExternal:
			by, err = s.proofByTXT(ctx, d)
		case dnsprov.Builtin:
			found, failed := dnsprov.CheckDelegation(ctx, s.Resolver, d.Name, s.Config.Nameservers)
			delegated, err = failed == nil && found.Verified, failed
		default:
			by = proofIn(d, dnsprov.Verify(ctx, s.Resolver, dkimRecords(s.zones.Spec(d), d.DNSProvider)))
		}
		return err
	})
	if d.DNSProvider != dnsprov.Builtin {
		return by, err
	}
	found, failed := s.proofOfBuiltin(ctx, d, delegated)
	return found, errors.Join(err, failed)
}

// proofOfBuiltin returns what proves the claim of a builtin domain: its delegation to us or, if
// others claim it too, its TXT record. It returns "" for no proof.
func (s *Service) proofOfBuiltin(ctx context.Context, d *store.Domain, delegated bool) (by string, err error) {
	others := false
	err = s.Store.View(func(tx *store.Tx) error {
		others = zones.Contested(tx, d)
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case others:
		err = s.zones.WithLookupSlot(ctx, func() error {
			by, err = s.proofByTXT(ctx, d)
			return err
		})
	case delegated:
		by = provenByDelegation
	}
	return by, err
}

// errClaimEnded says why a claim has ended.
func errClaimEnded(d *store.Domain) *core.Error {
	if d.Claim == store.ClaimLost {
		return errClaimedElsewhere(d.Name)
	}
	return errClaimExpired(d)
}

func dkimRecords(spec dnsprov.Spec, provider string) []dnsprov.Record {
	return slices.DeleteFunc(dnsprov.Wanted(spec, provider), func(r dnsprov.Record) bool { return r.Purpose != dnsprov.PurposeDKIM })
}

// proofIn returns provenByDKIM if a published DKIM record has a key of this claim; otherwise "".
func proofIn(d *store.Domain, checks []dnsprov.Check) string {
	for _, c := range checks {
		if c.Verified && c.Record.Purpose == dnsprov.PurposeDKIM && len(d.DKIM) > 0 {
			return provenByDKIM
		}
	}
	return ""
}

// proofByTXT returns ProvenByTXT if the TXT record of a claim is published; otherwise "".
func (s *Service) proofByTXT(ctx context.Context, d *store.Domain) (by string, err error) {
	texts, err := s.Resolver.LookupTXT(lookup.Fresh(ctx), claimLabel+"."+d.Name+".")
	if missing := new(net.DNSError); errors.As(err, &missing) && missing.IsNotFound {
		return "", nil
	}
	if slices.ContainsFunc(texts, func(t string) bool { return strings.TrimSpace(t) == claimText(d) }) {
		by = ProvenByTXT
	}
	return by, err
}

// claimKind is the scheduled check of an open claim, until the claim is proven or expires.
func (s *Service) claimKind() jobs.Kind {
	return jobs.Kind{Name: kindClaim, Work: s.checkClaim, Timeout: 2 * time.Minute, Lanes: checksAtOnce}
}

func (s *Service) planClaim(tx *store.Tx, d *store.Domain, wait time.Duration) error {
	_, err := s.Queue.Add(tx, jobs.New{Kind: kindClaim, Key: d.ID, Lane: "domain claims", Args: domainArgs{d.ID}, Due: tx.Now().Add(wait)})
	return err
}

// planOpenClaims makes sure, at startup, that every open claim has its job.
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
				if err := s.planClaim(tx, d, jobs.Jitter(2*claimCheckMin, s.Rand())); err != nil {
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

// checkClaim is the work of domain_claim.
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
	by, err := s.claimProof(ctx, d)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		s.LogOf(ctx).Debug("could not look up the proof of a domain claim", "domain", d.Name, "error", err)
	}
	now, end := s.Now(), d.ClaimedAt.Add(claimFor)
	over := by == "" && !now.Before(end) && !store.PublicMail(d.Name) // nobody can own a public mail domain, so its claims never need to make room
	writes := func(tx *store.Tx, _ *store.Job) error {
		d, err := store.Domains.Get(tx, args.DomainID)
		if errors.Is(err, store.ErrNotFound) || err == nil && (d.Claim != store.ClaimOpen || d.Gone()) {
			return nil
		}
		if err != nil {
			return err
		}
		if by != "" {
			_, err := s.prove(tx, d, by)
			return err
		}
		if !over || tx.Now().Before(d.ClaimedAt.Add(claimFor)) { // the claim was reopened since
			return nil
		}
		d.Claim = store.ClaimExpired
		if err := s.cancelWork(tx, d); err != nil {
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
	return writes, jobs.Snooze(next) // if the claim is proven by then, the next run ends the job
}

// SettleProof records what proved a claim, in its own transaction. It returns
// domain_claimed_elsewhere if another account was first.
func (s *Service) SettleProof(id, by string) (d *store.Domain, err error) {
	lost := false
	err = s.Store.Update(func(tx *store.Tx) error {
		d, err = store.Domains.Get(tx, id)
		if err != nil || d.Gone() {
			return err
		}
		won, err := s.prove(tx, d, by)
		lost = !won && d.Claim == store.ClaimLost
		return err
	})
	if err == nil && lost {
		err = errClaimedElsewhere(d.Name)
	}
	return d, err
}

// ClaimDecision is the operator's decision which account owns a domain.
type ClaimDecision struct {
	Account string // the account's id, or its owner's address
	Domain  string
}

// A ClaimDecided is the domain after a decision.
type ClaimDecided struct {
	AccountID string `json:"account_id"`
	DomainID  string `json:"domain_id"`
	Domain    string `json:"domain"`
	Status    string `json:"status"`
}

// DecideClaim gives a name to the account that the operator chose, which must have connected it.
// The account that held the name loses it.
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
			if err := errors.Join(s.decide(tx, d), core.AuditCommand(tx, "domain claim", a.ID, core.DomainTarget(d))); err != nil {
				return err
			}
		}
		out = &ClaimDecided{a.ID, d.ID, d.Name, d.Status}
		return nil
	})
	return out, err
}

func (s *Service) decide(tx *store.Tx, d *store.Domain) error {
	holder, err := store.DomainByName.Get(tx, d.Name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err == nil {
		if err := errors.Join(s.loseClaim(tx, holder), s.cancelWork(tx, holder)); err != nil {
			return err
		}
	}
	_, err = s.prove(tx, d, provenByOperator)
	return err
}

// restoreStatus sets a domain whose claim had ended back to the first state of its provider, or to
// complete if it was complete.
func (s *Service) restoreStatus(tx *store.Tx, d *store.Domain) error {
	d.StatusDetail, d.ErrorCode, d.ErrorMessage = "", "", ""
	switch {
	case d.DNSProvider == store.DomainProviderExternal || !d.CompletedAt.IsZero():
		d.Status = store.DomainComplete
	case d.DNSProvider == dnsprov.Builtin:
		d.Status = store.DomainPendingNS
	case d.DNSProvider == store.DomainProviderManual && len(d.DKIM) > 0:
		d.Status = store.DomainPendingDNS
	default:
		d.Status = store.DomainInProgress
		return s.addProvision(tx, d, "")
	}
	return nil
}

// claimsAtATime is how many rival claims one transaction ends, and how many zones it republishes,
// after a claim has changed. A job does the rest.
const claimsAtATime = 50

const (
	kindClaims = "claims_changed"
	kindClaim  = "domain_claim"
)

// claimArgs are the arguments of a claims_changed job: the work that is left after a claim has
// changed.
type claimArgs struct {
	Name      string `json:"name"`
	Except    string `json:"but"`   // the account whose zones are not republished; "": none
	EndRivals bool   `json:"lose"`  // the claim was proven: first end its rivals
	After     string `json:"after"` // the last key done, of DomainsByName or DomainsUnder
}

func (s *Service) claimsKind() jobs.Kind {
	return jobs.Kind{Name: kindClaims, Work: s.continueClaims, Timeout: time.Hour, Most: 4}
}

// continueClaims does the work that did not fit into one transaction. It may run twice: it makes
// everything match the store.
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
			more, err = s.continueSome(tx, &next)
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

// continueSome does the next part, and reports whether there is more.
func (s *Service) continueSome(tx *store.Tx, a *claimArgs) (more bool, err error) {
	if !a.EndRivals {
		names, more := s.affectedZones(tx, a)
		return more, s.zones.ServeAgain(tx, names, nil)
	}
	holder, err := store.DomainByName.Get(tx, a.Name)
	if errors.Is(err, store.ErrNotFound) { // nobody holds the name any more
		a.EndRivals, a.After = false, ""
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, err = s.endRivals(tx, a, holder.ID)
	return true, err
}

// endRivals ends open claims of the name except the holder's, and reports whether there were any.
// It sets a.EndRivals to false when it has ended the last one.
func (s *Service) endRivals(tx *store.Tx, a *claimArgs, holder string) (any bool, err error) {
	var rivals []*store.Domain
	looked := 0
	a.EndRivals = false
	for key, o := range store.DomainsByName.Asc(tx, store.ClaimsKey(a.Name), a.After) {
		if len(rivals) == claimsAtATime || looked == 20*claimsAtATime {
			a.EndRivals = true
			break
		}
		looked++
		a.After = key
		if o.ID != holder && o.Claim == store.ClaimOpen {
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
		if err := s.cancelWork(tx, o); err != nil {
			return true, err
		}
	}
	return len(rivals) > 0 || a.EndRivals, nil
}

// claimsChanged republishes the zones that depend on a claim that has begun, has been proven or has
// ended: the domain's own zone, and zones of unproven claims of names above and below it. The
// caller has written the claim.
func (s *Service) claimsChanged(tx *store.Tx, d *store.Domain) error {
	return s.changeClaims(tx, claimArgs{Name: d.Name, Except: d.AccountID}, d)
}

// changeClaims does what claimsChanged does. If rival claims are still to be ended, it leaves the
// rest to a job.
func (s *Service) changeClaims(tx *store.Tx, a claimArgs, d *store.Domain) error {
	names, err := s.affectedZonesWithin(tx, a, 0)
	if err != nil {
		return err
	}
	return s.zones.ServeAgain(tx, names, d)
}

// affectedZonesWithin returns names as affectedZones does, for a transaction that republishes
// `have` zones already. It queues a job for the rest.
func (s *Service) affectedZonesWithin(tx *store.Tx, a claimArgs, have int) (names []string, err error) {
	around := claimArgs{Name: a.Name, Except: a.Except}
	more := true
	if have < 2*claimsAtATime {
		names, more = s.affectedZones(tx, &around)
	}
	if !more && !a.EndRivals {
		return names, nil
	}
	if !a.EndRivals { // otherwise the job starts again after the rivals have ended
		a = around
	}
	_, err = s.Queue.Add(tx, jobs.New{Kind: kindClaims, Lane: "claims " + a.Name, Args: a})
	return names, err
}

// affectedZones returns the names of zones that may have changed, at most as many as one
// transaction republishes. The first call returns the name itself, the names above it, and some
// below it; each later call returns more names below it. Only zones of open claims depend on other
// claims.
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
	for key, o := range store.DomainsUnder.Asc(tx, store.TreeKey(a.Name), a.After) {
		if len(names) >= claimsAtATime || looked == 20*claimsAtATime {
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
