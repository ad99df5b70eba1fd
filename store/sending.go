package store

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// A SendDay counts the recipients that a mailbox, a domain or an account wrote to on one UTC day.
type SendDay struct {
	AccountID  string `json:",omitzero"`
	Day        string `json:",omitzero"` // YYYY-MM-DD
	Subject    string `json:",omitzero"` // the ID of the mailbox, the domain or the account
	Recipients int    `json:",omitzero"`
	New        int    `json:",omitzero"` // of these, those elsewhere that were no Contacts of the account
}

// SendDayID is the ID of a SendDay.
func SendDayID(accountID, day, subject string) string { return accountID + day + subject }

func (d *SendDay) fields(c *rowform.Coder) {
	c.Version(1)
	c.String(&d.AccountID)
	c.String(&d.Day)
	c.String(&d.Subject)
	rowform.Int(c, &d.Recipients)
	rowform.Int(c, &d.New)
}

// SendDays keeps them until the day after; SendDaysByTime finds those whose time is over.
var (
	SendDays       = engine.NewTable("send_day", func(d *SendDay) string { return SendDayID(d.AccountID, d.Day, d.Subject) }).Binary((*SendDay).fields)
	SendDaysByTime = SendDays.Index("time", func(d *SendDay) string {
		day, _ := time.Parse(time.DateOnly, d.Day)
		return TimeKey(day.AddDate(0, 0, 2))
	})
)

// A Contact is an address elsewhere that an account wrote to, or that wrote to the account, within
// ContactKept.
type Contact struct {
	AccountID string `json:",omitzero"`
	Hash      string `json:",omitzero"` // the first 16 bytes of the SHA-256 of the address
	Day       int    `json:",omitzero"` // of the newest message, counted from 1970-01-01, UTC
}

// ContactKept is how many days an account remembers a contact.
const ContactKept = 90

// ContactID is the ID of an account's contact of a lower-case address.
func ContactID(accountID, email string) string {
	sum := sha256.Sum256([]byte(email))
	return accountID + string(sum[:16])
}

// DayNumber counts the days from 1970-01-01 to a time, UTC.
func DayNumber(t time.Time) int { return int(t.Unix() / (24 * 60 * 60)) }

func (a *Contact) fields(c *rowform.Coder) {
	c.Version(1)
	c.String(&a.AccountID)
	c.String(&a.Hash)
	rowform.Int(c, &a.Day)
}

// Contacts keeps them; ContactsByTime finds those whose time is over.
var (
	Contacts       = engine.NewTable("contact", func(c *Contact) string { return c.AccountID + c.Hash }).Binary((*Contact).fields)
	ContactsByTime = Contacts.Index("time", func(c *Contact) string {
		return TimeKey(time.Unix(int64(c.Day)*24*60*60, 0).UTC().AddDate(0, 0, ContactKept+1))
	})
)

// SendingPaused says why a mailbox or a domain may not send until somebody resumes it.
type SendingPaused struct {
	Reason string // one of the Paused… constants
	At     time.Time
}

// Why sending is paused.
const (
	PausedBounces    = "bounces"
	PausedComplaints = "complaints"
)

// Counting says from when on what came of mail counts against a mailbox or a domain.
type Counting struct {
	Since time.Time
	Base  HourCount // what had come of the mail of that hour before
}

// An HourCount counts what came of mail in an hour of a day.
type HourCount struct {
	Hour       int `json:",omitzero"` // UTC
	Sent       int `json:",omitzero"` // recipients, at their first attempt
	Deferred   int `json:",omitzero"` // of these, those that had to wait then
	Bounced    int `json:",omitzero"` // refused for good, at once or later
	Blocked    int `json:",omitzero"` // of these, those that were refused because of this host or what it sends
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

// A SendCount is what came of mail of one UTC day: of a mailbox, a domain, an account, or of an
// account at those who receive it.
type SendCount struct {
	AccountID string      `json:",omitzero"`
	Day       string      `json:",omitzero"`  // YYYY-MM-DD
	Subject   string      `json:",omitzero"`  // the ID of the mailbox, domain or account, or "@" and the operator
	Domains   []string    `json:",omitempty"` // of an operator: some of those that were written to
	Hours     []HourCount `json:",omitempty"` // that had any, in order
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

// SendCountDays is how many days counts are kept for.
const SendCountDays = 31

// SendCounts keeps them, those of a day of an account together.
var (
	SendCounts       = engine.NewTable("send_count", func(d *SendCount) string { return SendDayID(d.AccountID, d.Day, d.Subject) }).Binary((*SendCount).fields)
	SendCountsByTime = SendCounts.Index("time", func(d *SendCount) string {
		day, _ := time.Parse(time.DateOnly, d.Day)
		return TimeKey(day.AddDate(0, 0, SendCountDays+1))
	})
	SendCountsByDay = SendCounts.Index("day", func(d *SendCount) string { return d.AccountID + d.Day })
)

// A SendAlert is an episode of which an account was told, while it lasts.
type SendAlert struct {
	AccountID string
	Kind      string // limit bounces complaints blocked
	Scope     string // mailbox domain account
	Subject   string // the ID of the scope; of blocked the operator
	At        time.Time
	Until     time.Time // when it is over by itself
	Reply     string    `json:",omitempty"` // of a receiver that blocks
	Advice    string    `json:",omitempty"`
}

// SendAlertID is the ID of an episode.
func SendAlertID(accountID, kind, scope, subject string) string {
	return accountID + kind + " " + scope + " " + subject
}

// SendAlerts keeps them.
var (
	SendAlerts       = engine.NewTable("send_alert", func(a *SendAlert) string { return SendAlertID(a.AccountID, a.Kind, a.Scope, a.Subject) })
	SendAlertsByTime = SendAlerts.Index("time", func(a *SendAlert) string { return TimeKey(a.Until) })
)

// A Hold keeps what a mailbox has waiting from leaving.
type Hold struct {
	MailboxID string
	AccountID string
	At        time.Time // what was queued until then is held
	Until     time.Time // when what is still held is discarded, if the mailbox is gone by then
}

// Holds tells whether a row is of the mail that is held.
func (h *Hold) Holds(o *Outgoing) bool { return !o.QueuedAt.After(h.At) && o.HeldAt.Before(h.At) }

// Holds keeps one for a mailbox.
var (
	Holds       = engine.NewTable("hold", func(h *Hold) string { return h.MailboxID })
	HoldsByTime = Holds.Index("time", func(h *Hold) string { return TimeKey(h.Until) })
)
