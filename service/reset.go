package service

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/mailstead/mailstead/store"
)

// resetFor is how long a link that sets a password lives.
const resetFor = 72 * time.Hour

// newReset gives the user a fresh link that sets a password, in place of any before. Only the hash of its token is kept.
func (s *Service) newReset(u *store.User) (link string) {
	token := randomText(43, base62)
	u.ResetHash, u.ResetExpires = tokenHash(token), s.now().Add(resetFor)
	return s.Config.BaseURL + "/reset?token=" + url.QueryEscape(token)
}

// CheckReset tells for whom a reset link would set a password, and uses nothing up. A link that was used, has expired or
// never was is 404.
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
	hash := s.logins.hash(password)
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
	u, err := store.UserByReset.Get(tx, tokenHash(token))
	if errors.Is(err, store.ErrNotFound) || err == nil && !tx.Now().Before(u.ResetExpires) {
		return nil, Errorf(404, "not_found", "This link was used already, or has expired. Ask whoever invited you to set a password for you.")
	}
	return u, err
}
