package recipients

import (
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// MaxPlaces is the maximum number of destinations of one message: nested groups can have very many
// members.
const MaxPlaces = 5000

// An entry of Arrival.To is an address in the envelope. When a group is processed, one entry for
// each member replaces its address: the address in the envelope, the group and the member,
// separated by line ends, which no address contains.

func memberEntry(address string, m *store.GroupMember) string {
	return address + "\n" + m.GroupID + "\n" + m.MailboxID + m.MemberID + m.Email // exactly one of the three is set
}

// EntryAddress returns the address in the envelope that an entry of Arrival.To comes from.
func EntryAddress(entry string) string {
	address, _, _ := strings.Cut(entry, "\n")
	return address
}

// ExpandGroup adds an entry for each member of a group to the recipients of an arrival. address is
// the one in the envelope that led to the group.
func ExpandGroup(tx *store.Tx, a *store.Arrival, g *store.Group, address string) error {
	var entries []string
	for _, m := range store.MembersOfGroup.Asc(tx, g.ID, "") {
		entries = append(entries, memberEntry(address, m))
	}
	if len(a.Placed) > MaxPlaces {
		return core.SMTPErrorf(552, "5.5.3", "The groups of this message have too many members")
	}
	a.To = append(entries, a.To...)
	return nil
}

// ResolveArrivalEntry returns the destination of an entry of Arrival.To, if it accepts a message of
// this size. It returns nil for a member that was deleted or must not get mail.
func (s *Service) ResolveArrivalEntry(tx *store.Tx, sender, entry string, size int64) (*Destination, error) {
	address, rest, member := strings.Cut(entry, "\n")
	if !member {
		return s.Resolve(tx, sender, address, size)
	}
	groupID, who, _ := strings.Cut(rest, "\n")
	g, err := store.Groups.FindShared(tx, groupID)
	if g == nil || err != nil {
		return nil, err
	}
	d, err := store.Domains.Read(tx, g.DomainID)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(who, "grp_") {
		of, err := store.Groups.FindShared(tx, who)
		if of == nil || err != nil {
			return nil, err
		}
		d, err = store.Domains.Read(tx, of.DomainID)
		return &Destination{Domain: d, Group: of}, err
	}
	if !strings.HasPrefix(who, "eu_") || strings.Contains(who, "@") {
		suppressed, err := core.IsSuppressed(tx, g.AccountID, who)
		if suppressed || err != nil {
			return nil, err
		}
		return &Destination{Domain: d, Forward: who, ListID: ListID(g)}, nil
	}
	mb, err := core.LiveMailbox(tx, who)
	if mb == nil || err != nil {
		return nil, err
	}
	if mb.Type == store.MailboxTypeExternal {
		return &Destination{Domain: d, Forward: mb.Email, ListID: ListID(g)}, nil
	}
	d, err = store.Domains.Read(tx, mb.DomainID)
	if err != nil {
		return nil, err
	}
	to := mailboxDestination(d, mb)
	if err := CheckAccepting(mb); err != nil {
		return nil, err
	}
	return to, to.CheckDeliverable(tx, size)
}

// ListID returns the List-Id of a group (RFC 2919).
func ListID(g *store.Group) string {
	local, domain, _ := msg.SplitEmail(g.Email)
	return local + "." + domain
}
