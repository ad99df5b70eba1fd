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

// A domain is an account's claim of a name. Several accounts may claim a name, and names above and
// below it, at once. The first who proves to hold it excludes the others. All accounts share our
// name servers, so a delegation alone does not say whose a name is that several claim.

// What proves a claim.
const (
	provenByPurchase   = "registered" // the name was bought here
	provenByEdge       = "cloudflare" // the token edits its zone
	provenByDKIM       = "dkim"       // the published record holds this claim's key
	provenByLogin      = "login"      // to a mailbox of it elsewhere
	ProvenByTXT        = "txt"        // the record of claimText
	provenByDelegation = "delegation" // to us, of a name that nobody else claims
	provenByOperator   = "operator"
)

// Errors of domains that lost their claim.
const (
	claimedElsewhere = "domain_claimed_elsewhere"
	claimExpired     = "claim_expired"
)

const (
	claimLabel    = "_mailstead"
	claimFor      = 14 * 24 * time.Hour // to prove a claim
	claimLookMin  = 5 * time.Minute     // between two checks whether a claim is proven
	claimLookMost = 6 * time.Hour
)

// claimText is the value of the TXT record, at claimLabel below the name, that proves a claim.
func claimText(d *store.Domain) string { return "mailstead-claim=" + d.ID }

// claimRecord names that record for people.
func claimRecord(d *store.Domain) string {
	return fmt.Sprintf("the TXT record %s.%s with the value %s", claimLabel, d.Name, claimText(d))
}

// claimOf gives the account's own domain of a name, or store.ErrNotFound.
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

// claimDetail says how an open claim is proven where that is not what its setup asks for anyway;
// else "".
func claimDetail(tx *store.Tx, d *store.Domain) string {
	if d.Claim != store.ClaimOpen || d.Gone() || d.Status == store.DomainError {
		return ""
	}
	switch {
	case store.PublicMail(d.Name):
		return "" // nobody here holds it, and nobody needs to
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

// contestedText says what to do about a builtin domain that several claim.
func contestedText(d *store.Domain) string {
	return fmt.Sprintf("Another account claims %s, or a name above or below it, so its nameservers alone do not prove who owns it. "+
		"Publish %s where its DNS is now, then call check-ns; or ask the operator of this installation.", d.Name, claimRecord(d))
}

// beginClaim makes a new domain a claim that is to be proven. The caller writes it.
func (s *Service) beginClaim(tx *store.Tx, d *store.Domain) error {
	d.Claim, d.ClaimedAt = store.ClaimOpen, tx.Now()
	return s.planClaim(tx, d, claimLookMin)
}

// reopenClaim begins a claim again that was lost or has expired, if the name is free again. The
// caller writes the domain, and then calls claimsChanged if the claim was reopened.
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

// prove notes that a claim is proven, and ends those of the others; where they are many, the last
// of them soon after, by a job: from now on they exclude nobody and are served no more. won is
// false where another account was first: then the domain has lost its claim. Both are written.
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
	a := claimArgs{Name: d.Name, But: d.AccountID, Lose: true}
	rivals, err := s.loseSome(tx, &a, d.ID)
	if err != nil {
		return false, err
	}
	if rivals {
		a.But = "" // zones of this account's own may have waited for them to end
	}
	if d.ClaimEnded() && d.Status == store.DomainError {
		if err := s.resume(tx, d); err != nil {
			return false, err
		}
	}
	d.Claim, d.ProvenBy, d.ProvenAt = store.ClaimProven, by, tx.Now()
	if err := s.putDomain(tx, d); err != nil {
		return false, err
	}
	name, account := d.Name, d.AccountID
	tx.After(func() { s.Log.Info("a claim is proven", "domain", name, "account", account, "by", by) })
	return true, s.changeClaims(tx, a, d)
}

// loseClaim ends the claim of a domain whose name another account holds, and writes it.
func (s *Service) loseClaim(tx *store.Tx, d *store.Domain) error {
	d.Claim, d.ProvenBy, d.ProvenAt = store.ClaimLost, "", time.Time{}
	return errors.Join(s.endClaim(tx, d, errClaimedElsewhere(d.Name)), s.claimsChanged(tx, d))
}

// endClaim writes a domain whose claim is no more, and why. The caller calls claimsChanged.
func (s *Service) endClaim(tx *store.Tx, d *store.Domain, why *core.Error) error {
	if !d.Gone() {
		d.Status, d.StatusDetail, d.NSAwaited, d.ErrorCode, d.ErrorMessage = store.DomainError, "", time.Time{}, why.Code, why.Message
	}
	return s.putDomain(tx, d)
}

// cancelWork ends the job that sets a domain up, whether it runs or waits.
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

// claimProof looks for what proves an open claim: provenBy…, or "" for nothing. An error says that
// it could not be looked up.
func (s *Service) claimProof(ctx context.Context, d *store.Domain) (by string, err error) {
	if d.Claim == store.ClaimProven {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, zones.LookFor)
	defer cancel()
	delegated := false
	err = s.zones.Looking(ctx, func() error {
		switch d.DNSProvider {
		case store.DomainProviderExternal:
			by, err = s.claimByText(ctx, d)
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

// proofOfBuiltin says what proves the claim of a domain that our servers are to answer for: that it
// is delegated to us, or, where others claim it too, its TXT record.
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
		err = s.zones.Looking(ctx, func() error {
			by, err = s.claimByText(ctx, d)
			return err
		})
	case delegated:
		by = provenByDelegation
	}
	return by, err
}

// errClaimEnded says why a claim is no more.
func errClaimEnded(d *store.Domain) *core.Error {
	if d.Claim == store.ClaimLost {
		return errClaimedElsewhere(d.Name)
	}
	return errClaimExpired(d)
}

func dkimRecords(spec dnsprov.Spec, provider string) []dnsprov.Record {
	return slices.DeleteFunc(dnsprov.Wanted(spec, provider), func(r dnsprov.Record) bool { return r.Purpose != dnsprov.PurposeDKIM })
}

// proofIn reports whether looked-up records prove a claim: a published DKIM record that holds this
// claim's key.
func proofIn(d *store.Domain, checks []dnsprov.Check) string {
	for _, c := range checks {
		if c.Verified && c.Record.Purpose == dnsprov.PurposeDKIM && len(d.DKIM) > 0 {
			return provenByDKIM
		}
	}
	return ""
}

// claimByText looks the TXT record of a claim up.
func (s *Service) claimByText(ctx context.Context, d *store.Domain) (by string, err error) {
	texts, err := s.Resolver.LookupTXT(lookup.Fresh(ctx), claimLabel+"."+d.Name+".")
	if missing := new(net.DNSError); errors.As(err, &missing) && missing.IsNotFound {
		return "", nil
	}
	if slices.ContainsFunc(texts, func(t string) bool { return strings.TrimSpace(t) == claimText(d) }) {
		by = ProvenByTXT
	}
	return by, err
}

// claimKind checks an open claim by the clock until it is proven, and ends it when its time is
// over.
func (s *Service) claimKind() jobs.Kind {
	return jobs.Kind{Name: kindClaim, Work: s.checkClaim, Timeout: 2 * time.Minute, Lanes: checksAtOnce}
}

func (s *Service) planClaim(tx *store.Tx, d *store.Domain, wait time.Duration) error {
	_, err := s.Queue.Add(tx, jobs.New{Kind: kindClaim, Key: d.ID, Lane: "domain claims", Args: domainArgs{d.ID}, Due: tx.Now().Add(wait)})
	return err
}

// wakeClaims sees to it at a start that every open claim has its job.
func (s *Service) wakeClaims() error {
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
				if err := s.planClaim(tx, d, jobs.Jitter(2*claimLookMin, s.Rand())); err != nil {
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
		s.LogOf(ctx).Debug("a claim could not be looked at", "domain", d.Name, "error", err)
	}
	now, end := s.Now(), d.ClaimedAt.Add(claimFor)
	over := by == "" && !now.Before(end) && !store.PublicMail(d.Name) // that is nobody's, so that it is never free again
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
		if !over || tx.Now().Before(d.ClaimedAt.Add(claimFor)) { // it was begun anew meanwhile
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
	next := now.Add(jobs.Jitter(min(max(now.Sub(d.ClaimedAt)/4, claimLookMin), claimLookMost), s.Rand()))
	if end.After(now) && next.After(end) {
		next = end
	}
	return writes, jobs.Snooze(next) // where the claim is proven, that finds nothing left to do
}

// SettleProof notes what proved a claim, outside of any other transaction. The error is
// domain_claimed_elsewhere, for good, where another account was first.
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

// ClaimDecision is what the operator says: whose a domain is.
type ClaimDecision struct {
	Account string // id, or the owner's address
	Domain  string
}

// A ClaimDecided tells of the domain that a decision was about.
type ClaimDecided struct {
	AccountID string `json:"account_id"`
	DomainID  string `json:"domain_id"`
	Domain    string `json:"domain"`
	Status    string `json:"status"`
}

// DecideClaim gives a name to the account that the operator names, which must have connected it.
// Whoever has it loses it.
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

// resume brings a domain whose claim had ended back to where its provider begins.
func (s *Service) resume(tx *store.Tx, d *store.Domain) error {
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

// claimsAtATime is how many rivals, and how many zones, one transaction brings to what a claim that
// has changed makes of them. A job goes on with the others.
const claimsAtATime = 50

const (
	kindClaims = "claims_changed"
	kindClaim  = "domain_claim"
)

// claimArgs is what follows from a change of a claim, as far as it is still to be done.
type claimArgs struct {
	Name  string `json:"name"`
	But   string `json:"but"`   // the account whose zones stay as they are; "": none
	Lose  bool   `json:"lose"`  // first the rivals of a proven claim lose theirs
	After string `json:"after"` // the last key that was looked at, of DomainsByName or DomainsUnder
}

func (s *Service) claimsKind() jobs.Kind {
	return jobs.Kind{Name: kindClaims, Work: s.goOnWithClaims, Timeout: time.Hour, Most: 4}
}

// goOnWithClaims does what one transaction could not. All of it may be done twice: it brings
// everything to what the store says at the time.
func (s *Service) goOnWithClaims(ctx context.Context, j *store.Job) (jobs.Writes, error) {
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
			more, err = s.someClaims(tx, &next)
			return err
		})
		if err != nil {
			return nil, err
		}
		args = next
		core.Sleep(ctx, time.Since(began)) // others go first
	}
	return nil, nil
}

// someClaims does the next part, and reports whether there is more.
func (s *Service) someClaims(tx *store.Tx, a *claimArgs) (more bool, err error) {
	if !a.Lose {
		names, more := s.zonesAround(tx, a)
		return more, s.zones.ServeAgain(tx, names, nil)
	}
	holder, err := store.DomainByName.Get(tx, a.Name)
	if errors.Is(err, store.ErrNotFound) { // it is free again
		a.Lose, a.After = false, ""
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, err = s.loseSome(tx, a, holder.ID)
	return true, err
}

// loseSome ends claims of the name but the holder's, and reports whether there were any. With the
// last of them Lose is false.
func (s *Service) loseSome(tx *store.Tx, a *claimArgs, holder string) (any bool, err error) {
	var rivals []*store.Domain
	looked := 0
	a.Lose = false
	for key, o := range store.DomainsByName.Asc(tx, store.ClaimsKey(a.Name), a.After) {
		if len(rivals) == claimsAtATime || looked == 20*claimsAtATime {
			a.Lose = true
			break
		}
		looked++
		a.After = key
		if o.ID != holder && o.Claim == store.ClaimOpen {
			rivals = append(rivals, o)
		}
	}
	if !a.Lose {
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
	return len(rivals) > 0 || a.Lose, nil
}

// claimsChanged serves the zones as they are to be after claims, which are written, have begun,
// have been proven or have ended: their own, and those of names above and below that others claim
// without proof.
func (s *Service) claimsChanged(tx *store.Tx, d *store.Domain) error {
	return s.changeClaims(tx, claimArgs{Name: d.Name, But: d.AccountID}, d)
}

// changeClaims does what claimsChanged does, and leaves rivals that have not lost their claims yet
// to a job.
func (s *Service) changeClaims(tx *store.Tx, a claimArgs, d *store.Domain) error {
	names, err := s.zonesAroundOf(tx, a, 0)
	if err != nil {
		return err
	}
	return s.zones.ServeAgain(tx, names, d)
}

// zonesAroundOf gives names as zonesAround does, for a transaction that has so many already, and
// leaves the rest to a job.
func (s *Service) zonesAroundOf(tx *store.Tx, a claimArgs, have int) (names []string, err error) {
	around := claimArgs{Name: a.Name, But: a.But}
	more := true
	if have < 2*claimsAtATime {
		names, more = s.zonesAround(tx, &around)
	}
	if !more && !a.Lose {
		return names, nil
	}
	if !a.Lose { // else all of it again, once the rivals have ended
		a = around
	}
	_, err = s.Queue.Add(tx, jobs.New{Kind: kindClaims, Lane: "claims " + a.Name, Args: a})
	return names, err
}

// zonesAround gives the names whose zones may be served otherwise from now on, as many as one
// transaction serves: at first the name itself and those above it, then some below it. Only zones
// whose claims are still to be proven depend on others.
func (s *Service) zonesAround(tx *store.Tx, a *claimArgs) (names []string, more bool) {
	depends := func(o *store.Domain) bool {
		return o.AccountID != a.But && o.Claim == store.ClaimOpen && s.zones.HasZone(o)
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
