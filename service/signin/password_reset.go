package signin

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/store"
)

// CompleteReset sets the password of the user that a reset link was made for, and uses the link up.
// Passkeys are removed only if dropPasskeys is true: they may be the user's own, or an intruder's.
func (s *Service) CompleteReset(_ context.Context, v Visitor, token, password string, dropPasskeys bool) error {
	var holder *store.User
	err := s.Store.View(func(tx *store.Tx) (err error) {
		holder, err = userByResetToken(tx, token)
		return err
	})
	if err != nil {
		return err // before the slow hash
	}
	set, err := s.preparePassword(holder, password)
	if err != nil {
		return err
	}
	if err := s.accounts.RevokeMost(holder.ID, accounts.SessionsExcept("")); err != nil {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		u, err := userByResetToken(tx, token)
		if err != nil {
			return err
		}
		if u.ID != holder.ID {
			return core.Errorf("not_found", "This link now belongs to another user.")
		}
		if err := set(tx, u); err != nil {
			return err
		}
		changed := []string{"password"}
		if dropPasskeys && len(u.Passkeys) > 0 {
			u.Passkeys, changed = nil, append(changed, "passkeys")
		}
		return errors.Join(store.Users.Put(tx, u), core.Audit(tx, v.actor(u, "set_password", changed...), core.UserTarget(u)))
	})
}

func userByResetToken(tx *store.Tx, token string) (*store.User, error) {
	hash, dead := core.TokenHash(token), true
	u, err := store.UserByReset.Get(tx, hash)
	if err == nil {
		dead = !tx.Now().Before(u.ResetExpires)
	}
	if errors.Is(err, store.ErrNotFound) {
		u, err = store.UserByForgot.Get(tx, hash)
		if err == nil {
			dead = !tx.Now().Before(u.Forgot.Expires)
		}
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && dead {
		return nil, core.Errorf("not_found", "This link was used already or has expired. Request another on the sign-in page, or ask the person who invited you.")
	}
	return u, err
}

// Limits on password links that are sent by mail.
const (
	forgotLinkLife     = 2 * time.Hour // how long a link works
	forgotWindow       = time.Hour     // the time to which the following limits apply
	maxLinksPerAddress = 3             // links to one address in the window
	maxLinksPerNetwork = 20            // requests from one network in the window
)

// ForgotIn names the address that needs a new password.
type ForgotIn struct {
	Email string `json:"email" required:"true" max:"254"`
}

// ForgotPassword sends a link that sets a password to the address, if it belongs to a team user. If
// the mail of that address can be read here, the message has no link, but says who can help. The
// answer and its time are the same for every address: a job looks the address up later.
func (s *Service) ForgotPassword(_ context.Context, v Visitor, in ForgotIn) (*Message, error) {
	out := &Message{"If this address belongs to a user, an email with a link is on its way. The link works once, within two hours."}
	email, err := core.NormalizeEmail("email", in.Email)
	if err != nil {
		return nil, err
	}
	if !s.mayRequestLink("net "+core.Network(v.IP), maxLinksPerNetwork) || !s.mayRequestLink("box "+email, maxLinksPerAddress) {
		return out, nil // the network is checked first, so that it cannot use up the address's limit for others
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		_, err := s.Queue.Add(tx, jobs.New{Kind: kindForgot, Lane: kindForgot, Key: email, Args: forgotArgs{email, v.IP}})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// mayRequestLink counts one request under key, and reports whether no more than maxRequests were
// counted in the window.
func (s *Service) mayRequestLink(key string, maxRequests int) bool {
	return s.forgotRequests.Add(key, s.Now()) <= maxRequests
}

// kindForgot is the kind of job that sends a password link, and the lane of all jobs that send
// links.
const kindForgot = "password_mail"

// forgotArgs are the arguments of kindForgot and kindRecovery.
type forgotArgs struct {
	Email string `json:"email"`
	IP    string `json:"ip"`
}

// sendPasswordLink makes the link and queues the message with it. Each attempt makes a new link:
// links are stored only as hashes, so that an old one cannot be sent again.
func (s *Service) sendPasswordLink(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[forgotArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var u *store.User
	readable := false
	err = s.Store.View(func(tx *store.Tx) (err error) {
		u, err = store.UserByEmail.Find(tx, args.Email)
		if u == nil || err != nil {
			return err
		}
		readable, err = s.IsReadable(tx, u.AccountID, u.Email)
		return err
	})
	if err != nil || u == nil {
		return nil, err
	}
	if readable {
		_, err := s.outbound.SendHostMail(s.letterWithoutLink(u, args.IP), func(*store.Tx) (bool, error) { return true, nil })
		return nil, err
	}
	token := core.RandomText(43, core.Base62)
	message := alert.HostMail{About: u.AccountID, To: args.Email, Subject: "Choose a new password", Text: fmt.Sprintf("Someone at %s requested a new password for %s on %s.\n\n"+
		"If it was you, choose a new password here within two hours:\n\n%s\n\n"+
		"If it was not you, ignore this email: your password stays the same.\n",
		args.IP, args.Email, s.Hostname(), s.Config.BaseURL+"/reset?token="+url.QueryEscape(token))}
	sent, err := s.outbound.SendHostMail(message, func(tx *store.Tx) (bool, error) {
		now, err := store.Users.Find(tx, u.ID)
		if err != nil || now == nil || now.Email != args.Email {
			return false, err
		}
		now.Forgot = &store.ForgotLink{Hash: core.TokenHash(token), Expires: tx.Now().Add(forgotLinkLife)}
		return true, store.Users.Put(tx, now)
	})
	if sent {
		s.LogOf(ctx).Info("password link sent", "user", u.ID, "ip", args.IP)
	}
	return nil, err
}

// letterWithoutLink returns the message to a team user whose address is read on this server.
func (s *Service) letterWithoutLink(u *store.User, ip string) alert.HostMail {
	return alert.HostMail{About: u.AccountID, To: u.Email, Subject: "A new password was requested", Text: fmt.Sprintf(
		"Someone at %s requested a new password for %s on %s.\n\n"+
			"If it was you: this message has no link, because your mail is read on the same server, where programs and colleagues may have access to it. "+
			"Sign in with a passkey, or ask an owner or an admin of your team, or the operator of the server, for a new password. "+
			"The operator's command is: mailstead user reset-password --user %s\n\n"+
			"If it was not you, ignore this email: your password stays the same.\n",
		ip, u.Email, s.Hostname(), u.Email)}
}

// LinkIn holds the token of a link.
type LinkIn struct {
	Token string `query:"token" required:"true" max:"100"`
}

// A Welcome says which user a link was made for. Name is "" if the user has no name.
type Welcome struct {
	Kind           string `json:"kind"` // team or mailbox
	Email          string `json:"email"`
	Name           string `json:"name"`
	MayChangeEmail bool   `json:"may_change_email"`
	Passkeys       int    `json:"-"` // how many passkeys sign in without the password
}

// CheckWelcome returns the user whose password a link sets. It does not use the link up. The error
// for an invalid or used link is 404.
func (s *Service) CheckWelcome(_ context.Context, _ core.Actor, in LinkIn) (*Welcome, error) {
	var out *Welcome
	err := s.Store.View(func(tx *store.Tx) error {
		u, err := userByResetToken(tx, in.Token)
		if err == nil {
			out = &Welcome{Kind: accounts.KindTeam, Email: u.Email, MayChangeEmail: mayChooseEmail(u), Passkeys: len(u.Passkeys)}
			if u.MailboxID != "" {
				out.Kind = accounts.KindMailbox
			}
			if name := accounts.DisplayName(u); name != u.Email {
				out.Name = name
			}
		}
		return err
	})
	return out, err
}

// mayChooseEmail reports whether a link may also set the address: it may for an owner who was never
// signed in, since the first address may be made up or mistyped.
func mayChooseEmail(u *store.User) bool {
	return u.Role == store.UserRoleOwner && u.LastLoginAt.IsZero()
}

// WelcomeIn sets the password of the user that the link was made for. Code is a code of the second
// factor, if the user has one.
type WelcomeIn struct {
	Token    string  `json:"token" required:"true" max:"100"`
	Email    *string `json:"email" max:"254"`
	Name     *string `json:"name" max:"200"`
	Password string  `json:"password" required:"true"`
	Code     string  `json:"code" max:"64"`
}

// CompleteWelcome sets the password, the name and, for an owner who was never signed in, the
// address. It uses the link up, ends every session of the user, and begins one. If two requests use
// the same link, one succeeds and the other gets 404.
func (s *Service) CompleteWelcome(ctx context.Context, v Visitor, in WelcomeIn) (*SignedIn, error) {
	var u *store.User
	err := s.Store.View(func(tx *store.Tx) (err error) {
		u, err = userByResetToken(tx, in.Token)
		return err
	})
	if err != nil {
		return nil, err // before the slow hash
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	set, err := s.preparePassword(u, in.Password)
	if err != nil {
		return nil, err
	}
	var out *SignedIn
	err = s.withSecondFactor(u, v, in.Code, func(tx *store.Tx, now *store.User) error {
		holder, err := userByResetToken(tx, in.Token)
		if err != nil {
			return err
		}
		if holder.ID != now.ID {
			return core.Errorf("not_found", "This link now belongs to another user.")
		}
		if err := in.apply(tx, now, set); err != nil {
			return err
		}
		if err := core.Audit(tx, v.actor(now, "set_password", in.givenFields()...), core.UserTarget(now)); err != nil {
			return err
		}
		out, err = s.openSession(tx, now, v, false)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("signed in", "user", out.UserID, "ip", v.IP, "how", "link")
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
	return nil
}

// givenFields lists the fields that the form sets.
func (in *WelcomeIn) givenFields() []string {
	fields := []string{"password"}
	if in.Name != nil {
		fields = append(fields, "name")
	}
	if in.Email != nil {
		fields = append(fields, "email")
	}
	return fields
}

func (in *WelcomeIn) apply(tx *store.Tx, u *store.User, setPassword func(*store.Tx, *store.User) error) error {
	if in.Email != nil && *in.Email != u.Email {
		if !mayChooseEmail(u) {
			return core.Errorf("forbidden_role", "The email address cannot be changed here.")
		}
		if err := accounts.ChangeEmail(tx, u, *in.Email); err != nil {
			return err
		}
	}
	if in.Name != nil && u.MailboxID == "" {
		if err := accounts.SetName(u, *in.Name); err != nil {
			return err
		}
	}
	return setPassword(tx, u)
}
