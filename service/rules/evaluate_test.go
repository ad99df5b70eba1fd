package rules

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// A letter is a message for the model of rules.
type letter struct {
	from, to, cc [][2]string // name and address
	subject      *string
	headers      [][2]string
	listID       *string
	body         string
	score        *float64
}

// text writes the letter. If html is set, the body is HTML; how is its transfer encoding.
func (l *letter) text(r *rand.Rand) string {
	var b strings.Builder
	people := func(name string, list [][2]string) {
		if len(list) == 0 {
			return
		}
		var all []string
		for _, p := range list {
			switch {
			case p[0] == "":
				all = append(all, p[1])
			case r.IntN(2) == 0:
				all = append(all, fmt.Sprintf("=?utf-8?Q?%s?= <%s>", quoted(p[0]), p[1]))
			default:
				all = append(all, fmt.Sprintf("%q <%s>", p[0], p[1]))
			}
		}
		fmt.Fprintf(&b, "%s: %s\r\n", name, strings.Join(all, ",\r\n "))
	}
	people("From", l.from)
	people("To", l.to)
	people("Cc", l.cc)
	if l.subject != nil {
		if r.IntN(2) == 0 && *l.subject != "" {
			fmt.Fprintf(&b, "Subject: =?utf-8?Q?%s?=\r\n", quoted(*l.subject))
		} else {
			fmt.Fprintf(&b, "Subject: %s\r\n", strings.Replace(*l.subject, " ", "\r\n ", 1))
		}
	}
	for _, h := range l.headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	if l.listID != nil {
		fmt.Fprintf(&b, "List-Id: A list <%s>\r\n", *l.listID)
	}
	switch r.IntN(3) {
	case 0:
		fmt.Fprintf(&b, "\r\n%s", l.body)
	case 1:
		fmt.Fprintf(&b, "Content-Type: text/html; charset=utf-8\r\n\r\n<p>%s</p>", l.body)
	default:
		fmt.Fprintf(&b, "Content-Type: multipart/alternative; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n%s\r\n--b\r\nContent-Type: text/html\r\n\r\n<b>another</b>\r\n--b--\r\n",
			strings.ReplaceAll(l.body, "a", "=61"))
	}
	return b.String()
}

func quoted(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "=%02X", c)
	}
	return b.String()
}

var someWords = []string{"alpha", "Beta", "gamma", "delta", "Offer", "invoice", "news", "ann", "bob"}

func words(r *rand.Rand, most int) string {
	var all []string
	for range r.IntN(most) + 1 {
		all = append(all, someWords[r.IntN(len(someWords))])
	}
	return strings.Join(all, " ")
}

func someLetter(r *rand.Rand) *letter {
	people := func(most int) (list [][2]string) {
		for range r.IntN(most + 1) {
			name := ""
			if r.IntN(2) == 0 {
				name = words(r, 2)
			}
			list = append(list, [2]string{name, strings.ToLower(words(r, 1)) + "@" + strings.ToLower(words(r, 1)) + ".test"})
		}
		return list
	}
	l := &letter{from: people(2), to: people(3), cc: people(2), body: words(r, 6)}
	if r.IntN(5) > 0 {
		subject := words(r, 4)
		l.subject = &subject
	}
	for range r.IntN(3) {
		l.headers = append(l.headers, [2]string{[]string{"X-One", "x-one", "X-Two"}[r.IntN(3)], words(r, 2)})
	}
	if r.IntN(3) == 0 {
		id := strings.ToLower(words(r, 1)) + ".lists.test"
		l.listID = &id
	}
	if r.IntN(2) == 0 {
		score := float64(r.IntN(5)) / 4
		l.score = &score
	}
	return l
}

func someRules(r *rand.Rand) (list []*store.Rule) {
	kinds := []string{"move", "copy", "flag", "mark_read", "forward", "reply", "reject", "discard", "webhook", "stop"}
	folders := []string{"INBOX", "Archive", "Trash", "Lists", "inbox"}
	for n := range r.IntN(7) {
		rule := &store.Rule{ID: fmt.Sprintf("rule_%d", n), Enabled: r.IntN(8) > 0, Position: n, Match: []string{"all", "any"}[r.IntN(2)]}
		for range r.IntN(4) {
			c := store.RuleCondition{Field: []string{"from", "to", "cc", "subject", "header", "body", "size", "list_id", "spam_score"}[r.IntN(9)], Not: r.IntN(4) == 0}
			switch {
			case isNumberField(c.Field):
				c.Op = []string{"is", "above", "below"}[r.IntN(3)]
				c.Value = strconv.Itoa(r.IntN(600))
				if c.Field == "spam_score" {
					c.Value = []string{"0", "0.25", "0.5", "1"}[r.IntN(4)]
				}
			default:
				c.Op = []string{"is", "contains", "matches", "exists"}[r.IntN(4)]
				switch c.Op {
				case "exists":
				case "matches":
					c.Value = []string{"^a", "(?i)beta", "news$", "a.p", "gamma|delta", "[0-9]"}[r.IntN(6)]
				default:
					c.Value = words(r, 2)
					if r.IntN(3) == 0 {
						c.Value = strings.ToUpper(c.Value)
					}
				}
			}
			if c.Field == "header" {
				c.Header = []string{"X-One", "X-Two", "X-THREE"}[r.IntN(3)]
			}
			rule.Conditions = append(rule.Conditions, c)
		}
		for range r.IntN(3) + 1 {
			a := store.RuleAction{Type: kinds[r.IntN(len(kinds))]}
			switch a.Type {
			case "move", "copy":
				a.Value = folders[r.IntN(len(folders))]
			case "flag":
				a.Value = []string{"", "$Work", "$work"}[r.IntN(3)]
			case "forward":
				a.Value = []string{"a@else.test", "b@else.test"}[r.IntN(2)]
			case "reply", "reject":
				a.Value = words(r, 2)
			}
			rule.Actions = append(rule.Actions, a)
		}
		list = append(list, rule)
	}
	return list
}

// model computes the result of Evaluate in the order of the contract: first which rules apply, then
// the effect of each kind of action.
func model(l *letter, size int, list []*store.Rule) *Outcome {
	out := &Outcome{}
	texts := func(c store.RuleCondition) (all []string) {
		people := func(list [][2]string) {
			for _, p := range list {
				all = append(all, p[1])
				if p[0] != "" {
					all = append(all, p[0])
				}
			}
		}
		switch c.Field {
		case "from":
			people(l.from)
		case "to":
			people(l.to)
		case "cc":
			people(l.cc)
		case "subject":
			if l.subject != nil {
				all = []string{*l.subject}
			}
		case "header":
			for _, h := range l.headers {
				if strings.EqualFold(h[0], c.Header) {
					all = append(all, h[1])
				}
			}
		case "list_id":
			if l.listID != nil {
				all = []string{*l.listID}
			}
		case "body":
			all = []string{l.body}
		}
		return all
	}
	meets := func(c store.RuleCondition) bool {
		if isNumberField(c.Field) {
			have := float64(size)
			if c.Field == "spam_score" {
				if l.score == nil {
					return false
				}
				have = *l.score
			}
			want, _ := strconv.ParseFloat(c.Value, 64)
			return map[string]bool{"is": have == want, "above": have > want, "below": have < want}[c.Op]
		}
		return slices.ContainsFunc(texts(c), func(text string) bool {
			a, b := strings.ToLower(text), strings.ToLower(c.Value)
			switch c.Op {
			case "is":
				return a == b
			case "contains":
				return strings.Contains(a, b)
			case "matches":
				return regexp.MustCompile(c.Value).MatchString(text)
			}
			return true
		})
	}
	type taken struct {
		rule string
		a    store.RuleAction
	}
	var reached []taken
	for _, r := range list {
		n := 0
		for _, c := range r.Conditions {
			if meets(c) != c.Not {
				n++
			}
		}
		if !r.Enabled || r.Match == "all" && n < len(r.Conditions) || r.Match == "any" && n == 0 && len(r.Conditions) > 0 {
			continue
		}
		out.Matched = append(out.Matched, r.ID)
		stop := false
		for _, a := range r.Actions {
			stop = stop || a.Type == "stop"
			reached = append(reached, taken{r.ID, a})
		}
		if stop {
			break
		}
	}
	settles := func(t taken) bool { return slices.Contains([]string{"move", "discard", "reject"}, t.a.Type) }
	settled := slices.IndexFunc(reached, settles)
	defaultFolder := "INBOX"
	if settled >= 0 {
		switch a := reached[settled].a; a.Type {
		case "move":
			out.Folder, defaultFolder = a.Value, a.Value
		default:
			out.Gone, defaultFolder = a.Type, ""
			if a.Type == "reject" {
				out.Text = a.Value
			}
		}
	}
	seen := map[string]bool{}
	for n, t := range reached {
		value := t.a.Value
		key := t.a.Type + " " + value
		switch t.a.Type {
		case "stop":
			continue
		case "move", "discard", "reject":
			if n != settled {
				continue
			}
		case "copy":
			if seen[key] || strings.EqualFold(value, defaultFolder) {
				continue
			}
			out.Copies = append(out.Copies, value)
		case "flag":
			if value == "" {
				value = `\Flagged`
			}
			key = strings.ToLower(key)
			if seen[key] {
				continue
			}
			out.Flags = append(out.Flags, value)
		case "mark_read":
			out.Read = true
			if seen[key] {
				continue
			}
		case "forward":
			if seen[key] {
				continue
			}
		}
		seen[key] = true
		e := Effect{RuleID: t.rule, Type: t.a.Type}
		if t.a.Value != "" {
			e.Value = &t.a.Value
		}
		out.Actions = append(out.Actions, e)
	}
	return out
}

// TestRulesAgainstAModel compares the results of rules for random messages with a simple model.
// `make soak-rules` runs it at full size.
func TestRulesAgainstAModel(t *testing.T) {
	rounds, seed := 5000, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_RULES")); err == nil {
		rounds = n
	}
	if n, err := strconv.ParseUint(os.Getenv("MAILSTEAD_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("%d rounds, seed %d", rounds, seed)
	r := rand.New(rand.NewPCG(seed, 1))
	settled := 0
	for range rounds {
		l, list := someLetter(r), someRules(r)
		text := l.text(r)
		root, err := msg.Scan(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		m := NewMessage(strings.NewReader(text), root, int64(len(text)))
		m.SpamScore = l.score
		got := Evaluate(list, m, "INBOX")
		if m.Err() != nil || len(got.Skipped) > 0 {
			t.Fatal(m.Err(), got.Skipped)
		}
		want := model(l, len(text), list)
		if !reflect.DeepEqual(norm(got), norm(want)) {
			t.Fatalf("rules say\n%s\nwant\n%s\nof\n%s\nby %s", show(got), show(want), text, show(list))
		}
		if len(got.Matched) > 0 {
			settled++
		}
	}
	if settled < rounds/3 {
		t.Errorf("rules fit %d messages alone", settled)
	}
}

// TestHostileExpressionsEnd: a hundred rules with slow expressions stay within the limit of
// processor time, including their compilation.
func TestHostileExpressionsEnd(t *testing.T) {
	text := "Subject: s\r\n\r\n" + strings.Repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", 1000)
	root, err := msg.Scan(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, expression := range map[string]func(n int) string{
		"repeats": func(n int) string { return fmt.Sprintf("(?s)(a*)*(x?){%d}.{900}b%d", n%40, n) },
		"choices": func(n int) string { return fmt.Sprintf("(?s)(a|aa|aaa|[a-z]){300}.*b%d$", n) },
		"large":   func(n int) string { return fmt.Sprintf(`(?s)(\pL{0,15}\PL?){30}%d$`, n) },
	} {
		t.Run(name, func(t *testing.T) {
			var list []*store.Rule
			for n := range 100 {
				text := expression(n)
				if why := checkExpression(text); why != "" {
					t.Fatalf("%s %s", text, why)
				}
				list = append(list, &store.Rule{
					ID: fmt.Sprint("rule_", n), Enabled: true, Match: "all", Actions: []store.RuleAction{{Type: "discard"}},
					Conditions: []store.RuleCondition{{Field: "body", Op: "matches", Value: text}},
				})
			}
			most := time.Duration(0)
			for range 5 {
				runtime.LockOSThread()
				cpu := threadTime()
				o := Evaluate(list, NewMessage(strings.NewReader(text), root, int64(len(text))), "INBOX")
				took := cpu()
				runtime.UnlockOSThread()
				most = max(most, took)
				if o.Gone != "" {
					t.Fatalf("it was discarded: %+v", o)
				}
			}
			t.Logf("at most %s", most)
			if most > 60*time.Millisecond {
				t.Errorf("rules took %s", most)
			}
		})
	}
}

func show(v any) string {
	text, _ := json.MarshalIndent(v, "", " ")
	return string(text)
}

func norm(o *Outcome) *Outcome {
	if len(o.Copies) == 0 {
		o.Copies = nil
	}
	if len(o.Actions) == 0 {
		o.Actions = nil
	}
	return o
}

// TestCorrespondents: senders with a new address for each message are identified by their author.
func TestCorrespondents(t *testing.T) {
	for _, c := range []struct{ sender, author, want string }{
		{"Anna@Far.test", "boss@far.test", "anna@far.test"},
		{"b-01m8et470m1v5pwqxptp0gp2v0-abcdefghijklmnop@far.test", "Anna@far.test", "anna@far.test"},
		{"prvs=1234abcdef=anna@far.test", "anna@far.test", "anna@far.test"},
		{"bounce+me=near.test@mail.far.test", "anna@far.test", "anna@far.test"},
		{"bounce+me=near.test@mail.far.test", "anna@else.test", "bounce+me=near.test@mail.far.test"},
		{"b-01m8et470m1v5pwqxptp0gp2v0-abcdefghijklmnop@far.test", "", "b-01m8et470m1v5pwqxptp0gp2v0-abcdefghijklmnop@far.test"},
		{"wolfeschlegelsteinhausen@far.test", "anna@far.test", "wolfeschlegelsteinhausen@far.test"},
		{"anna.2026@far.test", "boss@far.test", "anna.2026@far.test"},
		{"anna@infar.test", "boss@far.test", "anna@infar.test"},
	} {
		var from []msg.Address
		if local, domain, ok := msg.SplitEmail(c.author); ok {
			from = append(from, msg.Address{Mailbox: local, Host: domain})
		}
		if got := Correspondent(c.sender, from); got != c.want {
			t.Errorf("%s, by %s: %s, want %s", c.sender, c.author, got, c.want)
		}
	}
}
