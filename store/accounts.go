package store

import (
	"slices"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An Account is one tenant: all its records are found under its id.
type Account struct {
	ID             string // acc_…
	Num            uint32 // short form for message keys, from 1
	Name           string
	Email          string // the owner's address
	Plan           string // one of the AccountPlan… constants
	Status         string // one of the Account… constants
	DeleteJob      string `json:",omitempty"` // the job that deletes it
	UniversalInbox bool
	WarmupPhrases  []string
	SyncedAt       time.Time // the newest refresh of all its mailboxes
	HeldToldAt     time.Time `json:",omitzero"` // when its owner and admins were last notified of messages held for approval
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// States of an account.
const (
	AccountActive    = "active"
	AccountSuspended = "suspended" // by the operator: it may do nothing, but its zones are still served
	AccountDeleting  = "deleting"  // by the operator: it may do nothing any more, and a job deletes it
)

// Plans of an account.
const (
	AccountPlanStartup    = "startup"
	AccountPlanEnterprise = "enterprise" // with higher limits on requests
)

// MayAct reports whether an account may do anything: call the API, read, send and receive mail, or
// send notifications and reports.
func (a *Account) MayAct() bool { return a.Status != AccountSuspended && !a.Gone() }

// Gone reports whether the account is being deleted.
func (a *Account) Gone() bool { return a.Status == AccountDeleting }

// Accounts keeps every account of the installation.
var (
	Accounts = engine.NewTable("account", func(a *Account) string { return a.ID }).
			Watched(func(_ *engine.Tx, a *Account) Change { return Change{Account: a.ID, ID: a.ID} })
	AccountByNum = Accounts.Unique("num", func(a *Account) string { return NumKey(a.Num) })
)

// NextAccountNum returns the next short account number.
func (tx *Tx) NextAccountNum() (uint32, error) {
	n, err := Accounts.NextNumber(tx)
	return uint32(n), err
}

// A User is a person of an account's team. One address belongs to one user of the installation.
type User struct {
	ID           string // usr_…
	AccountID    string
	Email        string // lower-case
	FirstName    string
	LastName     string
	MailboxID    string `json:",omitempty"` // the mailbox that this person owns; "": a team user
	Role         string // one of the UserRole… constants
	Status       string // one of the User… constants
	PasswordHash string // argon2id, PHC form; "" while none is set
	// PasswordGiven says that a token or an invitation set the password, and the user has not
	// chosen a new one since. It is false in records older than this field, since it is not known
	// there; those users may go on working with their password.
	PasswordGiven bool     `json:",omitempty"`
	Limited       bool     `json:",omitempty"` // a member who sees only the mailboxes in Mailboxes
	Mailboxes     []string `json:",omitempty"` // ids; some of these mailboxes may be gone
	InvitedBy     string   // a user id, or ""
	ResetHash     string   // SHA-256 of the token that sets a new password, hex; "" if there is none
	ResetExpires  time.Time
	Forgot        *Forgot   `json:",omitempty"` // nil: no link to a new password was requested
	TOTP          *TOTP     `json:",omitempty"` // nil: there is no second factor
	Passkeys      []Passkey `json:",omitempty"`
	LastLoginAt   time.Time
	Seen          []SeenNetwork `json:",omitempty"` // networks that the user has signed in from, newest first
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

// States of a user.
const (
	UserInvited = "invited" // has no password yet
	UserActive  = "active"
)

// Roles of a user. Each may do all that the next one may, and more.
const (
	UserRoleOwner  = "owner"  // owns the account
	UserRoleAdmin  = "admin"  // manages the team and its tokens, but for owners and other admins
	UserRoleMember = "member" // works with domains and mail
	// UserRoleMailbox is the role of a mailbox's owner, who sees nothing but that mailbox.
	UserRoleMailbox = "mailbox"
)

// A Forgot is a password reset link that was sent by mail.
type Forgot struct {
	Hash    string // SHA-256 of its token, hex
	Expires time.Time
}

// A TOTP is a time-based one-time password as second factor (RFC 6238), with its recovery codes.
type TOTP struct {
	Sealed    []byte    // the shared secret, sealed
	Confirmed bool      // the user has entered a first code; until then the factor is not asked for
	LastStep  int64     // time step of the last code that was accepted, so that no code is accepted twice
	Recovery  [][]byte  // HMAC of each unused recovery code
	CreatedAt time.Time // when the secret was made
}

// A Passkey is a WebAuthn credential.
type Passkey struct {
	ID         string // pky_…
	Name       string
	Credential []byte // as the service reads it, JSON
	CreatedAt  time.Time
	LastUsedAt time.Time
}

// Users keeps the team users of every account and the owners of mailboxes. The record of a mailbox
// owner exists from the first sign-in on. It holds the second factor and the passkeys; the password
// is in the mailbox.
var (
	Users = engine.NewTable("user", func(u *User) string { return u.ID }).
		Watched(func(_ *engine.Tx, u *User) Change { return Change{Account: u.AccountID, ID: u.ID} }).Sealed((*User).secrets)
	// UserByEmail and UsersByAccount find only team users.
	UserByEmail = Users.Unique("email", func(u *User) string {
		if u.MailboxID != "" {
			return ""
		}
		return u.Email
	})
	UserByMailbox  = Users.Unique("mailbox", func(u *User) string { return u.MailboxID })
	UserByReset    = Users.Unique("reset", func(u *User) string { return u.ResetHash })
	UserByForgot   = Users.Unique("forgot", forgotHash)
	UsersByAccount = Users.Index("account", func(u *User) string {
		if u.MailboxID != "" {
			return ""
		}
		return u.AccountID
	})
)

func forgotHash(u *User) string {
	if u.Forgot == nil {
		return ""
	}
	return u.Forgot.Hash
}

// A Token authenticates a program at the API or MCP, or a browser by its cookie: then it is a
// session. It acts for its user, with at most the user's role and its own permissions. It may be
// limited to some mailboxes and by a Policy. Only the SHA-256 of its value is kept. It ends when it
// expires, when it is revoked, or with its user.
type Token struct {
	ID            string // tok_…
	AccountID     string
	UserID        string // the user that it acts for
	CredentialID  string `json:",omitempty"` // of the app password that was made with it; "": none was
	Name          string
	Hash          string // SHA-256 of the whole token, hex
	Prefix        string // first 12 characters of the token
	Permissions   []string
	Kind          string // one of the TokenKind… constants
	CreatedAt     time.Time
	ExpiresAt     time.Time // zero: never; of a grant: when its refresh token expires
	LastUsedAt    time.Time
	LastUsedIP    string
	PasswordGiven bool      `json:",omitempty"` // of a session: its password was set by a token or invitation, see User.PasswordGiven
	UserAgent     string    `json:",omitempty"` // of a session: the browser that signed in
	RevokedAt     time.Time // kept for a while after revocation, so that its use can be recognised

	Mailboxes []string `json:",omitempty"` // ids that it is limited to; none: it sees all that its user sees
	OwnWords  bool     `json:",omitempty"` // its messages count as the account's own words
	Policy    Policy   `json:",omitzero"`
	Reading   *Reading `json:",omitempty"` // nil: it has read nothing that taints
	Grant     *Grant   `json:",omitempty"` // of a TokenKindOAuth
}

// Bound reports whether a token is barred from changing anybody's access and anything that runs
// automatically.
func (t *Token) Bound() bool {
	return len(t.Mailboxes) > 0 || t.Kind == TokenKindOAuth || !t.Policy.IsDefault()
}

// Kinds of a token.
const (
	TokenKindAPI     = "api"
	TokenKindMCP     = "mcp"     // for the client of a model
	TokenKindOAuth   = "oauth"   // a grant by a person to a client, for /mcp only
	TokenKindSession = "session" // of the dashboard; the only kind that a browser holds
)

// Tokens keeps the tokens of every account, revoked ones too.
var (
	Tokens = engine.NewTable("token", func(t *Token) string { return t.ID }).
		Watched(func(_ *engine.Tx, t *Token) Change { return Change{Account: t.AccountID, User: t.UserID, ID: t.ID} })
	TokenByHash     = Tokens.Unique("hash", func(t *Token) string { return t.Hash })
	TokensByAccount = Tokens.Index("account", func(t *Token) string { return t.AccountID })
	TokensByUser    = Tokens.Index("user", func(t *Token) string { return t.UserID })
	SessionsByTime  = Tokens.Index("session", sessionTime)
	// TokensLimited holds the tokens that are limited to mailboxes and not revoked: under the
	// mailbox, or under the account if there are several mailboxes.
	TokensLimited = Tokens.Index("limited", func(t *Token) string {
		switch {
		case len(t.Mailboxes) == 0 || !t.RevokedAt.IsZero():
			return ""
		case len(t.Mailboxes) == 1:
			return t.Mailboxes[0]
		}
		return t.AccountID
	})
	// TokensTainting holds the tokens of an account that reading taints, that are not limited to
	// mailboxes and not revoked.
	TokensTainting = Tokens.Index("tainting", func(t *Token) string {
		if !t.Policy.Taint || len(t.Mailboxes) > 0 || !t.RevokedAt.IsZero() {
			return ""
		}
		return t.AccountID
	})
	TokenByCode   = Tokens.Unique("code", grantCode)
	TokenByFamily = Tokens.Unique("family", grantFamily)
)

// TokensOfMailbox returns the tokens of an account that are limited to this mailbox, or to several
// mailboxes including it.
func TokensOfMailbox(tx *Tx, accountID, mailboxID string) (list []*Token) {
	for _, t := range TokensLimited.Asc(tx, mailboxID, "") {
		list = append(list, t)
	}
	for _, t := range TokensLimited.Asc(tx, accountID, "") {
		if slices.Contains(t.Mailboxes, mailboxID) {
			list = append(list, t)
		}
	}
	return list
}

// sessionTime is the key of a dashboard session by its creation time, for pruning.
func sessionTime(t *Token) string {
	if t.Kind != TokenKindSession {
		return ""
	}
	return TimeKey(t.CreatedAt)
}

// A DayStat counts an account's traffic on one UTC day.
type DayStat struct {
	AccountID  string
	Date       string // YYYY-MM-DD
	Sent       int64
	Received   int64
	Bounced    int64
	Complained int64
}

// DayStats keeps the day counts under account id and date, so that the days of an account are
// adjacent.
var (
	DayStats          = engine.NewTable("daystat", func(d *DayStat) string { return d.AccountID + d.Date })
	DayStatsByAccount = DayStats.Index("account", func(d *DayStat) string { return d.AccountID })
)

// An Idempotency is the stored response to a POST that carried an Idempotency-Key.
type Idempotency struct {
	ID          string // SHA-256 of token, method, path and key, hex
	BodyHash    string // SHA-256 of the request body, hex
	Status      int
	ContentType string
	Location    string
	Sealed      []byte // the body, sealed, since it may hold a secret
	Omitted     bool   `json:",omitzero"` // the body was too large to be kept
	CreatedAt   time.Time
}

// Idempotencies keeps the responses for 24 hours; the time index is for pruning.
var (
	Idempotencies     = engine.NewTable("idempotency", func(i *Idempotency) string { return i.ID }).Sealed((*Idempotency).secrets)
	IdempotencyByTime = Idempotencies.Index("time", func(i *Idempotency) string { return TimeKey(i.CreatedAt) })
)

// A MasterKey says which master key the secrets of this store are sealed under. The key itself is
// never in the store.
type MasterKey struct {
	ID          string // MasterKeyID
	Fingerprint string
	Since       time.Time
	Next        string    `json:",omitempty"` // the fingerprint of the key that replaces it; "" if none does
	Resealed    int       `json:",omitempty"` // how many records were sealed under the new key so far
	Past        []PastKey `json:",omitempty"` // newest first; during a replacement, the current key is among them
}

// A PastKey is a record of a master key that was replaced.
type PastKey struct {
	Fingerprint string
	MacRoot     []byte // root key of the MACs of links and addresses from its time, sealed under the master key
	Number      uint64 `json:",omitempty"` // of the last commit that has values sealed under it; 0: there are such values still
}

// MasterKeyID is the id of the one record of MasterKeys.
const MasterKeyID = "master"

// MasterKeys has one record, from the first start on.
var MasterKeys = engine.NewTable("master_key", func(k *MasterKey) string { return k.ID })

// An Alert is a health check of the host whose status is not ok.
type Alert struct {
	ID      string // see AlertID
	Code    string
	Subject string
	Status  string    // the status that was last notified; "" if nobody was notified yet
	Since   time.Time // when it was first seen
}

// AlertID returns the id of an alert about a subject.
func AlertID(code, subject string) string { return code + " " + subject }

// Alerts keeps the health checks that are not ok.
var Alerts = engine.NewTable("alert", func(a *Alert) string { return a.ID })

// A SandboxClock says how far the clock of a sandbox was advanced.
type SandboxClock struct {
	ID    string // SandboxClockID
	Ahead time.Duration
}

// SandboxClockID is the id of the one record of SandboxClocks.
const SandboxClockID = "clock"

// SandboxClocks has one record, once the clock was advanced.
var SandboxClocks = engine.NewTable("sandbox_clock", func(c *SandboxClock) string { return c.ID })
