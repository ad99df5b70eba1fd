package accounts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"strings"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A TeamUser is a person of the account's team as the API shows them.
type TeamUser struct {
	ID           string    `json:"id" words:"ours" example:"usr_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Email        string    `json:"email" words:"ours"`
	DisplayName  string    `json:"display_name" words:"ours"`
	FirstName    *string   `json:"first_name" words:"ours"`
	LastName     *string   `json:"last_name" words:"ours"`
	Role         string    `json:"role" enum:"owner|admin|member"`
	IsAdmin      bool      `json:"is_admin"`
	IsSuperadmin bool      `json:"is_superadmin"`
	Operator     bool      `json:"operator"` // Whether they run the installation: its settings, backups and accounts.
	Status       string    `json:"status" enum:"invited|active"`
	LastLoginAt  core.Time `json:"last_login_at"`
	InvitedBy    *string   `json:"invited_by" words:"ours"`
	CreatedAt    core.Time `json:"created_at"`
	UpdatedAt    core.Time `json:"updated_at"`

	Mailboxes MailboxScope `json:"mailboxes" words:"ours"`
}

func teamUserOut(tx *store.Tx, u *store.User) (TeamUser, error) {
	scope, err := liveScope(tx, u)
	operator, operatorErr := core.IsOperator(tx, u)
	return TeamUser{
		Mailboxes: scope,
		ID:        u.ID, Email: u.Email, DisplayName: DisplayName(u), FirstName: core.OrNull(u.FirstName), LastName: core.OrNull(u.LastName),
		Role: u.Role, IsAdmin: u.Role != store.UserRoleMember, IsSuperadmin: u.Role == store.UserRoleOwner, Operator: operator, Status: u.Status,
		LastLoginAt: core.Time{Time: u.LastLoginAt}, InvitedBy: core.OrNull(u.InvitedBy), CreatedAt: core.Time{Time: u.CreatedAt}, UpdatedAt: core.Time{Time: u.UpdatedAt},
	}, errors.Join(err, operatorErr)
}

// DisplayName returns the name of a team user, or the address if there is no name.
func DisplayName(u *store.User) string {
	return cmp.Or(strings.TrimSpace(u.FirstName+" "+u.LastName), u.Email)
}

// TeamUserList is the whole team.
type TeamUserList struct {
	Users []TeamUser `json:"users"`
	Total int        `json:"total"`
}

// roleOrder is the order of roles in the list.
var roleOrder = []string{store.UserRoleOwner, store.UserRoleAdmin, store.UserRoleMember}

// ListTeamUsers lists the owner, then the admins, then the members, each by address.
func (s *Service) ListTeamUsers(_ context.Context, who core.Actor) (*TeamUserList, error) {
	out := &TeamUserList{Users: []TeamUser{}}
	err := s.Store.View(func(tx *store.Tx) error {
		for _, u := range store.UsersByAccount.Asc(tx, who.AccountID, "") {
			shown, err := teamUserOut(tx, u)
			if err != nil {
				return err
			}
			out.Users = append(out.Users, shown)
		}
		return nil
	})
	sort.Slice(out.Users, func(i, j int) bool {
		a, b := out.Users[i], out.Users[j]
		return cmp.Or(cmp.Compare(slices.Index(roleOrder, a.Role), slices.Index(roleOrder, b.Role)), cmp.Compare(a.Email, b.Email)) < 0
	})
	out.Total = len(out.Users)
	return out, err
}

// InviteTeamUserIn is the body of invite_team_user.
type InviteTeamUserIn struct {
	Email     string  `json:"email" required:"true" max:"254"`
	Password  *string `json:"password"`
	FirstName string  `json:"first_name" max:"100"`
	LastName  string  `json:"last_name" max:"100"`
	Role      *string `json:"role" enum:"admin|member" log:"true"`

	Mailboxes *MailboxScope `json:"mailboxes" log:"true"`  // `all`, or the ids of the mailboxes that a member sees.
	SendEmail bool          `json:"send_email" log:"true"` // Whether the link that sets a password is mailed, which is for an address elsewhere.
}

// TeamUserInvited is a new team user. ResetLink is present if no password was given: whoever has
// the link chooses one, once.
type TeamUserInvited struct {
	Success   bool    `json:"success"`
	ID        string  `json:"id" words:"ours" example:"usr_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Email     string  `json:"email" words:"ours"`
	Role      string  `json:"role" enum:"admin|member"`
	FirstName *string `json:"first_name" words:"ours"`
	LastName  *string `json:"last_name" words:"ours"`
	// A link to choose a password, valid once within 72 hours. Only present if no password was
	// given.
	ResetLink string `json:"reset_link,omitempty" words:"ours"`
	Message   string `json:"message" words:"ours" example:"They can sign in with the link."` // For people; the text may change.

	Mailboxes       MailboxScope `json:"mailboxes" words:"ours"`
	PasswordWarning *string      `json:"password_warning" words:"ours" rare:"true"` // What should be better about the password that was given; null otherwise.
}

// InviteTeamUser adds a person to the team, as a member unless a role is given. Admins may add only
// members.
func (s *Service) InviteTeamUser(_ context.Context, who core.Actor, in InviteTeamUserIn) (*TeamUserInvited, error) {
	u, err := s.draftUser(who, in)
	if err != nil {
		return nil, err
	}
	check := func(tx *store.Tx) error {
		err := errors.Join(s.checkRoomForUser(tx, u), checkMailboxesExist(tx, u))
		if err == nil && in.SendEmail {
			err = s.mayMailLink(tx, u)
		}
		return err
	}
	if err := s.Store.View(check); err != nil {
		return nil, err // before the slow hash
	}
	link, password := "", core.NewPassword()
	if in.Password != nil {
		password, u.Status, u.PasswordGiven = *in.Password, store.UserActive, true
	} else {
		link = s.NewResetLink(u)
	}
	u.PasswordHash = s.Logins.Hash(password)
	reads := ""
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := check(tx); err != nil {
			return err
		}
		u.ID, u.CreatedAt, u.UpdatedAt = tx.NewID("usr"), tx.Now(), tx.Now()
		reads, err = readableMailText(tx, u)
		if err != nil {
			return err
		}
		if in.SendEmail {
			_, err := s.Queue.Add(tx, jobs.New{Kind: kindInvitation, Lane: "password_mail", Args: invitationArgs{u.ID, who.Email}})
			if err != nil {
				return err
			}
		}
		return errors.Join(store.Users.Put(tx, u), core.Audit(tx, who, core.UserTarget(u)))
	})
	if err != nil {
		return nil, err
	}
	out := &TeamUserInvited{
		Success: true, ID: u.ID, Email: u.Email, Role: u.Role, FirstName: core.OrNull(u.FirstName), LastName: core.OrNull(u.LastName),
		ResetLink: link, Mailboxes: userScope(u), Message: u.Email + " is now in the team and can sign in with the password that you set. " + reads,
	}
	if in.Password != nil {
		out.PasswordWarning = core.OrNull(core.ShortPassword(*in.Password))
	}
	switch {
	case in.SendEmail:
		out.Message = u.Email + " is now in the team. A link is on its way to them: it lets them choose a password once, within 72 hours. " + reads
	case link != "":
		out.Message = u.Email + " is now in the team. Send them reset_link: it lets them choose a password once, within 72 hours. " + reads
	}
	return out, nil
}

// draftUser checks the fields of an invitation and returns the new user, without reading the store.
func (s *Service) draftUser(who core.Actor, in InviteTeamUserIn) (*store.User, error) {
	u := &store.User{AccountID: who.AccountID, FirstName: in.FirstName, LastName: in.LastName, Role: store.UserRoleMember, Status: store.UserInvited, InvitedBy: who.UserID}
	if in.Role != nil {
		u.Role = *in.Role
	}
	if u.Role == store.UserRoleAdmin && who.Role != store.UserRoleOwner {
		return nil, core.Errorf("forbidden_role", "Only the account's owner can make a user an admin. Invite a member, or ask the owner.")
	}
	var err error
	u.Email, err = core.NormalizeEmail("email", in.Email)
	if err != nil {
		return nil, err
	}
	if err := core.CheckLine("first_name", in.FirstName); err != nil {
		return nil, err
	}
	if err := core.CheckLine("last_name", in.LastName); err != nil {
		return nil, err
	}
	if in.SendEmail && in.Password != nil {
		return nil, core.Invalid("send_email", "conflict", "mails a link that sets the password; leave the password out")
	}
	if in.Mailboxes != nil {
		if err := in.Mailboxes.applyTo(u); err != nil {
			return nil, err
		}
	}
	if in.Password != nil {
		err = core.CheckPassword("password", *in.Password, minGivenPassword)
	}
	return u, err
}

// checkRoomForUser checks that the address is free in the whole installation, and that the team has
// room.
func (s *Service) checkRoomForUser(tx *store.Tx, u *store.User) error {
	if err := checkAddressFree(tx, u.Email, ""); err != nil {
		return err
	}
	a, err := store.Accounts.Read(tx, u.AccountID)
	if err != nil {
		return err
	}
	n := s.LimitsOf(a).TeamUsers
	if n > 0 && store.UsersByAccount.Count(tx, u.AccountID, n) >= n {
		return core.Errorf("user_limit_reached", "This account is limited to %d team users, its owner included. Delete one first.", n)
	}
	return nil
}

// checkAddressFree returns an error if another user than id has the address.
func checkAddressFree(tx *store.Tx, email, id string) error {
	u, err := store.UserByEmail.Get(tx, email)
	if errors.Is(err, store.ErrNotFound) || err == nil && u.ID == id {
		return nil
	}
	if err != nil {
		return err
	}
	return core.Errorf("email_already_exists", "%s belongs to a team user already. Use another address.", email).With("email", "email_already_exists", "is taken")
}

// minGivenPassword is the shortest password that somebody may set for another team user. One that
// is shorter than core.LeastPassword is accepted with a warning.
const minGivenPassword = 6

// TeamUserIn names one team user.
type TeamUserIn struct {
	UserID string `path:"user_id"`
}

// TeamUserDeleted confirms that a team user was deleted.
type TeamUserDeleted struct {
	Success bool   `json:"success"`
	ID      string `json:"id" words:"ours" example:"usr_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Deleted bool   `json:"deleted"`
	Message string `json:"message" words:"ours" example:"The team user is deleted."` // For people; the text may change.
}

// DeleteTeamUser removes a person from the team, and revokes their tokens.
func (s *Service) DeleteTeamUser(_ context.Context, who core.Actor, in TeamUserIn) (*TeamUserDeleted, error) {
	var email string
	all := func(*store.Token) bool { return true }
	find := func(tx *store.Tx) (*store.User, error) {
		u, err := editableTeamUser(tx, who, in.UserID)
		if err == nil && who.Role != store.UserRoleOwner && u.Role != store.UserRoleMember {
			err = errMembersOnly()
		}
		return u, err
	}
	err := s.Store.View(func(tx *store.Tx) error {
		_, err := find(tx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := s.RevokeMost(in.UserID, all); err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		u, err := find(tx)
		if err != nil {
			return err
		}
		if err := RevokeTokens(tx, u.ID, all); err != nil {
			return err
		}
		email = u.Email
		return errors.Join(store.Users.Delete(tx, u.ID), core.Audit(tx, who, core.UserTarget(u)))
	})
	if err != nil {
		return nil, err
	}
	return &TeamUserDeleted{true, in.UserID, true, email + " is no longer in the team, and their tokens are revoked."}, nil
}

func errMembersOnly() *core.Error {
	return core.Errorf("forbidden_role", "An admin can change and delete only members. Ask the account's owner.")
}

// editableTeamUser returns a team user who may be changed: one of the same account, but not its
// owner.
func editableTeamUser(tx *store.Tx, who core.Actor, id string) (*store.User, error) {
	u, err := store.Users.Find(tx, id)
	switch {
	case err != nil:
		return nil, err
	case u == nil:
		return nil, core.NotFound("team user")
	case u.AccountID != who.AccountID:
		return nil, core.Errorf("user_not_in_account", "This team user belongs to another account. Check the id.")
	case u.Role == store.UserRoleOwner:
		return nil, core.Errorf("owner_protected", "The account's owner can be neither changed nor deleted here.")
	}
	return u, nil
}

// UpdateTeamUserIn is the body of update_team_user. Null removes a name.
type UpdateTeamUserIn struct {
	UserID    string           `path:"user_id"`
	Email     *string          `json:"email" max:"254"`
	Password  *string          `json:"password"`
	Current   string           `json:"current_password" max:"1024" audit:"-"` // Your current password; needed when you change your own in a session.
	FirstName core.Opt[string] `json:"first_name" max:"100"`
	LastName  core.Opt[string] `json:"last_name" max:"100"`
	Role      *string          `json:"role" enum:"admin|member" log:"true"`
	Mailboxes *MailboxScope    `json:"mailboxes" log:"true"` // `all`, or the ids of the mailboxes that a member sees.
	// Whether an admin of the installation's first account runs the installation: its settings,
	// backups and accounts. Only the owner of that account can change this.
	Operator *bool `json:"operator" log:"true"`
}

// TeamUserUpdated is a team user after a change.
type TeamUserUpdated struct {
	Success      bool    `json:"success"`
	ID           string  `json:"id" words:"ours" example:"usr_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Email        string  `json:"email" words:"ours"`
	DisplayName  string  `json:"display_name" words:"ours"`
	FirstName    *string `json:"first_name" words:"ours"`
	LastName     *string `json:"last_name" words:"ours"`
	Role         string  `json:"role" enum:"admin|member"`
	IsAdmin      bool    `json:"is_admin"`
	IsSuperadmin bool    `json:"is_superadmin"`
	Operator     bool    `json:"operator"`                                                 // Whether they run the installation: its settings, backups and accounts.
	Message      string  `json:"message" words:"ours" example:"The team user is changed."` // For people; the text may change.

	Mailboxes       MailboxScope `json:"mailboxes" words:"ours"`
	PasswordWarning *string      `json:"password_warning" words:"ours" rare:"true"` // What should be better about the password that was given; null otherwise.
}

// UpdateTeamUser changes a team user. The owner may change everyone except the owner, an admin may
// change members, and everyone may change their own name and password. A new password ends the
// user's sessions.
func (s *Service) UpdateTeamUser(ctx context.Context, who core.Actor, in UpdateTeamUserIn) (*TeamUserUpdated, error) {
	if err := in.checkPermitted(who); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	find := func(tx *store.Tx) (*store.User, error) {
		u, err := editableTeamUser(tx, who, in.UserID)
		if err == nil && who.Role != store.UserRoleOwner && u.Role != store.UserRoleMember && u.ID != who.UserID {
			err = errMembersOnly()
		}
		if err == nil {
			err = in.checkOperator(tx, who, u)
		}
		if err == nil && in.Email != nil {
			err = checkAddressFree(tx, *in.Email, u.ID)
		}
		return u, err
	}
	checkUnchanged, chosen := func(*store.Tx, *store.User) error { return nil }, false
	if in.Password != nil && who.TokenKind == core.SessionKind && in.UserID == who.UserID {
		var err error
		checkUnchanged, err = s.ProvePassword(ctx, who, in.Current)
		if err != nil {
			return nil, err
		}
		chosen = true
	}
	hash, err := s.hashIfFound(in.Password, find)
	if err != nil {
		return nil, err
	}
	if in.Password != nil {
		if err := s.RevokeMost(in.UserID, SessionsExcept(who.TokenID)); err != nil {
			return nil, err
		}
	}
	var out *TeamUserUpdated
	err = s.Store.Update(func(tx *store.Tx) error {
		u, err := find(tx)
		if err != nil {
			return err
		}
		if err := in.apply(tx, u); err != nil {
			return err
		}
		if in.Password != nil {
			if err := errors.Join(checkUnchanged(tx, u), SetTeamPassword(tx, u, hash, who.TokenID)); err != nil {
				return err
			}
			if !chosen {
				u.PasswordGiven = !who.IsPerson() && who.TokenID != core.LocalToken
			}
		}
		u.UpdatedAt = tx.Now()
		out, err = teamUserUpdated(tx, u)
		if err != nil {
			return err
		}
		if in.Password != nil {
			out.PasswordWarning = core.OrNull(core.ShortPassword(*in.Password))
		}
		return errors.Join(store.Users.Put(tx, u), core.Audit(tx, who, core.UserTarget(u)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// checkPermitted checks what the table of operations cannot express. Changing other users needs the
// admin scope and a role above member. People may change only their own name and password.
func (in *UpdateTeamUserIn) checkPermitted(who core.Actor) error {
	if in.Password != nil && !who.Can("admin") && (who.TokenKind != core.SessionKind || in.UserID != who.UserID) {
		return core.Errorf("insufficient_scope", "Setting a password needs the \"admin\" permission. Use a token that has it, or sign in to change your own.")
	}
	switch {
	case who.Role == store.UserRoleOwner && (who.Can("admin") || in.UserID == who.UserID):
		return nil
	case in.UserID == who.UserID:
		if in.Email != nil || in.Role != nil || in.Mailboxes != nil || in.Operator != nil {
			return core.Errorf("forbidden_role", "You can change only your own name and password. Ask the account's owner for the rest.")
		}
		return nil
	case !who.Can("admin"):
		return core.Errorf("insufficient_scope", "Changing another user needs the \"admin\" permission. Use a token that has it.")
	case who.Role != store.UserRoleAdmin:
		return core.Errorf("forbidden_role", "The role %q can change only its own name and password. Ask the account's owner or an admin.", who.Role)
	case in.Role != nil && *in.Role == store.UserRoleAdmin:
		return core.Errorf("forbidden_role", "Only the account's owner can make a user an admin.")
	case in.Operator != nil:
		return core.Errorf("forbidden_role", "Only the account's owner can let an admin run the installation.")
	}
	return nil
}

// checkOperator returns an error if the change makes u run the installation, or changes how such a
// user signs in, unless the caller may change the installation. Else a token could do by way of
// that user what no token may. People in a session prove their own password instead.
func (in *UpdateTeamUserIn) checkOperator(tx *store.Tx, who core.Actor, u *store.User) error {
	runs, err := core.IsOperator(tx, u)
	self := who.TokenKind == core.SessionKind && in.UserID == who.UserID
	switch {
	case err != nil || who.TokenID == core.LocalToken:
		return err
	case (in.Operator == nil || !*in.Operator) && (!runs || self || in.Email == nil && in.Password == nil):
		return nil
	case !who.IsPerson():
		return core.Errorf("person_required", "Only a person may say who runs the installation, or change how they sign in: the owner, signed in to the dashboard with a password of their own choice.")
	case !who.SignedInNow:
		return core.Errorf("sign_in_again", "You signed in more than 15 minutes ago. Sign in again, since this concerns the whole installation.")
	}
	return nil
}

// check validates each field, and normalizes the address.
func (in *UpdateTeamUserIn) check() error {
	if err := core.CheckLine("first_name", in.FirstName.Value); err != nil {
		return err
	}
	if err := core.CheckLine("last_name", in.LastName.Value); err != nil {
		return err
	}
	if in.Password != nil {
		if err := core.CheckPassword("password", *in.Password, minGivenPassword); err != nil {
			return err
		}
	}
	if in.Email == nil {
		return nil
	}
	email, err := core.NormalizeEmail("email", *in.Email)
	in.Email = &email
	return err
}

// hashIfFound hashes a new password, if one is given. find is called first and returns an error
// unless its user exists and may get the password, so that no time is spent on hashing in vain.
func (s *Service) hashIfFound(password *string, find func(*store.Tx) (*store.User, error)) (hash string, err error) {
	if password == nil {
		return "", nil
	}
	err = s.Store.View(func(tx *store.Tx) error {
		_, err := find(tx)
		return err
	})
	if err != nil {
		return "", err
	}
	return s.Logins.Hash(*password), nil
}

func (in *UpdateTeamUserIn) apply(tx *store.Tx, u *store.User) error {
	if in.Email != nil && u.Email != *in.Email {
		u.Email, u.Forgot = *in.Email, nil // a link that was sent to the old address must not work any more
	}
	if in.FirstName.Set {
		u.FirstName = in.FirstName.Value
	}
	if in.LastName.Set {
		u.LastName = in.LastName.Value
	}
	if in.Role != nil {
		u.Role = *in.Role
	}
	if in.Operator != nil {
		u.Operator = *in.Operator
		if may, err := core.IsOperator(tx, u); err != nil || u.Operator && !may {
			return cmp.Or(err, error(core.Invalid("operator", "not_allowed", "only admins of the installation's first account can run it")))
		}
	}
	u.Operator = u.Operator && u.Role == store.UserRoleAdmin
	if in.Mailboxes == nil {
		if u.Role != store.UserRoleMember {
			u.Limited, u.Mailboxes = false, nil
		}
		return nil
	}
	return errors.Join(in.Mailboxes.applyTo(u), checkMailboxesExist(tx, u))
}

func teamUserUpdated(tx *store.Tx, u *store.User) (*TeamUserUpdated, error) {
	t, err := teamUserOut(tx, u)
	return &TeamUserUpdated{
		Success: true, ID: t.ID, Email: t.Email, DisplayName: t.DisplayName, FirstName: t.FirstName, LastName: t.LastName,
		Role: t.Role, IsAdmin: t.IsAdmin, IsSuperadmin: t.IsSuperadmin, Operator: t.Operator, Mailboxes: t.Mailboxes, Message: t.Email + " is changed.",
	}, err
}
