package mailboxes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
)

const (
	groupsPerAccount = 10_000
	maxMembers       = 200
	maxGroupSearch   = 10_000 // maximum number of groups that are searched for a loop
)

// A Group is an address whose mail goes to its members.
type Group struct {
	ID        string        `json:"id" words:"ours" example:"grp_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The same as group_id.
	GroupID   string        `json:"group_id" words:"ours"`
	Email     string        `json:"email" words:"ours"`
	Name      string        `json:"name" words:"ours"`
	Members   []GroupMember `json:"members"`
	SendAs    string        `json:"send_as" enum:"members|nobody"` // Who may send as the group.
	CreatedAt core.Time     `json:"created_at"`
	UpdatedAt core.Time     `json:"updated_at"`
}

// A GroupMember is a mailbox, an address elsewhere, or another group.
type GroupMember struct {
	UserID *string `json:"user_id" words:"ours"` // Null for an address elsewhere and for a group.
	Email  string  `json:"email" words:"ours"`
}

func groupOut(tx *store.Tx, g *store.Group) (Group, error) {
	out := Group{
		ID: g.ID, GroupID: g.ID, Email: g.Email, Name: g.Name, Members: []GroupMember{}, SendAs: "nobody",
		CreatedAt: core.Time{Time: g.CreatedAt}, UpdatedAt: core.Time{Time: g.UpdatedAt},
	}
	if g.SendAs {
		out.SendAs = "members"
	}
	for _, m := range store.MembersOfGroup.Asc(tx, g.ID, "") {
		one := GroupMember{Email: m.Email}
		switch {
		case m.MailboxID != "":
			mb, err := store.Mailboxes.Read(tx, m.MailboxID)
			if err != nil {
				return out, err
			}
			one = GroupMember{&mb.ID, mb.Email}
		case m.MemberID != "":
			of, err := store.Groups.Read(tx, m.MemberID)
			if err != nil {
				return out, err
			}
			one.Email = of.Email
		}
		out.Members = append(out.Members, one)
	}
	return out, nil
}

func groupOf(tx *store.Tx, who core.Actor, id string) (*store.Group, error) {
	g, err := store.Groups.Find(tx, id)
	if err == nil && (g == nil || g.AccountID != who.AccountID) {
		return nil, core.NotFound("group")
	}
	return g, err
}

func groupTarget(g *store.Group) store.AuditTarget {
	return store.AuditTarget{Type: "group", ID: g.ID, Name: g.Email}
}

// ListGroupsIn is the query of list_groups.
type ListGroupsIn struct {
	page.Query
	Q string `query:"q" max:"254"` // Text to search for.
}

// ListGroups lists the account's groups, newest first. q is searched in address and name.
func (s *Service) ListGroups(_ context.Context, who core.Actor, in ListGroupsIn) (*page.Page[Group], error) {
	lower := strings.ToLower(in.Q)
	l := page.Listing[store.Group, Group]{
		Operation: "groups", Index: store.GroupsByAccount, Prefix: who.AccountID, Filters: []string{in.Q}, Prefilter: page.HasFolded(lower),
		Keep: func(g *store.Group) bool {
			return in.Q == "" || strings.Contains(strings.ToLower(g.Email), lower) || strings.Contains(strings.ToLower(g.Name), lower)
		},
		Out: groupOut,
		Size: func(g *Group) (n int) {
			for _, m := range g.Members {
				n += len(m.Email)
			}
			return n
		},
	}
	return l.Page(s.Core, who, in.Query)
}

// GroupIn is a request that names one group.
type GroupIn struct {
	GroupID string `path:"group_id"`
}

// GetGroup returns one group.
func (s *Service) GetGroup(_ context.Context, who core.Actor, in GroupIn) (*Group, error) {
	var out Group
	err := s.Store.View(func(tx *store.Tx) error {
		g, err := groupOf(tx, who, in.GroupID)
		if err == nil {
			out, err = groupOut(tx, g)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// A NewMember names a member of a group by user_id or by email.
type NewMember struct {
	UserID string `json:"user_id" log:"true"`
	Email  string `json:"email" rare:"true"`
}

// CreateGroupIn is the body of create_group.
type CreateGroupIn struct {
	Email   string      `json:"email" required:"true" log:"true"`
	Name    string      `json:"name" max:"200"`
	Members []NewMember `json:"members" required:"true"`
	SendAs  string      `json:"send_as" enum:"members|nobody|" log:"true"` // Who may send as the group; nobody by default.
}

// CreateGroup creates a group. The error is email_user_exists if the address is taken, and
// domain_not_ready if the domain is not set up.
func (s *Service) CreateGroup(_ context.Context, who core.Actor, in CreateGroupIn) (*Group, error) {
	email, err := cleanAddress("email", in.Email)
	if err != nil {
		return nil, err
	}
	if err := checkName(in.Name); err != nil {
		return nil, err
	}
	var out Group
	err = s.Store.Update(func(tx *store.Tx) error {
		if store.GroupsByAccount.Count(tx, who.AccountID, groupsPerAccount) >= groupsPerAccount {
			return core.Errorf("too_many_items", "An account is limited to %d groups. Delete one first.", groupsPerAccount)
		}
		d, err := checkFreeAddress(tx, who.AccountID, "email", email)
		if err != nil {
			return err
		}
		g := &store.Group{
			ID: tx.NewID("grp"), AccountID: who.AccountID, DomainID: d.ID, Email: email, Name: in.Name, SendAs: in.SendAs == "members",
			CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
		}
		a := &store.Address{DomainID: d.ID, Email: email, AccountID: who.AccountID, GroupID: g.ID}
		if err := errors.Join(store.Groups.Put(tx, g), store.Addresses.Put(tx, a), core.LiftSuppression(tx, who.AccountID, email)); err != nil {
			return err
		}
		if err := setMembers(tx, g, in.Members); err != nil {
			return err
		}
		out, err = groupOut(tx, g)
		if err != nil {
			return err
		}
		return core.Audit(tx, who, groupTarget(g))
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// UpdateGroupIn is the body of update_group. members replaces the whole list.
type UpdateGroupIn struct {
	GroupID string           `path:"group_id"`
	Name    core.Opt[string] `json:"name" max:"200"`
	Members *[]NewMember     `json:"members"`
	SendAs  *string          `json:"send_as" enum:"members|nobody" log:"true"` // Who may send as the group.
}

// UpdateGroup changes a group.
func (s *Service) UpdateGroup(_ context.Context, who core.Actor, in UpdateGroupIn) (*Group, error) {
	if err := checkName(in.Name.Value); err != nil {
		return nil, err
	}
	var out Group
	err := s.Store.Update(func(tx *store.Tx) error {
		g, err := groupOf(tx, who, in.GroupID)
		if err != nil {
			return err
		}
		if in.Name.Set {
			g.Name = in.Name.Value
		}
		if in.SendAs != nil {
			g.SendAs = *in.SendAs == "members"
		}
		g.UpdatedAt = tx.Now()
		if err := store.Groups.Put(tx, g); err != nil {
			return err
		}
		if in.Members != nil {
			if err := setMembers(tx, g, *in.Members); err != nil {
				return err
			}
		}
		out, err = groupOut(tx, g)
		if err != nil {
			return err
		}
		return core.Audit(tx, who, groupTarget(g))
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// setMembers replaces the members of a group.
func setMembers(tx *store.Tx, g *store.Group, list []NewMember) error {
	if len(list) == 0 {
		return core.Invalid("members", "required", "must name at least one member")
	}
	if len(list) > maxMembers {
		return core.Invalid("members", "too_many_items", "a group can have at most %d, not %d", maxMembers, len(list))
	}
	var wanted []*store.GroupMember
	for i, one := range list {
		m, err := newMember(tx, g, fmt.Sprintf("members.%d", i), one)
		if err != nil {
			return err
		}
		same := func(o *store.GroupMember) bool {
			return o.MailboxID == m.MailboxID && o.MemberID == m.MemberID && o.Email == m.Email
		}
		if !slices.ContainsFunc(wanted, same) {
			m.GroupID, m.AccountID, m.Place = g.ID, g.AccountID, len(wanted)
			wanted = append(wanted, m)
		}
	}
	for place := range maxMembers {
		id := store.GroupMemberID(g.ID, place)
		was, err := store.GroupMembers.FindShared(tx, id)
		switch {
		case err != nil:
		case place >= len(wanted):
			err = store.GroupMembers.Delete(tx, id) // no error if the row does not exist
		case was == nil || *was != *wanted[place]:
			err = store.GroupMembers.Put(tx, wanted[place])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newMember finds the mailbox, group or outside address that a member names. The error is
// group_loop for a group whose mail would come back to g.
func newMember(tx *store.Tx, g *store.Group, field string, in NewMember) (*store.GroupMember, error) {
	if (in.UserID == "") == (in.Email == "") {
		return nil, core.Invalid(field, "invalid", "must have either user_id or email")
	}
	if in.UserID != "" {
		mb, err := store.Mailboxes.FindShared(tx, in.UserID)
		if err == nil && (mb == nil || mb.AccountID != g.AccountID || mb.Gone()) {
			err = core.Invalid(field+".user_id", "not_found", "%.80q is no mailbox of this account", in.UserID)
		}
		if err != nil {
			return nil, err
		}
		return &store.GroupMember{MailboxID: mb.ID}, nil
	}
	email, err := core.NormalizeEmail(field+".email", in.Email)
	if err != nil {
		return nil, err
	}
	d, err := store.DomainOfAccount.Read(tx, store.AccountDomainKey(g.AccountID, core.DomainOfAddress(email)))
	if core.IsGone(err) || err == nil && (d.Gone() || d.DNSProvider == store.DomainProviderExternal) {
		return &store.GroupMember{Email: email}, nil
	}
	if err != nil {
		return nil, err
	}
	key := store.AddressKey(d.ID, email)
	mb, err := store.MailboxByAddress.Find(tx, key)
	if err != nil || mb != nil {
		return &store.GroupMember{MailboxID: idOrNone(mb)}, err
	}
	a, err := store.Addresses.FindShared(tx, key)
	switch {
	case err != nil:
		return nil, err
	case a == nil:
		return nil, core.Invalid(field+".email", "not_found", "%s is not an address of %s: create it first", email, d.Name)
	case a.MailboxID != "":
		return &store.GroupMember{MailboxID: a.MailboxID}, nil
	}
	if loop, err := leadsTo(tx, a.GroupID, g.ID); loop || err != nil {
		if err == nil {
			err = core.Errorf("group_loop", "%s cannot be a member: mail to %s would come back to it.", email, g.Email).With(field+".email", "group_loop", "leads back to this group")
		}
		return nil, err
	}
	return &store.GroupMember{MemberID: a.GroupID}, nil
}

// idOrNone returns the id of a mailbox; "" for nil.
func idOrNone(mb *store.Mailbox) string {
	if mb == nil {
		return ""
	}
	return mb.ID
}

// leadsTo reports whether mail to the group from also goes to the group to. It also returns true if
// it would have to search more than maxGroupSearch groups.
func leadsTo(tx *store.Tx, from, to string) (bool, error) {
	seen, next := map[string]bool{from: true}, []string{from}
	for len(next) > 0 {
		id := next[0]
		next = next[1:]
		if id == to {
			return true, nil
		}
		for _, m := range store.MembersOfGroup.Asc(tx, id, "") {
			if m.MemberID != "" && !seen[m.MemberID] {
				seen[m.MemberID] = true
				next = append(next, m.MemberID)
			}
		}
		if len(seen) > maxGroupSearch || tx.IsLarge() {
			return true, nil
		}
	}
	return false, nil
}

// GroupDeleted is the answer after a group was deleted.
type GroupDeleted struct {
	Message string `json:"message" words:"ours" example:"The group sales@example.com is deleted."` // For people; the text may change.
	ID      string `json:"id" words:"ours" example:"grp_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// DeleteGroup deletes a group and removes it from other groups.
func (s *Service) DeleteGroup(_ context.Context, who core.Actor, in GroupIn) (*GroupDeleted, error) {
	out := &GroupDeleted{ID: in.GroupID}
	err := s.Store.Update(func(tx *store.Tx) error {
		g, err := groupOf(tx, who, in.GroupID)
		if err != nil {
			return err
		}
		out.Message = fmt.Sprintf("The group %s is deleted. Its members keep the mail that they have.", g.Email)
		return errors.Join(dropGroup(tx, g), core.Audit(tx, who, groupTarget(g)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func dropGroup(tx *store.Tx, g *store.Group) error {
	if err := dropMembers(tx, store.MembersOfGroup, g.ID); err != nil {
		return err
	}
	return errors.Join(
		dropMembers(tx, store.MembersByGroup, g.ID),
		store.Addresses.Delete(tx, store.AddressKey(g.DomainID, g.Email)), store.Groups.Delete(tx, g.ID),
	)
}

// EraseAddresses deletes up to limit aliases and groups of a domain that is being deleted, and its
// credentials. more is true if some are left.
func (s *Service) EraseAddresses(tx *store.Tx, domainID string, limit int) (more bool, err error) {
	if err := dropCredentials(tx, store.CredentialsByDomain, domainID); err != nil {
		return false, err
	}
	tx.After(func() { s.RecheckLogins(core.AllLogins) })
	var list []*store.Address
	for _, a := range store.AddressesByDomain.Asc(tx, domainID, "") {
		more = len(list) == limit
		if more {
			break
		}
		list = append(list, a)
	}
	for _, a := range list {
		if a.GroupID == "" {
			err = store.Addresses.Delete(tx, store.AddressKey(a.DomainID, a.Email))
		} else {
			var g *store.Group
			g, err = store.Groups.Get(tx, a.GroupID)
			if err == nil {
				err = dropGroup(tx, g)
			}
		}
		if err != nil {
			return false, err
		}
	}
	return more, nil
}
