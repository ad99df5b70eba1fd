package store

import (
	"crypto/sha256"
	"time"

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
	SendDays       = newTable("send_day", func(d *SendDay) string { return SendDayID(d.AccountID, d.Day, d.Subject) }).binary((*SendDay).fields)
	SendDaysByTime = SendDays.index("time", func(d *SendDay) string {
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
	Contacts       = newTable("contact", func(c *Contact) string { return c.AccountID + c.Hash }).binary((*Contact).fields)
	ContactsByTime = Contacts.index("time", func(c *Contact) string {
		return TimeKey(time.Unix(int64(c.Day)*24*60*60, 0).UTC().AddDate(0, 0, ContactKept+1))
	})
)
