package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An Audit is one row of an account's audit log: a change that took effect, a read of a secret, or
// a log-in to the dashboard. It holds names only, never what a field was set to.
type Audit struct {
	ID        string // aud_…
	AccountID string // whose log it is in
	Action    string // an operation, login, login_failed, or a command of the operator
	Actor     AuditActor
	Via       string      // api mcp dashboard command
	IP        string      `json:",omitempty"`
	Target    AuditTarget `json:",omitzero"` // zero: nothing, or several things
	Fields    []string    `json:",omitempty"`
	Count     int         // how many things or attempts the row stands for
	RequestID string      `json:",omitempty"`
	CreatedAt time.Time   // the time in the id
	Minute    time.Time   `json:",omitzero"` // of failed log-ins alone: the minute that they were in
}

// An AuditActor is who did it.
type AuditActor struct {
	Type string // one of the AuditActor… constants
	ID   string `json:",omitempty"`
	Name string
}

// An AuditTarget is what it was done to.
type AuditTarget struct {
	Type, ID, Name string
}

// Kinds of actors.
const (
	AuditActorUser     = "user" // in a session of the dashboard
	AuditActorToken    = "token"
	AuditActorMailbox  = "mailbox"
	AuditActorOperator = "operator" // on the server itself
	AuditActorSystem   = "system"
)

// Audits keeps the audit logs of every account. Of failed log-ins there is one row for each minute,
// account and IP address.
var (
	Audits          = engine.NewTable("audit", func(a *Audit) string { return a.ID })
	AuditsByAccount = Audits.Index("account", func(a *Audit) string { return a.AccountID })
	FailedLogins    = Audits.Unique("failed", func(a *Audit) string {
		if a.Minute.IsZero() {
			return ""
		}
		return FailedLoginKey(a.Minute, a.AccountID, a.IP)
	})
)

// FailedLoginKey is the key of FailedLogins.
func FailedLoginKey(minute time.Time, accountID, ip string) string {
	return TimeKey(minute) + accountID + "\x00" + ip
}
