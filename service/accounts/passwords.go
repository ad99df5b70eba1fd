package accounts

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// userKey is the key under which the wrong passwords of a team user are counted. It differs from
// the key of a mailbox with the same address.
func userKey(email string) string { return "user " + email }

// A PasswordLogin is the team user that a password is compared with, for one attempt to sign in.
type PasswordLogin struct {
	Identity core.Identity
	User     *store.User // empty if the address belongs to nobody; then every password is wrong
	service  *Service
	email    string
	ip       string
}

// FindPasswordLogin returns the PasswordLogin of an address.
func (s *Service) FindPasswordLogin(email, ip string) (*PasswordLogin, error) {
	d := &PasswordLogin{service: s, email: email, ip: ip}
	return d, d.Refresh()
}

// Refresh reads the user record again.
func (d *PasswordLogin) Refresh() error {
	u := &store.User{}
	err := d.service.Store.View(func(tx *store.Tx) error {
		found, err := store.UserByEmail.Get(tx, d.email)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil {
			u = found
		}
		return err
	})
	if err == nil {
		d.User, d.Identity = u, core.Identity{Name: userKey(d.email), Known: core.IsKnownNetwork(u.Seen, core.Network(d.ip), d.service.Now())}
	}
	return err
}

// Exists reports whether the address belongs to a team user.
func (d *PasswordLogin) Exists() bool { return d.User.ID != "" }

// CheckUnchanged returns an error if the user no longer has the password that was compared. It is
// called in a later transaction.
func (d *PasswordLogin) CheckUnchanged(_ *store.Tx, u *store.User) error {
	if u.PasswordHash != d.User.PasswordHash {
		return core.Errorf("invalid_credentials", "The password was changed a moment ago. Use the new one.")
	}
	return nil
}

// ProvePassword verifies the password of the signed-in user. The caller runs checkUnchanged in its
// later transaction, to make sure that the password was not changed meanwhile. The error for a
// wrong password is 403 wrong_password; it counts like a wrong password at sign-in.
func (s *Service) ProvePassword(ctx context.Context, who core.Actor, password string) (checkUnchanged func(*store.Tx, *store.User) error, err error) {
	wrong := core.Errorf("wrong_password", "This is not your current password.")
	if password == "" {
		return nil, core.Invalid("current_password", "required", "your current password is required")
	}
	if who.MailboxID != "" {
		err = s.mailboxes.CheckPassword(ctx, who.Email, password, who.IP)
		if e, ours := core.AsError(err); ours && e.Code == "unauthorized" {
			err = wrong
		}
		return func(*store.Tx, *store.User) error { return nil }, err
	}
	d, err := s.FindPasswordLogin(who.Email, who.IP)
	if err != nil {
		return nil, err
	}
	g, err := s.BeginGuess(ctx, core.Network(who.IP), d.Identity)
	if err != nil {
		return nil, err
	}
	defer g.End()
	if err := d.Refresh(); err != nil {
		return nil, err
	}
	if d.User.ID != who.UserID {
		d.User = &store.User{} // the address belongs to another user by now
	}
	right, err := g.Compare(ctx, d.Identity.Name, d.User.PasswordHash, password)
	if err == nil && !right {
		err = wrong
	}
	return d.CheckUnchanged, err
}

// SetTeamPassword sets a password that the user chose. If they did not choose it, the caller sets
// PasswordGiven. SetTeamPassword invalidates the user's reset links, and ends every session of the
// user except askingToken, which has asked for the change.
func SetTeamPassword(tx *store.Tx, u *store.User, hash, askingToken string) error {
	u.PasswordHash, u.PasswordGiven, u.Status, u.UpdatedAt = hash, false, store.UserActive, tx.Now()
	DropResetLinks(u)
	if t, err := store.Tokens.Find(tx, askingToken); err != nil {
		return err
	} else if t != nil && t.PasswordGiven && t.UserID == u.ID {
		t.PasswordGiven = false
		if err := store.Tokens.Put(tx, t); err != nil {
			return err
		}
	}
	return RevokeTokens(tx, u.ID, SessionsExcept(askingToken))
}

// SessionsExcept returns a function that matches all sessions except the one with the given id.
func SessionsExcept(asking string) func(*store.Token) bool {
	return func(t *store.Token) bool { return t.Kind == core.SessionKind && t.ID != asking }
}

// RevokeMost revokes matching tokens of a user as RevokeTokens does, in several transactions, until
// few are left. It is called before the transaction that revokes these few together with the change
// that requires it.
func (s *Service) RevokeMost(userID string, match func(*store.Token) bool) error {
	var ids []string
	err := s.Store.View(func(tx *store.Tx) error {
		for _, t := range store.TokensByUser.Asc(tx, userID, "") {
			if t.RevokedAt.IsZero() && match(t) {
				ids = append(ids, t.ID)
			}
		}
		return nil
	})
	for ; err == nil && len(ids) > tokensPerTx; ids = ids[tokensPerTx:] {
		some := ids[:tokensPerTx]
		err = s.Store.Update(func(tx *store.Tx) error {
			for _, id := range some {
				t, err := store.Tokens.Find(tx, id)
				if err != nil {
					return err
				}
				if t == nil || !t.RevokedAt.IsZero() {
					continue
				}
				if err := RevokeToken(tx, t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return err
}

// RevokeTokens revokes the valid tokens of a user for which match returns true. Sessions are
// deleted.
func RevokeTokens(tx *store.Tx, userID string, match func(*store.Token) bool) error {
	var all []*store.Token
	for _, t := range store.TokensByUser.Asc(tx, userID, "") {
		if t.RevokedAt.IsZero() && match(t) {
			all = append(all, t)
		}
	}
	for _, t := range all {
		if err := RevokeToken(tx, t); err != nil {
			return err
		}
	}
	return nil
}

// RevokeToken revokes a token permanently, and deletes it if it is a session.
func RevokeToken(tx *store.Tx, t *store.Token) error {
	if t.Kind == core.SessionKind {
		return store.Tokens.Delete(tx, t.ID)
	}
	t.RevokedAt = tx.Now()
	return store.Tokens.Put(tx, t)
}

// ResetLinkLife is the lifetime of a link that sets a password.
const ResetLinkLife = 72 * time.Hour

// NewResetLink gives the user a new link that sets a password, and invalidates any earlier one.
// Only the hash of its token is stored. The caller stores the user.
func (s *Service) NewResetLink(u *store.User) (link string) {
	return s.Config.BaseURL + "/reset?token=" + url.QueryEscape(s.newResetToken(u))
}

func (s *Service) newResetToken(u *store.User) string {
	token := core.RandomText(43, core.Base62)
	u.ResetHash, u.ResetExpires = core.TokenHash(token), s.Now().Add(ResetLinkLife)
	return token
}

// DropResetLinks invalidates every link that could set the user's password.
func DropResetLinks(u *store.User) { u.ResetHash, u.ResetExpires, u.Forgot = "", time.Time{}, nil }
