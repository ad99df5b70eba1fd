package store

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An Address is one that mail comes to, and that no mailbox has as its own: an alias of a mailbox,
// or the address of a group.
type Address struct {
	DomainID  string
	Email     string // lower-case
	AccountID string
	MailboxID string // "": it is a group's
	GroupID   string // "": it is an alias
}

// Addresses keeps them. An address that a mailbox has as its own is not in it: who adds one looks
// in MailboxByAddress too.
var (
	Addresses = engine.NewTable("address", func(a *Address) string { return AddressKey(a.DomainID, a.Email) }).
			Watched(func(_ *engine.Tx, a *Address) Change { return Change{Account: a.AccountID, ID: a.Email} })
	AddressesByMailbox = Addresses.Index("mailbox", func(a *Address) string { return a.MailboxID })
	AddressesByDomain  = Addresses.Index("domain", func(a *Address) string { return a.DomainID })
)

// FindAddress gives the alias or group of an address: of the domain whose claim of the name is
// proven; nil if there is none. Others share it.
func FindAddress(tx *Tx, email string) (*Address, error) {
	return Addresses.FindShared(tx, addressKey(tx, email))
}

// A Group is an address whose mail goes to its members.
type Group struct {
	ID        string // grp_…
	AccountID string
	DomainID  string
	Email     string // lower-case
	Name      string
	SendAs    bool // its members may send as the group
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Groups keeps the groups of every account.
var (
	Groups = engine.NewTable("group", func(g *Group) string { return g.ID }).
		Watched(func(_ *engine.Tx, g *Group) Change { return Change{Account: g.AccountID, ID: g.ID} })
	GroupsByAccount = Groups.Index("account", func(g *Group) string { return g.AccountID })
)

// A GroupMember is a mailbox, another group or an address elsewhere that is in a group.
type GroupMember struct {
	GroupID   string
	Place     int // in the list of members, from 0
	AccountID string
	MailboxID string // "": it is no mailbox
	MemberID  string // of a group; "": it is none
	Email     string // of an address elsewhere; "": it is a mailbox or a group
}

// GroupMembers keeps them, each group's in their order.
var (
	GroupMembers     = engine.NewTable("group_member", func(m *GroupMember) string { return MemberID(m.GroupID, m.Place) })
	MembersOfGroup   = GroupMembers.Index("group", func(m *GroupMember) string { return m.GroupID })
	MembersByMailbox = GroupMembers.Index("mailbox", func(m *GroupMember) string { return m.MailboxID })
	MembersByGroup   = GroupMembers.Index("member", func(m *GroupMember) string { return m.MemberID })
)

// MemberID is the id of a member of a group, by its place there.
func MemberID(groupID string, place int) string { return fmt.Sprintf("%s%05d", groupID, place) }

// AddressTaken tells whether a mailbox, an alias or a group of a domain has an address.
func AddressTaken(tx *Tx, domainID, email string) bool {
	key := []byte(AddressKey(domainID, email))
	return engine.NamedBucket(tx, MailboxByAddress.Name()).Get(key) != nil || engine.NamedBucket(tx, Addresses.Name()).Get(key) != nil
}
