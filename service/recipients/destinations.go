package recipients

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A Destination is where mail to one address of a hosted domain goes: into a mailbox, on to another
// address, to both, to the members of a group, or to the reader of reports. Its records are shared
// and must not be changed.
type Destination struct {
	Domain  *store.Domain
	Mailbox *store.Mailbox // nil: none
	Forward string         // address that the mail is forwarded to; "": none
	Only    bool           // the mail only goes to Forward, not into the mailbox
	Must    bool           // Forward gets the mail even if the address is suppressed
	Group   *store.Group   // the mail goes to the members of this group; nil: no group
	ListID  string         // List-Id of the group that Forward is a member of; "": no group
	Reports bool           // the domain's address for reports: mail to it is read and not filed
	SRS     bool           // a return path that this server rewrote; it accepts only bounces

	Row     *store.Outgoing // the sent message that the address was made for; nil for an ordinary address
	RowKind string          // BounceAddress or UnsubscribeAddress
}

// ErrNotHosted is returned for an address of a domain that this server does not host.
var ErrNotHosted = errors.New("not an address of a domain of this server")

// Receiver returns where mail to an address goes, whether it comes from outside or from a mailbox
// here. Mail to the host's own postmaster is accepted from anybody (RFC 5321 section 4.5.1), and so
// is mail to feedback@, the address for complaints about this host. Other domains that are not
// hosted here are refused, temporarily if they are being set up.
func (s *Service) Receiver(tx *store.Tx, address string) (*Destination, error) {
	if s.Simulates(address) { // its addresses are only for senders here, whose mail does not come this way
		return nil, core.SMTPErrorf(550, "5.1.1", "User unknown")
	}
	to, err := s.Find(tx, address)
	if err == nil {
		a, err := store.Accounts.Read(tx, to.Domain.AccountID)
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
	if !errors.Is(err, ErrNotHosted) {
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

// hostPostmaster returns the destination of the owner of the oldest account, who set this server
// up.
func (s *Service) hostPostmaster(tx *store.Tx) (*Destination, error) {
	for a := range store.Accounts.All(tx) {
		mb, err := store.MailboxByEmail.Read(tx, a.Email)
		if err == nil && mb.Type != store.MailboxTypeExternal {
			d, err := store.Domains.Read(tx, mb.DomainID)
			return mailboxDestination(d, mb), errors.Join(err, CheckAccepting(mb))
		}
		for _, d := range store.DomainsByAccount.Asc(tx, a.ID, "") {
			return &Destination{Domain: d, Forward: a.Email, Must: true}, nil
		}
		break
	}
	return nil, core.SMTPErrorf(550, "5.1.1", "User unknown")
}

// Resolve is like Receiver, but returns an error if the destination does not accept a message of
// this size from the sender now.
func (s *Service) Resolve(tx *store.Tx, sender, address string, size int64) (*Destination, error) {
	to, err := s.Receiver(tx, address)
	if err == nil {
		err = to.CheckSender(sender)
	}
	if err == nil {
		err = to.CheckDeliverable(tx, size)
	}
	if err != nil {
		return nil, err
	}
	return to, nil
}

// Find returns where mail to a normalized address goes. The error is ErrNotHosted, or an SMTPError:
// 550 5.1.1 for an unknown address, 550 5.2.1 and 450 4.2.1 for a mailbox that accepts no mail.
func (s *Service) Find(tx *store.Tx, address string) (*Destination, error) {
	local, name, ok := msg.SplitEmail(address)
	if !ok {
		return nil, ErrNotHosted
	}
	d, err := store.DomainByName.Read(tx, name)
	if errors.Is(err, store.ErrNotFound) || err == nil && !d.Hosted() {
		return nil, ErrNotHosted
	}
	if err != nil {
		return nil, err
	}

	// The address may be one that this server made: a rewritten return path, or an address of a row
	// of the sending log.
	if original, ok := s.SRSReverse(local, name); ok {
		return &Destination{Domain: d, Forward: original, SRS: true}, nil
	}
	if to, err := s.rowDestination(tx, d, local); to != nil || err != nil {
		return to, err
	}

	// Otherwise it is the address of a mailbox, alias or group, with or without a +tag.
	base, _, _ := strings.Cut(local, "+")
	for _, one := range slices.Compact([]string{local, base}) {
		mb, err := store.MailboxByEmail.Read(tx, one+"@"+name)
		switch {
		case err == nil && !mb.Gone():
			return mailboxDestination(d, mb), CheckAccepting(mb)
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
		return &Destination{Domain: d, Reports: true}, nil
	}
	return fallbackDestination(tx, d, local)
}

// mailboxDestination returns the destination for a mailbox of a domain.
func mailboxDestination(d *store.Domain, mb *store.Mailbox) *Destination {
	return &Destination{Domain: d, Mailbox: mb, Forward: mb.ForwardTo, Only: mb.ForwardOnly && mb.ForwardTo != ""}
}

// addressDestination returns where mail to an alias or a group of a domain goes.
func addressDestination(tx *store.Tx, d *store.Domain, a *store.Address) (*Destination, error) {
	if a.MailboxID != "" {
		mb, err := store.Mailboxes.Read(tx, a.MailboxID)
		if err != nil {
			return nil, err
		}
		return mailboxDestination(d, mb), CheckAccepting(mb)
	}
	g, err := store.Groups.Read(tx, a.GroupID)
	if err == nil && !store.MembersOfGroup.Has(tx, g.ID) {
		err = core.SMTPErrorf(550, "5.1.1", "The group has no members")
	}
	return &Destination{Domain: d, Group: g}, err
}

// PlaceKey returns a key that is the same for all addresses that lead to the destination, so that
// one message is delivered there only once.
func (d *Destination) PlaceKey() string {
	if d.Group != nil {
		return "group " + d.Group.ID
	}
	row := ""
	if d.Row != nil {
		row = d.Row.ID
	}
	if d.Mailbox != nil {
		return "mailbox " + strconv.FormatUint(uint64(d.Mailbox.Num), 10) + " " + row
	}
	if d.Reports { // each account reads its own reports
		return "reports " + d.Domain.AccountID
	}
	return "forward " + d.Forward + " " + row
}

// CheckAccepting returns an error that says why a mailbox accepts no mail; nil if it accepts mail.
func CheckAccepting(mb *store.Mailbox) error {
	switch mb.Status {
	case store.MailboxActive:
		return nil
	case store.MailboxPending:
		return core.SMTPErrorf(450, "4.2.1", "Mailbox is being set up, try again later")
	}
	return core.SMTPErrorf(550, "5.2.1", "Mailbox disabled, not accepting messages")
}

// fallbackDestination returns where mail to an unknown local part goes: the catch-all, or the
// address that the domain forwards to. Mail to postmaster and abuse, which every domain must accept
// (RFC 5321 section 4.5.1, RFC 2142), goes to the account's owner if the catch-all does not accept
// it now.
func fallbackDestination(tx *store.Tx, d *store.Domain, local string) (*Destination, error) {
	if local != "postmaster" && local != "abuse" {
		return destinationAt(tx, d, cmp.Or(d.CatchAll, d.Forward), false)
	}
	if d.CatchAll != "" {
		out, err := destinationAt(tx, d, d.CatchAll, true)
		if err == nil {
			err = out.CheckDeliverable(tx, 1) // refuses a full mailbox
		}
		if refused := new(core.SMTPError); !errors.As(err, &refused) {
			return out, err
		}
	}
	a, err := store.Accounts.Read(tx, d.AccountID)
	if err != nil {
		return nil, err
	}
	return destinationAt(tx, d, a.Email, true)
}

// destinationAt returns the destination of mail to the domain d that goes to the address to: a
// mailbox of the account, or a forward. must says that a forward gets the mail even if the address
// is suppressed. The error is 550 5.1.1 if to is "".
func destinationAt(tx *store.Tx, d *store.Domain, to string, must bool) (*Destination, error) {
	if to == "" {
		return nil, core.SMTPErrorf(550, "5.1.1", "User unknown")
	}
	mb, err := store.MailboxByEmail.Read(tx, to)
	if errors.Is(err, store.ErrNotFound) || err == nil && (mb.AccountID != d.AccountID || mb.Type == store.MailboxTypeExternal) {
		return &Destination{Domain: d, Forward: to, Must: must}, nil
	}
	if err != nil {
		return nil, err
	}
	out := mailboxDestination(d, mb)
	out.Must = must && out.Only
	return out, CheckAccepting(mb)
}

// CheckSender returns an error if the sender may not write to the destination. A rewritten return
// path accepts only bounces, which come from the null sender (RFC 5321 section 4.5.5), so that
// nobody can use it to reach the address that it hides.
func (d *Destination) CheckSender(sender string) error {
	if d.SRS && sender != "" {
		return core.SMTPErrorf(550, "5.7.1", "Address accepts only delivery reports, from the null sender")
	}
	return nil
}

// CheckDeliverable returns an error if a message of this size cannot be delivered now: 452 4.2.2
// for a full mailbox, 550 5.7.1 for a forward to an address that must not get mail.
func (d *Destination) CheckDeliverable(tx *store.Tx, size int64) error {
	if d.Row != nil || d.Reports || d.Group != nil { // these are checked elsewhere
		return nil
	}
	if d.Mailbox != nil && !d.Only {
		left, err := core.QuotaLeft(tx, d.Mailbox)
		if err != nil {
			return err
		}
		if left >= 0 && left < size {
			return core.SMTPErrorf(452, "4.2.2", "Mailbox full")
		}
		return nil
	}
	if d.Must {
		return nil
	}
	suppressed, err := core.IsSuppressed(tx, d.Domain.AccountID, d.Forward)
	if suppressed {
		return core.SMTPErrorf(550, "5.7.1", "Forwarding address does not accept mail")
	}
	return err
}
