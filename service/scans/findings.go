package scans

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

const (
	maxKept      = 10_000              // findings in memory
	importPeriod = 14 * 24 * time.Hour // how long after its delegation a domain tells of records that were not imported
)

// Codes of issues.
const (
	issueDS          = "remove_ds_first"
	issueSTS         = "mta_sts_enforced"
	issueMX          = "mx_changes"
	issueSenders     = "senders_refused"
	issueProxied     = "proxied"
	issueCAA         = "caa_excludes"
	issueNotImported = "not_imported"
)

// An Issue is something that would break if the domain were delegated to us now, or has broken.
type Issue struct {
	Code    string
	Purpose string // one of the dnsprov.Purpose… constants, or DS
	Host    string
	Message string // for people
	Degrade bool   // whether it breaks something of a complete domain
}

// keptFindings are the findings for a state of a domain's zone and scan, which key identifies.
type keptFindings struct {
	key   string
	found *zones.ScanFindings
}

// findingsOf returns the findings for a domain. It keeps them, since a list of domains needs those
// of many.
func (s *Service) findingsOf(tx *store.Tx, d *store.Domain) (*zones.ScanFindings, error) {
	row, err := store.ZoneScans.Find(tx, d.ID)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprint(d.ZoneGeneration, d.ZoneChangedAt.UnixNano())
	if row != nil {
		key += fmt.Sprint(row.JobID, len(row.Excluded))
	}
	s.mu.Lock()
	kept, ok := s.findings[d.ID]
	s.mu.Unlock()
	if ok && kept.key == key {
		return kept.found, nil
	}
	var file *zones.ScanFile
	if row != nil {
		file, err = s.zones.ReadScan(row)
		if err != nil {
			return nil, err
		}
	}
	found, err := s.zones.ScanFindings(tx, d, row, file)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.findings) >= maxKept {
		clear(s.findings)
	}
	s.findings[d.ID] = keptFindings{key, found}
	return found, nil
}

// Issues says what would break if a domain were delegated to us now, the first thing to do first,
// and what has broken. Of a domain whose DNS is elsewhere it says what the scan shows of that. It
// reads a whole zone if that has changed, so it is not for a transaction that writes.
func (s *Service) Issues(tx *store.Tx, d *store.Domain) ([]Issue, error) {
	builtin, complete := d.DNSProvider == dnsprov.Builtin, d.Status == store.DomainComplete
	if d.DNSProvider == store.DomainProviderExternal || d.Gone() || d.ClaimEnded() || !builtin && d.ScanJobID == "" {
		return nil, nil
	}
	over := complete && s.Now().Sub(d.CompletedAt) > importPeriod
	if over && !builtin {
		return nil, nil
	}
	found, err := s.findingsOf(tx, d)
	if err != nil {
		return nil, err
	}
	switched := s.isSwitched(d)
	var out []Issue
	if text := s.dsText(d, switched); text != "" {
		out = append(out, Issue{Code: issueDS, Purpose: "DS", Host: "@", Degrade: true, Message: text})
	}
	if found.STS != nil && !complete {
		out = append(out, Issue{Code: issueSTS, Purpose: dnsprov.PurposeMTASTS, Host: "_mta-sts", Message: fmt.Sprintf(
			"%s has an MTA-STS policy that is enforced and does not name %s, so senders that know it would not deliver mail here. Set its mode to none, change the id in the record _mta-sts, wait %s, and scan the zone again.",
			d.Name, s.Config.Hostname, durationText(time.Duration(found.STS.MaxAge)*time.Second))})
	}
	if text := mailText(tx, d, found); text != "" && builtin && !switched && !complete {
		out = append(out, Issue{Code: issueMX, Purpose: dnsprov.PurposeMX, Host: "@", Message: text})
	}
	if text := sendersText(d, found, switched || complete || !builtin); text != "" && !over {
		out = append(out, Issue{Code: issueSenders, Purpose: dnsprov.PurposeDMARC, Host: "_dmarc", Message: text})
	}
	if found.CAA != "" {
		text := fmt.Sprintf("The CAA records of %s keep %s from issuing certificates, which Mailstead needs. Add the CAA record 0 issue %q", d.Name, found.CAA, found.CAA)
		if !builtin {
			text += " at its DNS provider, and scan the zone again"
		}
		out = append(out, Issue{Code: issueCAA, Purpose: dnsprov.PurposeCustom, Host: "@", Degrade: builtin, Message: text + "."})
	}
	if over {
		return out, nil
	}
	if found.Proxied.Count > 0 {
		out = append(out, Issue{Code: issueProxied, Purpose: dnsprov.PurposeA, Host: found.Proxied.First[0].Name, Message: fmt.Sprintf(
			"These records have addresses of a proxy, which serve nothing once the DNS is here: %s. Set the addresses of the servers behind it, or import these with accept.", found.Proxied)})
	}
	if found.Values > 0 {
		of := "at its present nameservers has"
		if switched {
			of = "at its previous nameservers has"
		}
		out = append(out, Issue{Code: issueNotImported, Purpose: dnsprov.PurposeCustom, Host: found.NotImported.First[0].Name, Message: fmt.Sprintf(
			"The zone of %s %s records that are not here (%d values): %s. Import them with import_zone, or leave them out there with exclude.",
			d.Name, of, found.Values, found.NotImported)})
	}
	return out, nil
}

// isSwitched reports whether a domain is delegated to us, as far as the looks have seen.
func (s *Service) isSwitched(d *store.Domain) bool {
	return d.DNSProvider == dnsprov.Builtin && s.Config.AreOwnNameservers(d.CurrentNS)
}

// dsText says what to do about DS records of other keys; "" if there are none. switched: the domain
// is delegated to us.
func (s *Service) dsText(d *store.Domain, switched bool) string {
	if d.DNSSEC == nil || d.ForeignDS == nil {
		return ""
	}
	until, waits := d.ForeignDS.Until.UTC().Format("2006-01-02 15:04 UTC"), s.Now().Before(d.ForeignDS.Until)
	switch bogus := d.DNSSEC.Status == store.DNSSECBogus; {
	case bogus && switched:
		return fmt.Sprintf("The DS records of %s at its registrar are for a key of other nameservers, so resolvers that validate refuse Mailstead's answers: its website and its mail fail. Remove them there now, or enter those in dnssec of the domain in their place. Resolvers may keep the old ones for another %s.",
			d.Name, durationText(d.ForeignDS.TTL))
	case bogus:
		return fmt.Sprintf("The DS records of %s at its registrar are for a key of other nameservers, so resolvers that validate would refuse Mailstead's answers. Remove them there first, and wait %s before the nameservers are changed.",
			d.Name, durationText(d.ForeignDS.TTL))
	case waits && switched:
		text := fmt.Sprintf("The old DS records of %s are removed, but resolvers that validate may keep them until %s and refuse Mailstead's answers until then. It ends by itself.", d.Name, until)
		if d.PreviousNS != nil {
			text += fmt.Sprintf(" To have its website and its mail back sooner, set its previous nameservers (%s) until then.", strings.Join(d.PreviousNS.Names, ", "))
		}
		return text
	case waits && d.Status != store.DomainComplete:
		return fmt.Sprintf("The DS records of %s are removed, but resolvers may keep them until %s. Change the nameservers after that.", d.Name, until)
	}
	return ""
}

// mailText warns of mail that comes here with the change of the nameservers, and would be refused;
// "" if there is none.
func mailText(tx *store.Tx, d *store.Domain, found *zones.ScanFindings) string {
	taken := d.CatchAll != "" || d.Forward != "" || store.MailboxesByDomain.Count(tx, d.ID, 1)+store.AddressesByDomain.Count(tx, d.ID, 1) > 0
	if len(found.MX) == 0 || taken || d.MXMode() != store.MXHere {
		return ""
	}
	return fmt.Sprintf("The mail of %s goes to %s now. It comes here once the nameservers are changed, and is refused then, since there is no mailbox here. Create the mailboxes first; or leave the mail where it is for now: call PATCH /v1/domains/%s with {\"mx\": {\"mode\": \"elsewhere\"}}.",
		d.Name, strings.Join(found.MX, ", "), d.ID)
}

// sendersText warns that receivers refuse mail of other servers, which the SPF record does not
// name, because of the DMARC policy; "" if that is not known. published: our records are in use.
func sendersText(d *store.Domain, found *zones.ScanFindings, published bool) string {
	policy, err := dmarc.Parse(cmp.Or(d.DMARC, dmarc.Default))
	if err != nil || policy.Policy == dmarc.PolicyNone {
		return ""
	}
	todo := ""
	switch {
	case d.DNSProvider == store.DomainProviderManual: // the owner publishes what he wants
	case found.OtherSPF || found.MilderDMARC:
		todo = "Import its SPF record and its DMARC policy with import_zone, or set them with set_spf and set_dmarc."
	case d.MXMode() == store.MXElsewhere && d.SPF == nil && d.DMARC == "" && found.NoSenders:
		todo = "Name the servers with set_spf, or set a milder policy with set_dmarc, such as v=DMARC1; p=none."
	}
	if todo == "" {
		return ""
	}
	when := "Once the nameservers are changed, receivers refuse"
	if published {
		when = "Receivers refuse"
	}
	return fmt.Sprintf("%s mail that other servers send as %s: Mailstead's SPF record does not name all of them, and its DMARC policy is p=%s. %s", when, d.Name, policy.Policy, todo)
}

// NextStep says what the owner of a domain that waits for its nameservers does next; "" if it was
// never scanned. issues are those of the domain.
func (s *Service) NextStep(tx *store.Tx, d *store.Domain, issues []Issue) (string, error) {
	if d.ScanJobID == "" || d.Status != store.DomainPendingNS || d.DNSProvider != dnsprov.Builtin {
		return "", nil
	}
	j, err := store.Jobs.Find(tx, d.ScanJobID)
	if err != nil {
		return "", err
	}
	if j != nil && !j.Ended() {
		return fmt.Sprintf("Mailstead reads the records that %s has now. Wait for the job %s before you change its nameservers.", d.Name, j.ID), nil
	}
	servers := strings.Join(s.Config.Nameservers, ", ")
	var first []string // what to do before the nameservers are changed
	for _, i := range issues {
		switch i.Code {
		case issueDS, issueSTS:
			return i.Message, nil
		case issueMX, issueSenders, issueProxied, issueNotImported, issueCAA:
			first = append(first, i.Message)
		}
	}
	if len(first) > 0 {
		text := first[0]
		if len(first) > 1 {
			text += " See also the other issues in dns_health."
		}
		return text + " Then set these nameservers, and only these, at its registrar: " + servers + ".", nil
	}
	if row, err := store.ZoneScans.Find(tx, d.ID); err != nil {
		return "", err
	} else if row == nil {
		return fmt.Sprintf("The records that %s has now could not be read. Scan its zone again, or import a zone file, before you set these nameservers, and only these, at its registrar: %s.", d.Name, servers), nil
	}
	return fmt.Sprintf("Set these nameservers, and only these, at the registrar of %s: %s.", d.Name, servers), nil
}

// durationText returns a time for a sentence, rounded up to hours or minutes.
func durationText(d time.Duration) string {
	n, unit := int((d+time.Minute-1)/time.Minute), "minute"
	if d >= time.Hour {
		n, unit = int((d+time.Hour-1)/time.Hour), "hour"
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprint(n, " ", unit)
}
