package store

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// A Rule says what is done with messages that arrive in a mailbox.
type Rule struct {
	ID         string // rule_…
	AccountID  string
	MailboxID  string
	Name       string
	Enabled    bool
	Position   int             // among the rules of the mailbox, from 0
	Match      string          // all or any of the conditions
	Conditions []RuleCondition `json:",omitempty"` // none: every message
	Actions    []RuleAction
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// A RuleCondition is one condition of a rule.
type RuleCondition struct {
	Field  string // from to cc subject header body size list_id spam_score
	Op     string // is contains matches above below exists
	Value  string `json:",omitempty"`
	Header string `json:",omitempty"` // name of the header field
	Not    bool   `json:",omitempty"`
}

// A RuleAction is one action of a rule.
type RuleAction struct {
	Type  string // move copy flag mark_read forward reply reject discard webhook stop
	Value string `json:",omitempty"`
}

// Rules keeps the rules of mailboxes.
var (
	Rules          = engine.NewTable("rule", func(r *Rule) string { return r.ID })
	RulesByMailbox = Rules.Index("mailbox", func(r *Rule) string { return r.MailboxID })
)

// A Vacation is the automatic vacation reply of a mailbox.
type Vacation struct {
	MailboxID string
	AccountID string
	Enabled   bool
	Subject   string `json:",omitempty"` // "": derived from the subject of the message
	Text      string
	From      string    `json:",omitempty"` // "": the mailbox's address
	StartsAt  time.Time `json:",omitzero"`
	EndsAt    time.Time `json:",omitzero"`
	Version   string    // changes when the text changes
	UpdatedAt time.Time
}

// Vacations keeps one record for a mailbox.
var Vacations = engine.NewTable("vacation", func(v *Vacation) string { return v.MailboxID })

// An AutoReply records that a mailbox has sent somebody an automatic reply, so that it sends no
// other for some days.
type AutoReply struct {
	ID      string // AutoReplyID
	Version string `json:",omitempty"` // of the vacation at that time; "": it was off
	Expires time.Time
}

// AutoReplies keeps the automatic replies; AutoRepliesByTime finds those that expire first.
var (
	AutoReplies       = engine.NewTable("auto_reply", func(r *AutoReply) string { return r.ID })
	AutoRepliesByTime = AutoReplies.Index("time", func(r *AutoReply) string { return TimeKey(r.Expires) })
)

// AutoReplyID returns the id of an AutoReply to a sender. In older rows, of and version name one
// rule or one text of the vacation.
func AutoReplyID(mailboxID, of, version, sender string) string {
	sum := sha256.Sum256([]byte(of + "\x00" + version + "\x00" + sender))
	return mailboxID + "." + hex.EncodeToString(sum[:16])
}
