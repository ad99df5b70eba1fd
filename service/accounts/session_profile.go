package accounts

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// ProfileIn changes the profile of who asks. What is absent stays; an empty name, or the address,
// takes the name away.
type ProfileIn struct {
	Name            *string `json:"name" max:"200"`
	Email           *string `json:"email" max:"254"`
	Password        *string `json:"password"`
	CurrentPassword string  `json:"current_password" max:"1024"`
}

// UpdateProfile changes the name, the address or the password of who asks; the latter two need the
// present password (403 wrong_password), and the address of others than the owner is the owner's to
// change. A new password ends all other sessions.
func (s *Service) UpdateProfile(ctx context.Context, who core.Actor, in ProfileIn) (*Session, error) {
	if err := in.check(who); err != nil {
		return nil, err
	}
	still, hash := func(*store.User) error { return nil }, ""
	if in.Email != nil || in.Password != nil {
		var err error
		if still, err = s.provePassword(ctx, who, in.CurrentPassword); err != nil {
			return nil, err
		}
	}
	if in.Password != nil {
		hash = s.Logins.Hash(*in.Password)
		if err := s.revokeMost(who.UserID, sessionsBut(who.TokenID)); err != nil {
			return nil, err
		}
	}
	var out *Session
	err := s.Store.Update(func(tx *store.Tx) error {
		u, t, err := sessionRecords(tx, who)
		if err != nil {
			return err
		}
		if err := still(u); err != nil {
			return err
		}
		if err := in.apply(tx, u, hash, who.TokenID); err != nil {
			return err
		}
		u.UpdatedAt = tx.Now()
		if err := store.Users.Put(tx, u); err != nil {
			return err
		}
		out, err = s.sessionOut(tx, u, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	if in.Email != nil || in.Password != nil {
		s.Log.Info("profile changed", "user", who.UserID, "ip", who.IP, "email", in.Email != nil, "password", in.Password != nil)
	}
	return out, nil
}

func (in *ProfileIn) check(who core.Actor) error {
	if in.Name == nil && in.Email == nil && in.Password == nil {
		return core.Errorf("nothing_to_update", "Give at least one of name, email and password.")
	}
	if in.Name != nil {
		if err := core.CheckLine("name", *in.Name); err != nil {
			return err
		}
	}
	if in.Password != nil {
		if err := checkTeamPassword("password", *in.Password); err != nil {
			return err
		}
	}
	if in.Email == nil {
		return nil
	}
	if who.Role != "owner" {
		return core.Errorf("forbidden_role", "You may change your own name and password. Ask the account's owner for the rest.")
	}
	email, err := core.NormalizeEmail("email", *in.Email)
	in.Email = &email
	return err
}

func (in *ProfileIn) apply(tx *store.Tx, u *store.User, hash, askingToken string) error {
	if in.Name != nil {
		if err := setName(u, *in.Name); err != nil {
			return err
		}
	}
	if in.Email != nil {
		if err := moveUser(tx, u, *in.Email); err != nil {
			return err
		}
	}
	if in.Password == nil {
		return nil
	}
	return setTeamPassword(tx, u, hash, askingToken)
}

// setName takes a whole name apart, so that together the parts are it again.
func setName(u *store.User, name string) error {
	words := strings.Fields(name)
	if len(words) == 0 || strings.EqualFold(strings.Join(words, " "), u.Email) {
		u.FirstName, u.LastName = "", ""
		return nil
	}
	last := len(words) - 1
	first, family := strings.Join(words[:last], " "), words[last]
	if last == 0 {
		first, family = family, ""
	}
	if len([]rune(first)) > 100 || len([]rune(family)) > 100 {
		return core.Invalid("name", "out_of_range", "is too long: at most 100 characters before the last word, and 100 in it")
	}
	u.FirstName, u.LastName = first, family
	return nil
}

// moveUser gives a user another address. The account goes by its owner's.
func moveUser(tx *store.Tx, u *store.User, email string) error {
	before := u.Email
	if before == email {
		return nil
	}
	if err := addressFree(tx, email, u.ID); err != nil {
		return err
	}
	u.Email, u.Forgot = email, nil
	if u.Role != "owner" {
		return nil
	}
	a, err := store.Accounts.Get(tx, u.AccountID)
	if err != nil {
		return err
	}
	if a.Name == before {
		a.Name = email
	}
	a.Email, a.UpdatedAt = email, tx.Now()
	return store.Accounts.Put(tx, a)
}

// provePassword verifies the password of who is signed in; still makes sure, in the transaction
// that follows, that it is the password by then. A wrong one is 403 wrong_password, and counts like
// one at the door.
func (s *Service) provePassword(ctx context.Context, who core.Actor, password string) (still func(*store.User) error, err error) {
	if password == "" {
		return nil, core.Invalid("current_password", "required", "give your present password")
	}
	u, err := s.userToSignIn(who.Email)
	if err != nil {
		return nil, err
	}
	key, from := userKey(who.Email), s.originOf(u, who.IP)
	done, err := s.LoginAttempts.Begin(ctx, key, from, s.Now)
	if err != nil {
		return nil, err
	}
	defer done()
	if u, err = s.userToSignIn(who.Email); err != nil {
		return nil, err
	}
	right, err := s.Logins.Verify(ctx, u.PasswordHash, password, from, s.Now())
	if err != nil {
		return nil, err
	}
	if u.ID != who.UserID || !right {
		s.RecordWrongPassword(key, from.Network)
		return nil, core.Errorf("wrong_password", "This is not your present password.")
	}
	s.LoginAttempts.RecordSuccess(key, from.Network)
	return rightPassword(u.PasswordHash), nil
}

// changeSelf changes the record of who is signed in.
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
		return store.Users.Put(tx, u)
	})
}
