package rules

import (
	"io"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

const (
	cpuLimit      = 45 * time.Millisecond // processor time for the rules of one mailbox on one message; the last step can extend it to 50 ms
	maxExpression = 500                   // characters of a regular expression
	maxProgram    = 5000                  // instructions of a compiled regular expression
	maxSearchCost = 100_000               // bytes of the text times instructions: up to this product, a search need not check the time
)

// Limits on what the rules of all mailboxes of an account together do with one message. But each
// mailbox always gets one effect, one copy and one keyword, however many mailboxes there are.
const (
	maxEffects  = 20  // forwards, webhooks and replies together
	maxCopies   = 20  // copies into other folders
	maxKeywords = 500 // keywords; each mailbox can set at most inbox.MaxKeywords of them
)

// An Effect is an action of a matching rule.
type Effect struct {
	RuleID string  `json:"rule_id" words:"ours" example:"rule_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Type   string  `json:"type" words:"ours" example:"move"`     // As in the rule.
	Value  *string `json:"value" words:"ours" example:"Archive"` // As in the rule; a folder has its IMAP name.
}

// An Outcome says what the rules of a mailbox do with a message.
type Outcome struct {
	Matched []string `json:"matched,omitempty"`
	Actions []Effect `json:"actions,omitempty"` // in order
	Folder  string   `json:"folder,omitempty"`  // the folder that the message is moved to; "": the folder that it has without rules
	Gone    string   `json:"gone,omitempty"`    // discard or reject; "": the message is filed
	Text    string   `json:"text,omitempty"`    // the text of a reject action
	Copies  []string `json:"copies,omitempty"`  // folders
	Flags   []string `json:"flags,omitempty"`   // \Flagged and keywords
	Read    bool     `json:"read,omitempty"`
	Skipped []string `json:"skipped,omitempty"` // rules that were skipped because the time was used up
	Left    int      `json:"-"`                 // effects, copies and keywords that exceed their limits
}

// HasOutsideEffect reports whether actions of a kind have an effect outside the mailbox. These
// actions have a common limit, maxEffects.
func HasOutsideEffect(kind string) bool {
	return kind == "forward" || kind == "webhook" || kind == "reply"
}

// ApplyLimits applies the limits to what the rules of all mailboxes of an account do with one
// message. Mailboxes with the most actions lose some of them.
func ApplyLimits(list []*Outcome) {
	share := func(most int, asked func(*Outcome) int, cut func(*Outcome, int)) {
		all := 0
		for _, o := range list {
			all += asked(o)
		}
		if all <= most {
			return
		}
		each := make([]int, len(list))
		for n, given := 1, 0; n == 1 || given < most; n++ {
			for i, o := range list {
				if asked(o) >= n && (n == 1 || given < most) {
					each[i], given = n, given+1
				}
			}
		}
		for i, o := range list {
			if n := asked(o); n > each[i] {
				o.Left += n - each[i]
				cut(o, each[i])
			}
		}
	}
	effects := func(o *Outcome) (n int) {
		for _, e := range o.Actions {
			if HasOutsideEffect(e.Type) {
				n++
			}
		}
		return n
	}
	drop := func(o *Outcome, which func(Effect) bool) { o.Actions = slices.DeleteFunc(o.Actions, which) }
	share(maxEffects, effects, func(o *Outcome, most int) {
		drop(o, func(e Effect) bool {
			if !HasOutsideEffect(e.Type) {
				return false
			}
			most--
			return most < 0
		})
	})
	share(maxCopies, func(o *Outcome) int { return len(o.Copies) }, func(o *Outcome, most int) {
		o.Copies = o.Copies[:most]
		drop(o, func(e Effect) bool { return e.Type == "copy" && !slices.Contains(o.Copies, *e.Value) })
	})
	share(maxKeywords, func(o *Outcome) int { return len(o.Flags) }, func(o *Outcome, most int) {
		o.Flags = o.Flags[:most]
		drop(o, func(e Effect) bool { return e.Type == "flag" && e.Value != nil && !slices.Contains(o.Flags, *e.Value) })
	})
}

// actionsOf returns the actions of a kind.
func (o *Outcome) actionsOf(kind string) (out []Effect) {
	for _, e := range o.Actions {
		if e.Type == kind {
			out = append(out, e)
		}
	}
	return out
}

// A budget limits the processor time for the rules of one mailbox.
type budget struct {
	begun time.Time            // when the rules began to run
	cpu   func() time.Duration // returns the processor time that this thread has used since begun
	asked time.Time            // when cpu was last read
	over  bool                 // the time is used up
}

// isSpent reports whether the time is used up. Each call reads the clock. It reads the processor
// time only if the clock shows that the time may be used up.
func (b *budget) isSpent() bool {
	if b.over {
		return true
	}
	now := time.Now()
	if now.Sub(b.begun) < cpuLimit || now.Sub(b.asked) < time.Millisecond {
		return false
	}
	b.asked = now
	b.over = b.cpu() >= cpuLimit
	return b.over
}

// Evaluate applies the rules of a mailbox to a message. list must be sorted by position. The
// message is filed in defaultFolder if no rule moves it. When the time is used up, the remaining
// rules are skipped.
func Evaluate(list []*store.Rule, m *Message, defaultFolder string) *Outcome {
	out := &Outcome{}
	if len(list) == 0 {
		return out
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := &budget{begun: time.Now(), cpu: threadTime()}
	settled, effects, keywords := false, 0, 0
	for i, r := range list {
		if !r.Enabled {
			continue
		}
		if b.isSpent() {
			out.skipRules(list[i:])
			break
		}
		fits := m.matchesRule(r, b)
		if b.over {
			out.skipRules(list[i:])
			break
		}
		if !fits {
			continue
		}
		out.Matched = append(out.Matched, r.ID)
		stop := false
		for _, a := range r.Actions {
			switch a.Type {
			case "stop":
				stop = true
				continue
			case "move", "discard", "reject":
				if settled {
					continue
				}
				settled = true
				switch a.Type {
				case "move":
					out.Folder = a.Value
				case "reject":
					out.Gone, out.Text = a.Type, a.Value
				default:
					out.Gone = a.Type
				}
			case "copy":
				if slices.Contains(out.Copies, a.Value) {
					continue
				}
				if len(out.Copies) == maxCopies {
					out.Left++
					continue
				}
				out.Copies = append(out.Copies, a.Value)
			case "flag":
				flag := a.Value
				if flag == "" {
					flag = `\Flagged`
				}
				if slices.ContainsFunc(out.Flags, func(f string) bool { return strings.EqualFold(f, flag) }) {
					continue
				}
				if flag != `\Flagged` {
					if keywords == inbox.MaxKeywords {
						out.Left++
						continue
					}
					keywords++
				}
				out.Flags = append(out.Flags, flag)
			case "mark_read":
				if out.Read {
					continue
				}
				out.Read = true
			case "forward":
				if slices.ContainsFunc(out.actionsOf("forward"), func(e Effect) bool { return *e.Value == a.Value }) {
					continue
				}
			}
			if HasOutsideEffect(a.Type) {
				if effects == maxEffects {
					out.Left++
					continue
				}
				effects++
			}
			effect := Effect{RuleID: r.ID, Type: a.Type}
			if a.Value != "" {
				effect.Value = &a.Value
			}
			out.Actions = append(out.Actions, effect)
		}
		if stop {
			break
		}
	}

	// Drop copies into the folder in which the message is filed.
	place := defaultFolder
	if out.Folder != "" {
		place = out.Folder
	}
	if out.Gone == "" {
		here := func(folder string) bool { return sameFolder(folder, place) }
		out.Copies = slices.DeleteFunc(out.Copies, here)
		out.Actions = slices.DeleteFunc(out.Actions, func(e Effect) bool { return e.Type == "copy" && here(*e.Value) })
	}
	return out
}

// skipRules records that the enabled rules in left were skipped.
func (o *Outcome) skipRules(left []*store.Rule) {
	for _, r := range left {
		if r.Enabled {
			o.Skipped = append(o.Skipped, r.ID)
		}
	}
}

// sameFolder reports whether two names are of the same folder: the name INBOX has no case.
func sameFolder(a, b string) bool {
	return a == b || strings.EqualFold(a, "INBOX") && strings.EqualFold(b, "INBOX")
}

// matchesRule reports whether the message matches the conditions of a rule. The result is false if
// the time is used up.
func (m *Message) matchesRule(r *store.Rule, b *budget) bool {
	for i := range r.Conditions {
		fits := m.matchesCondition(&r.Conditions[i], b) != r.Conditions[i].Not
		if b.over {
			return false
		}
		if fits != (r.Match != "any") {
			return fits
		}
	}
	return len(r.Conditions) == 0 || r.Match != "any"
}

// matchesCondition reports whether the message matches a condition. It ignores Not.
func (m *Message) matchesCondition(c *store.RuleCondition, b *budget) bool {
	switch c.Field {
	case "size", "spam_score":
		have := float64(m.Size)
		if c.Field == "spam_score" {
			if m.SpamScore == nil {
				return false
			}
			have = *m.SpamScore
		}
		want, err := strconv.ParseFloat(c.Value, 64)
		switch {
		case c.Op == "exists":
			return true
		case err != nil:
			return false
		case c.Op == "above":
			return have > want
		case c.Op == "below":
			return have < want
		}
		return have == want
	}
	texts := m.texts(c.Field, c.Header)
	if c.Op == "exists" {
		return len(texts) > 0
	}
	var expression *expression
	if c.Op == "matches" {
		var err error
		expression, err = compileCached(c.Value)
		if err != nil {
			return false
		}
	}
	want := strings.ToLower(c.Value)
	for _, text := range texts {
		if b.isSpent() {
			return false
		}
		switch c.Op {
		case "is":
			if strings.EqualFold(text, c.Value) {
				return true
			}
		case "contains":
			if strings.Contains(strings.ToLower(text), want) {
				return true
			}
		case "matches":
			if len(text)*expression.size <= maxSearchCost {
				if expression.MatchString(text) {
					return true
				}
			} else if expression.MatchReader(&timedText{text: text, budget: b}) && !b.over {
				return true
			}
		}
	}
	return false
}

// A timedText reads a text for a search, and ends early if the time is used up. There is no other
// way to stop a long search.
type timedText struct {
	text   string
	budget *budget
}

// ReadRune returns the next character. The error is io.EOF at the end of the text, or when the time
// is used up.
func (t *timedText) ReadRune() (r rune, size int, err error) {
	if t.text == "" || t.budget.isSpent() {
		return 0, 0, io.EOF
	}
	r, size = utf8.DecodeRuneInString(t.text)
	t.text = t.text[size:]
	return r, size, nil
}

// checkExpression returns a text that says what is wrong with a regular expression; "" if it is
// valid.
func checkExpression(text string) string {
	if utf8.RuneCountInString(text) > maxExpression {
		return "can have at most " + strconv.Itoa(maxExpression) + " characters"
	}
	size, err := programSize(text)
	switch {
	case err != nil:
		return "is no expression: " + err.Error()
	case size > maxProgram:
		return "is too large: it repeats too much"
	}
	return ""
}

// sortByPosition sorts rules by position.
func sortByPosition(list []*store.Rule) {
	sort.SliceStable(list, func(i, j int) bool { return list[i].Position < list[j].Position })
}
