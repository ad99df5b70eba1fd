package signin

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// ProfileIn changes the profile of the signed-in user. Absent fields stay as they are; a name that
// is empty, or equal to the address, removes the name.
type ProfileIn struct {
	Name            *string `json:"name" max:"200"`
	Email           *string `json:"email" max:"254"`
	Password        *string `json:"password"`
	CurrentPassword string  `json:"current_password" max:"1024" audit:"-"`
}

// UpdateProfile changes the name, the address or the password of the signed-in user. A new address
// or password needs the current password (403 wrong_password). Only the owner may change their
// address here; the owner changes the addresses of the others. A new password ends all other
// sessions.
func (s *Service) UpdateProfile(ctx context.Context, who core.Actor, in ProfileIn) (*Session, error) {
	if err := in.check(who); err != nil {
		return nil, err
	}
	checkUnchanged, hash := func(*store.Tx, *store.User) error { return nil }, ""
	if in.Email != nil || in.Password != nil {
		var err error
		checkUnchanged, err = s.accounts.ProvePassword(ctx, who, in.CurrentPassword)
		if err != nil {
			return nil, err
		}
	}
	if in.Password != nil {
		hash = s.Logins.Hash(*in.Password)
		if err := s.accounts.RevokeMost(who.UserID, accounts.SessionsExcept(who.TokenID)); err != nil {
			return nil, err
		}
	}
	var out *Session
	err := s.Store.Update(func(tx *store.Tx) error {
		u, t, err := sessionRecords(tx, who)
		if err != nil {
			return err
		}
		if err := checkUnchanged(tx, u); err != nil {
			return err
		}
		if err := in.apply(tx, u, hash, who.TokenID); err != nil {
			return err
		}
		u.UpdatedAt = tx.Now()
		if err := errors.Join(store.Users.Put(tx, u), core.Audit(tx, who, core.UserTarget(u))); err != nil {
			return err
		}
		t, err = store.Tokens.Get(tx, t.ID)
		if err != nil { // t is read again, since a new password changes it
			return err
		}
		out, err = s.sessionOut(tx, u, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	if in.Email != nil || in.Password != nil {
		s.LogOf(ctx).Info("profile changed", "user", who.UserID, "ip", who.IP, "email", in.Email != nil, "password", in.Password != nil)
	}
	return out, nil
}

func (in *ProfileIn) check(who core.Actor) error {
	if in.Name != nil {
		if err := core.CheckLine("name", *in.Name); err != nil {
			return err
		}
	}
	if in.Password != nil {
		if err := core.CheckPassword("password", *in.Password, core.LeastPassword); err != nil {
			return err
		}
	}
	if in.Email == nil {
		return nil
	}
	if who.Role != store.UserRoleOwner {
		return core.Errorf("forbidden_role", "You can change only your own name and password. Ask the account's owner for the rest.")
	}
	email, err := core.NormalizeEmail("email", *in.Email)
	in.Email = &email
	return err
}

func (in *ProfileIn) apply(tx *store.Tx, u *store.User, hash, askingToken string) error {
	if in.Name != nil {
		if err := accounts.SetName(u, *in.Name); err != nil {
			return err
		}
	}
	if in.Email != nil {
		if err := accounts.ChangeEmail(tx, u, *in.Email); err != nil {
			return err
		}
	}
	if in.Password == nil {
		return nil
	}
	return accounts.SetTeamPassword(tx, u, hash, askingToken)
}

// changeSelf changes the record of the signed-in user, and adds a row to the audit log.
func (s *Service) changeSelf(who core.Actor, change func(*store.Tx, *store.User) error) error {
	return s.Store.Update(func(tx *store.Tx) error {
		u, _, err := sessionRecords(tx, who)
		if err != nil {
			return err
		}
		if err := change(tx, u); err != nil {
			return err
		}
		u.UpdatedAt = tx.Now()
		return errors.Join(store.Users.Put(tx, u), core.Audit(tx, who, core.UserTarget(u)))
	})
}
