package store

import (
	"slices"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An Account is one tenant: everything that it owns is found under its id.
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
	SyncedAt       time.Time // of the newest refresh of every mailbox
	HeldToldAt     time.Time `json:",omitzero"` // when owner and admins were last told of what is held for approval
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// States of an account.
const (
	AccountActive    = "active"
	AccountSuspended = "suspended" // by the operator: it may do nothing, and its zones are served on
	AccountDeleting  = "deleting"  // by the operator: it may do nothing any more
)

// Plans of an account.
const (
	AccountPlanStartup    = "startup"
	AccountPlanEnterprise = "enterprise" // with higher limits on requests
)

// MayAct tells whether an account may do anything: ask, read, send and take mail, tell and report.
func (a *Account) MayAct() bool { return a.Status != AccountSuspended && !a.Gone() }

// Gone tells whether the account is being deleted.
func (a *Account) Gone() bool { return a.Status == AccountDeleting }

// Accounts keeps every account of the installation.
var (
	Accounts = engine.NewTable("account", func(a *Account) string { return a.ID }).
			Watched(func(_ *engine.Tx, a *Account) Change { return Change{Account: a.ID, ID: a.ID} })
	AccountByNum = Accounts.Unique("num", func(a *Account) string { return NumKey(a.Num) })
)

// NextAccountNum gives the next short account number.
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
	MailboxID    string `json:",omitempty"` // whose person it is; "": a team user
	Role         string // one of the UserRole… constants
	Status       string // one of the User… constants
	PasswordHash string // argon2id, PHC form; "" while none is set
	// PasswordGiven says that a token or an invitation set the password, and its user has not
	// chosen one since. It is false of records from before it was kept: nobody knows, and whoever
	// has worked with a password until then is let work on.
	PasswordGiven bool     `json:",omitempty"`
	Limited       bool     `json:",omitempty"` // a member who sees some mailboxes alone: Mailboxes
	Mailboxes     []string `json:",omitempty"` // ids, some perhaps of mailboxes that are gone
	InvitedBy     string   // a user id, or ""
	ResetHash     string   // SHA-256 of the token that sets a new password, hex; "" while there is none
	ResetExpires  time.Time
	Forgot        *Forgot   `json:",omitempty"` // nil: nobody has asked for a new password
	TOTP          *TOTP     `json:",omitempty"` // nil: there is no second factor
	Passkeys      []Passkey `json:",omitempty"`
	LastLoginAt   time.Time
	Seen          []SeenNetwork `json:",omitempty"` // where the user has signed in from, newest first
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

// States of a user.
const (
	UserInvited = "invited" // has no password yet
	UserActive  = "active"
)

// Roles of a user, each with what the next one may and more.
const (
	UserRoleOwner  = "owner"  // the one to whom the account belongs
	UserRoleAdmin  = "admin"  // manages the team and its tokens, but for owners and other admins
	UserRoleMember = "member" // works with domains and mail
	// UserRoleMailbox is of whoever has a mailbox and sees nothing else.
	UserRoleMailbox = "mailbox"
)

// A Forgot is a link that was sent by mail to somebody who forgot a password.
type Forgot struct {
	Hash    string // SHA-256 of its token, hex
	Expires time.Time
}

// A TOTP is a second factor by the clock (RFC 6238), and what stands in for it.
type TOTP struct {
	Sealed    []byte    // the shared secret, sealed
	Confirmed bool      // a first code has shown that the user has it too; until then it guards nothing
	LastStep  int64     // of the last code that was taken, so that none is taken twice
	Recovery  [][]byte  // HMAC of each recovery code that is left
	CreatedAt time.Time // of the secret
}

// A Passkey is a WebAuthn credential.
type Passkey struct {
	ID         string // pky_…
	Name       string
	Credential []byte // as the service reads it, JSON
	CreatedAt  time.Time
	LastUsedAt time.Time
}

// Users keeps the team users of every account, and the people of mailboxes, of whom there is a
// record from their first sign-in on: it has their second factor and passkeys, and the mailbox has
// their password.
var (
	Users = engine.NewTable("user", func(u *User) string { return u.ID }).
		Watched(func(_ *engine.Tx, u *User) Change { return Change{Account: u.AccountID, ID: u.ID} }).Sealed((*User).secrets)
	// UserByEmail finds team users alone, and so does UsersByAccount.
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

// A Token is what a program shows to the API or to MCP, or a browser as its cookie: then it is a
// session. It acts for its user, with no more than the user's role and its own permissions; it may
// be limited to some mailboxes, and to a Policy. Only the SHA-256 of its value is kept. It ends
// when it expires, is revoked, or with its user.
type Token struct {
	ID            string // tok_…
	AccountID     string
	UserID        string // whom it acts for
	CredentialID  string `json:",omitempty"` // of the mailbox that it came with; "": it came by itself
	Name          string
	Hash          string // SHA-256 of the whole token, hex
	Prefix        string // first 12 characters of the token
	Permissions   []string
	Kind          string // one of the TokenKind… constants
	CreatedAt     time.Time
	ExpiresAt     time.Time // zero: never; of a grant: when its refresh token ends
	LastUsedAt    time.Time
	LastUsedIP    string
	PasswordGiven bool      `json:",omitempty"` // of a session: it was begun with a password that is given, see User
	UserAgent     string    `json:",omitempty"` // of a session: the browser that signed in
	RevokedAt     time.Time // kept for a while after revocation, so that its use can be told apart

	Mailboxes []string `json:",omitempty"` // ids that it is limited to; none: it sees what its user sees
	OwnWords  bool     `json:",omitempty"` // what it sends counts as the account's own words
	Policy    Policy   `json:",omitzero"`
	Reading   *Reading `json:",omitempty"` // nil: it has read nothing that counts
	Grant     *Grant   `json:",omitempty"` // of a TokenKindOAuth
}

// Bound tells whether a token may change nobody's access, and nothing that happens by itself.
func (t *Token) Bound() bool {
	return len(t.Mailboxes) > 0 || t.Kind == TokenKindOAuth || !t.Policy.IsDefault()
}

// Kinds of a token.
const (
	TokenKindAPI     = "api"
	TokenKindMCP     = "mcp"     // for a model's client
	TokenKindOAuth   = "oauth"   // a grant that a person gave a client, for /mcp alone
	TokenKindSession = "session" // of the dashboard; the only kind that a browser has
)

// Tokens keeps the tokens of every account, revoked ones too.
var (
	Tokens = engine.NewTable("token", func(t *Token) string { return t.ID }).
		Watched(func(_ *engine.Tx, t *Token) Change { return Change{Account: t.AccountID, User: t.UserID, ID: t.ID} })
	TokenByHash     = Tokens.Unique("hash", func(t *Token) string { return t.Hash })
	TokensByAccount = Tokens.Index("account", func(t *Token) string { return t.AccountID })
	TokensByUser    = Tokens.Index("user", func(t *Token) string { return t.UserID })
	SessionsByTime  = Tokens.Index("session", sessionTime)
	// TokensLimited holds those that are limited to mailboxes and not revoked: under the mailbox,
	// or under the account if there are several.
	TokensLimited = Tokens.Index("limited", func(t *Token) string {
		switch {
		case len(t.Mailboxes) == 0 || !t.RevokedAt.IsZero():
			return ""
		case len(t.Mailboxes) == 1:
			return t.Mailboxes[0]
		}
		return t.AccountID
	})
	// TokensTainting holds those of an account that reading taints, that are limited to no mailbox
	// and are not revoked.
	TokensTainting = Tokens.Index("tainting", func(t *Token) string {
		if !t.Policy.Taint || len(t.Mailboxes) > 0 || !t.RevokedAt.IsZero() {
			return ""
		}
		return t.AccountID
	})
	TokenByCode   = Tokens.Unique("code", grantCode)
	TokenByFamily = Tokens.Unique("family", grantFamily)
)

// TokensOfMailbox gives the tokens of an account that are limited to a mailbox, or to several of
// which it is one.
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

// sessionTime is the key of dashboard sessions by their beginning, for pruning.
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

// DayStats keeps them under account id and date, so that an account's days are neighbours.
var (
	DayStats          = engine.NewTable("daystat", func(d *DayStat) string { return d.AccountID + d.Date })
	DayStatsByAccount = DayStats.Index("account", func(d *DayStat) string { return d.AccountID })
)

// An Idempotency is the remembered answer to a POST that carried an Idempotency-Key.
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

// Idempotencies keeps them for 24 hours; the time index is for pruning.
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
	Next        string    `json:",omitempty"` // the fingerprint of the key that takes over; "" while none does
	Resealed    int       `json:",omitempty"` // how many records were sealed under that one so far
	Past        []PastKey `json:",omitempty"` // newest first; while a key takes over, also the one of now
}

// A PastKey is what is kept of a master key from which another one took over.
type PastKey struct {
	Fingerprint string
	MacRoot     []byte // what authenticates links and addresses of its time, sealed under the master key
	Number      uint64 `json:",omitempty"` // of the commit behind which nothing is sealed under it; 0: there is something still
}

// MasterKeyID is the id of the one record of MasterKeys.
const MasterKeyID = "master"

// MasterKeys has one record, from the first start on.
var MasterKeys = engine.NewTable("master_key", func(k *MasterKey) string { return k.ID })

// An Alert is a check of the host that is not ok.
type Alert struct {
	ID      string // see AlertID
	Code    string
	Subject string
	Status  string    // that was told last; "" as long as nobody was told
	Since   time.Time // when it was first seen
}

// AlertID is the id of an alert about a subject.
func AlertID(code, subject string) string { return code + " " + subject }

// Alerts has what is not ok.
var Alerts = engine.NewTable("alert", func(a *Alert) string { return a.ID })

// A SandboxClock says how far the clock of a sandbox was advanced.
type SandboxClock struct {
	ID    string // SandboxClockID
	Ahead time.Duration
}

// SandboxClockID is the id of the one record of SandboxClocks.
const SandboxClockID = "clock"

// SandboxClocks has one record, once a clock was advanced.
var SandboxClocks = engine.NewTable("sandbox_clock", func(c *SandboxClock) string { return c.ID })
