package domains

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// checkMaxAge is how long the last check of a domain is reused while the domain is not complete.
const checkMaxAge = time.Minute

// GetDNSStatusIn names a domain. refresh requests a live check.
type GetDNSStatusIn struct {
	DomainID string `path:"domain_id"`
	Refresh  bool   `query:"refresh"`
}

// DNSStatus says which of a domain's records are in the DNS.
type DNSStatus struct {
	DomainID    string         `json:"domain_id" words:"ours"`
	Domain      string         `json:"domain" words:"ours"`
	DNSProvider string         `json:"dns_provider" enum:"builtin|cloudflare|rfc2136|route53|hetzner|desec|manual|external"`
	Status      string         `json:"status" enum:"pending|propagating|complete|failed"`
	Ready       bool           `json:"ready"`
	Nameservers DNSNameservers `json:"nameservers"`
	Records     []DNSRecord    `json:"records"`
	Summary     DNSSummary     `json:"summary"`
	CheckedAt   core.Time      `json:"checked_at"`
	NextCheckAt core.Time      `json:"next_check_at"`
	Cached      bool           `json:"cached"`
}

// DNSNameservers has the nameservers that a domain should have and those that it has. expected is
// empty if this server does not serve the domain's DNS.
type DNSNameservers struct {
	Expected []string `json:"expected" words:"ours" example:"[\"ns1.example.com\",\"ns2.example.com\"]"`
	Actual   []string `json:"actual" words:"theirs" example:"[\"ns1.example.net\",\"ns2.example.net\"]"`
	Verified bool     `json:"verified"`
}

// A DNSRecord is a managed record, with the value that the DNS has for it. The values of an MX
// record begin with the priority.
type DNSRecord struct {
	Purpose  string  `json:"purpose" words:"ours"`
	Type     string  `json:"type" words:"ours" example:"MX"`
	Host     string  `json:"host" words:"ours" example:"@"`
	Critical bool    `json:"critical"`
	Verified bool    `json:"verified"`
	Expected string  `json:"expected" words:"ours"`
	Actual   *string `json:"actual" words:"theirs"`
	Error    *string `json:"error" words:"ours" example:"mismatch"`
}

// DNSSummary says for each purpose whether all records for it are verified.
type DNSSummary struct {
	MX    bool `json:"mx"`
	SPF   bool `json:"spf"`
	DKIM  bool `json:"dkim"`
	DMARC bool `json:"dmarc"`
}

// GetDNSStatus returns the result of the last check of a domain's records. If refresh is set, or
// the last check is not valid any more, it makes a live check.
func (s *Service) GetDNSStatus(ctx context.Context, who core.Actor, in GetDNSStatusIn) (*DNSStatus, error) {
	d, err := s.readDomain(who, in.DomainID)
	if err != nil {
		return nil, err
	}
	if d.DNSProvider == store.DomainProviderExternal {
		return s.externalDNSStatus(ctx, d, in.Refresh)
	}
	if !in.Refresh && s.checkIsFresh(d) {
		out := s.dnsStatusOut(d, d.Checks)
		out.Cached = true
		return out, s.addClaimRecord(d, out)
	}
	l := s.checkNow(ctx, d)
	err = s.Store.Update(func(tx *store.Tx) (err error) {
		d, err = core.DomainOf(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		return s.saveRequestedCheck(tx, d, l)
	})
	if err != nil {
		return nil, err
	}
	out := s.dnsStatusOut(d, l.checks)
	out.CheckedAt = core.Time{Time: l.At}
	return out, s.addClaimRecord(d, out)
}

// addClaimRecord adds the TXT record that proves the claim to a builtin domain, if other accounts
// claim the domain, too.
func (s *Service) addClaimRecord(d *store.Domain, out *DNSStatus) error {
	if d.DNSProvider != dnsprov.Builtin || d.Claim == store.ClaimProven {
		return nil
	}
	return s.Store.View(func(tx *store.Tx) error {
		if zones.Contested(tx, d) {
			out.Records = append(out.Records, claimRecordOut(d))
		}
		return nil
	})
}

// externalDNSStatus returns the DNS status of an external domain. Such a domain has no managed
// records: the only record that counts is the TXT record that proves the claim.
func (s *Service) externalDNSStatus(ctx context.Context, d *store.Domain, refresh bool) (*DNSStatus, error) {
	if refresh && d.Claim != store.ClaimProven && !d.Gone() {
		by, err := s.findClaimProof(ctx, d)
		if err != nil {
			s.LogOf(ctx).Debug("could not look up the proof of a domain claim", "domain", d.Name, "error", err)
		}
		if by != "" {
			proven, err := s.SettleProof(d.ID, by)
			if err != nil {
				return nil, err
			}
			d = proven
		}
	}
	out := s.dnsStatusOut(d, nil)
	out.CheckedAt = core.Time{Time: s.Now()}
	return out, nil
}

// claimRecordOut returns the TXT record that proves an open claim, in the form of the API.
func claimRecordOut(d *store.Domain) DNSRecord {
	missing := "missing"
	return DNSRecord{Purpose: "CLAIM", Type: "TXT", Host: claimLabel, Expected: claimRecordValue(d), Error: &missing}
}

func (s *Service) readDomain(who core.Actor, id string) (*store.Domain, error) {
	var d *store.Domain
	err := s.Store.View(func(tx *store.Tx) (err error) {
		d, err = core.DomainOf(tx, who, id)
		return err
	})
	return d, err
}

// checkIsFresh reports whether the last check is still valid and covers all records that the domain
// should have now.
func (s *Service) checkIsFresh(d *store.Domain) bool {
	if d.CheckedAt.IsZero() || d.Status != store.DomainComplete && s.Now().Sub(d.CheckedAt) > checkMaxAge {
		return false
	}
	records, err := s.zones.ManagedRecords(d)
	if err != nil {
		return false
	}
	for _, r := range records {
		want := storedCheck(dnsprov.Check{Record: r})
		if !slices.ContainsFunc(d.Checks, func(c store.DNSCheck) bool { return sameRecord(c, want) }) {
			return false
		}
	}
	return true
}

// saveRequestedCheck saves a check that a request has made. If it is the first bad check of the
// domain, a second check is scheduled soon, which decides whether the domain is failing. If the
// domain waits and the check finds what it waits for, a look sets it up at once.
func (s *Service) saveRequestedCheck(tx *store.Tx, d *store.Domain, l *dnsCheck) error {
	before := d.BadChecks
	if err := s.saveCheck(tx, d, l); err != nil {
		return err
	}
	if isWaiting(d) && !isMailAwaited(d) && (l.healthy() || l.ns != nil && l.ns.Verified) {
		if err := s.planLook(tx, d, tx.Now()); err != nil {
			return err
		}
	}
	if before == 0 && d.BadChecks == 1 {
		if err := s.planCheck(tx, d, s.recheckDelay()); err != nil {
			return err
		}
	}
	return store.Domains.Put(tx, d)
}

func (s *Service) dnsStatusOut(d *store.Domain, checks []store.DNSCheck) *DNSStatus {
	all := func(purpose string) bool { return allVerified(checks, purpose) }
	return &DNSStatus{
		DomainID: d.ID, Domain: d.Name, DNSProvider: d.DNSProvider, Status: dnsStatusOf(d, checks), Ready: dnsReady(d, checks),
		Nameservers: DNSNameservers{
			Expected: s.nameserversOf(d), Actual: append([]string{}, d.CurrentNS...),
			Verified: d.NSStatus == store.DomainNSVerified || d.NSStatus == store.DomainNSNotRequired,
		},
		Records:   dnsRecordsOut(d, checks),
		Summary:   DNSSummary{all(dnsprov.PurposeMX), all(dnsprov.PurposeSPF), all(dnsprov.PurposeDKIM), all(dnsprov.PurposeDMARC)},
		CheckedAt: core.Time{Time: d.CheckedAt}, NextCheckAt: core.Time{Time: d.NextCheckAt},
	}
}

func dnsRecordsOut(d *store.Domain, checks []store.DNSCheck) []DNSRecord {
	out := []DNSRecord{}
	for _, c := range checks {
		out = append(out, DNSRecord{
			Purpose: c.Purpose, Type: c.Type, Host: zonedata.RelativeHost(c.Host, d.Name), Critical: c.Critical, Verified: c.Verified,
			Expected: expectedValue(c), Actual: core.OrNull(c.Actual), Error: core.OrNull(c.Error),
		})
	}
	return out
}

// allVerified reports whether there are records for a purpose, and all of them are verified.
func allVerified(checks []store.DNSCheck, purpose string) bool {
	found := false
	for _, c := range checks {
		if c.Purpose == purpose && !c.Verified {
			return false
		}
		found = found || c.Purpose == purpose
	}
	return found
}

// ManualRecords lists the records that the owner of a manual domain must enter at the DNS provider.
// records is null until they are computed.
type ManualRecords struct {
	Status  string         `json:"status" enum:"pending|ready"`
	Domain  string         `json:"domain" words:"ours"`
	Records []ManualRecord `json:"records" null:"true"` // Null until they are computed.
}

// A ManualRecord is one record as it is entered at a DNS provider.
type ManualRecord struct {
	Type     string  `json:"type" words:"ours" example:"MX"`
	Host     string  `json:"host" words:"ours" example:"@"`
	Value    string  `json:"value" words:"ours" example:"mail.example.com"`
	TTL      int     `json:"ttl"` // Seconds.
	Priority *uint16 `json:"priority" example:"10"`
	Purpose  string  `json:"purpose" words:"ours"`
}

// GetDNSRecords lists the records of a manual domain.
func (s *Service) GetDNSRecords(_ context.Context, who core.Actor, in DomainIn) (*ManualRecords, error) {
	d, err := s.manualDomain(who, in.DomainID)
	if err != nil {
		return nil, err
	}
	out := &ManualRecords{Status: "pending", Domain: d.Name}
	if !recordsReady(d) {
		return out, nil
	}
	records, err := s.zones.ManagedRecords(d)
	if err != nil {
		return nil, err
	}
	out.Status = "ready"
	for _, r := range records {
		if r.Value == dnsprov.AnyOrNone { // there is nothing to enter
			continue
		}
		rec := ManualRecord{Type: r.Type, Host: zonedata.RelativeHost(r.Name, d.Name), Value: zones.ValueToEnter(d, r), TTL: int(r.TTL), Purpose: r.Purpose}
		if r.Type == "MX" {
			rec.Priority = &r.Priority
		}
		out.Records = append(out.Records, rec)
	}
	return out, nil
}

// manualDomain returns a domain of the account. The error is not_manual_domain if its DNS is not
// managed by hand.
func (s *Service) manualDomain(who core.Actor, id string) (*store.Domain, error) {
	d, err := s.readDomain(who, id)
	if err == nil && d.DNSProvider != store.DomainProviderManual {
		return nil, core.Errorf("not_manual_domain", "The DNS of %s is not managed by hand (its dns_provider is %s). Use dns-status to see its records.", d.Name, d.DNSProvider)
	}
	return d, err
}

// recordsReady reports whether the records of a manual domain are computed: whether the job that
// generates its keys has ended.
func recordsReady(d *store.Domain) bool {
	return len(d.DKIM) > 0 && d.Status != store.DomainPending && d.Status != store.DomainInProgress
}

// DNSVerified is the answer of verify_dns.
type DNSVerified struct {
	Domain           string           `json:"domain" words:"ours"`
	AllVerified      bool             `json:"all_verified"`
	CriticalVerified bool             `json:"critical_verified"`
	Records          []VerifiedRecord `json:"records"`
}

// A VerifiedRecord is a record with the value that the DNS has for it. The values of an MX record
// begin with the priority.
type VerifiedRecord struct {
	Type     string  `json:"type" words:"ours" example:"MX"`
	Host     string  `json:"host" words:"ours" example:"@"`
	Purpose  string  `json:"purpose" words:"ours"`
	Verified bool    `json:"verified"`
	Expected string  `json:"expected" words:"ours"`
	Actual   *string `json:"actual" words:"theirs"`
}

// VerifyDNS makes a live check of a manual domain's records, and saves the result. If the DNS has
// everything that mail needs, the domain becomes complete.
func (s *Service) VerifyDNS(ctx context.Context, who core.Actor, in DomainIn) (*DNSVerified, error) {
	d, err := s.manualDomain(who, in.DomainID)
	switch {
	case err != nil:
		return nil, err
	case d.Gone():
		return nil, core.DomainBusy(d, "is being deleted")
	case !recordsReady(d) && d.Status == store.DomainError:
		return nil, core.Errorf("records_not_ready", "The records of %s could not be computed: %s Run setup again.", d.Name, d.ErrorMessage)
	case !recordsReady(d):
		return nil, core.Errorf("records_not_ready", "The records of %s are still being computed. Call dns-records until its status is ready.", d.Name)
	}
	l := s.checkNow(ctx, d)
	if err := s.saveVerified(ctx, who, d, l); err != nil {
		return nil, err
	}
	out := &DNSVerified{Domain: d.Name, AllVerified: true, CriticalVerified: criticalVerified(l.checks), Records: []VerifiedRecord{}}
	for _, r := range dnsRecordsOut(d, l.checks) {
		out.AllVerified = out.AllVerified && r.Verified
		out.Records = append(out.Records, VerifiedRecord{r.Type, r.Host, r.Purpose, r.Verified, r.Expected, r.Actual})
	}
	return out, nil
}

// saveVerified saves a check of a manual domain. If the check is healthy, the domain becomes
// complete.
func (s *Service) saveVerified(ctx context.Context, who core.Actor, d *store.Domain, l *dnsCheck) error {
	if l.healthy() && d.Status != store.DomainComplete {
		if err := s.activateMostMailboxes(ctx, d.ID); err != nil {
			return err
		}
	}
	return s.Store.Update(func(tx *store.Tx) error {
		d, err := core.DomainOf(tx, who, d.ID)
		if err != nil {
			return err
		}
		if l.healthy() && (d.Status == store.DomainPendingDNS || d.Status == store.DomainError) {
			if err := s.completeDomain(tx, d, l); err != nil || d.Status != store.DomainComplete {
				return err
			}
			return core.Audit(tx, who, core.DomainTarget(d))
		}
		if d.Status == store.DomainError && (d.ErrorCode == recordsNotReady || d.ErrorCode == claimExpired) { // the wait begins anew
			reopened, err := s.reopenClaim(tx, d)
			if err != nil {
				return err
			}
			d.ErrorCode, d.ErrorMessage = "", ""
			if err := errors.Join(s.await(tx, d, store.DomainPendingDNS), s.putDomain(tx, d)); err != nil {
				return err
			}
			if reopened {
				if err := s.claimsChanged(tx, d); err != nil {
					return err
				}
			}
		}
		return s.saveRequestedCheck(tx, d, l)
	})
}

const (
	nsChecksAtOnce  = 10               // lookups that one request makes at the same time
	nsChecksTimeout = 45 * time.Second // time limit for the lookups of all names in a request
	lookedAtStep    = time.Minute      // a request that finds nothing new writes its time only if the last look is older
)

// CheckNameserversIn is the body of check_nameservers.
type CheckNameserversIn struct {
	Domains []string `json:"domains" required:"true" min:"1" max:"100" items:"judged" log:"true"`
}

// NameserversChecked is the answer of check_nameservers.
type NameserversChecked struct {
	Domains     []NameserverCheck `json:"domains"`
	AllVerified bool              `json:"all_verified"`
}

// A NameserverCheck says to which nameservers one domain is delegated.
type NameserverCheck struct {
	Domain      string   `json:"domain" words:"ours"`
	DomainID    *string  `json:"domain_id" words:"ours"`
	Status      string   `json:"status" enum:"verified|failed|not_found|already_complete|error"`
	Message     string   `json:"message" words:"theirs" example:"example.com is delegated to Mailstead's nameservers."` // For people; the text may change.
	Verified    bool     `json:"verified"`
	Nameservers []string `json:"nameservers" words:"ours"`
	CurrentNS   []string `json:"current_ns" words:"theirs" example:"[\"ns1.example.com\",\"ns2.example.com\"]"`

	needsLookup bool // the delegation must be looked up

	domain    *store.Domain
	ds        *[]dnsprov.DS // the DS records in the parent zone; nil: not looked up, or no answer
	parent    *scan.Parent  // what the parent zone has; set unless the lookup failed
	next      string        // what to do next; "": set our nameservers
	contested bool          // another account claims the name too
	proof     string        // the proof of its claim; "": none was found
}

// CheckNameservers looks up the nameservers of domains. It queues the provisioning of domains that
// are delegated to our nameservers.
func (s *Service) CheckNameservers(ctx context.Context, who core.Actor, in CheckNameserversIn) (*NameserversChecked, error) {
	names := candidates(in.Domains)
	checks := make([]NameserverCheck, len(names))
	err := s.Store.View(func(tx *store.Tx) error {
		for i, name := range names {
			if err := s.beginNSCheck(tx, who, name, &checks[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.lookUpDelegations(ctx, checks)
	if err := s.saveDelegations(who, checks); err != nil {
		return nil, err
	}
	out := &NameserversChecked{Domains: checks, AllVerified: true}
	for _, c := range checks {
		out.AllVerified = out.AllVerified && c.Verified
	}
	return out, nil
}

// beginNSCheck fills in the result for a name that needs no lookup. For other names it sets
// c.needsLookup.
func (s *Service) beginNSCheck(tx *store.Tx, who core.Actor, name candidate, c *NameserverCheck) error {
	*c = NameserverCheck{Domain: name.name, Status: "error", Message: name.problem, Nameservers: []string{}, CurrentNS: []string{}}
	if name.problem != "" {
		return nil
	}
	d, err := claimOf(tx, who.AccountID, name.name)
	if errors.Is(err, store.ErrNotFound) {
		c.Status, c.Message = "not_found", name.name+" is not a domain of this account. Connect it first."
		return nil
	}
	if err != nil {
		return err
	}
	c.DomainID, c.Nameservers, c.CurrentNS = &d.ID, s.nameserversOf(d), append([]string{}, d.CurrentNS...)
	switch {
	case d.Status == store.DomainComplete:
		c.Status, c.Verified, c.Message = "already_complete", true, d.Name+" is set up; there is nothing to do."
	case d.Gone():
		c.Message = d.Name + " is being deleted."
	case d.AtEdge():
		c.Message = d.Name + " keeps its nameservers: its records are made at " + edge.Name(d.DNSProvider) + ". If its job " + d.JobID + " did not succeed, run setup again."
	case d.DNSProvider != dnsprov.Builtin:
		c.Message = d.Name + " keeps its nameservers. Enter the records of dns-records at its DNS provider; verify-dns looks for them at once."
	case d.Status == store.DomainPending, d.Status == store.DomainInProgress:
		c.Status, c.Verified, c.Message = "verified", true, d.Name+" is being provisioned by the job "+d.JobID+"."
	default:
		c.needsLookup, c.domain, c.contested = true, d, d.Claim != store.ClaimProven && zones.Contested(tx, d)
		found, err := s.scans.Issues(tx, d)
		if err != nil {
			return err
		}
		c.next, err = s.scans.NextStep(tx, d, found)
		return err
	}
	return nil
}

// lookUpDelegations looks up the nameservers of all domains, nsChecksAtOnce at the same time. It
// takes at most nsChecksTimeout.
func (s *Service) lookUpDelegations(ctx context.Context, checks []NameserverCheck) {
	ctx, cancel := context.WithTimeout(ctx, nsChecksTimeout)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, nsChecksAtOnce)
	for i := range checks {
		c := &checks[i]
		if !c.needsLookup {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.lookUpDelegation(ctx, c)
		})
	}
	wg.Wait()
}

// lookUpDelegation looks up the nameservers of one domain and fills in the result.
func (s *Service) lookUpDelegation(ctx context.Context, c *NameserverCheck) {
	var found dnsprov.Delegation
	err := s.zones.WithLookupSlot(ctx, c.domain.AccountID, c.Domain, func() (err error) {
		var asked sync.WaitGroup
		asked.Go(func() { c.parent = s.scans.AskParent(ctx, c.Domain) })
		defer asked.Wait()
		found, err = dnsprov.CheckDelegation(ctx, s.Resolver, c.Domain, s.Config.Nameservers)
		if err == nil && found.Verified {
			c.proof = provenByDelegation
		}
		if err == nil && c.contested {
			c.proof, err = s.proofByTXT(ctx, c.domain)
		}
		if err == nil && c.domain.ForeignDS != nil && s.Config.LookupDS != nil {
			if ds, err := s.Config.LookupDS(ctx, c.Domain); err == nil {
				c.ds = &ds
			}
		}
		return err
	})
	ours := strings.Join(s.Config.Nameservers, ", ")
	switch {
	case err != nil:
		c.needsLookup = false
		c.Message = "The nameservers of " + c.Domain + " could not be looked up. Try again in a minute."
		return
	case found.Verified:
		c.Status, c.Verified, c.Message = "verified", true, c.Domain+" is delegated to Mailstead and is being provisioned."
	case undecidedText(c.domain) != "":
		c.Status, c.Message = "failed", undecidedText(c.domain)
	case c.next != "":
		c.Status, c.Message = "failed", c.Domain+" is not delegated to Mailstead. "+c.next
	case len(found.Current) == 0:
		c.Status, c.Message = "failed", c.Domain+" has no nameservers yet. Set these at its registrar: "+ours+"."
	default:
		c.Status = "failed"
		c.Message = c.Domain + " is delegated to " + strings.Join(found.Current, ", ") + ". Set only these at its registrar: " + ours +
			". It can take some hours until the change is visible everywhere."
	}
	c.CurrentNS = found.Current
	if c.parent == nil {
		c.parent = &scan.Parent{Names: found.Current, DS: c.ds}
	}
}

// saveDelegations saves the results of the nameserver lookups in one transaction. It queues the
// provisioning of domains that are delegated to our nameservers.
func (s *Service) saveDelegations(who core.Actor, checks []NameserverCheck) error {
	found := slices.Clone(checks)
	return s.Store.Update(func(tx *store.Tx) error {
		copy(checks, found) // undo the changes of an earlier run: the transaction may run twice
		var queued []*store.Domain
		for i := range checks {
			c := &checks[i]
			if !c.needsLookup {
				continue
			}
			d, err := core.DomainOf(tx, who, *c.DomainID)
			if e := new(core.Error); errors.As(err, &e) { // the domain was deleted after the lookup
				c.Status, c.Verified, c.Message = "not_found", false, c.Domain+" is no longer a domain of this account."
				continue
			}
			if err != nil {
				return err
			}
			before := d.Status
			if err := s.saveDelegation(tx, d, c, who.UserID); err != nil {
				return err
			}
			if d.Status != before {
				queued = append(queued, d)
			}
		}
		return auditDomains(tx, who, queued)
	})
}

// NameserversChanged is the data of domain.nameservers_changed.
type NameserversChanged struct {
	DomainID  string    `json:"domain_id" words:"ours"`
	Domain    string    `json:"domain" words:"ours"`
	Before    []string  `json:"before" words:"theirs" example:"[\"ns1.example.net\",\"ns2.example.net\"]"`
	After     []string  `json:"after" words:"theirs" example:"[\"ns1.example.com\",\"ns2.example.com\"]"` // Empty if the domain has none any more.
	Verified  bool      `json:"verified"`                                                                 // Whether they are Mailstead's, and only these.
	ChangedAt core.Time `json:"changed_at"`                                                               // When Mailstead saw the change.
}

// noteNameservers sets the nameservers of a domain that a look has found, and emits
// domain.nameservers_changed if they were others before. The caller writes the domain.
func (s *Service) noteNameservers(tx *store.Tx, d *store.Domain, found []string) error {
	before := d.CurrentNS
	d.CurrentNS = found
	if len(before) == 0 || slices.Equal(before, found) {
		return nil
	}
	_, err := s.events.Emit(tx, d.AccountID, events.EventDomainNSChanged, events.About{Domain: d.ID}, NameserversChanged{
		DomainID: d.ID, Domain: d.Name, Before: before, After: append([]string{}, found...),
		Verified: s.Config.AreOwnNameservers(found), ChangedAt: core.Time{Time: tx.Now()},
	})
	return err
}

// saveDelegation saves the result of one domain's nameserver lookup. It queues the provisioning of
// the domain if it is delegated to our nameservers. userID is the user who asked for the lookup; ""
// if nobody did: then the caller writes the domain if nothing but the time of the look has changed.
func (s *Service) saveDelegation(tx *store.Tx, d *store.Domain, c *NameserverCheck, userID string) error {
	changed, delegated, before := !slices.Equal(d.CurrentNS, c.CurrentNS) || c.ds != nil, c.Verified, d.Delegation
	if s.scans.NoteParent(tx, d, c.parent) {
		changed = true
	}
	if err := s.noteNameservers(tx, d, c.CurrentNS); err != nil {
		return err
	}
	s.scans.NoteDS(tx, d, c.ds, 0)
	if d.Claim != store.ClaimProven {
		if err := s.saveProof(tx, d, c); err != nil || d.ClaimEnded() {
			return err
		}
	}
	if !c.Verified && d.Status == store.DomainError && d.ErrorCode == nsTimeout { // the wait begins anew
		d.ErrorCode, d.ErrorMessage, changed = "", "", true
		if err := s.await(tx, d, store.DomainPendingNS); err != nil {
			return err
		}
	}
	if delegated && !c.Verified && d.StatusDetail != "" && d.StatusDetail != contestedText(d) {
		if _, err := s.resumeSetup(tx, d); err != nil { // the setup that waits then says what is missing
			return err
		}
	}
	if !c.Verified && !changed {
		if userID == "" || tx.Now().Sub(before.LookedAt) < lookedAtStep {
			return nil
		}
		return store.Domains.Put(tx, d) // only the time of the look has changed
	}
	if !c.Verified {
		return s.putDomain(tx, d)
	}
	if d.Status != store.DomainPendingNS && d.Status != store.DomainError { // its provisioning is queued already
		return nil
	}
	d.Status, d.NSStatus, d.StatusDetail = store.DomainPending, store.DomainNSVerified, ""
	woken, err := s.resumeSetup(tx, d)
	if err == nil && !woken {
		err = s.addProvision(tx, d, userID)
	}
	if err != nil {
		return err
	}
	return s.putDomain(tx, d)
}

// saveProof records the proof of a domain's claim, if c has one. Otherwise it writes into c what is
// missing for a proof.
func (s *Service) saveProof(tx *store.Tx, d *store.Domain, c *NameserverCheck) error {
	elsewhere := func(e *core.Error) { c.Status, c.Verified, c.Message = "error", false, e.Message }
	reopened, err := s.reopenClaim(tx, d)
	if e, lost := core.AsError(err); lost {
		elsewhere(e)
		return nil
	}
	if err != nil {
		return err
	}
	if reopened {
		d.StatusDetail, d.ErrorCode, d.ErrorMessage = "", "", ""
		if err := errors.Join(s.await(tx, d, store.DomainPendingNS), s.putDomain(tx, d), s.claimsChanged(tx, d)); err != nil {
			return err
		}
	}
	if c.proof != "" {
		if _, err := s.recordProof(tx, d, c.proof); err != nil {
			return err
		}
	}
	switch {
	case d.ClaimEnded():
		elsewhere(errClaimEnded(d))
	case d.Claim == store.ClaimProven:
	case c.Verified:
		c.Status, c.Verified, c.Message = "failed", false, contestedText(d)
	case zones.Contested(tx, d):
		c.Message += " " + contestedText(d)
	}
	return nil
}
