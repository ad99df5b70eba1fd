package domains

import (
	"context"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// The mail of a domain may stay elsewhere until its mailboxes are here and have their old mail.
// Until then the domain is not complete, and our own nameservers serve the MX records of before.

const (
	maxExpected        = 1000 // addresses that took mail elsewhere, in one request
	maxWarnedAddresses = 20   // that one warning names
	maxWarnedMailboxes = 500  // that are looked at for a warning
)

// A DomainMX says which hosts take the mail of a domain.
type DomainMX struct {
	Mode string `json:"mode" enum:"here|elsewhere"` // elsewhere: other hosts take it until you change this to here; the domain is not complete before.
	// The hosts that take the mail, the most preferred first. With elsewhere these are the ones
	// that the domain's nameservers had when they were last asked. With here they are those of
	// others if their MX records are in the place of ours at the DNS provider.
	Hosts []string `json:"hosts" words:"theirs" example:"[\"mail.example.com\"]"`
}

// mxOf returns which hosts take the mail of a domain; nil for an external domain.
func (s *Service) mxOf(d *store.Domain) *DomainMX {
	if d.DNSProvider == store.DomainProviderExternal {
		return nil
	}
	out := &DomainMX{Mode: d.MXMode(), Hosts: []string{}}
	taken := d.ForeignMX
	if out.Mode == store.MXElsewhere && len(d.MX.Records) > 0 {
		taken = d.MX.Records
	}
	for _, mx := range taken {
		out.Hosts = append(out.Hosts, mx.Host)
	}
	if out.Mode == store.MXHere && len(taken) == 0 {
		out.Hosts = append(out.Hosts, s.Config.Hostname)
	}
	return out
}

// newMX returns which hosts take the mail of a new domain. asked is the mode in the request, "" for
// none; f is what its present nameservers say.
func (s *Service) newMX(d *store.Domain, asked string, f presentSite) *store.DomainMX {
	if asked != store.MXElsewhere || d.DNSProvider == store.DomainProviderExternal {
		return nil
	}
	return &store.DomainMX{Mode: asked, Found: f.answered || !s.findsSites(), Records: f.mx}
}

// An MXIn is the mx of an update_domain request.
type MXIn struct {
	Mode string `json:"mode" required:"true" enum:"here|elsewhere" log:"true"`
	// Only with here: addresses of the domain that took mail elsewhere. The warnings name those
	// that have no mailbox here.
	ExpectedAddresses []string `json:"expected_addresses" max:"1000" example:"[\"ann@example.com\"]"`
}

// check validates what can be validated without the store, and normalizes the addresses.
func (in *MXIn) check() (err error) {
	if in.Mode == store.MXElsewhere && len(in.ExpectedAddresses) > 0 {
		return core.Invalid("mx.expected_addresses", "not_allowed", "is only for the mode here")
	}
	if len(in.ExpectedAddresses) > maxExpected {
		return core.Invalid("mx.expected_addresses", "too_many_items", "must have at most %d items", maxExpected)
	}
	for i, address := range in.ExpectedAddresses {
		in.ExpectedAddresses[i], err = core.NormalizeEmail("mx.expected_addresses", address)
		if err != nil {
			return err
		}
	}
	return nil
}

// changeMX changes which hosts take the mail of a domain. f is what its nameservers say. replace is
// that of the request. The caller writes the domain and its zone.
func (s *Service) changeMX(tx *store.Tx, who core.Actor, d *store.Domain, mode string, replace bool, f presentSite) error {
	switch {
	case d.DNSProvider == store.DomainProviderExternal:
		return core.Invalid("mx", "not_allowed", "cannot be set: the mail of %s is hosted elsewhere", d.Name)
	case mode == store.MXElsewhere && mode == d.MXMode():
		return nil
	case mode == store.MXElsewhere && !d.CompletedAt.IsZero():
		return core.Invalid("mx.mode", "not_allowed", "cannot become elsewhere: %s is complete, and its mail comes here", d.Name)
	case d.AtEdge():
		return s.changeEdgeMX(tx, who, d, mode, replace, f)
	case mode == store.MXElsewhere:
		d.MX = &store.DomainMX{Mode: mode, Found: f.answered && !f.ours || !s.findsSites(), Records: f.mx}
		return nil
	case mode == d.MXMode():
		return nil
	}
	d.MX = &store.DomainMX{Mode: store.MXHere}
	if d.Move != nil && replace {
		d.Replace = true // at the provider to which it moves
	}
	switch {
	case d.Status != store.DomainPendingDNS:
		return nil
	case d.DNSProvider == store.DomainProviderManual:
		d.NSAwaited = tx.Now() // the first looks follow one another closely again
		return s.planLook(tx, d, lookAfter(d.NSAwaited, tx.Now(), s.Rand()))
	case d.Move != nil:
		return nil // its end sets the domain up
	}
	if err := checkIdle(tx, d); err != nil {
		return err
	}
	d.Status, d.StatusDetail = store.DomainPending, ""
	return s.addProvision(tx, d, who.UserID)
}

// changeEdgeMX is changeMX for a domain at a DNS provider by API. With replace, MX records of
// others are replaced if the mail comes here. What it changes is written by another provisioning of
// the domain, or by the caller's sync of a complete one.
func (s *Service) changeEdgeMX(tx *store.Tx, who core.Actor, d *store.Domain, mode string, replace bool, f presentSite) error {
	failed := d.Status == store.DomainError && !d.ClaimEnded()
	switch {
	case mode != d.MXMode() && mode == store.MXHere && d.Claim == store.ClaimOpen && !s.Config.Sandbox:
		return core.Errorf("domain_not_ready", "%s Its mail stays where it is until then; try again at next_look_at of the domain.", notProvenText(d))
	case mode == store.MXElsewhere:
		d.MX, d.Replace = &store.DomainMX{Mode: mode, Found: f.answered && !f.ours || !s.findsSites(), Records: f.mx}, false
	case mode != d.MXMode(), failed:
		d.MX, d.Replace = &store.DomainMX{Mode: store.MXHere}, replace
	case replace:
		d.Replace = true
		return nil
	default:
		return nil
	}
	j, err := store.Jobs.Find(tx, d.JobID)
	switch {
	case err != nil:
		return err
	case d.Move != nil:
		return nil // the move writes the records
	case j != nil && j.State == store.JobRunning:
		return core.DomainBusy(d, "is being worked on")
	case j != nil && !j.Ended():
		return nil // the job finds it
	case !failed && (d.Status != store.DomainPendingDNS || mode == store.MXElsewhere):
		return nil
	}
	d.Status, d.StatusDetail = store.DomainPending, ""
	return s.addProvision(tx, d, who.UserID)
}

// isMailAwaited reports whether a domain is ready, and waits until its owner says that its mail is
// to come here. It may wait for as long as its owner likes.
func isMailAwaited(d *store.Domain) bool {
	return d.MXMode() == store.MXElsewhere && d.Status == store.DomainPendingDNS && d.Claim == store.ClaimProven
}

// mailAwaitedText says what such a domain waits for; "" for others.
func mailAwaitedText(d *store.Domain) string {
	if !isMailAwaited(d) {
		return ""
	}
	return "The mail of " + d.Name + " still goes to other hosts. When its mailboxes are here, call PATCH /v1/domains/" + d.ID + ` with {"mx": {"mode": "here"}}.`
}

// A DomainWarning is something to look at after a change of a domain.
type DomainWarning struct {
	Code string `json:"code" words:"ours" example:"no_mailbox"` // not_proven, no_mailbox, mail_not_imported or mta_sts_elsewhere.
	// For people; the text may change.
	Message string `json:"message" words:"theirs" example:"ann@example.com took mail elsewhere, and has no mailbox here. Its mail is refused."`
}

// notProvenText says that this host would refuse mail of a domain whose claim is open.
func notProvenText(d *store.Domain) string {
	return "The DNS does not show the DKIM records of " + d.Name + " yet, so it is not proven that it belongs to this account, and this host refuses its mail."
}

// mxWarnings lists what to look at when the mail of a domain begins to come here.
func (s *Service) mxWarnings(ctx context.Context, d *store.Domain, expected []string) ([]DomainWarning, error) {
	var lacking, empty []string
	err := s.Store.View(func(tx *store.Tx) error {
		for _, address := range expected {
			if !strings.HasSuffix(address, "@"+d.Name) || !store.AddressTaken(tx, d.ID, address) {
				lacking = append(lacking, address)
			}
		}
		n := 0
		for _, mb := range store.MailboxesByDomain.Asc(tx, d.ID, "") {
			if n++; n > maxWarnedMailboxes {
				break
			}
			if !mb.Gone() && !hasImportedMail(tx, mb) {
				empty = append(empty, mb.Email)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := []DomainWarning{}
	if d.Claim == store.ClaimOpen && d.DNSProvider != dnsprov.Builtin {
		out = append(out, DomainWarning{"not_proven", notProvenText(d)})
	}
	if n := len(lacking); n > 0 {
		text, whose := someOf(lacking)+" took mail elsewhere, and there is no mailbox here with that address. ", "Its"
		if n > 1 {
			text, whose = someOf(lacking)+" took mail elsewhere, and there are no mailboxes here with these addresses. ", "Their"
		}
		if d.CatchAll == "" && d.Forward == "" {
			text += whose + " mail is refused until a mailbox, an alias or a group takes it."
		} else {
			text += whose + " mail goes to the catch-all or the forwarding of the domain."
		}
		out = append(out, DomainWarning{"no_mailbox", text})
	}
	if len(empty) > 0 {
		out = append(out, DomainWarning{"mail_not_imported", "No old mail was imported for " + someOf(empty) + ". It stays on the old servers."})
	}
	within, cancel := context.WithTimeout(lookup.Fresh(ctx), zones.LookupTimeout)
	defer cancel()
	err = s.zones.WithLookupSlot(within, d.AccountID, d.Name, func() error {
		texts, err := s.Resolver.LookupTXT(within, "_mta-sts."+d.Name+".")
		for _, text := range texts {
			if strings.HasPrefix(text, "v=STSv1") && !s.isOurPolicy(d, text) {
				out = append(out, DomainWarning{"mta_sts_elsewhere", fmt.Sprintf(
					"%s has an MTA-STS policy (%.100q) that is not Mailstead's. Until it ends, senders that know it send no mail to this host. Set its mode to none where it is served, and wait for its max_age.", d.Name, text)})
				break
			}
		}
		return err
	})
	if err != nil {
		s.LogOf(ctx).Debug("could not look up the MTA-STS policy of a domain", "domain", d.Name, "error", err)
	}
	return out, nil
}

// isOurPolicy reports whether a text is the MTA-STS record of this host for a domain.
func (s *Service) isOurPolicy(d *store.Domain, text string) bool {
	records, err := s.zones.ManagedRecords(d)
	if err != nil {
		return false
	}
	for _, r := range records {
		if r.Purpose == dnsprov.PurposeMTASTS && r.Type == "TXT" && r.Value == text {
			return true
		}
	}
	return false
}

// hasImportedMail reports whether messages were imported into a mailbox lately.
func hasImportedMail(tx *store.Tx, mb *store.Mailbox) bool {
	first := store.ImportedID(mb.Num, [16]byte{})
	prefix := first[:len(first)-32]
	for id := range store.ImportedMessages.After(tx, prefix) {
		return strings.HasPrefix(id.ID, prefix)
	}
	return false
}

// someOf names the first of several addresses, and says how many others there are.
func someOf(addresses []string) string {
	if n := len(addresses) - maxWarnedAddresses; n > 0 {
		return joinNames(addresses[:maxWarnedAddresses]) + fmt.Sprintf(" and %d more", n)
	}
	return joinNames(addresses)
}
