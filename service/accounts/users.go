package accounts

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// TokenFor is what the operator says to make a token for a team user.
type TokenFor struct {
	User          string
	Permissions   []string
	Name          string
	ExpiresInDays int
}

// CreateTokenFor makes a token that acts as a team user. It is for the operator, on the server
// itself.
func (s *Service) CreateTokenFor(ctx context.Context, in TokenFor) (*TokenCreated, error) {
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
	return s.putToken(ctx, t)
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
		return nil, core.NotFound("team user")
	}
	return u, err
}

// NewPassword is what the operator says to give a team user a new password.
type NewPassword struct {
	User     string
	Password string // "": made here
	NoFactor bool   // the second factor and the passkeys go too
}

// PasswordReset is shown once.
type PasswordReset struct {
	UserID   string `json:"user_id"`
	Email    string `json:"email"`
	Password string `json:"password"`
}

// ResetPassword gives a team user a new password, which ends every session and link of theirs. It
// is for the operator, on the server itself.
func (s *Service) ResetPassword(_ context.Context, in NewPassword) (*PasswordReset, error) {
	if in.Password == "" {
		in.Password = core.NewPassword()
	}
	if err := checkTeamPassword("password", in.Password); err != nil {
		return nil, err
	}
	u, err := s.userByEmail(in.User)
	if err != nil {
		return nil, err
	}
	hash := s.Logins.Hash(in.Password)
	if err := s.revokeMost(u.ID, sessionsBut("")); err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Users.Get(tx, u.ID)
		if err != nil {
			return err
		}
		if err := setTeamPassword(tx, now, hash, ""); err != nil {
			return err
		}
		if in.NoFactor {
			now.TOTP, now.Passkeys = nil, nil
		}
		return store.Users.Put(tx, now)
	})
	if err != nil {
		return nil, err
	}
	return &PasswordReset{u.ID, u.Email, in.Password}, nil
}
