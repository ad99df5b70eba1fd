package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/store"
)

// SignInLinkPath is the path of links to sign in. The id of the account, a dot and a secret follow.
const SignInLinkPath = "/sign-in-link/"

// signInLinkLife is how long a link to sign in works, and how long after it was made its session
// ends.
const signInLinkLife = 15 * time.Minute

// A SignInLink signs the operator in to an account.
type SignInLink struct {
	URL       string    `json:"url" words:"ours"` // Opened in a browser, it signs in, once.
	ExpiresAt core.Time `json:"expires_at"`       // When the link stops to work, and when its session ends.
}

// CreateSignInLink makes a link that signs the operator in to an account, in the place of an
// earlier link that was not used. The account's owner is told by mail, without the link. The errors
// are 403: owner_protected for the first account, forbidden_role where the settings forbid it, and
// account_suspended.
func (s *Service) CreateSignInLink(ctx context.Context, who core.Actor, in accounts.HostedAccountIn) (*SignInLink, error) {
	if s.Config.NoSignInLinks {
		return nil, errNoSignInLinks()
	}
	find := func(tx *store.Tx) (*store.Account, error) {
		a, err := accounts.HostedAccountOf(tx, in.AccountID)
		if err != nil {
			return nil, err
		}
		first, err := core.IsFirstAccount(tx, a.ID)
		switch {
		case err != nil:
			return nil, err
		case first:
			return nil, core.Errorf("owner_protected", "The first account is the operator's own: sign in to it with a password.")
		case !a.MayAct():
			return nil, core.Errorf("account_suspended", "The account is suspended, so nobody can sign in to it. Set its status to active first.")
		}
		return a, nil
	}
	var account *store.Account
	err := s.Store.View(func(tx *store.Tx) (err error) {
		account, err = find(tx)
		return err
	})
	if err != nil {
		return nil, err
	}
	by := who.UserID
	if who.TokenID == core.LocalToken {
		by = store.LinkedByCommand
	}
	secret, until := core.RandomText(43, core.Base62), s.Now().Add(signInLinkLife).Truncate(time.Millisecond)
	out := &SignInLink{s.Config.BaseURL + SignInLinkPath + account.ID + "." + secret, core.Time{Time: until}}
	_, err = s.outbound.SendHostMail(s.linkLetter(account, until), func(tx *store.Tx) (bool, error) {
		a, err := find(tx)
		if err != nil {
			return false, err
		}
		a.SignInLink = &store.SignInLink{Hash: core.TokenHash(secret), By: by, Expires: until}
		return true, errors.Join(store.Accounts.Put(tx, a), core.AuditHosted(tx, who, a.ID, core.AccountTarget(a)), once.KeepAnswer(ctx, s.Core, tx, out))
	})
	if err != nil {
		return nil, alert.Refused(err, s.Now())
	}
	s.LogOf(ctx).Info("link to sign in made", "account", account.ID, "by", by)
	return out, nil
}

func errNoSignInLinks() *core.Error {
	return core.Errorf("forbidden_role", "The settings of this installation forbid links to sign in: [operator] sign_in_links is false.")
}

// linkLetter returns the message that tells the owner of an account about a link to sign in.
func (s *Service) linkLetter(a *store.Account, until time.Time) alert.HostMail {
	return alert.HostMail{About: a.ID, To: a.Email, Subject: "The operator of " + s.Hostname() + " can sign in to your account", Text: fmt.Sprintf(
		"The operator of %s has made a link with which they can sign in to your account %q until %s.\n\n"+
			"With it they can read and change its settings. They can neither see nor change passwords, tokens, credentials, second factors, the team, secrets of webhooks, exports and approvals.\n\n"+
			"The audit log of your account has the link and every change that is made with it: %s\n\n"+
			"If you did not ask for help, answer this email.\n",
		s.Hostname(), a.Name, alert.TimeText(until), s.Config.BaseURL+"/account")}
}

// UseSignInLink begins the session of a link to sign in, and uses the link up. token is what
// follows SignInLinkPath. The error for an invalid or used link is 404.
func (s *Service) UseSignInLink(ctx context.Context, v Visitor, token string) (*SignedIn, error) {
	if s.Config.NoSignInLinks {
		return nil, errNoSignInLinks()
	}
	accountID, secret, _ := strings.Cut(token, ".")
	var out *SignedIn
	err := s.Store.Update(func(tx *store.Tx) error {
		a, err := store.Accounts.Find(tx, accountID)
		if err != nil {
			return err
		}
		if a == nil || !matchesLink(a.SignInLink, secret) || !tx.Now().Before(a.SignInLink.Expires) {
			return core.Errorf("not_found", "This link was used already, or it has expired. Make another one.")
		}
		link := a.SignInLink
		a.SignInLink = nil
		if err := store.Accounts.Put(tx, a); err != nil {
			return err
		}
		u, err := store.UserByEmail.Get(tx, a.Email)
		if err != nil {
			return err
		}
		if err := endSession(tx, v.Session); err != nil {
			return err
		}
		value, t := newSession(tx, u, v)
		t.Name, t.ExpiresAt, t.LinkedBy, t.Permissions = "link of the operator", link.Expires, link.By, accounts.LinkedPermissions()
		if err := store.Tokens.Put(tx, t); err != nil {
			return err
		}
		who, err := s.accounts.ActorWithoutUse(tx, t)
		if err != nil {
			return err
		}
		who.IP, who.Request = v.IP, v.actor(u, "login").Request
		if err := core.Audit(tx, who, core.AccountTarget(a)); err != nil {
			return err
		}
		session, err := s.sessionOut(tx, u, t)
		if err != nil {
			return err
		}
		out = &SignedIn{*session, u.ID, value}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("signed in", "user", out.UserID, "ip", v.IP, "how", "link of the operator")
	return out, nil
}

// matchesLink reports whether a link has the secret.
func matchesLink(l *store.SignInLink, secret string) bool {
	return l != nil && subtle.ConstantTimeCompare([]byte(l.Hash), []byte(core.TokenHash(secret))) == 1
}
