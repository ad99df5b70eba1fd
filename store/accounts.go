package store

import (
	"math"
	"slices"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An Account is one tenant. All records of the tenant have its ID.
type Account struct {
	ID             string // acc_…
	Num            uint32 // short number in the keys of messages, from 1
	Name           string
	Email          string // the owner's address
	Plan           string // one of the AccountPlan… constants
	Status         string // one of the Account… constants
	DeleteJob      string `json:",omitempty"` // id of the job that deletes it
	UniversalInbox bool
	WarmupPhrases  []string
	WarmupHeaders  []WarmupHeader `json:",omitempty"` // mail with one of these fields is warm-up mail too
	WarmupFolder   string         `json:",omitempty"` // name of the folder in which it is filed; "": it is filed as other mail
	WarmupDays     int            `json:",omitempty"` // how long it is kept there; 0: the default
	SyncedAt       time.Time      // when one of its external mailboxes was last synced, or a refresh found that it has none
	HeldToldAt     time.Time      `json:",omitzero"` // when its owner and admins were last notified of messages held for approval
	Limits         AccountLimits  `json:",omitzero"`
	DeleteAt       time.Time      `json:",omitzero"`  // when it will be deleted; it is suspended until then; zero: it stays
	SignInLink     *SignInLink    `json:",omitempty"` // nil: there is none that works
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// AccountLimits are the limits that the operator has set for one account. nil: the limit of the
// installation applies. 0: no limit.
type AccountLimits struct {
	Domains            *int   `json:",omitempty"`
	Mailboxes          *int   `json:",omitempty"`
	MailboxesPerDomain *int   `json:",omitempty"`
	TeamUsers          *int   `json:",omitempty"`
	Recipients         *int   `json:",omitempty"` // of one day (UTC)
	StorageBytes       *int64 `json:",omitempty"` // of all stored messages
}

// StorageLeft returns how many more bytes an account can store. The number is negative if it has
// more than its StorageBytes by now, and math.MaxInt64 if it has no such limit.
func (tx *Tx) StorageLeft(accountID string) (int64, error) {
	a, err := Accounts.FindShared(tx, accountID)
	if err != nil || a == nil || a.Limits.StorageBytes == nil || *a.Limits.StorageBytes == 0 {
		return math.MaxInt64, err
	}
	used, err := tx.AccountUsage(a.Num)
	return *a.Limits.StorageBytes - used.Bytes, err
}

// A SignInLink is a link with which the operator signs in to an account once.
type SignInLink struct {
	Hash    string    // SHA-256 of its secret, hex
	By      string    // see Token.LinkedBy
	Expires time.Time // also when the session ends that it begins
}

// A WarmupHeader is a header field by which warm-up mail is recognized.
type WarmupHeader struct {
	Name  string  // compared without regard to case
	Value *string // nil: any value
}

// Values of Account.Status.
const (
	AccountActive    = "active"
	AccountSuspended = "suspended" // the operator suspended it: it may do nothing, but its zones are still served
	AccountDeleting  = "deleting"  // the operator deleted it: it may do nothing, and a job deletes its records
)

// Values of Account.Plan.
const (
	AccountPlanStartup    = "startup"
	AccountPlanEnterprise = "enterprise" // with higher limits on requests
)

// DeletionPlanned reports whether the account is suspended until it is deleted.
func (a *Account) DeletionPlanned() bool { return !a.DeleteAt.IsZero() && !a.Gone() }

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
	// PasswordGiven says that a token or an invitation set the password, or that it was
	// generated and printed, and that the user has not chosen a new one since. It is false in
	// records that are older than this field; those users may keep their password.
	PasswordGiven bool     `json:",omitempty"`
	Limited       bool     `json:",omitempty"` // a member who sees only the mailboxes in Mailboxes
	Mailboxes     []string `json:",omitempty"` // ids; some of these mailboxes may be gone
	InvitedBy     string   // a user id, or ""
	Operator      bool     `json:",omitempty"` // an admin of the first account who may run the installation
	ResetHash     string   // SHA-256 of the token that sets a new password, hex; "" if there is none
	ResetExpires  time.Time
	Forgot        *ForgotLink `json:",omitempty"` // nil: no link to a new password was requested
	TOTP          *TOTP       `json:",omitempty"` // nil: there is no second factor
	Passkeys      []Passkey   `json:",omitempty"`
	LastLoginAt   time.Time
	Seen          []SeenNetwork `json:",omitempty"` // networks that the user has signed in from, newest first
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

// Values of User.Status.
const (
	UserInvited = "invited" // has no password yet
	UserActive  = "active"
)

// Values of User.Role. Each role may do all that the next one may, and more.
const (
	UserRoleOwner  = "owner"  // owns the account
	UserRoleAdmin  = "admin"  // manages the team and its tokens, except owners, other admins and their tokens
	UserRoleMember = "member" // works with domains and mail
	// UserRoleMailbox is the role of a mailbox's owner, who sees nothing but that mailbox.
	UserRoleMailbox = "mailbox"
)

// A ForgotLink is a password reset link that was sent by mail.
type ForgotLink struct {
	Hash    string // SHA-256 of its token, hex
	Expires time.Time
}

// A TOTP is a time-based one-time password as second factor (RFC 6238), with its recovery codes.
type TOTP struct {
	Sealed    []byte    // the shared secret, sealed
	Confirmed bool      // the user has entered a first code; until then the factor is not asked for
	LastStep  int64     // time step of the last code that was accepted, so that no code is accepted twice
	Recovery  [][]byte  // HMAC of each unused recovery code
	CreatedAt time.Time // when the shared secret was made
}

// A Passkey is a WebAuthn credential.
type Passkey struct {
	ID         string // pky_…
	Name       string
	Credential []byte // WebAuthn credential as JSON, encoded by the service
	CreatedAt  time.Time
	LastUsedAt time.Time
}

// Users keeps the team users of every account and the owners of mailboxes. The record of a mailbox
// owner exists from the first sign-in on. It holds the second factor and the passkeys; the password
// is in the mailbox.
var (
	Users = engine.NewTable("user", func(u *User) string { return u.ID }).
		Watched(func(_ *engine.Tx, u *User) Change { return Change{Account: u.AccountID, ID: u.ID} }).Sealed((*User).visitSecrets)
	// UserByEmail and UsersByAccount find only team users.
	UserByEmail = Users.Unique("email", func(u *User) string {
		if u.MailboxID != "" {
			return ""
		}
		return u.Email
	})
	UserByMailbox  = Users.Unique("mailbox", func(u *User) string { return u.MailboxID })
	UserByReset    = Users.Unique("reset", func(u *User) string { return u.ResetHash })
	UserByForgot   = Users.Unique("forgot", forgotHashKey)
	UsersByAccount = Users.Index("account", func(u *User) string {
		if u.MailboxID != "" {
			return ""
		}
		return u.AccountID
	})
)

func forgotHashKey(u *User) string {
	if u.Forgot == nil {
		return ""
	}
	return u.Forgot.Hash
}

// A Token authenticates a program at the API or at the MCP server. A browser has one in a cookie:
// such a token is a session. A token acts for its user, with at most the user's role and its own
// permissions. It may be limited to some mailboxes and by a Policy. Only the SHA-256 of its value
// is stored. It ends when it expires, when it is revoked, or with its user.
type Token struct {
	ID            string // tok_…
	AccountID     string
	UserID        string // the user that it acts for
	CredentialID  string `json:",omitempty"` // id of the app password that was made with it; "": none
	Name          string
	Hash          string // SHA-256 of the whole token, hex
	Prefix        string // first 12 characters of the token
	Permissions   []string
	Kind          string // one of the TokenKind… constants
	CreatedAt     time.Time
	ExpiresAt     time.Time // zero: never; for a grant, when its refresh token expires
	LastUsedAt    time.Time
	LastUsedIP    string
	PasswordGiven bool   `json:",omitempty"` // only for a session: it began with a password that its user had not chosen, see User.PasswordGiven
	UserAgent     string `json:",omitempty"` // only for a session: User-Agent of the browser that signed in
	// LinkedBy is only for a session: the id of the operator's user whose SignInLink began it, or
	// LinkedByCommand; "": the user itself has signed in.
	LinkedBy  string    `json:",omitempty"`
	RevokedAt time.Time // zero: not revoked; a revoked token is kept for some days, so that its use can be recognised

	Mailboxes []string `json:",omitempty"` // ids of the mailboxes that it is limited to; empty: those that its user may see
	OwnWords  bool     `json:",omitempty"` // the messages sent with it count as written by the account itself, so that reading them does not taint
	Policy    Policy   `json:",omitzero"`
	Reading   *Reading `json:",omitempty"` // what was read with it; nil: nothing
	Grant     *Grant   `json:",omitempty"` // only if Kind is TokenKindOAuth
}

// LinkedByCommand stands for the operator's user in Token.LinkedBy if a command made the link.
const LinkedByCommand = "local"

// IsRestricted reports whether a token is limited to mailboxes, restricted by a Policy, or granted
// by OAuth. Such a token may not change anybody's access, nor anything that runs automatically.
func (t *Token) IsRestricted() bool {
	return len(t.Mailboxes) > 0 || t.Kind == TokenKindOAuth || !t.Policy.IsDefault()
}

// Values of Token.Kind.
const (
	TokenKindAPI     = "api"
	TokenKindMCP     = "mcp"     // for an MCP client
	TokenKindOAuth   = "oauth"   // a person granted it to a client by OAuth, for /mcp only
	TokenKindSession = "session" // for the dashboard; the only kind that a browser holds
)

// Tokens keeps the tokens of every account, revoked ones too.
var (
	Tokens = engine.NewTable("token", func(t *Token) string { return t.ID }).
		Watched(func(_ *engine.Tx, t *Token) Change { return Change{Account: t.AccountID, User: t.UserID, ID: t.ID} })
	TokenByHash     = Tokens.Unique("hash", func(t *Token) string { return t.Hash })
	TokensByAccount = Tokens.Index("account", func(t *Token) string { return t.AccountID })
	TokensByUser    = Tokens.Index("user", func(t *Token) string { return t.UserID })
	SessionsByTime  = Tokens.Index("session", sessionCreationKey)
	// TokensLimited holds the tokens that are limited to mailboxes and not revoked. The key is the
	// mailbox, or the account if the token is limited to several mailboxes.
	TokensLimited = Tokens.Index("limited", func(t *Token) string {
		switch {
		case len(t.Mailboxes) == 0 || !t.RevokedAt.IsZero():
			return ""
		case len(t.Mailboxes) == 1:
			return t.Mailboxes[0]
		}
		return t.AccountID
	})
	// TokensTainting holds, by account, the tokens with Policy.Taint, except for revoked ones and
	// those that are limited to mailboxes.
	TokensTainting = Tokens.Index("tainting", func(t *Token) string {
		if !t.Policy.Taint || len(t.Mailboxes) > 0 || !t.RevokedAt.IsZero() {
			return ""
		}
		return t.AccountID
	})
	TokenByCode   = Tokens.Unique("code", grantCodeKey)
	TokenByFamily = Tokens.Unique("family", grantFamilyKey)
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

// sessionCreationKey returns the key of a token in SessionsByTime: the time at which the session
// was created, or "" if the token is not a session. Pruning reads the oldest session first.
func sessionCreationKey(t *Token) string {
	if t.Kind != TokenKindSession {
		return ""
	}
	return TimeKey(t.CreatedAt)
}

// A DayStat counts an account's traffic on one UTC day, and what it had on that day.
type DayStat struct {
	AccountID  string
	Date       string // YYYY-MM-DD
	Sent       int64
	Received   int64
	Bounced    int64
	Complained int64

	Noted        bool  `json:",omitempty"` // the following are known
	StorageBytes int64 `json:",omitempty"` // of all stored messages
	Mailboxes    int64 `json:",omitempty"`
	Domains      int64 `json:",omitempty"`
}

// DayStats keeps one record for each account and day. Its id is the account id and the date, so
// that the days of an account are adjacent.
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

// Idempotencies keeps the responses for 24 hours. Pruning reads IdempotencyByTime.
var (
	Idempotencies     = engine.NewTable("idempotency", func(i *Idempotency) string { return i.ID }).Sealed((*Idempotency).visitSecrets)
	IdempotencyByTime = Idempotencies.Index("time", func(i *Idempotency) string { return TimeKey(i.CreatedAt) })
)

// A MasterKeyRecord has the fingerprint of the master key that the secrets of this store are sealed
// under. The key itself is never in the store.
type MasterKeyRecord struct {
	ID          string // always MasterKeyID
	Fingerprint string
	Since       time.Time
	Next        string    `json:",omitempty"` // fingerprint of the key that is replacing it; "": none
	Resealed    int       `json:",omitempty"` // number of records that are sealed under the new key already
	Past        []PastKey `json:",omitempty"` // newest first; during a replacement, the current key is among them
}

// A PastKey is a record of a master key that was replaced.
type PastKey struct {
	Fingerprint string
	MacRoot     []byte // root key for the MACs in links and addresses that were made while it was in use; sealed under the current master key
	Number      uint64 `json:",omitempty"` // number of the last commit that had values sealed under it; 0: the store still has such values
}

// MasterKeyID is the id of the one record of MasterKeys.
const MasterKeyID = "master"

// MasterKeys has one record, which the first start makes.
var MasterKeys = engine.NewTable("master_key", func(k *MasterKeyRecord) string { return k.ID })

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

// Alerts keeps one record for each health check whose status is not ok.
var Alerts = engine.NewTable("alert", func(a *Alert) string { return a.ID })

// A Setting is a value that the operator set while the server ran.
type Setting struct {
	Key       string    // as in the API, such as limits.domains or relay."r1".host
	Sealed    []byte    // its value in JSON, sealed, since many are secrets
	CreatedAt time.Time // when the key got its first value
	UpdatedAt time.Time
}

// Settings keeps the settings that are not in the settings file.
var Settings = engine.NewTable("setting", func(s *Setting) string { return s.Key }).Sealed((*Setting).visitSecrets)

// A BackupDrill is the outcome of the last drill: an attempt to restore the newest backup.
type BackupDrill struct {
	ID          string // always BackupDrillID
	JobID       string // of the job that made it
	EndedAt     time.Time
	BackupAt    time.Time // the time of the commit that the backup ends with
	Messages    int64     // in the backup
	Decrypted   bool      // false: it is encrypted, so nothing but its checksums was verified
	Problems    int       // number of problems that were found
	Failed      string    // why the drill could not be carried out; "" if it was
	FaultlessAt time.Time // when the last drill without a problem ended; zero: there was none
}

// BackupDrillID is the id of the one record of BackupDrills.
const BackupDrillID = "last"

// OK reports whether the backup was restored, or verified, without a problem.
func (d *BackupDrill) OK() bool { return d.Failed == "" && d.Problems == 0 }

// BackupDrills has one record if a drill was ever made.
var BackupDrills = engine.NewTable("backup_drill", func(d *BackupDrill) string { return d.ID })

// A SandboxClock holds how far the clock of a sandbox was advanced.
type SandboxClock struct {
	ID    string // always SandboxClockID
	Ahead time.Duration
}

// SandboxClockID is the id of the one record of SandboxClocks.
const SandboxClockID = "clock"

// SandboxClocks has one record if the clock of the sandbox was ever advanced.
var SandboxClocks = engine.NewTable("sandbox_clock", func(c *SandboxClock) string { return c.ID })
