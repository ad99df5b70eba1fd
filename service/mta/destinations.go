package mta

import (
	"errors"
	"strings"
	"time"

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
	reports bool           // it is the domain's address for reports, which are read and not filed
	srs     bool           // it is a return path that we rewrote, for reports alone

	row     *store.Outgoing // whose own address it is; nil: it is an ordinary one
	rowKind string          // bounceAddress or unsubscribeAddress
}

// errNotHosted says that mail to an address is not for us to keep.
var errNotHosted = errors.New("not an address of a domain of this server")

// findDestination says where mail to an address, as NormalizeEmail gives it, goes. The error is
// errNotHosted, or an SMTPError: 550 5.1.1 for nobody, 550 5.2.1 and 450 4.2.1 for a mailbox that
// takes no mail.
func (s *Service) findDestination(tx *store.Tx, address string) (*destination, error) {
	local, name, ok := msg.SplitEmail(address)
	if !ok {
		return nil, errNotHosted
	}
	d, err := store.DomainByName.Read(tx, name)
	if errors.Is(err, store.ErrNotFound) || err == nil && !core.TakesMail(d) {
		return nil, errNotHosted
	}
	if err != nil {
		return nil, err
	}
	if original, ok := s.srsReverse(local, name); ok {
		return &destination{domain: d, Forward: original, srs: true}, nil
	}
	if to, err := s.rowDestination(tx, d, local); to != nil || err != nil {
		return to, err
	}
	mb, err := findMailbox(tx, local, name)
	if err != nil {
		return nil, err
	}
	if mb != nil {
		return &destination{domain: d, Mailbox: mb, Forward: mb.ForwardTo}, accepting(mb)
	}
	if base, _, _ := strings.Cut(local, "+"); base == dnsprov.ReportsLocal {
		return &destination{domain: d, reports: true}, nil
	}
	return fallback(tx, d, local)
}

// findMailbox gives the mailbox of the address, or of the address without its +tag; nil if there is
// none.
func findMailbox(tx *store.Tx, local, domain string) (*store.Mailbox, error) {
	base, _, tagged := strings.Cut(local, "+")
	for _, name := range []string{local, base} {
		mb, err := store.MailboxByEmail.Read(tx, name+"@"+domain)
		switch {
		case err == nil && mb.Status != "deleting":
			return mb, nil
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return nil, err
		}
		if !tagged {
			break
		}
	}
	return nil, nil
}

// accepting says why a mailbox takes no mail.
func accepting(mb *store.Mailbox) error {
	switch mb.Status {
	case "active":
		return nil
	case "pending":
		return core.SMTPErrorf(450, "4.2.1", "Mailbox is being set up, try again later")
	}
	return core.SMTPErrorf(550, "5.2.1", "Mailbox disabled, not accepting messages")
}

// fallback is where mail to no mailbox goes: the catch-all, the address that the domain forwards
// to, and for the two names that every domain must answer (RFC 5321 section 4.5.1, RFC 2142) the
// account's owner.
func fallback(tx *store.Tx, d *store.Domain, local string) (*destination, error) {
	required := local == "postmaster" || local == "abuse"
	to := d.CatchAll
	if to == "" && !required {
		to = d.Forward
	}
	if to == "" && required {
		a, err := store.Accounts.Read(tx, d.AccountID)
		if err != nil {
			return nil, err
		}
		to = a.Email
	}
	if to == "" {
		return nil, core.SMTPErrorf(550, "5.1.1", "User unknown")
	}
	mb, err := store.MailboxByEmail.Read(tx, to)
	if errors.Is(err, store.ErrNotFound) || err == nil && (mb.AccountID != d.AccountID || mb.Type == "external") {
		return &destination{domain: d, Forward: to}, nil
	}
	if err != nil {
		return nil, err
	}
	return &destination{domain: d, Mailbox: mb, Forward: mb.ForwardTo}, accepting(mb)
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
	if d.row != nil || d.reports { // see placeTiding, keepForReading
		return nil
	}
	if d.Mailbox != nil {
		left, err := inbox.QuotaLeft(tx, d.Mailbox)
		if err != nil {
			return err
		}
		if left >= 0 && left < size {
			return core.SMTPErrorf(452, "4.2.2", "Mailbox full")
		}
		return nil
	}
	suppressed, err := core.IsSuppressed(tx, d.domain.AccountID, d.Forward)
	if suppressed {
		return core.SMTPErrorf(550, "5.7.1", "Forwarding address does not accept mail")
	}
	return err
}

// An arrival is how a message came to a destination.
type arrival struct {
	sender   string // return path, "" for a report
	to       string // the address that the envelope named
	folder   uint32
	received time.Time
	genuine  bool // SPF, DKIM or we ourselves vouch for the sender, so that it may be told of failures
}

// place files a message that arrives and sends it on, as the destination says.
func (s *Service) place(tx *store.Tx, to *destination, d *inbox.StoredMessage, a arrival) error {
	if to.row != nil {
		if done, err := s.routeReport(tx, to, d, a); done || err != nil {
			return err
		}
	} else if err := s.detectReport(tx, d); err != nil {
		return err
	}
	if to.Mailbox != nil {
		if _, err := s.inbox.File(tx, to.Mailbox, d, inbox.Filing{Folder: a.folder, Received: a.received, Arrived: true, Recipient: a.to}); err != nil {
			return err
		}
	}
	if to.Forward == "" {
		return nil
	}
	return s.addForward(tx, to, d, a)
}

// addForward sends a message that arrives on to the destination's other address. It goes out as it
// came: not signed by us, so that its author's signature stays what counts, but sealed (RFC 8617),
// so that what we found out about where it came from goes with it, and with a rewritten return path
// where another server will look at that (see srsForward). Failures are told to the sender only if
// it is known to be genuine, since a report to a forged one hits a stranger.
func (s *Service) addForward(tx *store.Tx, to *destination, d *inbox.StoredMessage, a arrival) error {
	sub := &store.Submission{
		AccountID: to.domain.AccountID, DomainID: to.domain.ID, MessageID: d.Summary.MessageID, Sender: a.sender,
		Subject: d.Summary.Subject, Blob: d.Blob, Forward: true, EightBit: true,
	}
	if to.Mailbox != nil {
		sub.MailboxID = to.Mailbox.ID
	}
	if a.genuine {
		sub.ReportTo = a.sender
	}
	_, err := s.Enqueue(tx, sub, to.domain, []Rcpt{{Address: to.Forward}})
	return err
}
