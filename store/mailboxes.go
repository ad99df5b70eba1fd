package store

import (
	"encoding/binary"
	"time"
)

// A Mailbox is one address that takes and sends mail; the API calls it an email user.
type Mailbox struct {
	ID             string // eu_…
	Num            uint32 // short form for message keys, from 1, never used again
	AccountID      string
	AccountNum     uint32
	DomainID       string
	Email          string // lower-case
	Name           string
	Status         string // pending active suspended error deleting
	Ready          bool   // its domain was complete once, and email_user.created has fired
	JobID          string // the job that deletes it
	ErrorText      string
	Type           string // hosted external
	PasswordHash   string // argon2id, PHC form
	PasswordSealed []byte // the same password under the master key, for export
	Footer         string
	DailySendLimit *int
	SentDay        string // YYYY-MM-DD that SentToday counts
	SentToday      int    // recipients
	ForwardTo      string
	Relay          string // the name of the relay that its mail goes through; "" for what its domain does
	QuotaBytes     *int64
	External       *External
	LastSyncAt     time.Time
	LastLoginAt    time.Time
	Seen           []SeenNetwork `json:",omitempty"` // where it was logged in to from, newest first
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// A SeenNetwork is where somebody has logged in from: an IPv4 address, an IPv6 /64.
type SeenNetwork struct {
	Network string
	At      time.Time
}

// External says where the mail of a mailbox of type external lives.
type External struct {
	IMAP Server
	SMTP *Server
}

// A Server is a mail server elsewhere and the log-in to it.
type Server struct {
	Host           string
	Port           int
	Security       string // tls starttls none
	Username       string
	PasswordSealed []byte
}

// Mailboxes keeps the mailboxes of every account.
var (
	Mailboxes = newTable("mailbox", func(m *Mailbox) string { return m.ID }).
			tells(func(_ *Tx, m *Mailbox) Change { return Change{Account: m.AccountID, ID: m.ID} })
	// MailboxByEmail lacks those that are being deleted, so that their addresses are free at once.
	MailboxByEmail = Mailboxes.unique("email", func(m *Mailbox) string {
		if m.Status == "deleting" {
			return ""
		}
		return m.Email
	})
	MailboxByNum       = Mailboxes.unique("num", func(m *Mailbox) string { return NumKey(m.Num) })
	MailboxesByAccount = Mailboxes.index("account", func(m *Mailbox) string { return m.AccountID })
	MailboxesByDomain  = Mailboxes.index("domain", func(m *Mailbox) string { return m.DomainID })
	// MailboxesWaiting holds by domain those that are not ready yet.
	MailboxesWaiting = Mailboxes.index("waiting", func(m *Mailbox) string {
		if m.Ready || m.Status == "deleting" {
			return ""
		}
		return m.DomainID
	})
)

// NextMailboxNum gives the next short mailbox number.
func (tx *Tx) NextMailboxNum() (uint32, error) {
	n, err := tx.next(Mailboxes.name)
	return uint32(n), err
}

// NumKey is the key of AccountByNum and MailboxByNum.
func NumKey(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// A Template is a named list of usernames.
type Template struct {
	ID        string // tpl_…
	AccountID string
	Name      string
	Usernames []string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Templates keeps the templates of every account.
var (
	Templates = newTable("template", func(t *Template) string { return t.ID }).
			tells(func(_ *Tx, t *Template) Change { return Change{Account: t.AccountID, ID: t.ID} })
	TemplatesByAccount = Templates.index("account", func(t *Template) string { return t.AccountID })
)
