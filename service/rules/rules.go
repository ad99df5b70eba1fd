// Package rules has the automatic actions of mailboxes: rules on mail that arrives, and automatic
// replies. It decides what is to be done; inbound does it.
//
// The files:
//   - rules.go: the rules of a mailbox, as requests change them. vacation.go: the automatic reply.
//   - evaluate.go: applying rules to a message ([Evaluate]), within a limit of processor time.
//     message.go: the parts of a message that rules see. expressions.go: the cache of compiled
//     regular expressions.
//   - replies.go: who gets an automatic reply ([Message.MayReply]).
package rules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/store"
)

const (
	maxRules      = 100
	maxConditions = 20
	maxActions    = 10
	maxReplyBytes = 10_000  // bytes of the text of a reply action
	maxRulesBytes = 1 << 20 // bytes of all rules of one mailbox
)

// A Service manages the rules and automatic replies of mailboxes.
type Service struct {
	*core.Core
	inbox *inbox.Service
}

// New returns a Service.
func New(c *core.Core, i *inbox.Service) *Service { return &Service{Core: c, inbox: i} }

// A Value is the value with which a condition compares: a text or a number.
type Value struct {
	Text   string
	Number bool
}

// UnmarshalJSON reads a text or a number.
func (v *Value) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*v = Value{Text: text}
		return nil
	}
	var number json.Number
	if json.Unmarshal(data, &number) != nil {
		return errors.New("must be a text or a number")
	}
	*v = Value{Text: number.String(), Number: true}
	return nil
}

// MarshalJSON writes the value as a text or a number, as it was given.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.Number {
		return []byte(v.Text), nil
	}
	return json.Marshal(v.Text)
}

// Forms returns examples of the JSON types of a Value.
func (Value) Forms() []any { return []any{"", 0.5} }

// A Condition is one condition of a rule.
type Condition struct {
	// The part of the message that is compared: the addresses and names of `from`, `to` or `cc`,
	// `subject`, a `header` field, the text of `body`, the `size`, the list's id (`list_id`), or
	// the `spam_score`.
	Field string `json:"field" required:"true" enum:"from|to|cc|subject|header|body|size|list_id|spam_score" log:"true"`
	Op    string `json:"op" required:"true" enum:"is|contains|matches|above|below|exists" log:"true"`
	// A number for `size`, in bytes, and `spam_score`; none for `exists`. `matches` is an RE2
	// expression of at most 500 characters.
	Value  *Value `json:"value" words:"ours" example:"invoice"`
	Header string `json:"header,omitempty" max:"200" words:"ours" example:"X-Project" rare:"true"` // The name of the header field; only for the field `header`.
	Not    bool   `json:"not,omitempty" example:"false" log:"true"`                                // true inverts the result.
}

// An Action is one action of a rule.
type Action struct {
	Type string `json:"type" required:"true" enum:"move|copy|flag|mark_read|forward|reply|reject|discard|webhook|stop" log:"true"`
	// The folder of `move` and `copy` (a role such as `archive`, or a name; if there is no such
	// folder, the inbox is used), the keyword of `flag` (default: `\Flagged`), the address of
	// `forward`, the text of `reply`, `reject` and `webhook`.
	Value *string `json:"value" words:"ours" example:"archive"`
}

// A Rule is a rule as the API shows it.
type Rule struct {
	ID         string      `json:"id" words:"ours" example:"rule_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name       string      `json:"name" words:"ours" example:"Invoices"`
	Enabled    bool        `json:"enabled"`
	Position   int         `json:"position" example:"0"` // Among the rules of the mailbox, from 0.
	Match      string      `json:"match" enum:"all|any"`
	Conditions []Condition `json:"conditions"`
	Actions    []Action    `json:"actions"`
	CreatedAt  core.Time   `json:"created_at"`
	UpdatedAt  core.Time   `json:"updated_at"`
}

// ruleOut returns a rule in the form of the API.
func ruleOut(r *store.Rule) Rule {
	out := Rule{
		ID: r.ID, Name: r.Name, Enabled: r.Enabled, Position: r.Position, Match: r.Match, Conditions: []Condition{}, Actions: []Action{},
		CreatedAt: core.Time{Time: r.CreatedAt}, UpdatedAt: core.Time{Time: r.UpdatedAt},
	}
	for _, c := range r.Conditions {
		shown := Condition{Field: c.Field, Op: c.Op, Header: c.Header, Not: c.Not}
		if c.Op != "exists" {
			shown.Value = &Value{Text: c.Value, Number: isNumberField(c.Field)}
		}
		out.Conditions = append(out.Conditions, shown)
	}
	for _, a := range r.Actions {
		out.Actions = append(out.Actions, Action{a.Type, core.OrNull(a.Value)})
	}
	return out
}

// CreateRuleIn is the body of create_rule. Without a position, the rule becomes the last one. With
// a position, it is inserted before the rule that has this position.
type CreateRuleIn struct {
	UserID     string      `path:"user_id"`
	Name       string      `json:"name" required:"true" min:"1" max:"100" example:"Invoices"`
	Enabled    *bool       `json:"enabled" log:"true"`
	Position   *int        `json:"position" min:"0" max:"100" log:"true"`
	Match      string      `json:"match" enum:"all|any|" log:"true"`
	Conditions []Condition `json:"conditions"`
	Actions    []Action    `json:"actions" required:"true" min:"1"`
}

// UpdateRuleIn is the body of update_rule. If conditions or actions are given, they replace the
// whole list.
type UpdateRuleIn struct {
	UserID     string       `path:"user_id"`
	RuleID     string       `path:"rule_id"`
	Name       *string      `json:"name" min:"1" max:"100" example:"Invoices"`
	Enabled    *bool        `json:"enabled" log:"true"`
	Position   *int         `json:"position" min:"0" max:"100" log:"true"`
	Match      *string      `json:"match" enum:"all|any" log:"true"`
	Conditions *[]Condition `json:"conditions"`
	Actions    *[]Action    `json:"actions" min:"1"`
}

// RuleIn names a rule of a mailbox.
type RuleIn struct {
	UserID string `path:"user_id"`
	RuleID string `path:"rule_id"`
}

// RuleDeleted confirms that a rule was deleted.
type RuleDeleted struct {
	Message string `json:"message" words:"ours" example:"The rule is deleted."` // For people; the text may change.
	ID      string `json:"id" words:"ours" example:"rule_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// rulesOf returns the rules of a mailbox, sorted by position.
func rulesOf(tx *store.Tx, mailboxID string) (list []*store.Rule) {
	for _, r := range store.RulesByMailbox.Asc(tx, mailboxID, "") {
		list = append(list, r)
	}
	sortByPosition(list)
	return list
}

// ListRules lists the rules of a mailbox, sorted by position.
func (s *Service) ListRules(_ context.Context, who core.Actor, in core.EmailUserIn) (*core.List[Rule], error) {
	var out []Rule
	err := s.Store.View(func(tx *store.Tx) error {
		out = nil
		if _, err := core.ReadMailbox(tx, who, in.UserID); err != nil {
			return err
		}
		for _, r := range rulesOf(tx, in.UserID) {
			out = append(out, ruleOut(r))
		}
		return nil
	})
	return core.ListOf(out), err
}

// CreateRule adds a rule to a mailbox.
func (s *Service) CreateRule(ctx context.Context, who core.Actor, in CreateRuleIn) (*Rule, error) {
	r := &store.Rule{Name: in.Name, Enabled: in.Enabled == nil || *in.Enabled, Match: in.Match}
	if r.Match == "" {
		r.Match = "all"
	}
	var out Rule
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := undeletedMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		if err := errors.Join(setConditions(r, in.Conditions), setActions(r, in.Actions, mb)); err != nil {
			return err
		}
		list := rulesOf(tx, mb.ID)
		if len(list) >= maxRules {
			return core.Errorf("rule_limit_reached", "A mailbox can have at most %d rules. Delete one first.", maxRules)
		}
		r.ID, r.AccountID, r.MailboxID, r.CreatedAt, r.UpdatedAt = tx.NewID("rule"), mb.AccountID, mb.ID, tx.Now(), tx.Now()
		r.Position = -1 // not a valid position, so that renumber writes the rule
		at := len(list)
		if in.Position != nil {
			at = min(*in.Position, at)
		}
		list = slices.Insert(list, at, r)
		if err := errors.Join(checkRulesSize(list), renumber(tx, list)); err != nil {
			return err
		}
		out = ruleOut(r)
		return errors.Join(core.Audit(tx, who, ruleTarget(r)), once.KeepAnswer(ctx, s.Core, tx, &out))
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// UpdateRule changes a rule.
func (s *Service) UpdateRule(_ context.Context, who core.Actor, in UpdateRuleIn) (*Rule, error) {
	var out Rule
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, list, at, err := findRule(tx, who, in.UserID, in.RuleID)
		if err != nil {
			return err
		}
		r := list[at]
		if in.Name != nil {
			r.Name = *in.Name
		}
		if in.Enabled != nil {
			r.Enabled = *in.Enabled
		}
		if in.Match != nil {
			r.Match = *in.Match
		}
		if in.Conditions != nil {
			if err := setConditions(r, *in.Conditions); err != nil {
				return err
			}
		}
		if in.Actions != nil {
			if err := setActions(r, *in.Actions, mb); err != nil {
				return err
			}
		}
		r.UpdatedAt = tx.Now()
		if in.Position != nil {
			list = slices.Delete(list, at, at+1)
			list = slices.Insert(list, min(*in.Position, len(list)), r)
		}
		if err := errors.Join(checkRulesSize(list), store.Rules.Put(tx, r), renumber(tx, list)); err != nil {
			return err
		}
		out = ruleOut(r)
		return core.Audit(tx, who, ruleTarget(r))
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// DeleteRule deletes a rule.
func (s *Service) DeleteRule(_ context.Context, who core.Actor, in RuleIn) (*RuleDeleted, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		_, list, at, err := findRule(tx, who, in.UserID, in.RuleID)
		if err != nil {
			return err
		}
		r := list[at]
		return errors.Join(store.Rules.Delete(tx, r.ID), renumber(tx, slices.Delete(list, at, at+1)), core.Audit(tx, who, ruleTarget(r)))
	})
	if err != nil {
		return nil, err
	}
	return &RuleDeleted{"The rule is deleted.", in.RuleID}, nil
}

// findRule returns a mailbox, its rules, and the index of the rule with an ID.
func findRule(tx *store.Tx, who core.Actor, userID, ruleID string) (mb *store.Mailbox, list []*store.Rule, at int, err error) {
	mb, err = undeletedMailbox(tx, who, userID)
	if err != nil {
		return nil, nil, 0, err
	}
	list = rulesOf(tx, mb.ID)
	at = slices.IndexFunc(list, func(r *store.Rule) bool { return r.ID == ruleID })
	if at < 0 {
		return nil, nil, 0, core.NotFound("rule")
	}
	return mb, list, at, nil
}

func ruleTarget(r *store.Rule) store.AuditTarget {
	return store.AuditTarget{Type: "rule", ID: r.ID, Name: r.Name}
}

// undeletedMailbox returns a mailbox, unless it is being deleted.
func undeletedMailbox(tx *store.Tx, who core.Actor, id string) (*store.Mailbox, error) {
	mb, err := core.ReadMailbox(tx, who, id)
	if err == nil && mb.Gone() {
		err = core.Errorf("not_found", "%s is being deleted, so it cannot be changed.", mb.Email)
	}
	return mb, err
}

// checkRulesSize returns an error if the rules of a mailbox are too large, because all of them are
// read for each arriving message.
func checkRulesSize(list []*store.Rule) error {
	size := 0
	for _, r := range list {
		size += len(r.Name)
		for _, c := range r.Conditions {
			size += len(c.Header) + len(c.Value)
		}
		for _, a := range r.Actions {
			size += len(a.Value)
		}
	}
	if size > maxRulesBytes {
		return core.Errorf("rule_limit_reached", "The rules of a mailbox can have at most %d bytes in all. Shorten some, or delete one.", maxRulesBytes)
	}
	return nil
}

// renumber sets the positions of rules to their indexes in the list, and writes those that change.
func renumber(tx *store.Tx, list []*store.Rule) error {
	for i, r := range list {
		if r.Position == i {
			continue
		}
		r.Position = i
		if err := store.Rules.Put(tx, r); err != nil {
			return err
		}
	}
	return nil
}

// isNumberField reports whether conditions compare a field with numbers.
func isNumberField(field string) bool { return field == "size" || field == "spam_score" }

// setConditions validates conditions and sets them in a rule.
func setConditions(r *store.Rule, list []Condition) error {
	if len(list) > maxConditions {
		return core.Errorf("too_many_items", "A rule can have at most %d conditions, not %d.", maxConditions, len(list)).With("conditions", "too_many_items", "has too many entries")
	}
	r.Conditions = nil
	for i, c := range list {
		wrong := func(format string, args ...any) error {
			return core.Invalid(fmt.Sprintf("conditions.%d", i), "invalid", format, args...)
		}
		number := isNumberField(c.Field)
		fits := slices.Contains([]string{"is", "contains", "matches", "exists"}, c.Op)
		if number {
			fits = slices.Contains([]string{"is", "above", "below"}, c.Op)
		}
		value := ""
		if c.Value != nil {
			value = c.Value.Text
		}
		switch {
		case !fits:
			return wrong("%s cannot be compared by %s", c.Field, c.Op)
		case c.Op == "exists" && c.Value != nil:
			return wrong("exists takes no value")
		case c.Op != "exists" && value == "":
			return wrong("needs a value")
		case c.Value != nil && c.Value.Number != number:
			return wrong("the value of %s must be a %s", c.Field, map[bool]string{true: "number", false: "text"}[number])
		case len(value) > 4*maxExpression:
			return wrong("the value is too long")
		case (c.Field == "header") != (c.Header != ""):
			return wrong("header is the name of a field, for the field header alone")
		case c.Header != "" && strings.ContainsFunc(c.Header, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }):
			return wrong("header must be the name of a header field")
		}
		if c.Op == "matches" {
			if why := checkExpression(value); why != "" {
				return wrong("the expression %s", why)
			}
		}
		r.Conditions = append(r.Conditions, store.RuleCondition{Field: c.Field, Op: c.Op, Value: value, Header: c.Header, Not: c.Not})
	}
	return nil
}

// setActions validates actions and sets them in a rule.
func setActions(r *store.Rule, list []Action, mb *store.Mailbox) error {
	if len(list) > maxActions {
		return core.Errorf("too_many_items", "A rule can have at most %d actions, not %d.", maxActions, len(list)).With("actions", "too_many_items", "has too many entries")
	}
	r.Actions = nil
	for i, a := range list {
		wrong := func(format string, args ...any) error {
			return core.Invalid(fmt.Sprintf("actions.%d", i), "invalid", format, args...)
		}
		value := ""
		if a.Value != nil {
			value = *a.Value
		}
		switch a.Type {
		case "move", "copy":
			if !inbox.IsValidFolder(value) {
				return wrong("the value must be the role or the name of a folder")
			}
		case "forward":
			email, err := msg.NormalizeEmail(value)
			if err != nil {
				return wrong("the value must be an email address: %s", err)
			}
			if core.DomainOfAddress(email) == core.DomainOfAddress(mb.Email) {
				return wrong("the value must not be in the mailbox's own domain")
			}
			value = email
		case "reply":
			if strings.TrimSpace(value) == "" || len(value) > maxReplyBytes {
				return wrong("the value must be the text of the reply, of at most %d bytes", maxReplyBytes)
			}
		case "reject", "webhook":
			if len(value) > 200 || core.CheckLine("value", value) != nil {
				return wrong("the value can be one line of at most 200 bytes")
			}
		case "flag":
			if value != "" && (len(value) > 64 || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`(){%*"\]`, r) })) {
				return wrong("the value must be a keyword, or absent")
			}
		default:
			if value != "" {
				return wrong("%s takes no value", a.Type)
			}
		}
		r.Actions = append(r.Actions, store.RuleAction{Type: a.Type, Value: value})
	}
	return nil
}

// Load returns the enabled rules of a mailbox, sorted by position. It replaces folders in actions
// by their IMAP names. A folder that does not exist is replaced by INBOX.
func Load(tx *store.Tx, mb *store.Mailbox) (list []*store.Rule, err error) {
	for _, r := range rulesOf(tx, mb.ID) {
		if !r.Enabled {
			continue
		}
		for i := range r.Actions {
			if a := &r.Actions[i]; a.Type == "move" || a.Type == "copy" {
				a.Value, err = inbox.FolderName(tx, mb, a.Value)
				if err != nil {
					return nil, err
				}
			}
		}
		list = append(list, r)
	}
	return list, nil
}

// TestRulesIn is the request of test_rules.
type TestRulesIn struct {
	UserID    string `path:"user_id"`
	MessageID string `json:"message_id" required:"true" max:"20" example:"42" log:"true"` // The UID of a message of the mailbox.
	Folder    string `json:"folder" max:"255"`
}

// A Tested says what the rules of a mailbox would do with a message.
type Tested struct {
	Matched []string `json:"matched" words:"ours" example:"rule_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The rules whose conditions match.
	Actions []Effect `json:"actions"`
	// Where the message would be filed; null if it would be discarded or rejected.
	Folder *string  `json:"folder" words:"theirs" known:"folders" example:"Archive"`
	Copies []string `json:"copies" words:"theirs" known:"folders" example:"Projects/Garden"` // The folders that would get copies.
	Flags  []string `json:"flags" words:"ours" example:"\\Seen"`                             // IMAP flags and keywords that it would get.
	// The rules that were skipped because time ran out: all rules of a mailbox share 50 ms of
	// processor time for a message.
	Skipped []string `json:"skipped" words:"ours" example:"[]"`
}

// TestRules returns what the rules of a mailbox would do with one of its messages. It changes
// nothing.
func (s *Service) TestRules(_ context.Context, who core.Actor, in TestRulesIn) (*Tested, error) {
	root, blob, judged, err := s.inbox.ReadStored(who, inbox.MessageIn{UserID: in.UserID, MessageID: in.MessageID, Folder: in.Folder})
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	m, defaultFolder := NewMessage(blob, root, blob.Size()), inbox.InboxName
	var list []*store.Rule
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		if judged != nil {
			m.SpamScore = &judged.Score
			if judged.Verdict == spam.IsSpam {
				defaultFolder, err = inbox.FolderName(tx, mb, "junk")
				if err != nil {
					return err
				}
			}
		}
		list, err = Load(tx, mb)
		return err
	})
	if err != nil {
		return nil, err
	}
	o := Evaluate(list, m, defaultFolder)
	if err := m.Err(); err != nil {
		return nil, err
	}
	out := &Tested{Matched: nonNil(o.Matched), Actions: o.Actions, Copies: nonNil(o.Copies), Flags: nonNil(o.Flags), Skipped: nonNil(o.Skipped)}
	if out.Actions == nil {
		out.Actions = []Effect{}
	}
	if o.Read {
		out.Flags = append([]string{`\Seen`}, out.Flags...)
	}
	if o.Gone == "" {
		folder := defaultFolder
		if o.Folder != "" {
			folder = o.Folder
		}
		out.Folder = &folder
	}
	return out, nil
}

// nonNil returns a copy of a list that is not nil, so that it is not null in JSON.
func nonNil(list []string) []string { return append([]string{}, list...) }

// IsVacationActive reports whether a vacation reply is enabled and its period includes now.
func IsVacationActive(v *store.Vacation, now time.Time) bool {
	return v != nil && v.Enabled && !now.Before(v.StartsAt) && (v.EndsAt.IsZero() || now.Before(v.EndsAt))
}
