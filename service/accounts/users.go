package accounts

import (
	"context"
	"errors"
	"strings"

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
	return s.putToken(ctx, t, func(tx *store.Tx) error { return core.AuditCommand(tx, "token create", t.AccountID, tokenTarget(t)) })
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

// NewPassword is what the operator says to set a team user's password.
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
	Passkeys int    `json:"passkeys"` // that still sign in, without the password
}

// ResetPassword gives a team user a new password, which ends every session and link of theirs. It
// is for the operator, on the server itself.
func (s *Service) ResetPassword(_ context.Context, in NewPassword) (*PasswordReset, error) {
	if in.Password == "" {
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
	if err := s.revokeMost(u.ID, sessionsBut("")); err != nil {
		return nil, err
	}
	passkeys := 0
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
		passkeys = len(now.Passkeys)
		return errors.Join(store.Users.Put(tx, now), core.AuditCommand(tx, "user reset-password", now.AccountID, userTarget(now)))
	})
	if err != nil {
		return nil, err
	}
	return &PasswordReset{u.ID, u.Email, in.Password, passkeys}, nil
}

// ProfileIn changes the profile of who asks. What is absent stays; an empty name, or the address,
// takes the name away.
type ProfileIn struct {
	Name            *string `json:"name" max:"200"`
	Email           *string `json:"email" max:"254"`
	Password        *string `json:"password"`
	CurrentPassword string  `json:"current_password" max:"1024" audit:"-"`
}

// UpdateProfile changes the name, the address or the password of who asks; the latter two need the
// present password (403 wrong_password), and the address of others than the owner is the owner's to
// change. A new password ends all other sessions.
func (s *Service) UpdateProfile(ctx context.Context, who core.Actor, in ProfileIn) (*Session, error) {
	if err := in.check(who); err != nil {
		return nil, err
	}
	still, hash := func(*store.Tx, *store.User) error { return nil }, ""
	if in.Email != nil || in.Password != nil {
		var err error
		still, err = s.provePassword(ctx, who, in.CurrentPassword)
		if err != nil {
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
		if err := still(tx, u); err != nil {
			return err
		}
		if err := in.apply(tx, u, hash, who.TokenID); err != nil {
			return err
		}
		u.UpdatedAt = tx.Now()
		if err := errors.Join(store.Users.Put(tx, u), core.Audit(tx, who, userTarget(u))); err != nil {
			return err
		}
		t, err = store.Tokens.Get(tx, t.ID)
		if err != nil { // as a new password leaves it
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

// provePassword verifies the password of who is signed in; still makes sure, in the transaction
// that follows, that it is the password by then. A wrong one is 403 wrong_password, and counts like
// one at the door.
func (s *Service) provePassword(ctx context.Context, who core.Actor, password string) (still func(*store.Tx, *store.User) error, err error) {
	if password == "" {
		return nil, core.Invalid("current_password", "required", "your current password is required")
	}
	if who.MailboxID != "" {
		return s.proveMailboxPassword(ctx, who, password)
	}
	u, err := s.userToSignIn(who.Email)
	if err != nil {
		return nil, err
	}
	id := s.userIdentity(who.Email, u, who.IP)
	g, err := s.BeginGuess(ctx, core.Network(who.IP), id)
	if err != nil {
		return nil, err
	}
	defer g.End()
	u, err = s.userToSignIn(who.Email)
	if err != nil {
		return nil, err
	}
	if u.ID != who.UserID {
		u = &store.User{} // the address is another's by now
	}
	right, err := g.Compare(ctx, id.Name, u.PasswordHash, password)
	if err == nil && !right {
		err = core.Errorf("wrong_password", "This is not your current password.")
	}
	return rightPassword(u.PasswordHash), err
}

// changeSelf changes the record of who is signed in, with a row of the audit log.
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
		return errors.Join(store.Users.Put(tx, u), core.Audit(tx, who, userTarget(u)))
	})
}
