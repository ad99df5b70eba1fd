package inbound

import (
	"context"
	"net/netip"
	"slices"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// originFromOutside returns the origin of a message from another server. The origin is "" (unknown)
// for a message without a sender, since a machine wrote it. It is also "" for a message that was
// first sent from here, since any of its recipients could resend it. proven is the domain of the
// proven author, "" if nothing proves one.
func (s *Service) originFromOutside(ctx context.Context, in Incoming, v *auth.Verdict, proven, messageID string) (origin string, err error) {
	switch {
	case in.From == "":
		return "", nil
	case proven == "": // the origin of such a message does not count, so nothing is looked up
		return agents.OriginAuthor, nil
	}
	var d *store.Domain
	var signed []auth.Signature // aligned signatures that cover the message, by keys that are not ours
	sentHere := false
	err = s.Store.View(func(tx *store.Tx) (err error) {
		d, err = store.DomainByName.Find(tx, v.FromDomain)
		if d == nil || err != nil {
			return err
		}
		sentHere = messageID == "" || wasSentHere(tx, d.AccountID, messageID)
		for _, sig := range v.Signatures {
			by, err := store.DomainByName.Find(tx, sig.Domain)
			if err != nil {
				return err
			}
			ours := by != nil && slices.ContainsFunc(by.DKIM, func(k store.DKIMKey) bool { return k.Selector == sig.Selector })
			if sig.Aligned && sig.Covers && !ours {
				signed = append(signed, sig)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case d == nil:
		return agents.OriginAuthor, nil
	case sentHere:
		return "", nil
	case v.SPF == auth.Pass && v.SPFAligned && s.cameFromDeclaredSource(ctx, d, in.Client.IP, signed):
		return agents.OriginElsewhere, nil
	}
	return agents.OriginAuthor, nil
}

// wasSentHere reports whether an account has sent a message with that Message-ID, or a relay has
// assigned it to a message of the account.
func wasSentHere(tx *store.Tx, accountID, messageID string) bool {
	key := accountID + messageID + "\x00"
	return store.OutgoingsByMessageID.Has(tx, key) || store.MappingsByProvided.Has(tx, key) || store.MappingsByOriginal.Has(tx, key)
}

// cameFromDeclaredSource reports whether a message came from one of the hosts and networks in
// d.SendsElsewhere, with a signature by the key that is declared for it.
func (s *Service) cameFromDeclaredSource(ctx context.Context, d *store.Domain, ip netip.Addr, signatures []auth.Signature) bool {
	ctx, cancel := context.WithTimeout(ctx, core.AuthTimeout)
	defer cancel()
	ip = ip.Unmap()
	for _, place := range d.SendsElsewhere {
		if !slices.ContainsFunc(signatures, func(sig auth.Signature) bool { return sig.Selector == place.Selector }) {
			continue
		}
		if network, err := netip.ParsePrefix(place.Network); err == nil && network.Contains(ip) {
			return true
		}
		if place.Host == "" {
			continue
		}
		addrs, err := s.Resolver.LookupIPAddr(ctx, place.Host+".")
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if addr, ok := netip.AddrFromSlice(a.IP); ok && addr.Unmap() == ip {
				return true
			}
		}
	}
	return false
}

// maxNamesResolved is the maximum number of addresses in To and Cc that are resolved, to find out
// whether one of them leads to the mailbox.
const maxNamesResolved = 20

// messageForMailbox returns the message as one mailbox gets it. Proof by a signature alone counts
// only for mailboxes that To and Cc name, since any recipient could resend the message to others.
func (s *Service) messageForMailbox(tx *store.Tx, stored *inbox.StoredMessage, mb *store.Mailbox, address string) (*inbox.StoredMessage, error) {
	if mb == nil || stored.Proven == "" || !stored.Signed {
		return stored, nil
	}
	names, err := s.namesMailbox(tx, stored.Summary, mb, address)
	if names || err != nil {
		return stored, err
	}
	other := *stored
	other.Proven, other.Lacks = "", "neither To nor Cc names this mailbox"
	return &other, nil
}

// namesMailbox reports whether To or Cc name the address at which a message arrived, or another
// address that leads to the mailbox.
func (s *Service) namesMailbox(tx *store.Tx, sum *msg.Summary, mb *store.Mailbox, address string) (bool, error) {
	var named []string
	for _, a := range slices.Concat(sum.To, sum.Cc) {
		email, err := msg.NormalizeEmail(a.Email())
		if err != nil {
			continue
		}
		if email == address || email == mb.Email {
			return true, nil
		}
		if len(named) < maxNamesResolved && !slices.Contains(named, email) {
			named = append(named, email)
		}
	}
	for _, email := range named {
		to, err := s.rooms.Recipients.Find(tx, email)
		if err != nil {
			continue // not an address of this server
		}
		if to.Mailbox != nil && to.Mailbox.ID == mb.ID || to.Group != nil && to.Domain.AccountID == mb.AccountID && isMember(tx, to.Group, mb) {
			return true, nil
		}
	}
	return false, nil
}

// isMember reports whether a mailbox is a direct member of a group.
func isMember(tx *store.Tx, g *store.Group, mb *store.Mailbox) bool {
	for _, m := range store.MembersByMailbox.Asc(tx, mb.ID, "") {
		if m.GroupID == g.ID {
			return true
		}
	}
	return false
}
