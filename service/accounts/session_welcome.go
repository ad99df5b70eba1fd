package accounts

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// LinkIn names a link by its token.
type LinkIn struct {
	Token string `query:"token" required:"true" max:"100"`
}

// A Welcome says for whom a link is. Name is "" where none is known.
type Welcome struct {
	Email          string `json:"email"`
	Name           string `json:"name"`
	MayChangeEmail bool   `json:"may_change_email"`
}

// CheckWelcome tells for whom a link would set a password, and uses nothing up. A dead link is 404.
func (s *Service) CheckWelcome(_ context.Context, _ core.Actor, in LinkIn) (*Welcome, error) {
	var out *Welcome
	err := s.Store.View(func(tx *store.Tx) error {
		u, err := userByReset(tx, in.Token)
		if err == nil {
			out = &Welcome{Email: u.Email, MayChangeEmail: mayChooseEmail(u)}
			if name := displayName(u); name != u.Email {
				out.Name = name
			}
		}
		return err
	})
	return out, err
}

// mayChooseEmail tells whether the link of a first start is for somebody whose address was made up,
// or typed in haste.
func mayChooseEmail(u *store.User) bool { return u.Role == "owner" && u.LastLoginAt.IsZero() }

// WelcomeIn sets the password of the one whose link it is. Code is of the second factor, where
// there is one.
type WelcomeIn struct {
	Token    string  `json:"token" required:"true" max:"100"`
	Email    *string `json:"email" max:"254"`
	Name     *string `json:"name" max:"200"`
	Password string  `json:"password" required:"true"`
	Code     string  `json:"code" max:"64"`
}

// CompleteWelcome sets password, name and, for an owner who was never signed in, the address; uses
// the link up; ends every session of the user, and begins one. Of two at once one wins, and the
// other finds a dead link, 404.
func (s *Service) CompleteWelcome(_ context.Context, v Visitor, in WelcomeIn) (*SignedIn, error) {
	var u *store.User
	err := s.Store.View(func(tx *store.Tx) (err error) {
		u, err = userByReset(tx, in.Token)
		return err
	})
	if err != nil {
		return nil, err // before the hash, which takes its time
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	hash := s.Logins.Hash(in.Password)
	var out *SignedIn
	err = s.withCode(u, v.IP, in.Code, func(tx *store.Tx, now *store.User) error {
		holder, err := userByReset(tx, in.Token)
		if err != nil {
			return err
		}
		if holder.ID != now.ID {
			return core.Errorf("not_found", "This link is somebody else's by now.")
		}
		if err := in.apply(tx, now, hash); err != nil {
			return err
		}
		out, err = s.openSession(tx, now, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.Log.Info("signed in", "user", out.UserID, "ip", v.IP, "how", "link")
	return out, nil
}

func (in *WelcomeIn) check() error {
	if in.Name != nil {
		if err := core.CheckLine("name", *in.Name); err != nil {
			return err
		}
	}
	if in.Email != nil {
		email, err := core.NormalizeEmail("email", *in.Email)
		if err != nil {
			return err
		}
		in.Email = &email
	}
	return checkTeamPassword("password", in.Password)
}

func (in *WelcomeIn) apply(tx *store.Tx, u *store.User, hash string) error {
	if in.Email != nil && *in.Email != u.Email {
		if !mayChooseEmail(u) {
			return core.Errorf("forbidden_role", "The address cannot be changed here. Leave it as it is.")
		}
		if err := moveUser(tx, u, *in.Email); err != nil {
			return err
		}
	}
	if in.Name != nil {
		if err := setName(u, *in.Name); err != nil {
			return err
		}
	}
	return setTeamPassword(tx, u, hash, "")
}
