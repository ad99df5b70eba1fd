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

const maxSessions = 50 // of one user; one more ends the oldest

// A Visitor is a browser that signs in.
type Visitor struct {
	IP        string
	UserAgent string
	RequestID string
	Session   string // the cookie that the browser already has: its session ends when the new one begins; "" if none
}

// A Session is what the dashboard knows about the signed-in user.
type Session struct {
	Kind        string          `json:"kind"` // team or mailbox
	User        *SessionUser    `json:"user"` // null for the person of a mailbox
	Mailbox     *SessionMailbox `json:"mailbox"`
	Account     *SessionAccount `json:"account"`         // null for the person of a mailbox
	Given       bool            `json:"choose_password"` // the user did not choose the password: until they do, approving messages and signing programs in are refused
	Limited     bool            `json:"limited"`         // a member who sees only some mailboxes
	ByOperator  bool            `json:"by_operator"`     // the operator has signed in with a link: nothing about access is shown or can be changed
	Operator    bool            `json:"operator"`        // the user runs the installation, and may see its health
	Security    SessionSecurity `json:"security"`
	Permissions []string        `json:"permissions"`
	Sandbox     bool            `json:"sandbox"`
	Outbound    string          `json:"outbound"`  // how mail to other servers leaves: capture, relay, direct; domains may choose between the last two
	SMTPPort    int             `json:"smtp_port"` // the port on which this host receives mail; 0 if none
	Hostname    string          `json:"hostname"`
	Version     string          `json:"version"`
	APIBase     string          `json:"api_base"` // the URL that /v1/… is appended to
	ExpiresAt   core.Time       `json:"expires_at"`
}

// A SessionUser is the team user who is signed in. Name is the email address for a user without a
// name.
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

// SessionSecurity lists the signed-in user's proofs besides a password.
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

// A Message is an answer that consists of one sentence.
type Message struct {
	Message string `json:"message"`
}

// A SignedIn is a new session and the value of its cookie. The server stores only the hash of the
// value.
type SignedIn struct {
	Session
	UserID string
	Cookie string
}

// AuthenticateSession returns the actor of a session cookie, and records this use of the session
// from ip.
func (s *Service) AuthenticateSession(_ context.Context, value, ip string) (core.Actor, error) {
	if !core.IsWellFormedToken(value) {
		return core.Actor{}, core.ErrSignedOut()
	}
	var who core.Actor
	err := s.Store.View(func(tx *store.Tx) error {
		t, err := sessionByCookie(tx, value)
		if err != nil {
			return err
		}
		who, err = s.accounts.ActorOf(tx, t, ip)
		return err
	})
	return who, err
}

// sessionByCookie returns the session of a cookie. The record is shared and must not be changed.
// The error is 401 if the value is not that of a session.
func sessionByCookie(tx *store.Tx, value string) (*store.Token, error) {
	t, err := store.TokenByHash.Read(tx, core.TokenHash(value))
	if errors.Is(err, store.ErrNotFound) || err == nil && t.Kind != core.SessionKind {
		return nil, core.ErrSignedOut()
	}
	return t, err
}

// openSession begins a session in the transaction that has identified the user, and stores the
// user. It is always a new session, even if the browser has one. It revokes links that could set
// the password, since the user knows the password. passwordGiven says that the user did not
// choose it.
func (s *Service) openSession(tx *store.Tx, u *store.User, v Visitor, passwordGiven bool) (*SignedIn, error) {
	if err := endSession(tx, v.Session); err != nil {
		return nil, err
	}
	if err := endOldSessions(tx, u.ID); err != nil {
		return nil, err
	}
	if err := accounts.MaySignIn(tx, u); err != nil {
		return nil, err
	}
	value, t := newSession(tx, u, v)
	t.PasswordGiven = passwordGiven
	if err := store.Tokens.Put(tx, t); err != nil {
		return nil, err
	}
	accounts.DropResetLinks(u)
	u.LastLoginAt = tx.Now()
	u.Seen, _ = core.RecordNetwork(u.Seen, core.Network(v.IP), tx.Now())
	if err := errors.Join(store.Users.Put(tx, u), core.Audit(tx, v.actor(u, "login"), core.UserTarget(u))); err != nil {
		return nil, err
	}
	out, err := s.sessionOut(tx, u, t)
	if err != nil {
		return nil, err
	}
	return &SignedIn{*out, u.ID, value}, nil
}

// newSession returns a new session of a user, and the value of its cookie. The caller stores the
// session.
func newSession(tx *store.Tx, u *store.User, v Visitor) (value string, t *store.Token) {
	value, now := core.NewToken(), tx.Now()
	return value, &store.Token{
		ID: tx.NewID("tok"), AccountID: u.AccountID, UserID: u.ID, Name: "dashboard", Hash: core.TokenHash(value), Prefix: value[:12], Kind: core.SessionKind,
		Permissions: accounts.SessionPermissions(u.Role), CreatedAt: now, ExpiresAt: now.Add(accounts.SessionLife), LastUsedAt: now, LastUsedIP: v.IP,
		UserAgent: cleanUserAgent(v.UserAgent),
	}
}

// endOldSessions deletes ended sessions, and the oldest live ones until there is room for one more.
func endOldSessions(tx *store.Tx, userID string) error {
	var live []*store.Token // oldest first, since ids rise with time
	for _, t := range store.TokensByUser.Asc(tx, userID, "") {
		if t.Kind == core.SessionKind {
			live = append(live, t)
		}
	}
	now := tx.Now()
	for i, t := range live {
		if i < len(live)-maxSessions+1 || !now.Before(accounts.SessionEnds(t)) {
			if err := store.Tokens.Delete(tx, t.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// endSession ends the session of a cookie. It ignores a value that is not that of a session.
func endSession(tx *store.Tx, value string) error {
	if !core.IsWellFormedToken(value) {
		return nil
	}
	t, err := sessionByCookie(tx, value)
	if _, ours := core.AsError(err); ours {
		return nil
	}
	if err != nil {
		return err
	}
	return store.Tokens.Delete(tx, t.ID)
}

// cleanUserAgent removes control characters of a User-Agent header, and limits it to 300
// characters.
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
	used.LastUsedAt = tx.Now() // the current request is a use
	out := &Session{
		Kind: accounts.KindTeam, Security: SessionSecurity{Passkeys: []Passkey{}}, Permissions: accounts.SessionPermissions(u.Role),
		Sandbox: s.Config.Sandbox, Outbound: s.Outbound(), SMTPPort: s.Config.SMTPPort, Hostname: s.Hostname(), Version: s.Config.Version, APIBase: s.Config.BaseURL, ExpiresAt: core.Time{Time: accounts.SessionEnds(&used)},
	}
	if t.LinkedBy != "" {
		hidden := *u // the operator does not learn how its user signs in
		hidden.TOTP, hidden.Passkeys = nil, nil
		u, out.ByOperator, out.Permissions = &hidden, true, t.Permissions
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
	out.Operator, err = core.IsOperator(tx, u)
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

// GetSession returns the session of the signed-in user.
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

// sessionRecords reads the user and the session token of who; 401 if the session has ended
// meanwhile.
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

// SignOut ends the current session, or all sessions of its user.
func (s *Service) SignOut(ctx context.Context, who core.Actor, in SignOutIn) (*Message, error) {
	if who.LinkedBy != "" && in.Everywhere {
		return nil, core.ErrLinked("End sessions of others")
	}
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

// An OwnSession is one of the signed-in user's sessions.
type OwnSession struct {
	ID         string    `json:"id"`
	IP         string    `json:"ip"`
	UserAgent  string    `json:"user_agent"`
	CreatedAt  core.Time `json:"created_at"`
	LastUsedAt core.Time `json:"last_used_at"`
	Current    bool      `json:"current"`
	ByOperator bool      `json:"by_operator"` // the operator has signed in with a link, and is not told where from
}

// ListSessions lists the signed-in user's sessions that have not ended, newest first.
func (s *Service) ListSessions(_ context.Context, who core.Actor) (*core.List[OwnSession], error) {
	var out []OwnSession
	err := s.Store.View(func(tx *store.Tx) error {
		for _, t := range store.TokensByUser.Desc(tx, who.UserID, "") {
			if t.Kind == core.SessionKind && tx.Now().Before(accounts.SessionEnds(t)) {
				one := OwnSession{t.ID, t.LastUsedIP, t.UserAgent, core.Time{Time: t.CreatedAt}, core.Time{Time: t.LastUsedAt}, t.ID == who.TokenID, t.LinkedBy != ""}
				if one.ByOperator {
					one.IP, one.UserAgent = "", ""
				}
				out = append(out, one)
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

// EndSession ends one session of the signed-in user. Sessions of others are 404.
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

// SignInIn holds the credentials for signing in. Code is a code of the second factor, or a recovery
// code.
type SignInIn struct {
	Email    string `json:"email" required:"true" max:"254"`
	Password string `json:"password" required:"true" max:"1024"`
	Code     string `json:"code" max:"64"`
	As       string `json:"as" enum:"team|mailbox|"` // which of the two, if the address is both a team user's and a mailbox's
}

// SignIn begins a session. The errors are: 401 invalid_credentials, after the same time for an
// unknown address and for a wrong password; 401 second_factor_required when the password is right
// and a code is missing; 401 invalid_code; 403 account_suspended; 429 after too many wrong
// attempts; 503 busy when too many sign-ins are waiting.
func (s *Service) SignIn(ctx context.Context, v Visitor, in SignInIn) (*SignedIn, error) {
	address, err := core.NormalizeEmail("email", in.Email)
	if err != nil {
		address = in.Email // the address belongs to nobody; wrong passwords for it are counted all the same, and take as long
	}
	d, err := s.findCandidates(address, in.As, v.IP)
	if err != nil {
		return nil, err
	}
	g, err := s.BeginGuess(ctx, core.Network(v.IP), d.identities()...)
	if err != nil {
		return nil, err
	}
	defer g.End()
	if err := d.refresh(); err != nil { // the records may have changed during the wait
		return nil, err
	}
	out, err := d.tryPassword(ctx, g, v, in)
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("signed in", "user", out.UserID, "ip", v.IP, "how", "password")
	return out, nil
}

// candidates are the records of one address that a password is compared with: a team user, a
// mailbox, or both.
type candidates struct {
	s       *Service
	user    *accounts.PasswordLogin  // nil: not to be compared
	mailbox *mailboxes.PasswordLogin // nil: not to be compared
}

// findCandidates finds the records to compare a password with. It takes the same steps for an
// address that belongs to nobody.
func (s *Service) findCandidates(address, as, ip string) (*candidates, error) {
	d := &candidates{s: s}
	var err error
	if as != accounts.KindMailbox {
		d.user, err = s.accounts.FindPasswordLogin(address, ip)
		if err != nil {
			return nil, err
		}
	}
	if as != accounts.KindTeam {
		d.mailbox, err = s.mailboxes.FindPasswordLogin(address, ip)
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

// refresh reads the records of the candidates again.
func (d *candidates) refresh() error {
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

// identities returns the identities of all candidates. A wrong password is counted at each of them.
func (d *candidates) identities() (out []core.Identity) {
	if d.user != nil {
		out = append(out, d.user.Identity)
	}
	if d.mailbox != nil {
		out = append(out, d.mailbox.Identity)
	}
	return out
}

// tryPassword begins a session if the password is right. It compares the password with the team
// user's before the mailbox's.
func (d *candidates) tryPassword(ctx context.Context, g *core.Guess, v Visitor, in SignInIn) (*SignedIn, error) {
	if d.user != nil {
		right, err := g.Compare(ctx, d.user.Identity.Name, d.user.User.PasswordHash, in.Password)
		if err != nil {
			return nil, err
		}
		if right {
			return d.s.startSession(d.user.User, v, in.Code, d.user.CheckUnchanged)
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
		// Compare twice in any case, so that the time does not reveal which addresses have two
		// records.
		if _, err := g.Compare(ctx, d.identities()[0].Name, "", in.Password); err != nil {
			return nil, err
		}
	}
	if d.user != nil {
		d.s.accounts.RecordFailedLogin(core.UserActor(d.user.User), d.user.User.AccountID, v.IP, v.RequestID)
	}
	if d.mailbox != nil && (d.user == nil || d.user.User.AccountID != d.mailbox.Mailbox.AccountID) { // one audit row per account
		at := store.AuditActor{Type: store.AuditActorMailbox, ID: d.mailbox.Mailbox.ID, Name: d.mailbox.Mailbox.Email}
		d.s.accounts.RecordFailedLogin(at, d.mailbox.Mailbox.AccountID, v.IP, v.RequestID)
	}
	return nil, core.Errorf("invalid_credentials", "The email address or the password is wrong.")
}

// startSession begins the session of a user whose password was right. It reads the record again,
// and checks the second factor if the user has one. checkUnchanged returns an error if the password
// was changed meanwhile.
func (s *Service) startSession(u *store.User, v Visitor, code string, checkUnchanged func(*store.Tx, *store.User) error) (out *SignedIn, err error) {
	err = s.withSecondFactor(u, v, code, func(tx *store.Tx, now *store.User) error {
		if err := checkUnchanged(tx, now); err != nil {
			return err
		}
		out, err = s.openSession(tx, now, v, now.PasswordGiven)
		return err
	})
	return out, err
}

// actor returns the actor for the audit log, of a user who was identified by a password, a passkey
// or a link.
func (v Visitor) actor(u *store.User, action string, fields ...string) core.Actor {
	return core.Actor{
		AccountID: u.AccountID, UserID: u.ID, MailboxID: u.MailboxID, Email: u.Email, TokenKind: core.SessionKind, IP: v.IP,
		Request: &core.Request{Action: action, Via: core.AuditDashboard, ID: v.RequestID, Fields: fields},
	}
}
