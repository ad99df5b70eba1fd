package store

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// A SendDay counts the recipients of a mailbox, a domain or an account on one UTC day.
type SendDay struct {
	AccountID  string `json:",omitzero"`
	Day        string `json:",omitzero"` // YYYY-MM-DD
	Subject    string `json:",omitzero"` // the id of the mailbox, the domain or the account
	Recipients int    `json:",omitzero"`
	New        int    `json:",omitzero"` // of Recipients, the external addresses that were not Contacts of the account
}

// SendDayID returns the id of a SendDay.
func SendDayID(accountID, day, subject string) string { return accountID + day + subject }

func (d *SendDay) fields(c *rowform.Coder) {
	c.Version(1)
	c.String(&d.AccountID)
	c.String(&d.Day)
	c.String(&d.Subject)
	rowform.Int(c, &d.Recipients)
	rowform.Int(c, &d.New)
}

// SendDays keeps the counts until the day after; SendDaysByTime finds the expired ones.
var (
	SendDays       = engine.NewTable("send_day", func(d *SendDay) string { return SendDayID(d.AccountID, d.Day, d.Subject) }).Binary((*SendDay).fields)
	SendDaysByTime = SendDays.Index("time", func(d *SendDay) string {
		day, _ := time.Parse(time.DateOnly, d.Day)
		return TimeKey(day.AddDate(0, 0, 2))
	})
)

// A Contact is an external address that an account wrote to, or that wrote to the account, within
// ContactKept days.
type Contact struct {
	AccountID string `json:",omitzero"`
	Hash      string `json:",omitzero"` // the first 16 bytes of the SHA-256 of the address
	Day       int    `json:",omitzero"` // of the newest message, counted from 1970-01-01, UTC
}

// ContactKept is how many days an account keeps a contact.
const ContactKept = 90

// ContactID returns the id of an account's contact with a lower-case address.
func ContactID(accountID, email string) string {
	sum := sha256.Sum256([]byte(email))
	return accountID + string(sum[:16])
}

// DayNumber returns the number of days from 1970-01-01 to a time, UTC.
func DayNumber(t time.Time) int { return int(t.Unix() / (24 * 60 * 60)) }

func (a *Contact) fields(c *rowform.Coder) {
	c.Version(1)
	c.String(&a.AccountID)
	c.String(&a.Hash)
	rowform.Int(c, &a.Day)
}

// Contacts keeps the contacts; ContactsByTime finds the expired ones.
var (
	Contacts       = engine.NewTable("contact", func(c *Contact) string { return c.AccountID + c.Hash }).Binary((*Contact).fields)
	ContactsByTime = Contacts.Index("time", func(c *Contact) string {
		return TimeKey(time.Unix(int64(c.Day)*24*60*60, 0).UTC().AddDate(0, 0, ContactKept+1))
	})
)

// SendingPaused records why a mailbox or a domain may not send until somebody resumes it.
type SendingPaused struct {
	Reason string // one of the Paused… constants
	At     time.Time
}

// Why sending is paused.
const (
	PausedBounces    = "bounces"
	PausedComplaints = "complaints"
)

// Counting records from when on bounces and complaints count against a mailbox or a domain.
type Counting struct {
	Since time.Time
	Base  HourCount // counts of that hour before Since, which do not count
}

// An HourCount counts the outcomes of messages in one hour of a day.
type HourCount struct {
	Hour       int `json:",omitzero"` // UTC
	Sent       int `json:",omitzero"` // recipients after their first attempt
	Deferred   int `json:",omitzero"` // of Sent, those whose first attempt was deferred
	Bounced    int `json:",omitzero"` // refused permanently, at once or later
	Blocked    int `json:",omitzero"` // of Bounced, those refused because of this host's reputation or the content
	Complained int `json:",omitzero"`
}

func (h *HourCount) fields(c *rowform.Coder) {
	rowform.Int(c, &h.Hour)
	rowform.Int(c, &h.Sent)
	rowform.Int(c, &h.Deferred)
	rowform.Int(c, &h.Bounced)
	rowform.Int(c, &h.Blocked)
	rowform.Int(c, &h.Complained)
}

// A SendCount holds the outcomes of messages on one UTC day: of a mailbox, a domain, an account, or
// of an account at one receiving operator.
type SendCount struct {
	AccountID string      `json:",omitzero"`
	Day       string      `json:",omitzero"`  // YYYY-MM-DD
	Subject   string      `json:",omitzero"`  // the id of the mailbox, domain or account, or "@" and the operator
	Domains   []string    `json:",omitempty"` // for an operator: some of the recipient domains
	Hours     []HourCount `json:",omitempty"` // hours with messages, in order
}

func (d *SendCount) fields(c *rowform.Coder) {
	c.Version(1)
	c.String(&d.AccountID)
	c.String(&d.Day)
	c.String(&d.Subject)
	rowform.List(c, &d.Hours, (*HourCount).fields)
	domains := strings.Join(d.Domains, " ")
	c.String(&domains)
	d.Domains = strings.Fields(domains)
}

// SendCountDays is how many days the counts are kept.
const SendCountDays = 31

// SendCounts keeps the counts; those of an account on one day are adjacent.
var (
	SendCounts       = engine.NewTable("send_count", func(d *SendCount) string { return SendDayID(d.AccountID, d.Day, d.Subject) }).Binary((*SendCount).fields)
	SendCountsByTime = SendCounts.Index("time", func(d *SendCount) string {
		day, _ := time.Parse(time.DateOnly, d.Day)
		return TimeKey(day.AddDate(0, 0, SendCountDays+1))
	})
	SendCountsByDay = SendCounts.Index("day", func(d *SendCount) string { return d.AccountID + d.Day })
)

// A SendAlert is an alert that an account was notified of. It is kept while it lasts.
type SendAlert struct {
	AccountID string
	Kind      string // limit bounces complaints blocked
	Scope     string // mailbox domain account
	Subject   string // the id of the scope; the operator if Kind is blocked
	At        time.Time
	Until     time.Time // when it expires
	Reply     string    `json:",omitempty"` // SMTP reply of the receiver that blocks
	Advice    string    `json:",omitempty"`
}

// SendAlertID returns the id of an alert.
func SendAlertID(accountID, kind, scope, subject string) string {
	return accountID + kind + " " + scope + " " + subject
}

// SendAlerts keeps the alerts that last.
var (
	SendAlerts       = engine.NewTable("send_alert", func(a *SendAlert) string { return SendAlertID(a.AccountID, a.Kind, a.Scope, a.Subject) })
	SendAlertsByTime = SendAlerts.Index("time", func(a *SendAlert) string { return TimeKey(a.Until) })
)

// A Hold stops the queued messages of a mailbox from being sent.
type Hold struct {
	MailboxID string
	AccountID string
	At        time.Time // messages that were queued until then are held
	Until     time.Time // when messages that are still held are discarded, if the mailbox is gone by then
}

// Holds reports whether a message in the sending log is held by h.
func (h *Hold) Holds(o *Outgoing) bool { return !o.QueuedAt.After(h.At) && o.HeldAt.Before(h.At) }

// Holds keeps at most one record for a mailbox.
var (
	Holds       = engine.NewTable("hold", func(h *Hold) string { return h.MailboxID })
	HoldsByTime = Holds.Index("time", func(h *Hold) string { return TimeKey(h.Until) })
)
