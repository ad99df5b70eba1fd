package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

const groupLetter = "From: far@far.test\r\nTo: %s\r\nSubject: hello\r\nMessage-ID: <%s@far.test>\r\n\r\nHello.\r\n"

// TestGroupReachesEachMemberOnce: mail to a group of mailboxes, aliases, other groups and outside
// addresses, some named in several ways, is filed once in each mailbox, and forwarded once to each
// address, with the group's List-Id.
func TestGroupReachesEachMemberOnce(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob, cat := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil), i.AddMailbox(d, "cat", nil)
	who, ctx := servicetest.Actor(i.Account), context.Background()
	if _, err := i.Svc.Mailboxes.UpdateEmailUser(ctx, who, mailboxes.UpdateEmailUserIn{UserID: ann.ID, Aliases: &[]string{"a@example.test"}}); err != nil {
		t.Fatal(err)
	}
	group := func(email, sendAs string, members ...mailboxes.NewMember) *mailboxes.Group {
		t.Helper()
		g, err := i.Svc.Mailboxes.CreateGroup(ctx, who, mailboxes.CreateGroupIn{Email: email, Members: members, SendAs: sendAs})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	inner := group("inner@example.test", "", mailboxes.NewMember{Email: "cat@example.test"}, mailboxes.NewMember{UserID: ann.ID}, mailboxes.NewMember{Email: "far@else.test"}, mailboxes.NewMember{Email: "one@else.test"})
	outer := group("outer@example.test", "members", mailboxes.NewMember{Email: "a@example.test"}, mailboxes.NewMember{UserID: bob.ID}, mailboxes.NewMember{Email: "inner@example.test"}, mailboxes.NewMember{Email: "far@else.test"})

	// A loop is refused, and the list is unchanged.
	_, err := i.Svc.Mailboxes.UpdateGroup(ctx, who, mailboxes.UpdateGroupIn{GroupID: inner.ID, Members: &[]mailboxes.NewMember{{UserID: cat.ID}, {Email: "outer@example.test"}}})
	if e, _ := core.AsError(err); e == nil || e.Code != "group_loop" {
		t.Errorf("a loop: %v", err)
	}
	if g, err := i.Svc.Mailboxes.GetGroup(ctx, who, mailboxes.GroupIn{GroupID: inner.ID}); err != nil || len(g.Members) != 4 {
		t.Errorf("the members after that: %+v, %v", g, err)
	}

	// From outside, and from a member.
	i.Run()
	if err := i.Receive("far@far.test", fmt.Sprintf(groupLetter, "outer+x@example.test", "1"), "outer+x@example.test", "ann@example.test"); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Send(ann, submit.SendEmailIn{From: "Sales <outer@example.test>", To: submit.Texts{"outer@example.test"}, Subject: "s", Text: "t"}); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "two messages are with the two outside", func() bool { return len(h.Mails()) == 4 })
	boxes := []*store.Mailbox{ann, bob, cat}
	servicetest.Eventually(t, "all are filed", func() bool { return servicetest.Total(i.Counts(boxes)) == 6 && len(i.Arrivals()) == 0 })
	for n, count := range i.Counts(boxes) {
		if count != 2 {
			t.Errorf("%s has %d", boxes[n].Email, count)
		}
	}
	sent := map[string]int{}
	for _, m := range h.Mails() {
		sent[m.To]++
		if !strings.HasPrefix(m.From, "SRS0=") && !strings.HasPrefix(m.From, "b-") || !strings.Contains(m.Data, "List-Id: <inner.example.test>\r\n") && !strings.Contains(m.Data, "List-Id: <outer.example.test>\r\n") {
			t.Errorf("sent on from %s:\n%s", m.From, m.Data)
		}
	}
	if sent["far@else.test"] != 2 || sent["one@else.test"] != 2 {
		t.Errorf("sent on: %v", sent)
	}
	var recipients []string
	for _, e := range i.Events("email.received") {
		recipients = append(recipients, fmt.Sprint(e["recipient"]))
	}
	if n := strings.Count(strings.Join(recipients, " "), "outer"); n < 5 {
		t.Errorf("recipients: %v", recipients)
	}

	// A message that comes back is a loop.
	var refused *core.SMTPError
	again := "List-Id: <outer.example.test>\r\n" + fmt.Sprintf(groupLetter, "outer@example.test", "2")
	if err := i.Receive("far@far.test", again, "outer@example.test"); !errors.As(err, &refused) || refused.Enhanced != "5.4.6" {
		t.Errorf("what came back: %v", err)
	}

	// The group is empty: 550 5.1.1, and no address is accepted any more.
	if _, err := i.Svc.Mailboxes.UpdateGroup(ctx, who, mailboxes.UpdateGroupIn{GroupID: outer.ID, Members: &[]mailboxes.NewMember{{UserID: bob.ID}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Svc.Mailboxes.DeleteEmailUser(ctx, who, mailboxes.DeleteEmailUserIn{UserID: bob.ID}); err != nil {
		t.Fatal(err)
	}
	if err := i.Receive("far@far.test", fmt.Sprintf(groupLetter, "outer@example.test", "3"), "outer@example.test"); !errors.As(err, &refused) || refused.Enhanced != "5.1.1" {
		t.Errorf("an empty group: %v", err)
	}
	if _, err := i.Svc.Mailboxes.DeleteGroup(ctx, who, mailboxes.GroupIn{GroupID: outer.ID}); err != nil {
		t.Fatal(err)
	}
	if err := i.Receive("far@far.test", fmt.Sprintf(groupLetter, "outer@example.test", "4"), "outer@example.test"); !errors.As(err, &refused) || refused.Enhanced != "5.1.1" {
		t.Errorf("a group that is gone: %v", err)
	}
}

// TestGroupGoesOnAfterACrash: filing for a group of 200 members, 150 of them elsewhere, is
// interrupted after each transaction.
func TestGroupGoesOnAfterACrash(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	boxes := i.ManyMailboxes(50)
	var members []mailboxes.NewMember
	for _, mb := range boxes {
		members = append(members, mailboxes.NewMember{UserID: mb.ID})
	}
	for n := range 150 {
		members = append(members, mailboxes.NewMember{Email: fmt.Sprintf("m%d@else.test", n)})
	}
	domain := core.DomainOfAddress(boxes[0].Email)
	if _, err := i.Svc.Mailboxes.CreateGroup(t.Context(), servicetest.Actor(i.Account), mailboxes.CreateGroupIn{Email: "all@" + domain, Members: members}); err != nil {
		t.Fatal(err)
	}
	if err := i.Receive("far@far.test", fmt.Sprintf(groupLetter, "all", "1"), "all@"+domain); err != nil {
		t.Fatal(err)
	}
	for {
		i.Reopen()
		a := i.Arrivals()
		if len(a) != 1 || len(a[0].To) <= outbound.RecipientsAtATime {
			break
		}
		d, err := i.Svc.Inbound.RereadArrival(a[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.Svc.Inbound.FileSome(a[0].ID, d, false); err != nil {
			t.Fatal(err)
		}
	}
	i.Run()
	idle(i)
	i.EachOnce(boxes)
	servicetest.Eventually(t, "all are sent on", func() bool { return servicetest.Statuses(i)[store.OutgoingCaptured] == 150 })
	if left := i.Arrivals(); len(left) != 0 {
		t.Errorf("%d arrivals are left", len(left))
	}
}

// TestSendAs: over the API and by submission a mailbox sends as its aliases and as groups that
// allow it, signed by the author's domain, and as nobody else.
func TestSendAs(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	d, other := i.AddDomain(i.Account, "example.test", nil), i.AddDomain(i.Account, "other.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	who, ctx := servicetest.Actor(i.Account), context.Background()
	box, err := i.Svc.Mailboxes.UpdateEmailUser(ctx, who, mailboxes.UpdateEmailUserIn{UserID: ann.ID, Aliases: &[]string{"Sales@Other.test", "sales@other.test"}})
	if err != nil || len(box.Aliases) != 1 || len(box.SendAs) != 2 {
		t.Fatalf("%+v, %v", box, err)
	}
	for _, g := range []mailboxes.CreateGroupIn{
		{Email: "open@other.test", Members: []mailboxes.NewMember{{UserID: ann.ID}}, SendAs: "members"},
		{Email: "closed@other.test", Members: []mailboxes.NewMember{{UserID: ann.ID}}},
		{Email: "theirs@other.test", Members: []mailboxes.NewMember{{UserID: bob.ID}}, SendAs: "members"},
	} {
		if _, err := i.Svc.Mailboxes.CreateGroup(ctx, who, g); err != nil {
			t.Fatal(err)
		}
	}
	i.Run()
	for n, c := range []struct {
		from string
		ok   bool
	}{
		{"ann@example.test", true}, {"ann+x@example.test", true}, {"sales@other.test", true}, {"sales+x@other.test", true}, {"open@other.test", true},
		{"closed@other.test", false}, {"theirs@other.test", false}, {"bob@example.test", false}, {"sales@example.test", false}, {"postmaster@other.test", false},
	} {
		to := fmt.Sprintf("to%d@far.test", n)
		out, err := i.Send(ann, submit.SendEmailIn{From: c.from, To: submit.Texts{"api." + to}, Subject: "s", Text: "t"})
		if (err == nil) != c.ok || err == nil && out.From != c.from {
			t.Errorf("the API, as %s: %+v, %v", c.from, out, err)
		}
		_, err = i.Submit(ann, "From: "+c.from+"\r\nTo: "+to+"\r\nSubject: s\r\n\r\nt\r\n", to)
		if (err == nil) != c.ok {
			t.Errorf("submission, as %s: %v", c.from, err)
		}
		if !c.ok {
			continue
		}
		i.Becomes(to, store.OutgoingRelayed)
		for _, m := range h.Mails() {
			if m.To != to {
				continue
			}
			v := i.Verify([]byte(m.Data))
			if domain := core.DomainOfAddress(c.from); v.FromDomain != domain || v.DKIM != "pass" {
				t.Errorf("as %s: %+v", c.from, v)
			}
		}
	}

	// For a mailbox here, the author counts as proven.
	if _, err := i.Submit(ann, "From: sales@other.test\r\nTo: bob@example.test\r\nSubject: s\r\n\r\nt\r\n", "bob@example.test"); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "it is filed", func() bool { return len(i.Folder(bob, "INBOX")) == 1 })
	if got := i.Folder(bob, "INBOX")[0].Meta.DMARC; got != "pass" {
		t.Errorf("DMARC of local mail from an alias: %s", got)
	}
	// Mail to the alias arrives in the mailbox.
	if err := i.Receive("far@far.test", fmt.Sprintf(groupLetter, "sales", "9"), "sales+list@other.test"); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "it is with ann", func() bool { return len(i.Folder(ann, "INBOX")) == 1 })

	// A removed alias belongs to nobody, and a deleted mailbox frees its aliases.
	if _, err := i.Svc.Mailboxes.UpdateEmailUser(ctx, who, mailboxes.UpdateEmailUserIn{UserID: ann.ID, Aliases: &[]string{"new@other.test"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Send(ann, submit.SendEmailIn{From: "sales@other.test", To: submit.Texts{"x@far.test"}, Subject: "s", Text: "t"}); err == nil {
		t.Error("ann still sends as an alias that is gone")
	}
	if err := i.Receive("far@far.test", fmt.Sprintf(groupLetter, "sales", "10"), "sales@other.test"); err == nil {
		t.Error("an alias that is gone takes mail")
	}
	if _, err := i.Svc.Mailboxes.UpdateEmailUser(ctx, who, mailboxes.UpdateEmailUserIn{UserID: bob.ID, Aliases: &[]string{"new@other.test"}}); !servicetest.HasCode(err, "email_user_exists") {
		t.Errorf("an alias that another has: %v", err)
	}
	if _, err := i.Svc.Mailboxes.DeleteEmailUser(ctx, who, mailboxes.DeleteEmailUserIn{UserID: ann.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Svc.Mailboxes.UpdateEmailUser(ctx, who, mailboxes.UpdateEmailUserIn{UserID: bob.ID, Aliases: &[]string{"new@other.test", "postmaster@other.test"}}); err != nil {
		t.Errorf("an alias that was freed: %v", err)
	}
	_ = other
}

// TestForwardWithoutACopy: a mailbox that keeps no copy stores nothing of what it forwards, except
// junk.
func TestForwardWithoutACopy(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	keep := false
	to := core.Opt[string]{Set: true, Value: "ann@else.test"}
	box, err := i.Svc.Mailboxes.UpdateEmailUser(t.Context(), servicetest.Actor(i.Account), mailboxes.UpdateEmailUserIn{UserID: ann.ID, ForwardTo: to, ForwardKeep: &keep})
	if err != nil || box.ForwardKeep {
		t.Fatal(box, err)
	}
	i.Run()
	if err := i.Receive("far@far.test", fmt.Sprintf(groupLetter, "ann", "1"), "ann@example.test"); err != nil {
		t.Fatal(err)
	}
	i.Becomes("ann@else.test", store.OutgoingCaptured)
	if n := len(i.Folder(ann, "INBOX")); n != 0 {
		t.Errorf("%d copies were kept", n)
	}
}
