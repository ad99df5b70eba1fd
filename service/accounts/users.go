package accounts

import (
	"context"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// CreateTokenForIn describes a token that the operator makes for a team user.
type CreateTokenForIn struct {
	User          string // email address of the team user
	Permissions   []string
	Name          string
	ExpiresInDays int
}

// CreateTokenFor makes a token that acts as a team user. It is for the operator on the server
// itself.
func (s *Service) CreateTokenFor(ctx context.Context, in CreateTokenForIn) (*TokenCreated, error) {
	u, err := s.userByEmail(in.User)
	if err != nil {
		return nil, err
	}
	body := CreateTokenIn{Name: in.Name, Permissions: &in.Permissions}
	if in.ExpiresInDays != 0 {
		if in.ExpiresInDays < 1 || in.ExpiresInDays > 3650 {
			return nil, core.Invalid("expires_in_days", "out_of_range", "must be from 1 to 3650")
		}
		body.ExpiresInDays = core.Opt[int]{Set: true, Value: in.ExpiresInDays}
	}
	t, err := s.draftToken(core.Actor{AccountID: u.AccountID, UserID: u.ID, Role: u.Role, Permissions: []string{"admin"}}, body)
	if err != nil {
		return nil, err
	}
	return s.putToken(ctx, t, func(tx *store.Tx) error {
		return core.AuditCommand(tx, "token create", t.AccountID, core.TokenTarget(t))
	})
}

func (s *Service) userByEmail(email string) (u *store.User, err error) {
	email, err = core.NormalizeEmail("user", email)
	if err != nil {
		return nil, err
	}
	err = s.Store.View(func(tx *store.Tx) error {
		u, err = store.UserByEmail.Get(tx, email)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, core.Errorf("not_found", "There is no team user %s. Check the address.", email)
	}
	return u, err
}

// ResetPasswordIn describes how the operator resets a team user's password.
type ResetPasswordIn struct {
	User     string // email address of the team user
	Password string // "": generated
	NoFactor bool   // also removes the second factor and the passkeys
}

// PasswordReset is the new password, which is shown only once.
type PasswordReset struct {
	UserID   string `json:"user_id"`
	Email    string `json:"email"`
	Password string `json:"password"`
	Passkeys int    `json:"passkeys"` // how many passkeys still sign in without the password
}

// ResetPassword gives a team user a new password, and ends all their sessions and links. It is for
// the operator on the server itself.
func (s *Service) ResetPassword(_ context.Context, in ResetPasswordIn) (*PasswordReset, error) {
	generated := in.Password == ""
	if generated {
		in.Password = core.NewPassword()
	}
	if err := core.CheckPassword("password", in.Password, core.LeastPassword); err != nil {
		return nil, err
	}
	u, err := s.userByEmail(in.User)
	if err != nil {
		return nil, err
	}
	hash := s.Logins.Hash(in.Password)
	if err := s.RevokeMost(u.ID, SessionsExcept("")); err != nil {
		return nil, err
	}
	passkeys := 0
	err = s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Users.Get(tx, u.ID)
		if err != nil {
			return err
		}
		if err := SetTeamPassword(tx, now, hash, ""); err != nil {
			return err
		}
		now.PasswordGiven = generated
		if in.NoFactor {
			now.TOTP, now.Passkeys = nil, nil
		}
		passkeys = len(now.Passkeys)
		return errors.Join(store.Users.Put(tx, now), core.AuditCommand(tx, "user reset-password", now.AccountID, core.UserTarget(now)))
	})
	if err != nil {
		return nil, err
	}
	return &PasswordReset{u.ID, u.Email, in.Password, passkeys}, nil
}

// SetName sets the first and last name of a user from a full name. Joined with a space, they are
// the full name again.
func SetName(u *store.User, name string) error {
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

// ChangeEmail gives a user another address. If the user is the owner, the account gets this address
// too.
func ChangeEmail(tx *store.Tx, u *store.User, email string) error {
	before := u.Email
	if before == email {
		return nil
	}
	if err := checkAddressFree(tx, email, u.ID); err != nil {
		return err
	}
	u.Email, u.Forgot = email, nil
	if u.Role != store.UserRoleOwner {
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
