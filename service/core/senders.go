package core

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// Senders are the addresses that a user may send as: a list, or all of a domain.
type Senders struct {
	Addresses []string // normalized; the mailbox's own is first
	Domain    string   // "": only Addresses
}

// SendersOf returns the addresses that a mailbox may send as: its own, its aliases, and its groups
// that let their members send as the group. It leaves out addresses of domains that are being
// deleted. An external mailbox has only its own address, since its server knows no other.
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

// OwnAddresses returns the addresses whose mail only this mailbox receives: its own and its
// aliases. It leaves out addresses of domains that are being deleted.
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

// add adds an address of a domain, unless the domain is being deleted.
func (s *Senders) add(tx *store.Tx, mb *store.Mailbox, domainID, email string) error {
	d, err := store.Domains.FindShared(tx, domainID)
	if err == nil && d != nil && !d.Gone() && d.AccountID == mb.AccountID {
		s.Addresses = append(s.Addresses, email)
	}
	return err
}

// Allows reports whether an address, or the address without its +tag, is one of the senders. The
// address must be normalized by NormalizeEmail.
func (s Senders) Allows(email string) bool {
	local, domain, _ := msg.SplitEmail(email)
	if domain == s.Domain && domain != "" {
		return true
	}
	base, _, _ := strings.Cut(local, "+")
	return slices.Contains(s.Addresses, email) || slices.Contains(s.Addresses, base+"@"+domain)
}

// Names lists the addresses for an error text.
func (s Senders) Names() string {
	if s.Domain != "" {
		return "any address of " + s.Domain
	}
	const maxShown = 5
	if n := len(s.Addresses); n > maxShown {
		return strings.Join(s.Addresses[:maxShown], ", ") + " and others"
	}
	return strings.Join(s.Addresses, ", ")
}

// OwnAddress returns the normalized form of an address that the user may send as. The error is an
// SMTPError: 550 5.1.7 if the text is no address, 550 5.7.1 if the user may not send as it.
func (s Senders) OwnAddress(address string) (string, error) {
	email, err := msg.NormalizeEmail(address)
	if err != nil {
		return "", OverSMTP(550, "5.1.7", Invalid("from", "invalid", "%s", err))
	}
	if !s.Allows(email) {
		return "", OverSMTP(550, "5.7.1", Invalid("from", "not_allowed", "only %s may stand in the envelope and in From here, not %s", s.Names(), email))
	}
	return email, nil
}

// Author returns the author of a message: the mailbox itself if given is "", or else the given
// address if the mailbox may send as it.
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
	_, err = s.OwnAddress(list[0].Email())
	return list[0], err
}
