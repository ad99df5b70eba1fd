package store

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An Address is an alias of a mailbox or the address of a group. The main address of a mailbox has
// no such record.
type Address struct {
	DomainID  string
	Email     string // lower-case
	AccountID string
	MailboxID string // "": it belongs to a group
	GroupID   string // "": it is an alias
}

// Addresses keeps the aliases and group addresses. It lacks the main addresses of mailboxes:
// AddressTaken looks for both.
var (
	Addresses = engine.NewTable("address", func(a *Address) string { return AddressKey(a.DomainID, a.Email) }).
			Watched(func(_ *engine.Tx, a *Address) Change { return Change{Account: a.AccountID, ID: a.Email} })
	AddressesByMailbox = Addresses.Index("mailbox", func(a *Address) string { return a.MailboxID })
	AddressesByDomain  = Addresses.Index("domain", func(a *Address) string { return a.DomainID })
)

// FindAddress returns the alias or group with this address, or nil if there is none. Of several
// domains with the same name, it looks in the one whose claim is proven. The record is shared: it
// must not be changed.
func FindAddress(tx *Tx, email string) (*Address, error) {
	return Addresses.FindShared(tx, provenAddressKey(tx, email))
}

// A Group is an address whose mail goes to its members.
type Group struct {
	ID        string // grp_…
	AccountID string
	DomainID  string
	Email     string // lower-case
	Name      string
	SendAs    bool // its members may send from the group's address
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Groups keeps the groups of every account.
var (
	Groups = engine.NewTable("group", func(g *Group) string { return g.ID }).
		Watched(func(_ *engine.Tx, g *Group) Change { return Change{Account: g.AccountID, ID: g.ID} })
	GroupsByAccount = Groups.Index("account", func(g *Group) string { return g.AccountID })
)

// A GroupMember is a member of a group: a mailbox, another group or an external address.
type GroupMember struct {
	GroupID   string
	Place     int // position in the list of members, from 0
	AccountID string
	MailboxID string // "": it is not a mailbox
	MemberID  string // id of a group; "": it is not a group
	Email     string // external address; "": it is a mailbox or a group
}

// GroupMembers keeps the members of each group in the order of Place.
var (
	GroupMembers     = engine.NewTable("group_member", func(m *GroupMember) string { return GroupMemberID(m.GroupID, m.Place) })
	MembersOfGroup   = GroupMembers.Index("group", func(m *GroupMember) string { return m.GroupID })
	MembersByMailbox = GroupMembers.Index("mailbox", func(m *GroupMember) string { return m.MailboxID })
	MembersByGroup   = GroupMembers.Index("member", func(m *GroupMember) string { return m.MemberID })
)

// GroupMemberID returns the id of the GroupMember at a position in a group.
func GroupMemberID(groupID string, position int) string {
	return fmt.Sprintf("%s%05d", groupID, position)
}

// AddressTaken reports whether a mailbox, an alias or a group in the domain has this address.
func AddressTaken(tx *Tx, domainID, email string) bool {
	key := []byte(AddressKey(domainID, email))
	return engine.NamedBucket(tx, MailboxByAddress.Name()).Get(key) != nil || engine.NamedBucket(tx, Addresses.Name()).Get(key) != nil
}
