package mta

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// A destination is where mail to one address of a domain that we host goes: into a mailbox, on to
// another address, to both, or to who reads reports. Its records are shared: they are only read.
type destination struct {
	domain  *store.Domain
	Mailbox *store.Mailbox // nil: none
	Forward string         // who else gets it; "" nobody
	only    bool           // it goes to Forward alone
	must    bool           // Forward gets it whether or not it is suppressed
	group   *store.Group   // whose members get it; nil: none
	listID  string         // of the group whose member Forward is; "": it is none
	reports bool           // it is the domain's address for reports, which are read and not filed
	srs     bool           // it is a return path that we rewrote, for reports alone

	row     *store.Outgoing // whose own address it is; nil: it is an ordinary one
	rowKind string          // bounceAddress or unsubscribeAddress
}

// errNotHosted says that mail to an address is not for us to keep.
var errNotHosted = errors.New("not an address of a domain of this server")

// receiver says where mail to an address goes that comes from outside or from a mailbox here. The
// host's own postmaster gets mail from anybody (RFC 5321 section 4.5.1), and so does feedback@, the
// address to give to those who send complaints about this host. Other domains that are not hosted
// here are refused: for now if they are being set up.
func (s *Service) receiver(tx *store.Tx, address string) (*destination, error) {
	if s.Simulates(address) { // for senders here alone, whose mail takes another way
		return nil, core.SMTPErrorf(550, "5.1.1", "User unknown")
	}
	to, err := s.findDestination(tx, address)
	if err == nil {
		a, err := store.Accounts.Read(tx, to.domain.AccountID)
		if err != nil {
			return nil, err
		}
		if a.Gone() {
			return nil, core.SMTPErrorf(550, "5.7.1", "Relay access denied")
		}
		if !a.MayAct() {
			return nil, core.SMTPErrorf(550, "5.2.1", "Mailbox disabled, not accepting messages")
		}
		return to, nil
	}
	if !errors.Is(err, errNotHosted) {
		return nil, err
	}
	local, name, _ := msg.SplitEmail(address)
	if (local == "postmaster" || local == "feedback") && strings.EqualFold(name, s.Config.Hostname) {
		return s.hostPostmaster(tx)
	}
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
		if d.DNSProvider != store.DomainProviderExternal && !d.Gone() && !d.ClaimEnded() {
			return nil, core.SMTPErrorf(450, "4.2.1", "Domain is being set up, try again later")
		}
	}
	return nil, core.SMTPErrorf(550, "5.7.1", "Relay access denied")
}

// hostPostmaster is the owner of the oldest account, who set this server up.
func (s *Service) hostPostmaster(tx *store.Tx) (*destination, error) {
	for a := range store.Accounts.All(tx) {
		mb, err := store.MailboxByEmail.Read(tx, a.Email)
		if err == nil && mb.Type != store.MailboxTypeExternal {
			d, err := store.Domains.Read(tx, mb.DomainID)
			return toMailbox(d, mb), errors.Join(err, accepting(mb))
		}
		for _, d := range store.DomainsByAccount.Asc(tx, a.ID, "") {
			return &destination{domain: d, Forward: a.Email, must: true}, nil
		}
		break
	}
	return nil, core.SMTPErrorf(550, "5.1.1", "User unknown")
}

// destinationFor is the receiver of an address, if it takes a message of the size from the sender
// now.
func (s *Service) destinationFor(tx *store.Tx, sender, address string, size int64) (*destination, error) {
	to, err := s.receiver(tx, address)
	if err == nil {
		err = to.admits(sender)
	}
	if err == nil {
		err = to.takes(tx, size)
	}
	if err != nil {
		return nil, err
	}
	return to, nil
}

// findDestination says where mail to an address, as NormalizeEmail gives it, goes. The error is
// errNotHosted, or an SMTPError: 550 5.1.1 for nobody, 550 5.2.1 and 450 4.2.1 for a mailbox that
// takes no mail.
func (s *Service) findDestination(tx *store.Tx, address string) (*destination, error) {
	local, name, ok := msg.SplitEmail(address)
	if !ok {
		return nil, errNotHosted
	}
	d, err := store.DomainByName.Read(tx, name)
	if errors.Is(err, store.ErrNotFound) || err == nil && !d.Hosted() {
		return nil, errNotHosted
	}
	if err != nil {
		return nil, err
	}

	// Addresses of our own making: rewritten return paths, and those of rows of the sending log.
	if original, ok := s.srsReverse(local, name); ok {
		return &destination{domain: d, Forward: original, srs: true}, nil
	}
	if to, err := s.rowDestination(tx, d, local); to != nil || err != nil {
		return to, err
	}

	// The mailbox, alias or group of the address, or of the address without its +tag.
	base, _, _ := strings.Cut(local, "+")
	for _, one := range slices.Compact([]string{local, base}) {
		mb, err := store.MailboxByEmail.Read(tx, one+"@"+name)
		switch {
		case err == nil && !mb.Gone():
			return toMailbox(d, mb), accepting(mb)
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return nil, err
		}
		a, err := store.FindAddress(tx, one+"@"+name)
		if err != nil {
			return nil, err
		}
		if a != nil {
			return addressDestination(tx, d, a)
		}
	}

	if base == dnsprov.ReportsLocal {
		return &destination{domain: d, reports: true}, nil
	}
	return fallback(tx, d, local)
}

// toMailbox is the destination that a mailbox of a domain is.
func toMailbox(d *store.Domain, mb *store.Mailbox) *destination {
	return &destination{domain: d, Mailbox: mb, Forward: mb.ForwardTo, only: mb.ForwardOnly && mb.ForwardTo != ""}
}

// addressDestination is where mail to an alias or a group of a domain goes.
func addressDestination(tx *store.Tx, d *store.Domain, a *store.Address) (*destination, error) {
	if a.MailboxID != "" {
		mb, err := store.Mailboxes.Read(tx, a.MailboxID)
		if err != nil {
			return nil, err
		}
		return toMailbox(d, mb), accepting(mb)
	}
	g, err := store.Groups.Read(tx, a.GroupID)
	if err == nil && !store.MembersOfGroup.Has(tx, g.ID) {
		err = core.SMTPErrorf(550, "5.1.1", "The group has no members")
	}
	return &destination{domain: d, group: g}, err
}

// place names where a destination is, so that a message is there once.
func (d *destination) place() string {
	if d.group != nil {
		return "group " + d.group.ID
	}
	row := ""
	if d.row != nil {
		row = d.row.ID
	}
	if d.Mailbox != nil {
		return "mailbox " + strconv.FormatUint(uint64(d.Mailbox.Num), 10) + " " + row
	}
	if d.reports { // each account reads what comes to it
		return "reports " + d.domain.AccountID
	}
	return "forward " + d.Forward + " " + row
}

// accepting says why a mailbox takes no mail.
func accepting(mb *store.Mailbox) error {
	switch mb.Status {
	case store.MailboxActive:
		return nil
	case store.MailboxPending:
		return core.SMTPErrorf(450, "4.2.1", "Mailbox is being set up, try again later")
	}
	return core.SMTPErrorf(550, "5.2.1", "Mailbox disabled, not accepting messages")
}

// fallback is where mail to no mailbox goes: the catch-all, the address that the domain forwards
// to, and for the two names that every domain must answer (RFC 5321 section 4.5.1, RFC 2142) the
// account's owner, also where the catch-all takes nothing now.
func fallback(tx *store.Tx, d *store.Domain, local string) (*destination, error) {
	if local != "postmaster" && local != "abuse" {
		return leadsTo(tx, d, cmp.Or(d.CatchAll, d.Forward), false)
	}
	if d.CatchAll != "" {
		out, err := leadsTo(tx, d, d.CatchAll, true)
		if err == nil {
			err = out.takes(tx, 1) // a full one
		}
		if refused := new(core.SMTPError); !errors.As(err, &refused) {
			return out, err
		}
	}
	a, err := store.Accounts.Read(tx, d.AccountID)
	if err != nil {
		return nil, err
	}
	return leadsTo(tx, d, a.Email, true)
}

// leadsTo is the destination that another address is for mail to a domain; "" is nobody's.
func leadsTo(tx *store.Tx, d *store.Domain, to string, must bool) (*destination, error) {
	if to == "" {
		return nil, core.SMTPErrorf(550, "5.1.1", "User unknown")
	}
	mb, err := store.MailboxByEmail.Read(tx, to)
	if errors.Is(err, store.ErrNotFound) || err == nil && (mb.AccountID != d.AccountID || mb.Type == store.MailboxTypeExternal) {
		return &destination{domain: d, Forward: to, must: must}, nil
	}
	if err != nil {
		return nil, err
	}
	out := toMailbox(d, mb)
	out.must = must && out.only
	return out, accepting(mb)
}

// admits says why a sender may not write to it: a rewritten return path takes reports alone, which
// come from the null sender (RFC 5321 section 4.5.5), so that it is no way past us to the address
// behind it.
func (d *destination) admits(sender string) error {
	if d.srs && sender != "" {
		return core.SMTPErrorf(550, "5.7.1", "Address accepts only delivery reports, from the null sender")
	}
	return nil
}

// takes says why a message of the size cannot be placed now: 452 4.2.2 for a full mailbox, 550
// 5.7.1 for a forward to an address that must not get mail.
func (d *destination) takes(tx *store.Tx, size int64) error {
	if d.row != nil || d.reports || d.group != nil { // see placeTiding, keepForReading, expandGroup
		return nil
	}
	if d.Mailbox != nil && !d.only {
		left, err := inbox.QuotaLeft(tx, d.Mailbox)
		if err != nil {
			return err
		}
		if left >= 0 && left < size {
			return core.SMTPErrorf(452, "4.2.2", "Mailbox full")
		}
		return nil
	}
	if d.must {
		return nil
	}
	suppressed, err := core.IsSuppressed(tx, d.domain.AccountID, d.Forward)
	if suppressed {
		return core.SMTPErrorf(550, "5.7.1", "Forwarding address does not accept mail")
	}
	return err
}
