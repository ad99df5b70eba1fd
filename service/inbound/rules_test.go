package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

const ruled = "From: Far <far@far.test>\r\nTo: %s\r\nSubject: %s\r\nMessage-ID: <%s@far.test>\r\n\r\nHello.\r\n"

// addRule adds a rule for messages with a word in the subject; an empty word matches every message.
func addRule(i *servicetest.Installation, mb *store.Mailbox, word string, actions ...string) *rules.Rule {
	i.T.Helper()
	in := rules.CreateRuleIn{UserID: mb.ID, Name: "about " + word}
	if word != "" {
		in.Conditions = []rules.Condition{{Field: "subject", Op: "contains", Value: &rules.Value{Text: word}}}
	}
	for _, a := range actions {
		kind, value, has := strings.Cut(a, " ")
		action := rules.Action{Type: kind}
		if has {
			action.Value = &value
		}
		in.Actions = append(in.Actions, action)
	}
	r, err := i.Svc.Rules.CreateRule(i.T.Context(), servicetest.Actor(i.Account), in)
	if err != nil {
		i.T.Fatal(err)
	}
	return r
}

// settled waits until no mail is in transit.
func settled(t *testing.T, i *servicetest.Installation) {
	t.Helper()
	idle(i)
	servicetest.Eventually(t, "no mail is on its way", func() bool {
		waits := false
		_ = i.St.View(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				waits = waits || !j.Ended() && (j.Kind == inbound.KindAutoReply || j.Kind == outbound.KindForward)
			}
			return nil
		})
		_, left := i.Left()
		return !waits && left == 0
	})
}

// TestRulesFileMail: mail from outside and from the same account is filed as the mailbox's rules
// say, with their flags and copies, and its events name the folder.
func TestRulesFileMail(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	addRule(i, ann, "news", "move archive", "mark_read", "flag $News", "copy trash", "copy INBOX")
	addRule(i, ann, "gone", "discard", "webhook told")
	addRule(i, ann, "no", "reject Not here")
	addRule(i, ann, "lost", "move A folder that is not there")
	on := addRule(i, ann, "onward", "forward elsewhere@else.test", "flag")
	i.Run()

	arrive := func(id, subject string, to ...string) error {
		t.Helper()
		return i.Receive("far@far.test", fmt.Sprintf(ruled, to[0], subject, id), to...)
	}
	for n, subject := range []string{"news", "gone", "lost", "onward", "plain"} {
		if err := arrive(fmt.Sprint(n), subject, ann.Email); err != nil {
			t.Fatal(err)
		}
	}
	var refused *core.SMTPError
	if err := arrive("r1", "no", ann.Email); !errors.As(err, &refused) || refused.Code != 550 || refused.Enhanced != "5.7.1" || !strings.Contains(refused.Message, "Not here") {
		t.Errorf("what is rejected: %v", err)
	}
	if err := arrive("r2", "no", ann.Email, bob.Email); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Send(bob, submit.SendEmailIn{To: submit.Texts{ann.Email}, Subject: "no", Text: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Send(bob, submit.SendEmailIn{To: submit.Texts{ann.Email}, Subject: "local news", Text: "t"}); err != nil {
		t.Fatal(err)
	}
	i.Becomes("elsewhere@else.test", store.OutgoingRelayed)
	servicetest.Eventually(t, "all is filed", func() bool {
		return len(i.Folder(ann, "Archive")) == 2 && len(i.Folder(ann, "INBOX")) == 5 && len(i.Folder(ann, "Trash")) == 3
	})
	for _, m := range i.Folder(ann, "Archive") {
		if m.Flags&store.FlagSeen == 0 || len(m.Keywords) != 1 || m.Keywords[0] != "$News" {
			t.Errorf("news: %v %v", m.Flags, m.Keywords)
		}
	}
	var subjects []string
	for _, m := range i.Folder(ann, "INBOX") {
		subjects = append(subjects, fmt.Sprint(msg.FieldValues(m.Raw, "Subject")[0], " ", m.Flags&store.FlagFlagged != 0))
	}
	if got := strings.Join(subjects, ", "); got != "news false, lost false, onward true, plain false, local news false" {
		t.Errorf("the inbox: %s", got)
	}

	// A sender here gets a report of the refusal; a message with two recipients is not refused.
	servicetest.Eventually(t, "bob has the message and a report", func() bool { return len(i.Folder(bob, "INBOX")) == 2 })
	folders := map[string]int{}
	for _, e := range i.Events("email.received") {
		folders[fmt.Sprint(e["mailbox"], " ", e["folder"], " ", e["subject"])]++
	}
	want := map[string]int{
		"ann@example.test Archive news": 1, "ann@example.test INBOX lost": 1, "ann@example.test INBOX onward": 1, "ann@example.test INBOX plain": 1,
		"ann@example.test Archive local news": 1, "bob@example.test INBOX no": 1,
	}
	for key, n := range want {
		if folders[key] != n {
			t.Errorf("events for %s: %d, of %v", key, folders[key], folders)
		}
	}
	matched := i.Events("email.rule_matched")
	if len(matched) != 1 || matched[0]["value"] != "told" || matched[0]["subject"] != "gone" || matched[0]["uid"] != "" || matched[0]["rule_name"] != "about gone" {
		t.Errorf("matched: %v", matched)
	}

	// A message that a rule forwarded and that comes back is not forwarded again.
	if err := arrive("3", "onward", ann.Email); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "it is filed", func() bool { return len(i.Folder(ann, "INBOX")) == 6 })
	settled(t, i)
	sent := 0
	for _, m := range h.Mails() {
		if m.To == "elsewhere@else.test" {
			sent++
		}
	}
	if sent != 1 {
		t.Errorf("%d were sent on", sent)
	}

	// Testing the rules on a stored message changes nothing.
	tested, err := i.Svc.Rules.TestRules(t.Context(), servicetest.Actor(i.Account), rules.TestRulesIn{UserID: ann.ID, MessageID: core.UIDText(i.Folder(ann, "INBOX")[5].UID)})
	if err != nil || len(tested.Matched) != 1 || tested.Matched[0] != on.ID || len(tested.Actions) != 2 || *tested.Folder != "INBOX" || tested.Flags[0] != `\Flagged` {
		t.Errorf("tested: %+v, %v", tested, err)
	}
}

// TestVacation covers the cases of RFC 3834.
func TestVacation(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	i.DNS.Txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	set := func(in rules.SetVacationIn) {
		t.Helper()
		in.UserID, in.Enabled = ann.ID, true
		if _, err := i.Svc.Rules.SetVacation(t.Context(), servicetest.Actor(i.Account), in); err != nil {
			t.Fatal(err)
		}
	}
	set(rules.SetVacationIn{Text: "I am away."})
	i.Run()
	for n, c := range []struct {
		name, sender, head string
		answered           bool
	}{
		{"a person", "p1@far.test", "To: ann@example.test\r\n", true},
		{"the same person", "P1@far.test", "To: ann@example.test\r\n", false},
		{"in Cc, with a tag", "p2@far.test", "To: x@far.test\r\nCc: Ann <Ann+list@example.test>\r\n", true},
		{"not addressed", "p3@far.test", "To: x@far.test\r\n", false},
		{"no addresses", "p4@far.test", "", false},
		{"a bounce", "", "To: ann@example.test\r\n", false},
		{"a robot", "p5@far.test", "To: ann@example.test\r\nAuto-Submitted: auto-generated\r\n", false},
		{"a reply", "p6@far.test", "To: ann@example.test\r\nAuto-Submitted: auto-replied; x=y\r\n", false},
		{"a person who says so", "p7@far.test", "To: ann@example.test\r\nAuto-Submitted: No\r\n", true},
		{"a list", "p8@far.test", "To: ann@example.test\r\nList-Id: <l.far.test>\r\n", false},
		{"a list that one can leave", "p9@far.test", "To: ann@example.test\r\nList-Unsubscribe: <https://far.test/u>\r\n", false},
		{"bulk", "p10@far.test", "To: ann@example.test\r\nPrecedence: Bulk\r\n", false},
		{"junk", "p11@far.test", "To: ann@example.test\r\nPrecedence: junk\r\n", false},
		{"first class", "p12@far.test", "To: ann@example.test\r\nPrecedence: first-class\r\n", true},
		{"a daemon", "MAILER-DAEMON@far.test", "To: ann@example.test\r\n", false},
		{"the owner of a list", "owner-l@far.test", "To: ann@example.test\r\n", false},
		{"a request", "l-request@far.test", "To: ann@example.test\r\n", false},
		{"a quoted person", `"a b"@far.test`, "To: ann@example.test\r\n", true},
	} {
		text := fmt.Sprintf("From: far@far.test\r\n%sSubject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\r\nMessage-ID: <v%d@far.test>\r\nReferences: <a@far.test> <b@far.test>\r\n\r\nHello.\r\n", c.head, n)
		before := len(h.Mails())
		if err := i.Receive(c.sender, text, ann.Email); err != nil {
			t.Fatal(c.name, err)
		}
		servicetest.Eventually(t, c.name+" is filed", func() bool { return len(i.Folder(ann, "INBOX")) == n+1 })
		settled(t, i)
		after := h.Mails()
		if answered := len(after) > before; answered != c.answered {
			t.Errorf("%s: answered %v", c.name, answered)
			continue
		}
		if !c.answered {
			continue
		}
		m := after[len(after)-1]
		for _, line := range []string{"Auto-Submitted: auto-replied\r\n", fmt.Sprintf("In-Reply-To: <v%d@far.test>\r\n", n), "<a@far.test> <b@far.test>", "From: ann@example.test\r\n", "Subject: =?utf-8?", "I am away."} {
			if !strings.Contains(m.Data, line) && line != "From: ann@example.test\r\n" {
				t.Errorf("%s: no %q in\n%s", c.name, line, m.Data)
			}
		}
		if m.From != "" || m.To != c.sender {
			t.Errorf("%s: from %q to %q", c.name, m.From, m.To)
		}
	}

	// A new text starts again; an end date in the past ends it.
	again := func() int {
		t.Helper()
		before, filed := len(h.Mails()), len(i.Folder(ann, "INBOX"))
		if err := i.Receive("p1@far.test", fmt.Sprintf(ruled, ann.Email, "s", fmt.Sprint("again", filed)), ann.Email); err != nil {
			t.Fatal(err)
		}
		servicetest.Eventually(t, "it is filed", func() bool { return len(i.Folder(ann, "INBOX")) == filed+1 })
		settled(t, i)
		return len(h.Mails()) - before
	}
	set(rules.SetVacationIn{Text: "I am still away.", Subject: core.Opt[string]{Set: true, Value: "Away"}})
	if again() != 1 || again() != 0 || !strings.Contains(h.Mails()[len(h.Mails())-1].Data, "Subject: Away\r\n") {
		t.Error("a new text does not begin anew, once")
	}
	set(rules.SetVacationIn{Text: "Over.", EndsAt: core.Opt[core.Time]{Set: true, Value: core.Time{Time: time.Now().Add(-time.Hour)}}})
	if again() != 0 {
		t.Error("a reply that has ended answers")
	}
}

// TestTwoVacationsEnd: two mailboxes with automatic replies answer each other only once.
func TestTwoVacationsEnd(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	for _, mb := range []*store.Mailbox{ann, bob} {
		if _, err := i.Svc.Rules.SetVacation(t.Context(), servicetest.Actor(i.Account), rules.SetVacationIn{UserID: mb.ID, Enabled: true, Text: "I am away."}); err != nil {
			t.Fatal(err)
		}
		addRule(i, mb, "", "reply I answer everything.")
	}
	i.Run()
	if _, err := i.Send(ann, submit.SendEmailIn{To: submit.Texts{bob.Email}, Subject: "s", Text: "t"}); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "bob has answered", func() bool { return len(i.Folder(ann, "INBOX")) == 1 })
	settled(t, i)
	if a, b := len(i.Folder(ann, "INBOX")), len(i.Folder(bob, "INBOX")); a != 1 || b != 1 {
		t.Errorf("ann has %d, bob has %d", a, b)
	}
}

// TestHostileRulesHoldNobodyUp: while a mailbox with a hundred rules that use their full time gets
// mail, mail of other mailboxes with rules is accepted without delay.
func TestHostileRulesHoldNobodyUp(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	d := i.AddDomain(i.Account, "example.test", nil)
	bad, plain := i.AddMailbox(d, "bad", nil), i.AddMailbox(d, "plain", nil)
	other := i.AddMailbox(i.AddDomain(i.AddAccount("other@elsewhere.test"), "other.test", nil), "other", nil)
	i.Update(func(tx *store.Tx) error {
		for n := range 100 {
			err := store.Rules.Put(tx, &store.Rule{
				ID: tx.NewID("rule"), AccountID: bad.AccountID, MailboxID: bad.ID, Name: "slow", Enabled: true, Position: n, Match: "all",
				Conditions: []store.RuleCondition{{Field: "body", Op: "matches", Value: fmt.Sprintf("(?s)(a*)*(x?){%d}.{900}b%d", n%40, n)}},
				Actions:    []store.RuleAction{{Type: "discard"}},
			})
			if err != nil {
				return err
			}
		}
		return store.Rules.Put(tx, &store.Rule{
			ID: tx.NewID("rule"), AccountID: other.AccountID, MailboxID: other.ID, Name: "own", Enabled: true, Match: "all",
			Actions: []store.RuleAction{{Type: "mark_read"}},
		})
	})
	i.Run()
	long := strings.Repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", 500)
	median := func(rounds int) (plainly, ruledly time.Duration) {
		var took [2][]time.Duration
		for n := range rounds {
			for k, mb := range []*store.Mailbox{plain, other} {
				begun := time.Now()
				if err := i.Receive("far@far.test", fmt.Sprintf(ruled, mb.Email, "s", fmt.Sprint("m", n, k)), mb.Email); err != nil {
					t.Fatal(err)
				}
				took[k] = append(took[k], time.Since(begun))
			}
		}
		for k := range took {
			slices.Sort(took[k])
		}
		return took[0][rounds/2], took[1][rounds/2]
	}
	plainBefore, ruledBefore := median(50)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var hostile atomic.Int64
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := i.Receive("far@far.test", fmt.Sprintf(ruled, bad.Email, "s", "x")+long, bad.Email); err != nil {
					t.Error(err)
				}
				hostile.Add(1)
			}
		})
	}
	plainWhile, ruledWhile := median(50)
	stop()
	wg.Wait()
	t.Logf("median without rules %s, while %d hostile messages %s; with a rule %s, %s", plainBefore, hostile.Load(), plainWhile, ruledBefore, ruledWhile)
	if hostile.Load() == 0 || plainWhile > plainBefore+150*time.Millisecond || ruledWhile > ruledBefore+150*time.Millisecond {
		t.Errorf("mail of other mailboxes waits for the rules of one")
	}
	if n := len(i.Folder(bad, "INBOX")); int64(n) != hostile.Load() {
		t.Errorf("%d are filed of %d", n, hostile.Load())
	}
}

// TestARuleIsKeptWhateverTheTime advances the clock between any two reads of it.
func TestARuleIsKeptWhateverTheTime(t *testing.T) {
	var looks atomic.Int64
	began := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	i := servicetest.InstallWith(t, core.Config{}, store.Options{Now: func() time.Time {
		return began.Add(time.Duration(looks.Add(1)) * time.Millisecond)
	}})
	mb := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	first, second := addRule(i, mb, "one", "move archive"), addRule(i, mb, "two", "move archive")
	list, err := i.Svc.Rules.ListRules(t.Context(), servicetest.Actor(i.Account), core.EmailUserIn{UserID: mb.ID})
	if err != nil || len(list.Data) != 2 || list.Data[0].ID != first.ID || list.Data[1].ID != second.ID || second.Position != 1 {
		t.Errorf("%+v, %v, want %s and %s", list, err, first.ID, second.ID)
	}
}
