package rules

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// TestVacationRobots: the cases of testdata.
func TestVacationRobots(t *testing.T) {
	text, err := os.ReadFile("testdata/vacation-robots.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct{ Sender, Header, Expect string }
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) != 10 {
		t.Fatal(len(cases), err)
	}
	for _, c := range cases {
		sender := cmp.Or(c.Sender, "ann@v.test")
		if answered(t, sender, "From: a@v.test\r\n"+c.Header) != (c.Expect != "no answer") {
			t.Errorf("%+v is answered otherwise", c)
		}
	}
}

// answered tells whether a message with these fields is answered by a machine.
func answered(t *testing.T, sender, fields string) bool {
	t.Helper()
	raw := "To: me@here.test\r\n" + strings.TrimSuffix(fields, "\r\n") + "\r\n\r\nHello.\r\n"
	r := strings.NewReader(raw)
	root, err := msg.Scan(r)
	if err != nil {
		t.Fatal(err)
	}
	return NewMessage(r, root, int64(len(raw))).MayReply(sender, core.Senders{Addresses: []string{"me@here.test"}})
}

// TestRobotsByWholeWords: what a program is called is found by whole words, in the sender and in
// From.
func TestRobotsByWholeWords(t *testing.T) {
	for local, want := range map[string]bool{
		"list-owner+x": true, "owner-list+x": true, "list-request+x": true, "alerts-noreply-eu": true, "eu.no.reply.alerts": true, "no_reply_2": true, "noreply2": true,
		"noreply+tag": true, "do.not.reply": true, "shop-do-not-reply-de": true, "mailer-daemon": true, "MAILER_DAEMON": true, "bounce-123-ab": true, "auto-reply": true, "the.auto.responder": true,
		"casino-reply": false, "dino.reply": false, "reply": false, "no": false, "piano.reply": false, "reno-reply": false, "noreplyson": false, "unattendedbag": false,
		"owner": false, "request": false, "homeowner": false, "ann.mailman": false, "dont": false, "domenico.notreply": false, "ann": false,
	} {
		if got := !answered(t, local+"@v.test", "From: ann@v.test"); got != want {
			t.Errorf("%s as the sender: a robot is %v", local, got)
		}
		if got := !answered(t, "msg-4711@v.test", "From: Ann <"+local+"@v.test>"); got != want {
			t.Errorf("%s in From: a robot is %v", local, got)
		}
	}
}

// TestNoRobotIsAnswered: machines do not answer machines, and do answer people whose mail looks
// almost like theirs.
func TestNoRobotIsAnswered(t *testing.T) {
	for _, c := range []struct {
		sender, header string
		answered       bool
	}{
		{sender: "noreply@v.test"}, {sender: "no_reply@v.test"}, {sender: "do-not-reply@v.test"}, {sender: "alerts-noreply@v.test"},
		{sender: "No-Reply+x1@v.test"}, {sender: "listserv@v.test"}, {sender: "majordomo@v.test"}, {sender: "MAILER-DAEMON@v.test"},
		{sender: "owner-list@v.test"}, {sender: "list-owner@v.test"}, {sender: "list-request@v.test"}, {sender: "list-bounces+a=b@v.test"},
		{sender: ""}, {sender: "me@here.test"},
		{header: "X-Auto-Response-Suppress: All"}, {header: "X-Auto-Response-Suppress: DR, OOF, AutoReply"},
		{header: "Precedence: auto_reply"}, {header: "Precedence: Bulk"}, {header: "List-Id: <l.v.test>"}, {header: "Auto-Submitted: auto-generated"},
		{header: "Content-Type: multipart/report; report-type=disposition-notification; boundary=x"},
		{sender: "ann@v.test", answered: true}, {sender: "norene.plyer@v.test", answered: true}, {sender: "request@v.test", answered: true},
		{header: "Auto-Submitted: no (by hand)", answered: true}, {header: "X-Auto-Response-Suppress: DR, RN", answered: true},
		{header: "Precedence: first-class", answered: true},
	} {
		sender := c.sender
		if c.header != "" {
			sender = "ann@v.test"
		}
		raw := "From: a@v.test\r\nTo: me@here.test\r\n"
		if c.header != "" {
			raw += c.header + "\r\n"
		}
		raw += "\r\nHello.\r\n"
		r := strings.NewReader(raw)
		root, err := msg.Scan(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := NewMessage(r, root, int64(len(raw))).MayReply(sender, core.Senders{Addresses: []string{"me@here.test"}}); got != c.answered {
			t.Errorf("%q, %q: answered %v", c.sender, c.header, got)
		}
	}
}

// TestSharesAreEven: what rules of several mailboxes do with one message is cut where they ask for
// most, and each has one.
func TestSharesAreEven(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var list []*Outcome
		asked := 0
		for range 1 + draw.IntN(40) {
			o := &Outcome{Read: true}
			for n := range draw.IntN(maxEffects + 1) {
				value := fmt.Sprint(n)
				o.Actions = append(o.Actions, Effect{Type: []string{"forward", "webhook", "reply"}[n%3], Value: &value}, Effect{Type: "flag"})
			}
			asked += len(o.Actions) / 2
			list = append(list, o)
		}
		before := make([]int, len(list))
		for i, o := range list {
			before[i] = len(o.Actions) / 2
		}
		Share(list)
		given, most := 0, 0
		of := func(o *Outcome) (n int) {
			for _, e := range o.Actions {
				if LeavesMailbox(e.Type) {
					n++
				}
			}
			return n
		}
		for _, o := range list {
			given, most = given+of(o), max(most, of(o))
		}
		left := 0
		for i, o := range list {
			left += o.Left
			if n := of(o); n != before[i]-o.Left || n < before[i] && n < most-1 || before[i] > 0 && n == 0 {
				t.Errorf("%d of %d were left where another has %d", n, before[i], most)
			}
		}
		if given != asked-left || given > max(maxEffects, len(list)) || asked > maxEffects && given < maxEffects {
			t.Errorf("%d mailboxes asked for %d and got %d", len(list), asked, given)
		}
	}
}

// TestOneArrivalHasFewEffects: rules send on, tell webhooks and reply 20 times for one arrival, and
// what is left out is counted.
func TestOneArrivalHasFewEffects(t *testing.T) {
	var list []*store.Rule
	for i := range maxRules {
		r := &store.Rule{ID: fmt.Sprint("r", i), Enabled: true}
		for k := range maxActions {
			r.Actions = append(r.Actions, store.RuleAction{Type: []string{"forward", "webhook", "reply"}[k%3], Value: fmt.Sprintf("a%d-%d@b.test", i, k)})
		}
		list = append(list, r)
	}
	raw := "From: a@v.test\r\n\r\nHello.\r\n"
	r := strings.NewReader(raw)
	root, err := msg.Scan(r)
	if err != nil {
		t.Fatal(err)
	}
	out := Evaluate(list, NewMessage(r, root, int64(len(raw))), "INBOX")
	if len(out.Actions) != 20 || out.Left != maxRules*maxActions-20 {
		t.Errorf("%d effects, %d left out", len(out.Actions), out.Left)
	}
}
