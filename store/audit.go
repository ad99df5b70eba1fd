package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An Audit is one row of an account's audit log: a change that took effect, a read of a secret, or
// a log-in to the dashboard. It holds the names of fields, never their values.
type Audit struct {
	ID        string // aud_…
	AccountID string // the account that the log belongs to
	Action    string // name of an operation or of an operator's command; or login, login_failed
	Actor     AuditActor
	Via       string      // api, mcp, dashboard or command
	IP        string      `json:",omitempty"`
	Target    AuditTarget `json:",omitzero"` // zero: there is no target, or several
	Fields    []string    `json:",omitempty"`
	Count     int         // the number of objects or attempts that the row stands for
	RequestID string      `json:",omitempty"`
	CreatedAt time.Time   // the same time as in the id
	Minute    time.Time   `json:",omitzero"` // only for failed log-ins: the minute in which they happened
}

// An AuditActor is the person, program or system that acted.
type AuditActor struct {
	Type string // one of the AuditActor… constants
	ID   string `json:",omitempty"`
	Name string
}

// An AuditTarget is the object that was acted on.
type AuditTarget struct {
	Type, ID, Name string
}

// Values of AuditActor.Type.
const (
	AuditActorUser     = "user" // in a dashboard session
	AuditActorToken    = "token"
	AuditActorMailbox  = "mailbox"
	AuditActorOperator = "operator" // by a command on the server itself
	AuditActorSystem   = "system"
)

// Audits keeps the audit logs of every account. All failed log-ins of one minute, account and IP
// address share one row, which FailedLogins finds.
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

// FailedLoginKey returns the key in FailedLogins of the row that counts the failed log-ins of one
// minute, account and IP address.
func FailedLoginKey(minute time.Time, accountID, ip string) string {
	return TimeKey(minute) + accountID + "\x00" + ip
}
