package accounts

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// SignInIn is what somebody signs in with. Code is of the second factor, or a recovery code.
type SignInIn struct {
	Email    string `json:"email" required:"true" max:"254"`
	Password string `json:"password" required:"true" max:"1024"`
	Code     string `json:"code" max:"64"`
}

// SignIn begins a session. The errors are 401 invalid_credentials, for an unknown address or a
// wrong password alike, which take the same time; second_factor_required, where the password is
// right and a code is missing; invalid_code; 403 account_suspended; 429 after too many wrong ones;
// and 503 busy where too many wait.
func (s *Service) SignIn(ctx context.Context, v Visitor, in SignInIn) (*SignedIn, error) {
	address, err := core.NormalizeEmail("email", in.Email)
	if err != nil {
		address = in.Email // nobody's, but it is counted and takes its time like any other
	}
	u, err := s.userToSignIn(address)
	if err != nil {
		return nil, err
	}
	key, from := userKey(address), s.originOf(u, v.IP)
	done, err := s.LoginAttempts.Begin(ctx, key, from, s.Now)
	if err != nil {
		return nil, err
	}
	defer done()
	if u, err = s.userToSignIn(address); err != nil { // as the record is after the wait
		return nil, err
	}
	right, err := s.Logins.Verify(ctx, u.PasswordHash, in.Password, from, s.Now())
	if err != nil {
		return nil, err
	}
	if !right {
		s.RecordWrongPassword(key, from.Network)
		return nil, unauthorized("invalid_credentials", "The email address or the password is wrong.")
	}
	out, err := s.startSession(u, v, in.Code, rightPassword(u.PasswordHash))
	if err != nil {
		return nil, err
	}
	s.LoginAttempts.RecordSuccess(key, from.Network)
	s.Log.Info("signed in", "user", u.ID, "ip", v.IP, "how", "password")
	return out, nil
}

// originOf is where a team user's attempt comes from.
func (s *Service) originOf(u *store.User, ip string) core.Origin {
	from := core.Origin{Network: core.Network(ip)}
	from.Known = core.IsKnown(u.Seen, from.Network, s.Now())
	return from
}

// userKey names a team user among those whose wrong passwords are counted, apart from a mailbox of
// the same address.
func userKey(email string) string { return "user " + email }

// userToSignIn gives an empty record for an address that is nobody's, whose password is then never
// right.
func (s *Service) userToSignIn(email string) (u *store.User, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		u, err = store.UserByEmail.Get(tx, email)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return &store.User{}, nil
	}
	return u, err
}

// rightPassword makes sure that the password that was verified outside the transaction is the
// user's still.
func rightPassword(hash string) func(*store.User) error {
	return func(u *store.User) error {
		if u.PasswordHash != hash {
			return unauthorized("invalid_credentials", "The password was changed a moment ago. Use the new one.")
		}
		return nil
	}
}

// startSession begins the session of a user whose password was right: once more by the record as it
// is now, with the second factor where there is one.
func (s *Service) startSession(u *store.User, v Visitor, code string, still func(*store.User) error) (out *SignedIn, err error) {
	err = s.withCode(u, v.IP, code, func(tx *store.Tx, now *store.User) error {
		if err := still(now); err != nil {
			return err
		}
		out, err = s.openSession(tx, now, v)
		return err
	})
	return out, err
}
