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
	Position   int             // position among the rules of the mailbox, from 0
	Match      string          // all or any: how many of the Conditions must match
	Conditions []RuleCondition `json:",omitempty"` // empty: every message matches
	Actions    []RuleAction
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// A RuleCondition is one condition of a rule.
type RuleCondition struct {
	Field  string // one of from, to, cc, subject, header, body, size, list_id, spam_score
	Op     string // one of is, contains, matches, above, below, exists
	Value  string `json:",omitempty"`
	Header string `json:",omitempty"` // name of the header field, if Field is header
	Not    bool   `json:",omitempty"`
}

// A RuleAction is one action of a rule.
type RuleAction struct {
	Type  string // one of move, copy, flag, mark_read, forward, reply, reject, discard, webhook, stop
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
	Version   string    // identifies the text; a new text has another Version
	UpdatedAt time.Time
}

// Vacations keeps one record for each mailbox that has a vacation reply.
var Vacations = engine.NewTable("vacation", func(v *Vacation) string { return v.MailboxID })

// An AutoReply records that a mailbox has sent an automatic reply to somebody. The mailbox sends
// that person no other for some days.
type AutoReply struct {
	ID      string // see AutoReplyID
	Version string `json:",omitempty"` // Version of the Vacation at that time; "": it was off
	Expires time.Time
}

// AutoReplies keeps one record for each mailbox and person that got an automatic reply. Pruning
// reads AutoRepliesByTime.
var (
	AutoReplies       = engine.NewTable("auto_reply", func(r *AutoReply) string { return r.ID })
	AutoRepliesByTime = AutoReplies.Index("time", func(r *AutoReply) string { return TimeKey(r.Expires) })
)

// AutoReplyID returns the id of the AutoReply of a mailbox to a sender. `of` and version are "",
// except in rows of older releases. These had one row for each rule and for each text of the
// vacation reply: `of` is the id of the rule or "vacation", and version a hash of the text.
func AutoReplyID(mailboxID, of, version, sender string) string {
	sum := sha256.Sum256([]byte(of + "\x00" + version + "\x00" + sender))
	return mailboxID + "." + hex.EncodeToString(sum[:16])
}
