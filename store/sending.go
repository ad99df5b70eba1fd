package store

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// A SendDay counts the recipients that a mailbox, a domain or an account has sent to on one UTC
// day.
type SendDay struct {
	AccountID  string `json:",omitzero"`
	Day        string `json:",omitzero"` // YYYY-MM-DD
	Subject    string `json:",omitzero"` // the id of the mailbox, the domain or the account
	Recipients int    `json:",omitzero"`
	New        int    `json:",omitzero"` // how many of the Recipients are external addresses that were not Contacts of the account
}

// SendDayID returns the id of the SendDay, and of the SendCount, for a day and subject.
func SendDayID(accountID, day, subject string) string { return accountID + day + subject }

func (d *SendDay) codeFields(c *rowform.Coder) {
	c.Version(1)
	c.String(&d.AccountID)
	c.String(&d.Day)
	c.String(&d.Subject)
	rowform.Int(c, &d.Recipients)
	rowform.Int(c, &d.New)
}

// SendDays keeps the counts until the end of the next day. Pruning reads SendDaysByTime.
var (
	SendDays       = engine.NewTable("send_day", func(d *SendDay) string { return SendDayID(d.AccountID, d.Day, d.Subject) }).Binary((*SendDay).codeFields)
	SendDaysByTime = SendDays.Index("time", func(d *SendDay) string {
		day, _ := time.Parse(time.DateOnly, d.Day)
		return TimeKey(day.AddDate(0, 0, 2))
	})
)

// A Contact is an external address that an account wrote to, or that wrote to the account, within
// ContactDays days.
type Contact struct {
	AccountID string `json:",omitzero"`
	Hash      string `json:",omitzero"` // the first 16 bytes of the SHA-256 of the address
	Day       int    `json:",omitzero"` // day of the newest message, as DayNumber counts
}

// ContactDays is for how many days an account keeps a contact.
const ContactDays = 90

// ContactID returns the id of an account's Contact. The address must be in lower case.
func ContactID(accountID, email string) string {
	sum := sha256.Sum256([]byte(email))
	return accountID + string(sum[:16])
}

// DayNumber returns the number of days from 1970-01-01 (UTC) to a time.
func DayNumber(t time.Time) int { return int(t.Unix() / (24 * 60 * 60)) }

func (a *Contact) codeFields(c *rowform.Coder) {
	c.Version(1)
	c.String(&a.AccountID)
	c.String(&a.Hash)
	rowform.Int(c, &a.Day)
}

// Contacts keeps the contacts of every account. Pruning reads ContactsByTime.
var (
	Contacts       = engine.NewTable("contact", func(c *Contact) string { return c.AccountID + c.Hash }).Binary((*Contact).codeFields)
	ContactsByTime = Contacts.Index("time", func(c *Contact) string {
		return TimeKey(time.Unix(int64(c.Day)*24*60*60, 0).UTC().AddDate(0, 0, ContactDays+1))
	})
)

// SendingPaused records why a mailbox or a domain may not send. It stays until somebody resumes the
// sending.
type SendingPaused struct {
	Reason string // one of the Paused… constants
	At     time.Time
}

// Values of SendingPaused.Reason.
const (
	PausedBounces    = "bounces"
	PausedComplaints = "complaints"
)

// A CountingStart records since when bounces and complaints count against a mailbox or a domain.
type CountingStart struct {
	Since time.Time
	Base  HourCount // what was counted in the hour of Since, but before Since; it is subtracted
}

// An HourCount counts the outcomes of messages within one hour of a day.
type HourCount struct {
	Hour       int `json:",omitzero"` // UTC
	Sent       int `json:",omitzero"` // recipients that had their first attempt
	Deferred   int `json:",omitzero"` // how many of Sent were deferred at the first attempt
	Bounced    int `json:",omitzero"` // refused permanently, at once or later
	Blocked    int `json:",omitzero"` // how many of Bounced were refused because of this host's reputation or the content
	Complained int `json:",omitzero"`
}

func (h *HourCount) codeFields(c *rowform.Coder) {
	rowform.Int(c, &h.Hour)
	rowform.Int(c, &h.Sent)
	rowform.Int(c, &h.Deferred)
	rowform.Int(c, &h.Bounced)
	rowform.Int(c, &h.Blocked)
	rowform.Int(c, &h.Complained)
}

// A SendCount holds the outcomes of messages on one UTC day for a mailbox, a domain or an account,
// or for an account at one receiving operator.
type SendCount struct {
	AccountID string      `json:",omitzero"`
	Day       string      `json:",omitzero"`  // YYYY-MM-DD
	Subject   string      `json:",omitzero"`  // the id of the mailbox, domain or account, or "@" and the operator
	Domains   []string    `json:",omitempty"` // only for an operator: some of the recipient domains
	Hours     []HourCount `json:",omitempty"` // hours with messages, in order
}

func (d *SendCount) codeFields(c *rowform.Coder) {
	c.Version(1)
	c.String(&d.AccountID)
	c.String(&d.Day)
	c.String(&d.Subject)
	rowform.List(c, &d.Hours, (*HourCount).codeFields)
	domains := strings.Join(d.Domains, " ")
	c.String(&domains)
	d.Domains = strings.Fields(domains)
}

// SendCountDays is for how many days the SendCounts are kept.
const SendCountDays = 31

// SendCounts keeps the counts. Those of an account on one day are adjacent.
var (
	SendCounts       = engine.NewTable("send_count", func(d *SendCount) string { return SendDayID(d.AccountID, d.Day, d.Subject) }).Binary((*SendCount).codeFields)
	SendCountsByTime = SendCounts.Index("time", func(d *SendCount) string {
		day, _ := time.Parse(time.DateOnly, d.Day)
		return TimeKey(day.AddDate(0, 0, SendCountDays+1))
	})
	SendCountsByDay = SendCounts.Index("day", func(d *SendCount) string { return d.AccountID + d.Day })
)

// A SendAlert is an alert about sending that an account was notified of. The record is kept while
// the alert lasts.
type SendAlert struct {
	AccountID string
	Kind      string // limit, bounces, complaints or blocked
	Scope     string // mailbox, domain or account
	Subject   string // id of the mailbox, domain or account; if Kind is blocked, the operator
	At        time.Time
	Until     time.Time // when it expires
	Reply     string    `json:",omitempty"` // SMTP reply of the receiving operator that blocks mail
	Advice    string    `json:",omitempty"`
}

// SendAlertID returns the id of a SendAlert.
func SendAlertID(accountID, kind, scope, subject string) string {
	return accountID + kind + " " + scope + " " + subject
}

// SendAlerts keeps the alerts that have not expired.
var (
	SendAlerts       = engine.NewTable("send_alert", func(a *SendAlert) string { return SendAlertID(a.AccountID, a.Kind, a.Scope, a.Subject) })
	SendAlertsByTime = SendAlerts.Index("time", func(a *SendAlert) string { return TimeKey(a.Until) })
)

// A Hold stops the queued messages of a mailbox from being sent.
type Hold struct {
	MailboxID string
	AccountID string
	At        time.Time // messages that were queued up to this time are held
	Until     time.Time // when held messages are discarded if the mailbox is gone by then
}

// Holds reports whether the hold h stops a message in the sending log.
func (h *Hold) Holds(o *Outgoing) bool { return !o.QueuedAt.After(h.At) && o.HeldAt.Before(h.At) }

// Holds keeps at most one record for each mailbox.
var (
	Holds       = engine.NewTable("hold", func(h *Hold) string { return h.MailboxID })
	HoldsByTime = Holds.Index("time", func(h *Hold) string { return TimeKey(h.Until) })
)
