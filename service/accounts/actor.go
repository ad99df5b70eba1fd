package accounts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// Lifetimes of dashboard sessions. A session is a token of the kind session, which a browser keeps
// in a cookie. It acts with the whole role of its user.
const (
	SessionLife = 30 * 24 * time.Hour // the longest time that a session lasts
	SessionIdle = 7 * 24 * time.Hour  // a session without a request for this long ends
)

// Authenticate returns the actor of a bearer token, and records this use of the token from ip.
func (s *Service) Authenticate(_ context.Context, token, ip string) (core.Actor, error) {
	return s.authenticate(token, ip, false)
}

// AuthenticateAssistant is like Authenticate, for /mcp: it also accepts the access tokens of OAuth
// grants.
func (s *Service) AuthenticateAssistant(_ context.Context, token, ip string) (core.Actor, error) {
	return s.authenticate(token, ip, true)
}

func (s *Service) authenticate(token, ip string, assistant bool) (core.Actor, error) {
	if token == "" {
		return core.Actor{}, core.Errorf("unauthorized", "Send an API token: Authorization: Bearer mst_…")
	}
	invalid := core.Errorf("unauthorized", "This is not a valid API token. Copy it again, or create a new one.")
	if !core.IsWellFormedToken(token) {
		return core.Actor{}, invalid
	}
	var who core.Actor
	err := s.Store.View(func(tx *store.Tx) error {
		t, err := store.TokenByHash.Read(tx, core.TokenHash(token))
		if errors.Is(err, store.ErrNotFound) || err == nil && t.Kind == core.SessionKind {
			return invalid
		}
		if err != nil {
			return err
		}
		if t.Kind == store.TokenKindOAuth && !assistant {
			return core.Errorf("unauthorized", "This token was given to a client that signed in, and is for /mcp alone.")
		}
		if t.CredentialID != "" {
			c, err := store.Credentials.FindShared(tx, t.CredentialID)
			if err != nil {
				return err
			}
			if c == nil || !mailboxes.IsUsableFrom(c, ip) {
				return invalid
			}
		}
		who, err = s.ActorOf(tx, t, ip)
		return err
	})
	return who, err
}

func errTokenRevoked() *core.Error {
	return core.Errorf("token_revoked", "This token was revoked. Use another one.")
}

// ActorOf returns the actor of a token if the token is valid, and records its use from ip.
func (s *Service) ActorOf(tx *store.Tx, t *store.Token, ip string) (core.Actor, error) {
	who, err := s.ActorWithoutUse(tx, t)
	if err != nil {
		return core.Actor{}, err
	}
	if now := tx.Now(); now.Sub(t.LastUsedAt) > time.Minute {
		s.tokenUses.Record(t.ID, now, ip)
	}
	who.IP = ip
	return who, nil
}

// ActorWithoutUse returns the actor of a token if the token is valid. It does not record a use of
// the token.
func (s *Service) ActorWithoutUse(tx *store.Tx, t *store.Token) (core.Actor, error) {
	if !t.RevokedAt.IsZero() {
		return core.Actor{}, errTokenRevoked()
	}
	if t.Kind != core.SessionKind && !t.ExpiresAt.IsZero() && !tx.Now().Before(t.ExpiresAt) {
		return core.Actor{}, core.Errorf("token_expired", "This token has expired. Create a new one.")
	}
	if t.Grant != nil && !tx.Now().Before(t.Grant.AccessUntil) {
		return core.Actor{}, core.Errorf("token_expired", "This access token has expired. Get a new one with the refresh token.")
	}
	u, err := store.Users.Read(tx, t.UserID)
	if err != nil {
		return core.Actor{}, err
	}
	a, err := store.Accounts.Read(tx, t.AccountID)
	permissions := t.Permissions
	if t.Kind == core.SessionKind && err == nil {
		permissions = SessionPermissions(u.Role)
		a, err = s.sessionAccount(tx, t)
	}
	if t.LinkedBy != "" && err == nil {
		permissions = LinkedPermissions()
		err = checkLinker(tx, t.LinkedBy)
	}
	if err == nil && !a.MayAct() {
		err = core.ErrSuspended()
	}
	if err == nil {
		err = MaySignIn(tx, u)
	}
	if err != nil {
		return core.Actor{}, err
	}
	who := core.Actor{
		AccountID: a.ID, AccountNum: a.Num, UserID: u.ID, MailboxID: u.MailboxID, Limited: u.Limited, Mailboxes: u.Mailboxes, Email: u.Email, Role: u.Role, Plan: a.Plan,
		TokenID: t.ID, TokenName: t.Name, TokenKind: t.Kind, PasswordGiven: t.PasswordGiven, LinkedBy: t.LinkedBy, Permissions: permissions, Bound: t.IsRestricted(), OwnWords: t.OwnWords, Policy: t.Policy,
	}
	who.SignedInNow = t.Kind == core.SessionKind && tx.Now().Before(t.CreatedAt.Add(core.SignInFresh))
	who.Operator, err = core.IsOperator(tx, u)
	if err != nil {
		return core.Actor{}, err
	}
	if len(t.Mailboxes) > 0 {
		// A limited token sees only those of its mailboxes that its user can see now.
		may := core.Actor{MailboxID: u.MailboxID, Limited: u.Limited, Mailboxes: u.Mailboxes}
		who.MailboxToken, who.Limited, who.Mailboxes = true, true, nil
		for _, id := range t.Mailboxes {
			if may.Sees(id) {
				who.Mailboxes = append(who.Mailboxes, id)
			}
		}
	}
	return who, nil
}

// SessionPermissions returns the scopes that a session of a user with this role has.
func SessionPermissions(role string) []string {
	if role == store.UserRoleMember || role == store.UserRoleMailbox {
		return []string{"read", "write"}
	}
	return slices.Clone(core.Scopes)
}

// LinkedPermissions returns the scopes of a session that began with the operator's link: it spends
// no money.
func LinkedPermissions() []string { return []string{"read", "write"} }

// checkLinker returns an error if the user who made a link to sign in is no operator any more.
func checkLinker(tx *store.Tx, linkedBy string) error {
	if linkedBy == store.LinkedByCommand {
		return nil
	}
	u, err := store.Users.FindShared(tx, linkedBy)
	if err != nil {
		return err
	}
	if u != nil {
		may, err := core.IsOperator(tx, u)
		if may || err != nil {
			return err
		}
	}
	return core.ErrSignedOut()
}

// SessionEnds returns when a session ends if it is not used any more.
func SessionEnds(t *store.Token) time.Time {
	used := t.LastUsedAt
	if used.Before(t.CreatedAt) {
		used = t.CreatedAt
	}
	if idle := used.Add(SessionIdle); idle.Before(t.ExpiresAt) {
		return idle
	}
	return t.ExpiresAt
}

// sessionAccount returns the account of a session that has not ended.
func (s *Service) sessionAccount(tx *store.Tx, t *store.Token) (*store.Account, error) {
	a, err := store.Accounts.Get(tx, t.AccountID)
	if err != nil {
		return nil, err
	}
	if !tx.Now().Before(SessionEnds(t)) {
		return nil, core.ErrSignedOut()
	}
	return a, nil
}

// MaySignIn returns an error that says why the person of a mailbox may not sign in; nil if they
// may, and for team users.
func MaySignIn(tx *store.Tx, u *store.User) error {
	if u.MailboxID == "" {
		return nil
	}
	mb, err := store.Mailboxes.FindShared(tx, u.MailboxID)
	if err == nil && (mb == nil || !mb.MayLogIn()) {
		err = core.ErrSignedOut()
	}
	return err
}

// CheckActor returns an error if the actor's token or session may no longer be used: it was revoked
// or has expired, or its user was deleted or has another role than at the time of the request. The
// check does not count as a use.
func (s *Service) CheckActor(_ context.Context, who core.Actor) error {
	if who.TokenID == core.LocalToken {
		return nil
	}
	return s.Store.View(func(tx *store.Tx) error {
		t, err := store.Tokens.FindShared(tx, who.TokenID)
		if err != nil {
			return err
		}
		if t == nil {
			return errTokenRevoked()
		}
		now, err := s.ActorWithoutUse(tx, t)
		if errors.Is(err, store.ErrNotFound) || err == nil && (now.Role != who.Role || now.Limited != who.Limited || now.Operator != who.Operator) {
			return errTokenRevoked()
		}
		if err != nil || slices.Equal(now.Mailboxes, who.Mailboxes) {
			return err
		}
		for _, id := range who.Mailboxes { // deleted mailboxes have left the list
			if mb, err := core.LiveMailbox(tx, id); err != nil || mb != nil && !slices.Contains(now.Mailboxes, id) {
				return cmp.Or(err, error(errTokenRevoked()))
			}
		}
		return nil
	})
}

// Operator returns the actor for the person who holds the data directory: the owner of the named
// account (id or owner's email), or of the first account.
func (s *Service) Operator(_ context.Context, account string) (core.Actor, error) {
	var who core.Actor
	first := "`mailstead setup`"
	if s.Config.Sandbox {
		first = "`mailstead init`"
	}
	err := s.Store.View(func(tx *store.Tx) error {
		a, err := core.FindAccount(tx, account)
		switch {
		case err != nil && account == "":
			return core.Errorf("not_found", "There is no account yet. Run %s first.", first)
		case err != nil:
			return err
		}
		u, err := store.UserByEmail.Get(tx, a.Email)
		if errors.Is(err, store.ErrNotFound) {
			return core.Errorf("not_found", "The owner of account %s, %s, is not in the store: the row was lost with a damaged page. Restore the store from a backup.", a.ID, a.Email)
		} else if err != nil {
			return err
		}
		who = core.Actor{
			AccountID: a.ID, AccountNum: a.Num, UserID: u.ID, Email: u.Email, Role: u.Role, Plan: a.Plan,
			TokenID: core.LocalToken, TokenKind: core.SessionKind, Permissions: []string{"admin"},
		}
		who.Operator, err = core.IsOperator(tx, u)
		return err
	})
	return who, err
}

// flushTokenUses stores when tokens and credentials were last used.
func (s *Service) flushTokenUses() error {
	err := s.tokenUses.Flush(s.Store, func(tx *store.Tx, id string, use core.Use) error {
		t, err := store.Tokens.Find(tx, id)
		if t == nil || err != nil {
			return err
		}
		t.LastUsedAt, t.LastUsedIP = use.At, use.IP
		return store.Tokens.Put(tx, t)
	})
	return errors.Join(err, s.mailboxes.FlushUses())
}
