package signin

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

const sessionsMost = 50 // of one user; a further one ends the oldest

// A Visitor is a browser that signs in.
type Visitor struct {
	IP        string
	UserAgent string
	RequestID string
	Session   string // the cookie that it has already, whose session ends with the new one; "" if none
}

// A Session is what the dashboard knows of who is signed in.
type Session struct {
	Kind        string          `json:"kind"` // team or mailbox
	User        *SessionUser    `json:"user"` // null: it is the person of a mailbox
	Mailbox     *SessionMailbox `json:"mailbox"`
	Account     *SessionAccount `json:"account"`         // null for the person of a mailbox
	Given       bool            `json:"choose_password"` // the password is another's choice: approving and sign-in of programs wait for one of the user's own
	Limited     bool            `json:"limited"`         // a member who sees some mailboxes alone
	Operator    bool            `json:"operator"`        // who runs the installation, and may see its health
	Security    SessionSecurity `json:"security"`
	Permissions []string        `json:"permissions"`
	Sandbox     bool            `json:"sandbox"`
	Outbound    string          `json:"outbound"`  // where mail to others goes: capture, relay, direct; domains may choose between the last two
	SMTPPort    int             `json:"smtp_port"` // where this host takes mail; 0: nowhere
	Hostname    string          `json:"hostname"`
	Version     string          `json:"version"`
	APIBase     string          `json:"api_base"` // to which /v1/… is added
	ExpiresAt   core.Time       `json:"expires_at"`
}

// A SessionUser is the team user who is signed in. Name is the address where there is no name.
type SessionUser struct {
	ID                string    `json:"id"`
	Name              string    `json:"name"`
	Email             string    `json:"email"`
	Role              string    `json:"role"`
	TOTPEnabled       bool      `json:"totp_enabled"`
	RecoveryCodesLeft int       `json:"recovery_codes_left"`
	Passkeys          []Passkey `json:"passkeys"`
}

// A SessionMailbox is the mailbox whose person is signed in.
type SessionMailbox struct {
	UserID string `json:"user_id"`
	Email  string `json:"email"`
	Name   string `json:"name"`
}

// SessionSecurity is how whoever is signed in proves who it is, besides a password.
type SessionSecurity struct {
	TOTPEnabled       bool      `json:"totp_enabled"`
	RecoveryCodesLeft int       `json:"recovery_codes_left"`
	Passkeys          []Passkey `json:"passkeys"`
}

// A SessionAccount is the account of the team user.
type SessionAccount struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Plan string `json:"plan"`
}

// A Passkey is a WebAuthn credential as its owner sees it.
type Passkey struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	CreatedAt  core.Time `json:"created_at"`
	LastUsedAt core.Time `json:"last_used_at"`
}

// A Message is an answer that holds a sentence only.
type Message struct {
	Message string `json:"message"`
}

// A SignedIn is a new session with the value of its cookie, which is kept nowhere here.
type SignedIn struct {
	Session
	UserID string
	Cookie string
}

// AuthenticateSession finds out for whom the cookie of a session acts. ip is remembered as its last
// use.
func (s *Service) AuthenticateSession(_ context.Context, value, ip string) (core.Actor, error) {
	if !core.WellFormedToken(value) {
		return core.Actor{}, core.ErrSignedOut()
	}
	var who core.Actor
	err := s.Store.View(func(tx *store.Tx) error {
		t, err := sessionByValue(tx, value)
		if err != nil {
			return err
		}
		who, err = s.accounts.ActorOf(tx, t, ip)
		return err
	})
	return who, err
}

// sessionByValue gives the session of a cookie, to look at; what is no session is 401.
func sessionByValue(tx *store.Tx, value string) (*store.Token, error) {
	t, err := store.TokenByHash.Read(tx, core.TokenHash(value))
	if errors.Is(err, store.ErrNotFound) || err == nil && t.Kind != core.SessionKind {
		return nil, core.ErrSignedOut()
	}
	return t, err
}

// openSession begins a session in the transaction that found out who it is for, and keeps the user
// with it. It is always a new one, whatever the browser held before, and links that could set the
// password end: it is known. given says that it was begun with a password that its user has not
// chosen.
func (s *Service) openSession(tx *store.Tx, u *store.User, v Visitor, given bool) (*SignedIn, error) {
	if err := endSession(tx, v.Session); err != nil {
		return nil, err
	}
	if err := endOldSessions(tx, u.ID); err != nil {
		return nil, err
	}
	if err := accounts.MaySignIn(tx, u); err != nil {
		return nil, err
	}
	value, now := core.NewToken(), tx.Now()
	t := &store.Token{
		ID: tx.NewID("tok"), AccountID: u.AccountID, UserID: u.ID, Name: "dashboard", Hash: core.TokenHash(value), Prefix: value[:12], Kind: core.SessionKind,
		Permissions: accounts.SessionPermissions(u.Role), CreatedAt: now, ExpiresAt: now.Add(accounts.SessionLife), LastUsedAt: now, LastUsedIP: v.IP,
		UserAgent: cleanUserAgent(v.UserAgent), PasswordGiven: given,
	}
	if err := store.Tokens.Put(tx, t); err != nil {
		return nil, err
	}
	accounts.DropLinks(u)
	u.LastLoginAt = now
	u.Seen, _ = core.RecordNetwork(u.Seen, core.Network(v.IP), now)
	if err := errors.Join(store.Users.Put(tx, u), core.Audit(tx, v.actor(u, "login"), core.UserTarget(u))); err != nil {
		return nil, err
	}
	out, err := s.sessionOut(tx, u, t)
	if err != nil {
		return nil, err
	}
	return &SignedIn{*out, u.ID, value}, nil
}

// endOldSessions makes room for one more session of a user.
func endOldSessions(tx *store.Tx, userID string) error {
	var live []*store.Token // oldest first, since ids rise
	for _, t := range store.TokensByUser.Asc(tx, userID, "") {
		if t.Kind == core.SessionKind {
			live = append(live, t)
		}
	}
	now := tx.Now()
	for i, t := range live {
		if i < len(live)-sessionsMost+1 || !now.Before(accounts.SessionEnds(t)) {
			if err := store.Tokens.Delete(tx, t.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// endSession ends the session of a cookie, if it is one.
func endSession(tx *store.Tx, value string) error {
	if !core.WellFormedToken(value) {
		return nil
	}
	t, err := sessionByValue(tx, value)
	if _, ours := core.AsError(err); ours {
		return nil
	}
	if err != nil {
		return err
	}
	return store.Tokens.Delete(tx, t.ID)
}

// cleanUserAgent bounds what a browser says of itself.
func cleanUserAgent(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if runes := []rune(text); len(runes) > 300 {
		text = string(runes[:300])
	}
	return text
}

func (s *Service) sessionOut(tx *store.Tx, u *store.User, t *store.Token) (*Session, error) {
	a, err := store.Accounts.Get(tx, u.AccountID)
	if err != nil {
		return nil, err
	}
	used := *t
	used.LastUsedAt = tx.Now() // by the request that asks
	out := &Session{
		Kind: accounts.KindTeam, Security: SessionSecurity{Passkeys: []Passkey{}}, Permissions: accounts.SessionPermissions(u.Role),
		Sandbox: s.Config.Sandbox, Outbound: s.Outbound(), SMTPPort: s.Config.SMTPPort, Hostname: s.Hostname(), Version: s.Config.Version, APIBase: s.Config.BaseURL, ExpiresAt: core.Time{Time: accounts.SessionEnds(&used)},
	}
	if hasTOTP(u) {
		out.Security.TOTPEnabled, out.Security.RecoveryCodesLeft = true, len(u.TOTP.Recovery)
	}
	for _, p := range u.Passkeys {
		out.Security.Passkeys = append(out.Security.Passkeys, Passkey{p.ID, p.Name, core.Time{Time: p.CreatedAt}, core.Time{Time: p.LastUsedAt}})
	}
	if u.MailboxID != "" {
		mb, err := store.Mailboxes.Read(tx, u.MailboxID)
		if err != nil {
			return nil, err
		}
		out.Kind, out.Mailbox = accounts.KindMailbox, &SessionMailbox{mb.ID, mb.Email, mb.Name}
		out.SMTPPort, out.Outbound, out.Version = 0, "", ""
		return out, nil
	}
	out.Limited, out.Given = u.Limited, t.PasswordGiven
	out.Operator, err = core.Operates(tx, u.AccountID, u.Role)
	if err != nil {
		return nil, err
	}
	out.Account = &SessionAccount{a.ID, a.Name, a.Plan}
	out.User = &SessionUser{
		ID: u.ID, Name: accounts.DisplayName(u), Email: u.Email, Role: u.Role,
		TOTPEnabled: out.Security.TOTPEnabled, RecoveryCodesLeft: out.Security.RecoveryCodesLeft, Passkeys: out.Security.Passkeys,
	}
	return out, nil
}

// GetSession says who is signed in.
func (s *Service) GetSession(_ context.Context, who core.Actor) (*Session, error) {
	var out *Session
	err := s.Store.View(func(tx *store.Tx) error {
		u, t, err := sessionRecords(tx, who)
		if err != nil {
			return err
		}
		out, err = s.sessionOut(tx, u, t)
		return err
	})
	return out, err
}

// sessionRecords reads who asks; 401 where the session has ended meanwhile.
func sessionRecords(tx *store.Tx, who core.Actor) (*store.User, *store.Token, error) {
	t, err := store.Tokens.Find(tx, who.TokenID)
	if err != nil {
		return nil, nil, err
	}
	if t == nil {
		return nil, nil, core.ErrSignedOut()
	}
	u, err := store.Users.Get(tx, t.UserID)
	return u, t, err
}

// SignOutIn says which sessions end.
type SignOutIn struct {
	Everywhere bool `query:"everywhere"`
}

// SignOut ends the session that asks, or every one of its user.
func (s *Service) SignOut(ctx context.Context, who core.Actor, in SignOutIn) (*Message, error) {
	ends := func(t *store.Token) bool { return t.Kind == core.SessionKind && (in.Everywhere || t.ID == who.TokenID) }
	err := s.accounts.RevokeMost(who.UserID, ends)
	if err == nil {
		err = s.Store.Update(func(tx *store.Tx) error {
			return errors.Join(accounts.RevokeTokens(tx, who.UserID, ends), core.Audit(tx, who, store.AuditTarget{Type: "session", ID: who.TokenID, Name: who.TokenName}))
		})
	}
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("signed out", "user", who.UserID, "ip", who.IP, "everywhere", in.Everywhere)
	if in.Everywhere {
		return &Message{"You are signed out in every browser."}, nil
	}
	return &Message{"You are signed out."}, nil
}

// An OwnSession is one of the sessions of who asks.
type OwnSession struct {
	ID         string    `json:"id"`
	IP         string    `json:"ip"`
	UserAgent  string    `json:"user_agent"`
	CreatedAt  core.Time `json:"created_at"`
	LastUsedAt core.Time `json:"last_used_at"`
	Current    bool      `json:"current"`
}

// ListSessions lists the sessions of who asks that have not ended, newest first.
func (s *Service) ListSessions(_ context.Context, who core.Actor) (*core.List[OwnSession], error) {
	var out []OwnSession
	err := s.Store.View(func(tx *store.Tx) error {
		for _, t := range store.TokensByUser.Desc(tx, who.UserID, "") {
			if t.Kind == core.SessionKind && tx.Now().Before(accounts.SessionEnds(t)) {
				out = append(out, OwnSession{t.ID, t.LastUsedIP, t.UserAgent, core.Time{Time: t.CreatedAt}, core.Time{Time: t.LastUsedAt}, t.ID == who.TokenID})
			}
		}
		return nil
	})
	return core.ListOf(out), err
}

// SessionIn names one session.
type SessionIn struct {
	ID string `path:"id"`
}

// EndSession ends one session of who asks; those of others are 404.
func (s *Service) EndSession(ctx context.Context, who core.Actor, in SessionIn) (*accounts.Deleted, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		t, err := store.Tokens.Find(tx, in.ID)
		if err != nil {
			return err
		}
		if t == nil || t.Kind != core.SessionKind || t.UserID != who.UserID {
			return core.Errorf("not_found", "There is no such session. It may have ended already.")
		}
		return errors.Join(store.Tokens.Delete(tx, t.ID), core.Audit(tx, who, core.TokenTarget(t)))
	})
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("session ended", "user", who.UserID, "ip", who.IP, "session", in.ID)
	return &accounts.Deleted{Message: "That browser is signed out.", ID: in.ID}, nil
}

// SignInIn is what somebody signs in with. Code is of the second factor, or a recovery code.
type SignInIn struct {
	Email    string `json:"email" required:"true" max:"254"`
	Password string `json:"password" required:"true" max:"1024"`
	Code     string `json:"code" max:"64"`
	As       string `json:"as" enum:"team|mailbox|"` // for an address that is both
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
	d, err := s.openDoors(address, in.As, v.IP)
	if err != nil {
		return nil, err
	}
	g, err := s.BeginGuess(ctx, core.Network(v.IP), d.identities()...)
	if err != nil {
		return nil, err
	}
	defer g.End()
	if err := d.refresh(); err != nil { // as the records are after the wait
		return nil, err
	}
	out, err := d.enter(ctx, g, v, in)
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("signed in", "user", out.UserID, "ip", v.IP, "how", "password")
	return out, nil
}

// The doors of one address are at most two: a team user's, and a mailbox's.
type doors struct {
	s       *Service
	user    *accounts.Door  // nil: not asked for
	mailbox *mailboxes.Door // nil: not asked for
}

// openDoors finds those that a password is to be compared at. An address that is nobody's is looked
// at like any other.
func (s *Service) openDoors(address, as, ip string) (*doors, error) {
	d := &doors{s: s}
	var err error
	if as != accounts.KindMailbox {
		d.user, err = s.accounts.OpenDoor(address, ip)
		if err != nil {
			return nil, err
		}
	}
	if as != accounts.KindTeam {
		d.mailbox, err = s.mailboxes.OpenDoor(address, ip)
		if err != nil {
			return nil, err
		}
	}
	if as == "" && !d.mailbox.Exists() {
		d.mailbox = nil
	} else if as == "" && !d.user.Exists() {
		d.user = nil
	}
	return d, nil
}

// refresh reads the records again.
func (d *doors) refresh() error {
	if d.user != nil {
		if err := d.user.Refresh(); err != nil {
			return err
		}
	}
	if d.mailbox != nil {
		return d.mailbox.Refresh()
	}
	return nil
}

// identities are all of them: a wrong password is compared at each.
func (d *doors) identities() (out []core.Identity) {
	if d.user != nil {
		out = append(out, d.user.Identity)
	}
	if d.mailbox != nil {
		out = append(out, d.mailbox.Identity)
	}
	return out
}

// enter begins a session where the password is right, at the team user first.
func (d *doors) enter(ctx context.Context, g *core.Guess, v Visitor, in SignInIn) (*SignedIn, error) {
	if d.user != nil {
		right, err := g.Compare(ctx, d.user.Identity.Name, d.user.User.PasswordHash, in.Password)
		if err != nil {
			return nil, err
		}
		if right {
			return d.s.startSession(d.user.User, v, in.Code, d.user.Still)
		}
	}
	if d.mailbox != nil {
		right, err := g.Compare(ctx, d.mailbox.Identity.Name, d.mailbox.Mailbox.PasswordHash, in.Password)
		if err != nil {
			return nil, err
		}
		if right {
			return d.s.startMailboxSession(d.mailbox, v, in.Code)
		}
	}
	if in.As == "" && (d.user == nil || d.mailbox == nil) {
		// The time that it takes does not tell which addresses are of two.
		if _, err := g.Compare(ctx, d.identities()[0].Name, "", in.Password); err != nil {
			return nil, err
		}
	}
	if d.user != nil {
		d.s.accounts.RecordFailedLogin(core.UserActor(d.user.User), d.user.User.AccountID, v.IP, v.RequestID)
	}
	if d.mailbox != nil && (d.user == nil || d.user.User.AccountID != d.mailbox.Mailbox.AccountID) { // one row an account
		at := store.AuditActor{Type: store.AuditActorMailbox, ID: d.mailbox.Mailbox.ID, Name: d.mailbox.Mailbox.Email}
		d.s.accounts.RecordFailedLogin(at, d.mailbox.Mailbox.AccountID, v.IP, v.RequestID)
	}
	return nil, core.Errorf("invalid_credentials", "The email address or the password is wrong.")
}

// startSession begins the session of a user whose password was right: once more by the record as it
// is now, with the second factor where there is one.
func (s *Service) startSession(u *store.User, v Visitor, code string, still func(*store.Tx, *store.User) error) (out *SignedIn, err error) {
	err = s.withCode(u, v, code, func(tx *store.Tx, now *store.User) error {
		if err := still(tx, now); err != nil {
			return err
		}
		out, err = s.openSession(tx, now, v, now.PasswordGiven)
		return err
	})
	return out, err
}

// actor is a user who has shown by a password, a passkey or a link who they are.
func (v Visitor) actor(u *store.User, action string, fields ...string) core.Actor {
	return core.Actor{
		AccountID: u.AccountID, UserID: u.ID, MailboxID: u.MailboxID, Email: u.Email, TokenKind: core.SessionKind, IP: v.IP,
		Request: &core.Request{Action: action, Via: core.AuditDashboard, ID: v.RequestID, Fields: fields},
	}
}
