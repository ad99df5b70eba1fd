package accounts

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// resetFor is how long a link that sets a password lives.
const resetFor = 72 * time.Hour

// newReset gives the user a fresh link that sets a password, in place of any before. Only the hash
// of its token is kept.
func (s *Service) newReset(u *store.User) (link string) {
	return s.Config.BaseURL + "/reset?token=" + url.QueryEscape(s.newResetToken(u))
}

func (s *Service) newResetToken(u *store.User) string {
	token := core.RandomText(43, core.Base62)
	u.ResetHash, u.ResetExpires = core.TokenHash(token), s.Now().Add(resetFor)
	return token
}

// dropLinks ends every link that could set the user's password.
func dropLinks(u *store.User) { u.ResetHash, u.ResetExpires, u.Forgot = "", time.Time{}, nil }

// CheckReset tells for whom a reset link would set a password, and uses nothing up. A link that was
// used, has expired or never was is 404.
func (s *Service) CheckReset(_ context.Context, token string) (email string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		u, err := userByReset(tx, token)
		if err == nil {
			email = u.Email
		}
		return err
	})
	return email, err
}

// CompleteReset sets the password of the one whose reset link it is, and uses the link up.
func (s *Service) CompleteReset(ctx context.Context, token, password string) error {
	if _, err := s.CheckReset(ctx, token); err != nil {
		return err // before the hash, which takes its time
	}
	if err := checkTeamPassword("password", password); err != nil {
		return err
	}
	hash := s.Logins.Hash(password)
	var id string
	err := s.Store.View(func(tx *store.Tx) error {
		u, err := userByReset(tx, token)
		if err == nil {
			id = u.ID
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.revokeMost(id, sessionsBut("")); err != nil {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		u, err := userByReset(tx, token)
		if err != nil {
			return err
		}
		if err := setTeamPassword(tx, u, hash, ""); err != nil {
			return err
		}
		return store.Users.Put(tx, u)
	})
}

func userByReset(tx *store.Tx, token string) (*store.User, error) {
	hash, dead := core.TokenHash(token), true
	u, err := store.UserByReset.Get(tx, hash)
	if err == nil {
		dead = !tx.Now().Before(u.ResetExpires)
	}
	if errors.Is(err, store.ErrNotFound) {
		if u, err = store.UserByForgot.Get(tx, hash); err == nil {
			dead = !tx.Now().Before(u.Forgot.Expires)
		}
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && dead {
		return nil, core.Errorf("not_found", "This link was used already, or has expired. Ask for another where you sign in, or whoever invited you.")
	}
	return u, err
}
