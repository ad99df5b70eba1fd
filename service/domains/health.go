package domains

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

const (
	checksAtOnce       = 8                              // scheduled checks that run at the same time; limited so that a dead resolver does not delay requests
	alertAfterFailures = store.DomainFailing            // an alert is sent after this number of bad checks in a row
	recheckAfter       = 4*time.Minute + 30*time.Second // time between a first bad check and the next check; with jitter less than five minutes
	edgeGrace          = time.Hour                      // for so long after the setup of a domain at another DNS provider, bad checks are not counted: resolvers may have cached that it had no records
)

// Values of a domain's dns_status.
const (
	dnsPending     = "pending"
	dnsPropagating = "propagating"
	dnsComplete    = "complete"
	dnsFailed      = "failed"
)

// nsIssue is the code of the issue that a domain is no longer delegated to our nameservers.
const nsIssue = "nameservers_lost"

// A dnsCheck has the results of one live check of a domain's DNS.
type dnsCheck struct {
	startedAt       time.Time
	At              time.Time // when the check ended
	checks          []store.DNSCheck
	needsDelegation bool                // the domain should be delegated to our nameservers
	ns              *dnsprov.Delegation // nil: not looked up, or no answer
	ds              *[]dnsprov.DS       // nil: not looked up, or no answer
	parent          *scan.Parent        // what the parent zone has; nil: nobody has told
	proof           string              // the proof of an open claim; "": none was found
}

// checkNow looks up the managed records of a domain. If our nameservers should serve the domain, it
// also looks up the delegation. A record whose lookup failed has the error dnsprov.LookupFailed.
func (s *Service) checkNow(ctx context.Context, d *store.Domain) *dnsCheck {
	ctx, cancel := context.WithTimeout(ctx, zones.LookupTimeout)
	defer cancel()
	l := &dnsCheck{startedAt: s.Now(), needsDelegation: d.DNSProvider == dnsprov.Builtin}
	records, err := s.zones.ManagedRecords(d)
	if err != nil {
		s.LogOf(ctx).Error("could not compute the records of a domain", "domain", d.Name, "error", err)
	} else {
		err = s.zones.WithLookupSlot(ctx, d.AccountID, d.Name, func() error {
			s.lookUp(ctx, d, l, records)
			return nil
		})
	}
	if err != nil {
		for _, r := range records {
			l.checks = append(l.checks, storedCheck(dnsprov.Check{Record: r, Error: dnsprov.LookupFailed}))
		}
	}
	if d.Claim != store.ClaimProven && d.DNSProvider == dnsprov.Builtin {
		l.proof, err = s.findBuiltinProof(ctx, d, l.ns != nil && l.ns.Verified)
		if err != nil {
			s.LogOf(ctx).Debug("could not look up the proof of a domain claim", "domain", d.Name, "error", err)
		}
	}
	l.At = s.Now()
	return l
}

// lookUp makes the lookups of a check, all at the same time, and fills in their results.
func (s *Service) lookUp(ctx context.Context, d *store.Domain, l *dnsCheck, records []dnsprov.Record) {
	var wg sync.WaitGroup
	wg.Go(func() { s.checkReverse(ctx) })
	if l.needsDelegation {
		wg.Go(func() {
			if found, err := dnsprov.CheckDelegation(ctx, s.Resolver, d.Name, s.Config.Nameservers); err == nil {
				l.ns = &found
			}
		})
		wg.Go(func() { l.parent = s.scans.AskParent(ctx, d.Name) })
	}
	if d.DNSSEC != nil && s.Config.LookupDS != nil {
		wg.Go(func() {
			if found, err := s.Config.LookupDS(ctx, d.Name); err == nil {
				l.ds = &found
			}
		})
	}
	if d.Claim != store.ClaimProven && d.AtEdge() {
		wg.Go(func() {
			var err error
			l.proof, err = s.proofAtServers(ctx, d)
			if err != nil {
				s.LogOf(ctx).Debug("could not look up the proof of a domain claim", "domain", d.Name, "error", err)
			}
		})
	}
	checks := dnsprov.Verify(ctx, s.Resolver, records)
	for _, c := range checks {
		l.checks = append(l.checks, storedCheck(c))
	}
	wg.Wait()
	if l.parent == nil && l.ns != nil {
		l.parent = &scan.Parent{Names: l.ns.Current, DS: l.ds}
	}
	if d.Claim != store.ClaimProven && d.DNSProvider == store.DomainProviderManual {
		l.proof = proofByDKIM(d, checks)
	}
}

// storedCheck converts the check of one record to the form in which it is stored.
func storedCheck(c dnsprov.Check) store.DNSCheck {
	out := store.DNSCheck{
		Purpose: c.Record.Purpose, Type: c.Record.Type, Host: c.Record.Name, Expected: c.Record.Text(), Priority: c.Record.Priority,
		Critical: c.Record.Critical, Verified: c.Verified, Actual: c.Actual, Error: c.Error, Offer: c.Offer,
	}
	return out
}

// expectedValue returns the value that a record should have. If the domain has other senders, this
// is the value that allows them, too.
func expectedValue(c store.DNSCheck) string {
	if c.Offer != "" {
		return c.Offer
	}
	return c.Expected
}

// answered reports whether at least one lookup of the check succeeded.
func (l *dnsCheck) answered() bool {
	return l.ns != nil || slices.ContainsFunc(l.checks, func(c store.DNSCheck) bool { return c.Error != dnsprov.LookupFailed })
}

// healthy reports whether everything that mail needs is in the DNS.
func (l *dnsCheck) healthy() bool {
	if l.needsDelegation && (l.ns == nil || !l.ns.Verified) {
		return false
	}
	return criticalVerified(l.checks)
}

// failing reports whether something that mail needs is missing or wrong. A check with failed
// lookups may be neither healthy nor failing.
func (l *dnsCheck) failing() bool {
	if l.ns != nil && !l.ns.Verified {
		return true
	}
	return slices.ContainsFunc(l.checks, func(c store.DNSCheck) bool {
		return c.Critical && !c.Verified && c.Error != dnsprov.LookupFailed
	})
}

// criticalVerified reports whether all records that mail needs are verified.
func criticalVerified(checks []store.DNSCheck) bool {
	return !slices.ContainsFunc(checks, func(c store.DNSCheck) bool { return c.Critical && !c.Verified })
}

// sameRecord reports whether two checks are for the same record with the same expected value.
func sameRecord(a, b store.DNSCheck) bool {
	return a.Purpose == b.Purpose && a.Type == b.Type && a.Host == b.Host && a.Expected == b.Expected
}

// saveCheck records the results of a check in the domain. Records whose lookup failed keep their
// earlier result. If all lookups failed, nothing changes. The caller writes the domain.
func (s *Service) saveCheck(tx *store.Tx, d *store.Domain, l *dnsCheck) error {
	if l.At.Before(d.CheckedAt) { // a newer check is saved already
		return nil
	}
	tx.After(func() {
		result := "unknown"
		if l.healthy() {
			result = "healthy"
		} else if l.failing() {
			result = "failing"
		}
		s.Metrics.DNSChecks.Add(result)
	})
	if l.parent != nil {
		s.scans.NoteParent(tx, d, l.parent)
	}
	s.scans.NoteDS(tx, d, l.ds, 0)
	if l.proof != "" && d.Claim != store.ClaimProven && !d.Gone() {
		if won, err := s.recordProof(tx, d, l.proof); err != nil || !won && d.ClaimEnded() {
			return err
		}
	}
	if !l.answered() {
		return nil
	}
	known, before := d.Checks, d.CheckedAt
	d.Checks, d.CheckedAt = slices.Clone(l.checks), l.At
	for i, c := range d.Checks {
		at := slices.IndexFunc(known, func(k store.DNSCheck) bool { return sameRecord(k, c) })
		if c.Error == dnsprov.LookupFailed && at >= 0 {
			d.Checks[i] = known[at]
		}
	}
	if l.ns != nil {
		if err := s.noteNameservers(tx, d, l.ns.Current); err != nil {
			return err
		}
		switch {
		case l.ns.Verified:
			d.NSStatus = store.DomainNSVerified
		case d.NSStatus == store.DomainNSVerified, d.Status == store.DomainComplete:
			d.NSStatus = store.DomainNSLost
		}
	}
	err := s.countFailure(tx, d, l, before)
	d.DNSStatus = dnsStatusOf(d, d.Checks)
	if err != nil {
		return err
	}
	return s.certs.PlanCertificate(tx, d)
}

// countFailure counts the bad checks of a complete domain. After alertAfterFailures bad checks in a
// row it emits domain.dns_failed, once until the next healthy check. If several checks ran at the
// same time, only one of them counts. lastAt is when the check that was saved before l ended.
func (s *Service) countFailure(tx *store.Tx, d *store.Domain, l *dnsCheck, lastAt time.Time) error {
	name, since := d.Name, d.FailingSince
	switch {
	case l.healthy():
		if d.FailureTold { // the recovery is logged and shown in the domain, but there is no event for it
			d.StatusDetail = fmt.Sprintf("Its DNS has been healthy again since %s; it had failed since %s.", formatMinute(l.At), formatMinute(since))
			tx.After(func() { s.Log.Info("the DNS of a domain is healthy again", "domain", name, "failing_since", since) })
		}
		d.BadChecks, d.FailingSince, d.FailureTold = 0, time.Time{}, false
		return nil
	case d.AtEdge() && l.At.Sub(d.CompletedAt) < edgeGrace:
		return nil
	case d.Status != store.DomainComplete || !l.failing() || d.BadChecks > 0 && l.startedAt.Before(lastAt):
		return nil
	}
	if d.BadChecks++; d.BadChecks == 1 {
		d.FailingSince = l.At
	}
	if d.BadChecks < alertAfterFailures || d.FailureTold {
		return nil
	}
	d.FailureTold = true
	since = d.FailingSince
	if claimProofText(tx, d) == "" { // else that says what is missing
		d.StatusDetail = fmt.Sprintf("Its DNS has been failing since %s: see dns_health.", formatMinute(since))
	}
	issues, first := failuresOf(d), ""
	if len(issues) > 0 {
		first = issues[0].Message
	}
	tx.After(func() {
		s.Log.Warn("the DNS of a domain is failing", "domain", name, "failing_since", since, "issue", first)
	})
	_, err := s.events.Emit(tx, d.AccountID, events.EventDomainDNSFailed, events.About{Domain: d.ID}, DNSFailure{
		DomainID: d.ID, Domain: d.Name, Issues: issues, FailingSince: core.Time{Time: since}, CheckedAt: core.Time{Time: d.CheckedAt},
	})
	return err
}

// formatMinute formats a time in UTC, to the minute, for texts.
func formatMinute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// DNSFailure is the data of domain.dns_failed.
type DNSFailure struct {
	DomainID     string         `json:"domain_id" words:"ours"`
	Domain       string         `json:"domain" words:"ours"`
	Issues       []failureIssue `json:"issues"`
	FailingSince core.Time      `json:"failing_since"`
	CheckedAt    core.Time      `json:"checked_at"`
}

// A failureIssue is one problem in the data of domain.dns_failed.
type failureIssue struct {
	Code     string  `json:"code" words:"ours" example:"missing"`
	Purpose  string  `json:"purpose" words:"ours"`
	Type     string  `json:"type" words:"ours" example:"MX"`
	Host     string  `json:"host" words:"ours" example:"@"`
	Expected string  `json:"expected" words:"ours"`
	Actual   *string `json:"actual" words:"theirs"`
	// For people; the text may change.
	Message string `json:"message" words:"theirs" example:"The MX record of example.com is missing. Enter it at your DNS provider."`
}

// urgency orders the purposes of records whose problems are named: first what keeps mail from
// arriving, then what has it treated as spam, then the others, and the web address last.
var urgency = map[string]int{dnsprov.PurposeNS: -5, dnsprov.PurposeMX: -4, dnsprov.PurposeSPF: -3, dnsprov.PurposeDKIM: -2, dnsprov.PurposeDMARC: -1, dnsprov.PurposeA: 1}

// failuresOf lists the known problems of a domain's DNS, worst first. It leaves out records that
// mail does not need, except DMARC.
func failuresOf(d *store.Domain) []failureIssue {
	out := []failureIssue{}
	if d.NSStatus == store.DomainNSLost {
		actual := strings.Join(d.CurrentNS, ", ")
		out = append(out, failureIssue{
			Code: nsIssue, Purpose: dnsprov.PurposeNS, Type: "NS", Host: "@", Actual: core.OrNull(actual),
			Message: fmt.Sprintf("%s is no longer delegated to Mailstead. Set Mailstead's nameservers, and only these, at its registrar again.", d.Name),
		})
	}
	for _, c := range d.Checks {
		if c.Verified || !c.Critical && c.Purpose != dnsprov.PurposeDMARC {
			continue
		}
		out = append(out, failureIssue{
			Code: c.Error, Purpose: c.Purpose, Type: c.Type, Host: zonedata.RelativeHost(c.Host, d.Name), Expected: expectedValue(c), Actual: core.OrNull(c.Actual),
			Message: checkMessage(c),
		})
	}
	slices.SortStableFunc(out, func(a, b failureIssue) int { return urgency[a.Purpose] - urgency[b.Purpose] })
	return out
}

// dnsStatusOf returns the dns_status of a domain with the given checks of its records.
func dnsStatusOf(d *store.Domain, checks []store.DNSCheck) string {
	switch {
	case dnsReady(d, checks):
		return dnsComplete
	case d.BadChecks >= alertAfterFailures:
		return dnsFailed
	case d.Status == store.DomainComplete, slices.ContainsFunc(checks, func(c store.DNSCheck) bool { return c.Verified }):
		return dnsPropagating
	}
	return dnsPending
}

// dnsReady reports whether everything that mail needs is in the DNS.
func dnsReady(d *store.Domain, checks []store.DNSCheck) bool {
	if d.DNSProvider == store.DomainProviderExternal {
		return true
	}
	return criticalVerified(checks) && len(d.DKIM) > 0 && (d.DNSProvider != dnsprov.Builtin || d.NSStatus == store.DomainNSVerified)
}

// healthOf returns the DNSHealth of a domain.
func (s *Service) healthOf(d *store.Domain) DNSHealth {
	out := DNSHealth{Status: "unknown", Issues: []DNSIssue{}, CheckedAt: core.Time{Time: d.CheckedAt}, FailingSince: core.Time{Time: d.FailingSince}}
	if d.Status != store.DomainComplete || d.CheckedAt.IsZero() {
		return out
	}
	out.Status = healthy
	if len(d.ForeignMX) > 0 {
		out.Issues, out.Status = append(out.Issues, DNSIssue{"zone_conflict", dnsprov.PurposeMX, "@", foreignMXText(d)}), "degraded"
	}
	for _, f := range failuresOf(d) {
		if f.Purpose == dnsprov.PurposeMX && len(d.ForeignMX) > 0 {
			continue // the same, as the DNS shows it
		}
		out.Issues = append(out.Issues, DNSIssue{f.Code, f.Purpose, f.Host, f.Message})
		if f.Code != dnsprov.LookupFailed {
			out.Status = "degraded"
		}
	}
	if tags := core.ObsoleteDMARC(d); len(tags) > 0 { // only a warning, because the record works
		out.Issues = append(out.Issues, DNSIssue{dmarcObsolete, dnsprov.PurposeDMARC, "_dmarc", fmt.Sprintf(
			"The DMARC record has %s, which receivers that follow RFC 9989 do not look at. To test a policy, use t=y: it applies the next milder one.", strings.Join(tags, ", "))})
	}
	if issues := s.reverseIssues(d); len(issues) > 0 {
		out.Issues, out.Status = append(out.Issues, issues...), "degraded"
	}
	if d.BadChecks >= alertAfterFailures {
		out.Status = "failing"
	}
	return out
}

// foreignMXText says that MX records of others are in the place of ours at the DNS provider of a
// domain.
func foreignMXText(d *store.Domain) string {
	var hosts []string
	for _, mx := range d.ForeignMX {
		hosts = append(hosts, mx.Host)
	}
	return fmt.Sprintf("Mail for %s goes to other servers: %s. Their MX records at %s are not Mailstead's. To bring the mail here, call %s.", d.Name, joinNames(hosts), edge.Name(d.DNSProvider), edge.ReplaceCall(d))
}

const (
	dmarcObsolete = "dmarc_obsolete"
	healthy       = "healthy" // the status in DNSHealth without issues
)

const kindCheck = "dns_check"

// checkKind returns the kind of job that checks a complete domain. Each domain has a job of its
// own, which is snoozed until the next check. So the checks are spread over time.
func (s *Service) checkKind() jobs.Kind {
	return jobs.Kind{Name: kindCheck, Work: s.checkDomain, Timeout: 2 * time.Minute, PerLane: checksAtOnce}
}

// planCheck schedules a check of a domain after delay, unless an earlier check is scheduled. The
// caller writes the domain.
func (s *Service) planCheck(tx *store.Tx, d *store.Domain, delay time.Duration) error {
	j, err := s.Queue.Add(tx, jobs.New{Kind: kindCheck, Key: d.ID, Lane: "dns checks", Args: domainArgs{d.ID}, Due: tx.Now().Add(delay)})
	if err != nil {
		return err
	}
	d.NextCheckAt = j.Due
	return nil
}

// checkInterval returns the time until the next check of a healthy domain, with a jitter of a
// tenth.
func (s *Service) checkInterval() time.Duration {
	return jobs.Jitter(cmp.Or(s.Config.DNSCheckInterval, core.DefaultDNSCheckInterval), s.Rand())
}

// recheckDelay returns the time between a first bad check and the next one, which decides whether
// the domain is failing.
func (s *Service) recheckDelay() time.Duration {
	return min(jobs.Jitter(recheckAfter, s.Rand()), s.checkInterval())
}

// checkDomain works on a dns_check job: it checks a domain once and snoozes the job until the next
// check. The job ends when the domain is deleted or no longer complete.
func (s *Service) checkDomain(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d, err := s.DomainByID(args.DomainID)
	if errors.Is(err, store.ErrNotFound) || err == nil && d.Status != store.DomainComplete {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l := s.checkNow(ctx, d)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	wait := s.checkInterval()
	if l.failing() && d.BadChecks == 0 || !l.failing() && !l.healthy() && d.BadChecks == 1 { // the next check decides whether the domain is failing
		wait = s.recheckDelay()
	}
	next := s.Now().Add(wait)
	return func(tx *store.Tx, _ *store.Job) error { return s.saveScheduledCheck(tx, args.DomainID, l, next) }, jobs.Snooze(next)
}

// saveScheduledCheck saves a scheduled check. next is when the next check is due.
func (s *Service) saveScheduledCheck(tx *store.Tx, id string, l *dnsCheck, next time.Time) error {
	d, err := store.Domains.Get(tx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	d.NextCheckAt = next
	if err := s.saveCheck(tx, d, l); err != nil {
		return err
	}
	return store.Domains.Put(tx, d)
}

// checkMessage returns a text that says how to correct a record that is not verified.
func checkMessage(c store.DNSCheck) string {
	text := fmt.Sprintf("The %s record at %s is not as expected. Change it to the expected value.", c.Purpose, c.Host)
	switch {
	case c.Error == dnsprov.Missing:
		text = fmt.Sprintf("There is no %s record at %s. Add it with the expected value.", c.Purpose, c.Host)
	case c.Error == dnsprov.MultipleSPF:
		text = fmt.Sprintf("%s has more than one SPF record, so receivers ignore all of them. Replace them with the expected record, which combines them.", c.Host)
	case c.Error == dnsprov.DKIMWrongType:
		return fmt.Sprintf("%s is a CNAME record that points elsewhere. Replace it with a TXT record that has the expected value.", c.Host)
	case c.Error == dnsprov.LookupFailed:
		return fmt.Sprintf("The %s record at %s could not be looked up yet. Mailstead will try again.", c.Purpose, c.Host)
	case c.Purpose == dnsprov.PurposeMX:
		return mxAdvice(c)
	case c.Offer != "":
		text = fmt.Sprintf("The SPF record at %s does not authorize this host. Replace it with the expected record, which keeps the present senders.", c.Host)
	}
	if c.Purpose != dnsprov.PurposeSPF {
		return text
	}
	if n := spf.Lookups(expectedValue(c)); n > spf.MaxLookups {
		text += fmt.Sprintf(" It then needs %d DNS lookups, but receivers make at most %d (RFC 7208 section 4.6.4): remove senders that are no longer used.", n, spf.MaxLookups)
	}
	return text
}

// mxAdvice returns a text that says how to correct the MX records. It names other hosts that
// receive the domain's mail, or the wrong priority.
func mxAdvice(c store.DNSCheck) string {
	_, our, _ := strings.Cut(c.Expected, " ")
	var before, after []string
	ours := false
	for mx := range strings.SplitSeq(c.Actual, ", ") {
		priority, host, _ := strings.Cut(mx, " ")
		n, err := strconv.Atoi(priority)
		switch {
		case host == our:
			ours = true
		case host == "":
			return fmt.Sprintf("%s has a null MX record, which says that it accepts no mail (RFC 7505). Replace it with %s.", c.Host, c.Expected)
		case err == nil && n <= int(c.Priority):
			before = append(before, mx)
		default:
			after = append(after, mx)
		}
	}
	switch {
	case ours && len(before) > 0:
		return fmt.Sprintf("Mail for %s also goes to other servers: %s. Remove those MX records, or give them a preference above %d.", c.Host, strings.Join(before, ", "), c.Priority)
	case ours:
		return fmt.Sprintf("The MX record at %s must have priority %d, but there is %s. Change it to %s.", c.Host, c.Priority, c.Actual, c.Expected)
	case len(before) > 0:
		return fmt.Sprintf("Mail for %s goes to other servers: %s. Replace those MX records with %s.", c.Host, strings.Join(before, ", "), c.Expected)
	}
	return fmt.Sprintf("Mail for %s goes to other servers: %s. Add %s.", c.Host, strings.Join(after, ", "), c.Expected)
}

// Codes of issues with the reverse DNS of this host's IP addresses.
const (
	ptrMissing  = "ptr_missing"
	ptrMismatch = "ptr_mismatch"
)

const (
	purposePTR     = "PTR"
	reverseMaxAge  = time.Hour       // how long the cached issues are valid
	reverseTimeout = 5 * time.Second // time limit for all reverse lookups; checks of records wait for them
	reverseRetry   = 5 * time.Minute // delay after a failed lookup
)

// checkReverse looks up the reverse DNS of this host's public IP addresses, unless the cache is
// still valid.
func (s *Service) checkReverse(ctx context.Context) {
	r := &s.reverse
	if s.Config.Sandbox || !r.checking.TryLock() {
		return
	}
	defer r.checking.Unlock()
	r.mu.Lock()
	fresh := s.Now().Before(r.next)
	r.mu.Unlock()
	if fresh {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reverseTimeout)
	defer cancel()
	var issues []DNSIssue
	var err error
	for _, ip := range s.SendingIPs() {
		var issue *DNSIssue
		issue, err = s.reverseIssue(ctx, ip.Unmap())
		if err != nil {
			break
		}
		if issue != nil {
			issues = append(issues, *issue)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil { // the cached issues remain
		r.next = s.Now().Add(reverseRetry)
		return
	}
	r.next, r.issues = s.Now().Add(reverseMaxAge), issues
}

// reverseIssue returns the issue with the reverse DNS of an IP address; nil if there is none.
func (s *Service) reverseIssue(ctx context.Context, ip netip.Addr) (*DNSIssue, error) {
	if ip.IsPrivate() || !ip.IsGlobalUnicast() {
		return nil, nil
	}
	names, back, err := s.ReverseNames(ctx, ip)
	if err != nil || back {
		return nil, err
	}
	ask := fmt.Sprintf("Ask the hosting provider to set the reverse DNS (PTR) of %s to %s.", ip, s.Config.Hostname)
	if len(names) == 0 {
		return &DNSIssue{ptrMissing, purposePTR, ip.String(), fmt.Sprintf("%s has no reverse DNS (PTR record), so many receivers refuse mail from it. %s", ip, ask)}, nil
	}
	return &DNSIssue{ptrMismatch, purposePTR, ip.String(), fmt.Sprintf(
		"The reverse DNS of %s is %s, which does not resolve back to it, so many receivers refuse mail from it. %s", ip, strings.Join(names, ", "), ask)}, nil
}

// reverseIssues returns the reverse DNS issues that concern a domain. There are none if its mail is
// sent through a relay.
func (s *Service) reverseIssues(d *store.Domain) []DNSIssue {
	if d.DNSProvider == store.DomainProviderExternal || s.sendingMode(d) != core.ViaDirect {
		return nil
	}
	s.reverse.mu.Lock()
	defer s.reverse.mu.Unlock()
	return slices.Clone(s.reverse.issues)
}
