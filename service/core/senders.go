package core

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// Senders are the addresses that somebody may send as: some, or all of a domain.
type Senders struct {
	Addresses []string // in their one form, the own one first
	Domain    string   // "": the addresses alone
}

// SendersOf gives the addresses that a mailbox may send as: its own, its aliases, and the groups
// that let their members. Those of domains that are being deleted are left out. A mailbox that
// lives elsewhere sends through a server that knows its own address alone.
func SendersOf(tx *store.Tx, mb *store.Mailbox) (Senders, error) {
	out, err := OwnAddresses(tx, mb)
	if err != nil || mb.Type == store.MailboxTypeExternal {
		return out, err
	}
	for _, m := range store.MembersByMailbox.Asc(tx, mb.ID, "") {
		g, err := store.Groups.Read(tx, m.GroupID)
		if err != nil {
			return out, err
		}
		if g.SendAs {
			if err := out.add(tx, mb, g.DomainID, g.Email); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// OwnAddresses gives the addresses whose mail comes to a mailbox and to nobody else: its own and
// its aliases. Those of domains that are being deleted are left out.
func OwnAddresses(tx *store.Tx, mb *store.Mailbox) (Senders, error) {
	out := Senders{Addresses: []string{mb.Email}}
	if mb.Type == store.MailboxTypeExternal {
		return out, nil
	}
	for _, a := range store.AddressesByMailbox.Asc(tx, mb.ID, "") {
		if err := out.add(tx, mb, a.DomainID, a.Email); err != nil {
			return out, err
		}
	}
	return out, nil
}

// add adds an address of a domain, unless that is being deleted.
func (s *Senders) add(tx *store.Tx, mb *store.Mailbox, domainID, email string) error {
	d, err := store.Domains.FindShared(tx, domainID)
	if err == nil && d != nil && !d.Gone() && d.AccountID == mb.AccountID {
		s.Addresses = append(s.Addresses, email)
	}
	return err
}

// Allow reports whether an address, as NormalizeEmail gives it, is one of them, with or without a
// +tag.
func (s Senders) Allow(email string) bool {
	local, domain, _ := msg.SplitEmail(email)
	if domain == s.Domain && domain != "" {
		return true
	}
	base, _, _ := strings.Cut(local, "+")
	return slices.Contains(s.Addresses, email) || slices.Contains(s.Addresses, base+"@"+domain)
}

// Names names them for an error.
func (s Senders) Names() string {
	if s.Domain != "" {
		return "any address of " + s.Domain
	}
	const shown = 5
	if n := len(s.Addresses); n > shown {
		return strings.Join(s.Addresses[:shown], ", ") + " and others"
	}
	return strings.Join(s.Addresses, ", ")
}

// Own gives an address in its one form if mail may be sent as it. The error is an SMTPError: 550
// 5.1.7 for no address, 550 5.7.1 for one of somebody else.
func (s Senders) Own(address string) (string, error) {
	email, err := msg.NormalizeEmail(address)
	if err != nil {
		return "", OverSMTP(550, "5.1.7", Invalid("from", "invalid", "%s", err))
	}
	if !s.Allow(email) {
		return "", OverSMTP(550, "5.7.1", Invalid("from", "not_allowed", "only %s may stand in the envelope and in From here, not %s", s.Names(), email))
	}
	return email, nil
}

// Author is the author of a message of the mailbox: the mailbox itself where given is "", or one
// whom it may send as.
func (s Senders) Author(mb *store.Mailbox, given string) (msg.Address, error) {
	local, domain, _ := msg.SplitEmail(mb.Email)
	own := msg.Address{Name: mb.Name, Mailbox: local, Host: domain}
	if given == "" {
		return own, nil
	}
	list, err := msg.ParseAddressList(given)
	if err != nil || len(list) != 1 {
		return own, Invalid("from", "invalid", "must be one address")
	}
	_, err = s.Own(list[0].Email())
	return list[0], err
}
