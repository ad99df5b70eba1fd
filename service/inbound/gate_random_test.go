package inbound_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// A ruleDraw draws a random installation with many automations, and mail to it.
type ruleDraw struct {
	*rand.Rand
	i         *servicetest.Installation
	boxes     []*store.Mailbox
	groups    []string
	addresses []string
}

func (r *ruleDraw) one(list ...string) string { return list[r.IntN(len(list))] }

// most returns a number up to n, and n itself half of the time.
func (r *ruleDraw) most(n int) int { return min(r.IntN(2*n+1), n) }

func (r *ruleDraw) action() store.RuleAction {
	kind := r.one("copy", "copy", "copy", "flag", "flag", "forward", "forward", "webhook", "webhook", "reply", "move", "mark_read", "discard", "reject", "stop")
	value := ""
	switch kind {
	case "copy", "move":
		value = fmt.Sprint("f", r.IntN(80)) // some of them are gone
	case "flag":
		value = fmt.Sprintf("k%d-%s", r.IntN(200), strings.Repeat("x", r.IntN(59)))
	case "forward":
		value = fmt.Sprintf("%s%d@else.test", strings.Repeat("y", r.IntN(50)), r.IntN(500))
	case "webhook", "reject":
		value = strings.Repeat("v", r.IntN(201))
	case "reply":
		value = strings.Repeat("I am away. ", 1+r.IntN(900))
	}
	if (kind == "stop" || kind == "discard" || kind == "reject") && r.IntN(20) > 0 {
		kind, value = "mark_read", "" // they end too much
	}
	return store.RuleAction{Type: kind, Value: value}
}

func (r *ruleDraw) condition() store.RuleCondition {
	switch r.IntN(5) {
	case 0:
		return store.RuleCondition{Field: "subject", Op: "contains", Value: r.one("a", "e", "zz")}
	case 1:
		return store.RuleCondition{Field: "size", Op: "above", Value: fmt.Sprint(r.IntN(20_000))}
	case 2:
		return store.RuleCondition{Field: "body", Op: "matches", Value: r.one("(?i)hello", "(a*)*b", "x{50}")}
	case 3:
		return store.RuleCondition{Field: "from", Op: "contains", Value: "p", Not: r.IntN(2) == 0}
	}
	return store.RuleCondition{Field: "to", Op: "exists"}
}

// mailbox draws a mailbox with rules, folders and more.
func (r *ruleDraw) mailbox(d *store.Domain, n int) {
	mb := r.i.AddMailbox(d, fmt.Sprint("m", n), func(mb *store.Mailbox) {
		if r.IntN(3) == 0 {
			mb.ForwardTo, mb.ForwardOnly = fmt.Sprintf("on%d@else.test", r.IntN(20)), r.IntN(2) == 0
		}
		if r.IntN(10) == 0 {
			mb.SendPolicy = store.Policy{Send: store.SendApproval}
		}
	})
	r.boxes, r.addresses = append(r.boxes, mb), append(r.addresses, mb.Email)
	folders(r.i, mb, r.most(60))
	if r.IntN(3) == 0 {
		if _, err := r.i.Svc.Rules.SetVacation(r.i.T.Context(), servicetest.Actor(r.i.Account), rules.SetVacationIn{UserID: mb.ID, Enabled: true, Text: "I am away."}); err != nil {
			r.i.T.Fatal(err)
		}
	}
	many, same, kind := r.most(100), r.IntN(3) == 0, r.action()
	for from := 0; from < many; from += 50 {
		r.i.Update(func(tx *store.Tx) error {
			for n := from; n < min(many, from+50); n++ {
				rule := &store.Rule{ID: tx.NewID("rule"), AccountID: mb.AccountID, MailboxID: mb.ID, Name: strings.Repeat("n", 1+r.IntN(100)), Enabled: r.IntN(10) > 0, Position: n, Match: r.one("all", "any")}
				for range r.IntN(3) {
					rule.Conditions = append(rule.Conditions, r.condition())
				}
				for range 1 + r.most(9) {
					a := r.action()
					for same && a.Type != kind.Type {
						a = r.action()
					}
					rule.Actions = append(rule.Actions, a)
				}
				if err := store.Rules.Put(tx, rule); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func (r *ruleDraw) group(n int) {
	in := mailboxes.CreateGroupIn{Email: fmt.Sprintf("g%d@example.test", n)}
	for range 1 + r.most(len(r.boxes)) {
		switch r.IntN(6) {
		case 0:
			in.Members = append(in.Members, mailboxes.NewMember{Email: fmt.Sprintf("far%d@else.test", r.IntN(200))})
		case 1:
			if len(r.groups) > 0 {
				in.Members = append(in.Members, mailboxes.NewMember{Email: r.one(r.groups...)})
			}
		default:
			in.Members = append(in.Members, mailboxes.NewMember{UserID: r.boxes[r.IntN(len(r.boxes))].ID})
		}
	}
	seen := map[mailboxes.NewMember]bool{}
	in.Members = slices.DeleteFunc(in.Members, func(m mailboxes.NewMember) bool {
		defer func() { seen[m] = true }()
		return seen[m]
	})
	if len(in.Members) == 0 {
		return
	}
	if _, err := r.i.Svc.Mailboxes.CreateGroup(r.i.T.Context(), servicetest.Actor(r.i.Account), in); err != nil {
		r.i.T.Fatal(err)
	}
	r.groups, r.addresses = append(r.groups, in.Email), append(r.addresses, in.Email)
}

// message draws a message of a random shape.
func (r *ruleDraw) message(n int, to []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "From: P <p%d@far.test>\r\nTo: %s\r\nSubject: %s\r\n", r.IntN(30), strings.Join(to, ",\r\n "), strings.Repeat("a subject ", r.IntN(30)))
	if r.IntN(4) > 0 {
		fmt.Fprintf(&b, "Message-ID: <%d@far.test>\r\n", r.one2(n, r.IntN(3))) // or one that was there before
	}
	for k := range r.IntN(300) {
		if k == 0 {
			fmt.Fprint(&b, "References:")
		}
		fmt.Fprintf(&b, " <%d.%d@far.test>\r\n", n, k)
	}
	switch r.IntN(4) {
	case 0:
		for k := range r.IntN(200) {
			fmt.Fprintf(&b, "X-Field-%d: %s\r\n", k, strings.Repeat("h", r.IntN(500)))
		}
	case 1:
		fmt.Fprintf(&b, "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n")
		for k := range r.IntN(100) {
			fmt.Fprintf(&b, "--b\r\nContent-Type: text/plain; name=a%d\r\nContent-Disposition: attachment\r\n\r\nhello %d\r\n", k, k)
		}
		b.WriteString("--b--\r\n")
		return b.String()
	}
	b.WriteString("\r\nHello.\r\n")
	for range r.most(300) {
		fmt.Fprintf(&b, "%s\r\n", strings.Repeat(r.one("a", "word ", "x"), r.IntN(150)))
	}
	return b.String()
}

func (r *ruleDraw) one2(a, b int) int {
	if r.IntN(2) == 0 {
		return a
	}
	return b
}

// TestRandomRulesWithinTheBounds draws rules, groups, forwards, recipients and shapes of messages.
// Every transaction stays within the store's bounds, every message is filed, and the effects of one
// arrival are limited. Other tests also check the bounds, but have only a few actions; and a failed
// filing transaction is visible only in the log, since a job retries it.
func TestRandomRulesWithinTheBounds(t *testing.T) {
	arrivals, seed := 30, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_ARRIVALS")); err == nil {
		arrivals = n
	}
	if n, err := strconv.ParseUint(os.Getenv("MAILSTEAD_SEED"), 10, 64); err == nil && n > 0 {
		seed = n
	}
	t.Logf("MAILSTEAD_SEED=%d, %d arrivals", seed, arrivals)
	reports := t.TempDir()
	t.Setenv("MAILSTEAD_TX_REPORT", reports)
	draw := rand.New(rand.NewPCG(seed, 0))
	for left := arrivals; left > 0 && !t.Failed(); left -= 30 {
		t.Run("world", func(t *testing.T) { randomRules(t, draw, min(left, 30)) })
	}
	files, err := filepath.Glob(filepath.Join(reports, "*.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	largest := map[string]string{} // the last line of each kind has the largest transaction
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			what, _, _ := strings.Cut(line, "\t")
			largest[what] = line
		}
	}
	for _, what := range []string{"bytes", "writes", "steps", "function_us"} {
		t.Log(strings.TrimSpace(largest[what]))
	}
}

func randomRules(t *testing.T, draw *rand.Rand, arrivals int) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture, Limits: core.Limits{RecipientsPerMailbox: 1 + draw.IntN(200), RecipientsPerAccount: 1 + draw.IntN(1000)}}})
	log := listenIn(i)
	i.DNS.Txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
	d := i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.CatchAll = "catch@else.test" })
	servicetest.PutWebhooks(t, i.Svc, servicetest.Actor(i.Account))
	r := &ruleDraw{Rand: draw, i: i}
	for n := range 1 + r.IntN(30) {
		r.mailbox(d, n)
	}
	for n := range r.IntN(5) {
		r.group(n)
	}
	r.addresses = append(r.addresses, "postmaster@example.test", "nobody@example.test")
	i.Run()
	for n := range arrivals {
		to := r.addresses
		if r.IntN(3) > 0 {
			to = nil
			for range 1 + r.most(4) {
				if a := r.one(r.addresses...); !slices.Contains(to, a) {
					to = append(to, a)
				}
			}
		}
		if r.IntN(5) == 0 {
			if _, err := i.Send(r.boxes[0], submit.SendEmailIn{To: submit.Texts(to[:min(len(to), 50)]), Subject: "s", Text: "t"}); err != nil && r.boxes[0].SendPolicy.IsDefault() {
				if e, _ := core.AsError(err); e == nil || e.Code != "daily_send_limit_reached" {
					t.Fatal(err)
				}
			}
			continue
		}
		from := fmt.Sprintf("p%d@far.test", r.IntN(30))
		if r.IntN(5) == 0 {
			from = ""
		}
		before := i.Svc.Core.Store.Now()
		if err := i.Receive(from, r.message(n, to), to...); err != nil {
			if servicetest.CodeOf(err) != 550 { // a rule rejects it
				t.Fatal(err)
			}
		}
		if took := i.Svc.Core.Store.Now().Sub(before); took > 20*time.Second {
			t.Errorf("one message took %s", took)
		}
	}
	idle(i)
	servicetest.Eventually(t, "what rules have started is over", func() bool {
		over := true
		_ = i.St.View(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				switch j.Kind {
				case inbound.KindArrival, inbound.KindAutoReply, outbound.KindForward, outbound.KindDeliver, "recipients", "webhook_events", "hold_by_itself":
					over = over && (j.Ended() || j.Due.After(tx.Now().Add(time.Minute)))
				}
			}
			return nil
		})
		return over
	})
	err := i.St.View(func(tx *store.Tx) error {
		for _, mb := range r.boxes {
			list, err := tx.Folders(mb.Num)
			if err != nil {
				return err
			}
			messages := 0
			for _, f := range list {
				messages += int(f.Messages)
				for m := range tx.Messages(mb.Num, f.ID, 1, 1<<32-1) {
					if len(m.Keywords) > 50 {
						t.Errorf("%d keywords", len(m.Keywords))
					}
				}
			}
			if most := 2 * (arrivals + 20) * 21; messages > most {
				t.Errorf("%d messages in a mailbox", messages)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	noErrors(t, log)
}
