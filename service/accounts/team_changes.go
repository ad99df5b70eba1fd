package accounts

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// UpdateTeamUserIn is the body of update_team_user. Null takes a name away.
type UpdateTeamUserIn struct {
	UserID    string           `path:"user_id"`
	Email     *string          `json:"email" max:"254"`
	Password  *string          `json:"password"`
	FirstName core.Opt[string] `json:"first_name" max:"100"`
	LastName  core.Opt[string] `json:"last_name" max:"100"`
	Role      *string          `json:"role" enum:"admin|member"`
}

// TeamUserUpdated is a team user after a change.
type TeamUserUpdated struct {
	Success      bool    `json:"success"`
	ID           string  `json:"id" words:"ours"`
	Email        string  `json:"email" words:"ours"`
	DisplayName  string  `json:"display_name" words:"ours"`
	FirstName    *string `json:"first_name" words:"ours"`
	LastName     *string `json:"last_name" words:"ours"`
	Role         string  `json:"role" enum:"admin|member"`
	IsAdmin      bool    `json:"is_admin"`
	IsSuperadmin bool    `json:"is_superadmin"`
	Message      string  `json:"message" words:"ours"`
}

// UpdateTeamUser changes a team user. The owner may change everyone but the owner, an admin
// members, and everyone may change their own name and password. A new password ends the user's
// sessions.
func (s *Service) UpdateTeamUser(_ context.Context, who core.Actor, in UpdateTeamUserIn) (*TeamUserUpdated, error) {
	if err := in.permit(who); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	find := func(tx *store.Tx) (*store.User, error) {
		u, err := teamUserOf(tx, who, in.UserID)
		if err == nil && who.Role != "owner" && u.Role != "member" && u.ID != who.UserID {
			err = membersOnly()
		}
		if err == nil && in.Email != nil {
			err = addressFree(tx, *in.Email, u.ID)
		}
		return u, err
	}
	hash, err := s.hashIfFound(in.Password, find)
	if err != nil {
		return nil, err
	}
	if in.Password != nil {
		if err := s.revokeMost(in.UserID, sessionsBut(who.TokenID)); err != nil {
			return nil, err
		}
	}
	var out *TeamUserUpdated
	err = s.Store.Update(func(tx *store.Tx) error {
		u, err := find(tx)
		if err != nil {
			return err
		}
		in.apply(u)
		if in.Password != nil {
			if err := setTeamPassword(tx, u, hash, who.TokenID); err != nil {
				return err
			}
		}
		u.UpdatedAt = tx.Now()
		out = teamUserUpdated(u)
		return store.Users.Put(tx, u)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// permit is what the table of operations cannot say: others need the admin scope and a role above
// member, and of themselves people may change their name and password only.
func (in *UpdateTeamUserIn) permit(who core.Actor) error {
	switch {
	case who.Role == "owner" && (who.Can("admin") || in.UserID == who.UserID):
		return nil
	case in.UserID == who.UserID:
		if in.Email != nil || in.Role != nil {
			return core.Errorf("forbidden_role", "You may change your own name and password. Ask the account's owner for the rest.")
		}
		return nil
	case !who.Can("admin"):
		return core.Errorf("insufficient_scope", "Changing somebody else needs the \"admin\" permission. Use a token that has it.")
	case who.Role != "admin":
		return core.Errorf("forbidden_role", "The role %q may change its own name and password only. Ask the account's owner or an admin.", who.Role)
	case in.Role != nil && *in.Role == "admin":
		return core.Errorf("forbidden_role", "Only the account's owner may make somebody an admin.")
	}
	return nil
}

// check looks at the fields on their own, and brings the address into the form in which it is kept.
func (in *UpdateTeamUserIn) check() error {
	if in.Email == nil && in.Password == nil && in.Role == nil && !in.FirstName.Set && !in.LastName.Set {
		return core.Errorf("nothing_to_update", "Give at least one of email, password, first_name, last_name and role.")
	}
	if err := core.CheckLine("first_name", in.FirstName.Value); err != nil {
		return err
	}
	if err := core.CheckLine("last_name", in.LastName.Value); err != nil {
		return err
	}
	if in.Password != nil {
		if err := checkTeamPassword("password", *in.Password); err != nil {
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

// hashIfFound hashes a new password, if there is one, once it is known that there is somebody who
// may have it.
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

func (in *UpdateTeamUserIn) apply(u *store.User) {
	if in.Email != nil && u.Email != *in.Email {
		u.Email, u.Forgot = *in.Email, nil // a link that was sent to the address before is not for whoever has it
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
}

// setTeamPassword gives a user a password that somebody chose. What could set or replace the one
// before, the reset link and every session but the asking one, ends.
func setTeamPassword(tx *store.Tx, u *store.User, hash, askingToken string) error {
	u.PasswordHash, u.Status, u.UpdatedAt = hash, "active", tx.Now()
	dropLinks(u)
	return revokeTokens(tx, u.ID, sessionsBut(askingToken))
}

// sessionsBut are all sessions but the one of the id.
func sessionsBut(asking string) func(*store.Token) bool {
	return func(t *store.Token) bool { return t.Kind == core.SessionKind && t.ID != asking }
}

func teamUserUpdated(u *store.User) *TeamUserUpdated {
	t := teamUserOut(u)
	return &TeamUserUpdated{
		Success: true, ID: t.ID, Email: t.Email, DisplayName: t.DisplayName, FirstName: t.FirstName, LastName: t.LastName,
		Role: t.Role, IsAdmin: t.IsAdmin, IsSuperadmin: t.IsSuperadmin, Message: t.Email + " is changed.",
	}
}
