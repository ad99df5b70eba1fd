package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

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
