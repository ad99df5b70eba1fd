package inbound_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestManyForwardsOfRules: rules with very many forwards send 20, in transactions within the
// store's bounds, and a message that comes back is not forwarded again.
func TestManyForwardsOfRules(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.Update(func(tx *store.Tx) error {
		for n := range 100 {
			r := &store.Rule{ID: tx.NewID("rule"), AccountID: ann.AccountID, MailboxID: ann.ID, Name: "on", Enabled: true, Position: n, Match: "all"}
			for k := range 10 {
				r.Actions = append(r.Actions, store.RuleAction{Type: "forward", Value: fmt.Sprintf("f%d-%d@else.test", n, k)})
			}
			if err := store.Rules.Put(tx, r); err != nil {
				return err
			}
		}
		return nil
	})
	i.Run()
	for range 2 {
		if err := i.Receive("far@far.test", fmt.Sprintf(ruled, ann.Email, "s", "same"), ann.Email); err != nil {
			t.Fatal(err)
		}
		settled(t, i)
	}
	i.Becomes("f1-9@else.test", store.OutgoingCaptured)
	if rows := forwarded(i, "else.test"); rows != 20 {
		t.Errorf("%d forwards, want 20", rows)
	}
}

// putRules gives a mailbox a hundred rules of ten actions each, without validation.
func putRules(i *servicetest.Installation, mb *store.Mailbox, action func(n int) store.RuleAction) {
	i.T.Helper()
	i.Update(func(tx *store.Tx) error {
		for n := range 100 {
			r := &store.Rule{ID: tx.NewID("rule"), AccountID: mb.AccountID, MailboxID: mb.ID, Name: "r", Enabled: true, Position: n, Match: "all"}
			for k := range 10 {
				r.Actions = append(r.Actions, action(10*n+k))
			}
			if err := store.Rules.Put(tx, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// folders creates folders f0, f1, ….
func folders(i *servicetest.Installation, mb *store.Mailbox, many int) {
	i.T.Helper()
	for from := 0; from < many; from += 100 {
		i.Update(func(tx *store.Tx) error {
			for n := from; n < min(from+100, many); n++ {
				if err := tx.CreateFolder(&store.Folder{Mailbox: mb.Num, Name: fmt.Sprint("f", n)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// TestManyCopiesAndKeywordsOfRules: rules with very many copies and keywords get 20 and 50, in a
// transaction within the store's bounds, and the log reports the rest.
func TestManyCopiesAndKeywordsOfRules(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	log := listenIn(i)
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	folders(i, ann, 500)
	putRules(i, ann, func(n int) store.RuleAction {
		if n%2 == 0 {
			return store.RuleAction{Type: "copy", Value: fmt.Sprint("f", n/2)}
		}
		return store.RuleAction{Type: "flag", Value: fmt.Sprint("k", n/2)}
	})
	i.Run()
	if err := i.Receive("far@far.test", fmt.Sprintf(ruled, ann.Email, "s", "same"), ann.Email); err != nil {
		t.Fatal(err)
	}
	settled(t, i)
	if m := i.Folder(ann, "INBOX"); len(m) != 1 || len(m[0].Keywords) != 50 {
		t.Errorf("the inbox has %d messages", len(m))
	}
	copies := 0
	for n := range 500 {
		copies += len(i.Folder(ann, fmt.Sprint("f", n)))
	}
	if copies != 20 || log.Count("left_out=930") != 1 {
		t.Errorf("%d copies, want 20; the log says\n%s", copies, log)
	}
	noErrors(t, log)
}

// TestRulesOfAGroupHaveTheBoundsOfOne: the rules of all members of a group together have the limits
// of one mailbox, shared evenly, with at least one for each member.
func TestRulesOfAGroupHaveTheBoundsOfOne(t *testing.T) {
	for _, c := range []struct{ members, want int }{{8, 20}, {30, 30}} {
		i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
		log := listenIn(i)
		d := i.AddDomain(i.Account, "example.test", nil)
		var members []mailboxes.NewMember
		for n := range c.members {
			mb := i.AddMailbox(d, fmt.Sprint("m", n), nil)
			members = append(members, mailboxes.NewMember{UserID: mb.ID})
			folders(i, mb, 30)
			putRules(i, mb, func(k int) store.RuleAction {
				if k%2 == 0 {
					return store.RuleAction{Type: "copy", Value: fmt.Sprint("f", k/2%30)}
				}
				return store.RuleAction{Type: "forward", Value: fmt.Sprintf("f%d-%d@else.test", n, k)}
			})
		}
		if _, err := i.Svc.Mailboxes.CreateGroup(t.Context(), servicetest.Actor(i.Account), mailboxes.CreateGroupIn{Email: "all@example.test", Members: members}); err != nil {
			t.Fatal(err)
		}
		i.Run()
		if err := i.Receive("far@far.test", fmt.Sprintf(groupLetter, "all@example.test", "1"), "all@example.test"); err != nil {
			t.Fatal(err)
		}
		settled(t, i)
		copies, least := 0, 1000
		err := i.St.View(func(tx *store.Tx) error {
			for mb := range store.Mailboxes.All(tx) {
				folders, err := tx.Folders(mb.Num)
				if err != nil {
					return err
				}
				for _, f := range folders {
					if f.Name != "INBOX" {
						copies += int(f.Messages)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		sent := map[string]int{}
		_ = i.St.View(func(tx *store.Tx) error {
			for o := range store.Outgoings.All(tx) {
				sent[o.MailboxID]++
			}
			return nil
		})
		for _, n := range sent {
			least = min(least, n)
		}
		if rows := forwarded(i, "else.test"); rows != c.want || copies != c.want || len(sent) != c.members || least < c.want/c.members {
			t.Errorf("%d members: %d forwards of %d members, %d at least, and %d copies; want %d", c.members, rows, len(sent), least, copies, c.want)
		}
		noErrors(t, log)
	}
}

// noErrors fails on logged errors: a message whose transaction fails is retried for ever, and
// nobody waits for it.
func noErrors(t *testing.T, log *servicetest.Log) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, store.ErrTooMuch.Error()) {
			t.Error(line)
		}
	}
}

// listenIn records the log of an installation; call it before Run.
func listenIn(i *servicetest.Installation) *servicetest.Log {
	h := &servicetest.Log{}
	log := slog.New(slog.NewTextHandler(h, nil))
	i.Svc.Core.Log, i.Q.Log = log, log
	return h
}

// forwarded counts the rows of the sending log for a domain.
func forwarded(i *servicetest.Installation, domain string) (rows int) {
	i.T.Helper()
	err := i.St.View(func(tx *store.Tx) error {
		rows = 0
		for o := range store.Outgoings.All(tx) {
			if _, of, _ := msg.SplitEmail(o.Recipient); of == domain {
				rows++
			}
		}
		return nil
	})
	if err != nil {
		i.T.Fatal(err)
	}
	return rows
}

// TestOneAddressGetsFewLetters: letters to one address are limited to a number a day.
func TestOneAddressGetsFewLetters(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	i.AddDomain(i.Account, "example.test", nil)
	i.Run()
	sent := 0
	for range 40 {
		if sendHostMail(i, alert.HostMail{To: "Victim+x@Else.test", Subject: "s", Text: "t"}) == nil {
			sent++
		}
	}
	settled(t, i)
	if rows := forwarded(i, "Else.test"); rows != 30 || sent != 30 {
		t.Errorf("%d letters of %d that were sent, want 30", rows, sent)
	}
}

// sendHostMail sends a letter like the code that mails links.
func sendHostMail(i *servicetest.Installation, l alert.HostMail) error {
	_, err := i.Svc.Outbound.SendHostMail(l, func(*store.Tx) (bool, error) { return true, nil })
	return err
}
