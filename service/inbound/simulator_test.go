package inbound_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

const simulator = "@simulator.mail.mailstead.test"

// A simulation is an installation with a fake clock and a mailbox that writes to the simulator.
type simulation struct {
	*servicetest.Installation
	ann   *store.Mailbox
	ahead *atomic.Int64 // offset from the real time
}

func simulate(t *testing.T, c core.Config) *simulation {
	t.Helper()
	c.Simulator = true
	ahead := new(atomic.Int64)
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	i := servicetest.InstallWith(t, c, store.Options{Now: clock})
	return &simulation{i, i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil), ahead}
}

// advance stops the queue like a crash, advances the clock, and starts it on the stored state.
func (s *simulation) advance(by time.Duration) {
	s.T.Helper()
	s.Reopen()
	s.ahead.Add(int64(by))
	s.Run()
}

// tried waits until a row has that many attempts.
func (s *simulation) tried(recipient string, attempts int) (row *store.Outgoing) {
	s.T.Helper()
	servicetest.Eventually(s.T.(*testing.T), fmt.Sprintf("%s is tried %d times", recipient, attempts), func() bool {
		row = s.Row(recipient)
		return row.Attempts >= attempts
	})
	return row
}

func (s *simulation) codes(recipient string) (out []int) {
	for _, a := range s.Row(recipient).Log {
		out = append(out, a.Code)
	}
	return out
}

// suppressions counts the suppressed addresses of the account.
func (s *simulation) suppressions() (n int) {
	s.T.Helper()
	if err := s.St.View(func(tx *store.Tx) error {
		for range store.Suppressions.All(tx) {
			n++
		}
		return nil
	}); err != nil {
		s.T.Fatal(err)
	}
	return n
}

// TestSimulatedRecipients: each recipient behaves as its name says, also with capture and with
// crashes between attempts; nothing of it is counted.
func TestSimulatedRecipients(t *testing.T) {
	for _, mode := range []string{core.ViaCapture, core.ViaDirect, core.ViaRelay} {
		t.Run(mode, func(t *testing.T) {
			s := simulate(t, core.Config{Settings: core.Settings{Outbound: mode, Limits: core.Limits{RecipientsPerMailbox: 1, NewRecipientsPerMailbox: 1, NewRecipientsPerAccount: 1}}})
			s.Run()
			address := func(name string) string { return name + "+a.b" + simulator }
			all := submit.Texts{}
			for _, name := range strings.Fields("ok bounce defer3 slow complain reply full nobody") {
				all = append(all, address(name))
			}
			sent := s.MustSend(s.ann, submit.SendEmailIn{To: all, Subject: "Invoice", Text: "t", Tags: outbound.TagMap{"kind": "test"}})
			if sent.Transport != "simulator" || len(sent.Recipients) != len(all) || sent.Recipients[0].Transport != "simulator" {
				t.Errorf("the answer is %+v", sent)
			}

			ok := s.Becomes(address("ok"), store.OutgoingSent)
			if ok.Transport != core.ViaSimulator || ok.Attempts != 1 || len(ok.Log) != 1 || ok.Log[0].Host != simulator[1:] || ok.Log[0].IP != "" || !strings.HasPrefix(ok.LastResponse, "250 2.0.0 ") {
				t.Errorf("ok: %+v", ok)
			}
			for _, name := range []string{"bounce", "nobody"} {
				if row := s.Becomes(address(name), store.OutgoingBounced); row.Attempts != 1 || !strings.HasPrefix(row.LastResponse, "550 5.1.1 ") {
					t.Errorf("%s: %+v", name, row)
				}
			}
			s.Becomes(address("complain"), store.OutgoingComplained)
			s.Becomes(address("reply"), store.OutgoingSent)
			slow := s.Becomes(address("slow"), store.OutgoingQueued)
			servicetest.Eventually(t, "slow says until when it waits", func() bool { slow = s.Row(address("slow")); return slow.LastResponse != "" })
			if wait := slow.NextAt.Sub(slow.QueuedAt); wait != time.Minute || slow.Attempts != 0 {
				t.Errorf("slow waits %s, after %d attempts", wait, slow.Attempts)
			}
			s.tried(address("defer3"), 1)
			s.tried(address("full"), 1)
			told := s.Events(events.EventEmailDelayed)
			if len(told) != 2 || told[0]["host"] != simulator[1:] || told[0]["attempts"] != 1.0 || fmt.Sprint(told[0]["tags"]) != "map[kind:test]" {
				t.Errorf("email.delayed: %v", told)
			}

			// The retries, with crashes; an attempt that comes too early does not count.
			s.advance(10 * time.Second)
			if got := s.codes(address("defer3")); len(got) != 1 {
				t.Errorf("too early: %v", got)
			}
			s.advance(70 * time.Second)
			slow = s.Becomes(address("slow"), store.OutgoingSent)
			if slow.Attempts != 1 || slow.Log[0].At.Before(slow.QueuedAt.Add(time.Minute)) {
				t.Errorf("slow: %+v", slow)
			}
			full := s.Becomes(address("full"), store.OutgoingBounced)
			if fmt.Sprint(s.codes(full.Recipient)) != "[452 552]" || !strings.HasPrefix(full.LastResponse, "552 5.2.2 ") {
				t.Errorf("full: %+v", full)
			}
			s.tried(address("defer3"), 2)
			s.advance(6 * time.Minute)
			s.tried(address("defer3"), 3)
			s.advance(17 * time.Minute)
			s.Becomes(address("defer3"), store.OutgoingSent)
			if got := s.codes(address("defer3")); fmt.Sprint(got) != "[451 451 451 250]" || s.Row(address("defer3")).Attempts != 4 {
				t.Errorf("defer3: %v", got)
			}

			// The events: each once.
			recipients := func(kind string) (out string) {
				for _, e := range s.Events(kind) {
					name, _, _ := strings.Cut(fmt.Sprint(e["recipient"]), "+")
					out += name + " "
				}
				return out
			}
			for kind, want := range map[string]string{
				events.EventEmailBounced: "bounce full nobody", events.EventEmailComplained: "complain", events.EventEmailDelivered: "complain defer3 ok reply slow",
				events.EventEmailDelayed: "defer3 full", events.EventMessageRelayed: "",
			} {
				if got := strings.Join(slices.Sorted(slices.Values(strings.Fields(recipients(kind)))), " "); got != want {
					t.Errorf("%s for %q, want %q", kind, got, want)
				}
			}
			for _, e := range s.Events(events.EventEmailBounced) {
				want := map[string]string{address("full"): "mailbox_full 5.2.2"}[fmt.Sprint(e["recipient"])]
				if want == "" {
					want = "no_such_mailbox 5.1.1"
				}
				if got := fmt.Sprint(e["bounce_subtype"], " ", e["status"]); got != want || e["bounce_type"] != "hard" || e["suppressed"] != false || e["remote_mta"] != simulator[1:] {
					t.Errorf("email.bounced: %v", e)
				}
			}
			if e := s.Events(events.EventEmailComplained)[0]; e["feedback_type"] != "abuse" || e["user_agent"] != "Mailstead-Simulator" || e["original_message_id"] != sent.MessageID {
				t.Errorf("email.complained: %v", e)
			}

			// The mail that arrived: three reports and an answer.
			idle(s.Installation)
			kinds := map[string]int{}
			for _, m := range s.Folder(s.ann, "INBOX") {
				from, subject := msg.FieldValues(m.Raw, "From")[0], msg.FieldValues(m.Raw, "Subject")[0]
				kinds[subject]++
				if !strings.Contains(from, simulator) || m.Meta.DMARC != "pass" || m.Meta.SPF != "pass" {
					t.Errorf("%s from %s, judged %+v", subject, from, m.Meta)
				}
				if subject != "Re: Invoice" {
					continue
				}
				if msg.FieldValues(m.Raw, "In-Reply-To")[0] != sent.MessageID || from != "Simulator <"+address("reply")+">" || m.Meta.ReturnPath != address("reply") {
					t.Errorf("the answer:\n%s", m.Raw)
				}
				if first := s.Folder(s.ann, "Sent")[0]; first.Meta.ThreadID != m.Meta.ThreadID {
					t.Errorf("the answer is in %s, what it answers in %s", m.Meta.ThreadID, first.Meta.ThreadID)
				}
			}
			if kinds["Re: Invoice"] != 1 || kinds["Undelivered mail returned to sender"] != 3 || len(kinds) != 2 {
				t.Errorf("in the inbox: %v", kinds)
			}
			if n := len(s.Events(events.EventEmailReceived)); n != 4 {
				t.Errorf("%d email.received", n)
			}

			// Nothing is counted.
			if n := s.suppressions(); n != 0 {
				t.Errorf("%d addresses are suppressed", n)
			}
			view, err := s.Svc.Reputation.GetReputation(context.Background(), servicetest.Actor(s.Account), reputation.ReputationIn{})
			if err != nil || view.Account.Windows.Month.Sent != 0 || view.Account.Windows.Month.Bounced != 0 || len(view.Destinations) != 0 {
				t.Errorf("reputation: %+v, %v", view, err)
			}
			if err := s.St.View(func(tx *store.Tx) error {
				for d := range store.SendDays.All(tx) {
					t.Errorf("counted as sent: %+v", d)
				}
				for c := range store.Contacts.All(tx) {
					t.Errorf("a contact: %+v", c)
				}
				for d := range store.DayStats.All(tx) {
					if d.Sent+d.Bounced+d.Complained != 0 {
						t.Errorf("in the account's traffic: %+v", d)
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if subs, js := s.Left(); subs+js != 0 {
				t.Errorf("%d submissions and %d jobs are left", subs, js)
			}
		})
	}
}

// TestSimulatorKnowsSendersHereAlone: it refuses unknown recipients at once, and senders from
// elsewhere, even if a mailbox forwards their mail.
func TestSimulatorKnowsSendersHereAlone(t *testing.T) {
	s := simulate(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	d := s.AddDomain(s.Account, "other.test", nil)
	s.AddMailbox(d, "on", func(mb *store.Mailbox) { mb.ForwardTo = "reply" + simulator })
	s.Run()
	for _, to := range []string{"ok" + simulator, "nobody" + simulator, "OK+x@Simulator.Mail.Mailstead.Test"} {
		err := s.Arrive("x@far.test", to, servicetest.PlainMessage)
		if err == nil || core.AsSMTPError(err).Code != 550 || core.AsSMTPError(err).Enhanced != "5.1.1" {
			t.Errorf("%s from outside: %v", to, err)
		}
	}
	user := core.MailboxUser{AccountID: s.ann.AccountID, MailboxID: s.ann.ID, Email: s.ann.Email}
	for to, want := range map[string]int{
		"ok" + simulator: 250, "bounce+1" + simulator: 250, "OK@SIMULATOR.mail.mailstead.test": 250, "nobody" + simulator: 550, "ok-x" + simulator: 550,
		"x@below.simulator.mail.mailstead.test": 250,
	} {
		if got := servicetest.CodeOf(s.Svc.Submit.MaySendTo(context.Background(), user, new(reputation.Envelope), to)); got != want {
			t.Errorf("RCPT %s: %d, want %d", to, got, want)
		}
	}

	if err := s.Arrive("x@far.test", "on@other.test", "From: x@far.test\r\nTo: on@other.test\r\nSubject: s\r\nMessage-ID: <1@far.test>\r\n\r\nt\r\n"); err != nil {
		t.Fatal(err)
	}
	if row := s.Becomes("reply"+simulator, store.OutgoingBounced, store.OutgoingSent); row.Status != store.OutgoingBounced {
		t.Errorf("a stranger's mail that is forwarded is %s", row.Status)
	}
	s.Update(func(tx *store.Tx) error {
		row := s.Row("reply" + simulator)
		return store.Outgoings.Delete(tx, row.ID)
	})
	s.MustSend(s.ann, submit.SendEmailIn{To: submit.Texts{"on@other.test"}, Subject: "forwarded", Text: "t"})
	s.Becomes("reply"+simulator, store.OutgoingSent)
	idle(s.Installation)
	if in := s.Folder(s.ann, "INBOX"); len(in) != 1 || !bytes.Contains(in[0].Raw, []byte("Subject: Re: forwarded\r\n")) {
		t.Errorf("%d messages answer what a neighbour's mailbox sent on", len(in))
	}
}

// TestSimulatedAnswerIsMail: the mailbox's rules and automatic reply apply to it, automatic replies
// are not answered, and a thread ends.
func TestSimulatedAnswerIsMail(t *testing.T) {
	s := simulate(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	addRule(s.Installation, s.ann, "filed", "move archive", "flag")
	addRule(s.Installation, s.ann, "refused", "reject")
	if _, err := s.Svc.Rules.SetVacation(context.Background(), servicetest.Actor(s.Account), rules.SetVacationIn{UserID: s.ann.ID, Enabled: true, Text: "I am away."}); err != nil {
		t.Fatal(err)
	}
	s.Run()
	for n, subject := range []string{"filed", "refused", "long"} {
		refs := ""
		if subject == "long" {
			refs = "References: " + strings.Repeat("<r@far.test>\r\n ", 19) + "<last@far.test>\r\n"
		}
		s.MustSubmit(s.ann, fmt.Sprintf("From: ann@example.test\r\nTo: reply%s\r\nSubject: %s\r\nMessage-ID: <%d@example.test>\r\n%s\r\nt\r\n", simulator, subject, n, refs), fmt.Sprintf("reply+%s%s", subject, simulator))
		servicetest.Eventually(t, subject+" is sent", func() (sent bool) { // the automatic reply to its answer may have a row too
			_ = s.St.View(func(tx *store.Tx) error {
				for row := range store.Outgoings.All(tx) {
					sent = sent || row.Recipient == fmt.Sprintf("reply+%s%s", subject, simulator) && row.Status == store.OutgoingSent
				}
				return nil
			})
			return sent
		})
	}
	settled(s.T.(*testing.T), s.Installation)
	if got := s.Folder(s.ann, "Archive"); len(got) != 1 || got[0].Flags&store.FlagFlagged == 0 {
		t.Errorf("%d answers are where the rule says", len(got))
	}
	if got := s.Folder(s.ann, "INBOX"); len(got) != 0 {
		t.Errorf("%d answers are in INBOX:\n%s", len(got), got[0].Raw)
	}
	answers := 0
	if err := s.St.View(func(tx *store.Tx) error {
		for o := range store.Outgoings.All(tx) {
			if o.Sender == "" { // the automatic reply
				answers++
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if answers != 1 {
		t.Errorf("%d automatic replies", answers)
	}
}

// TestSimulatorAndMailElsewhere: an external mailbox gets the answer on its server, and that server
// gets nothing to send.
func TestSimulatorAndMailElsewhere(t *testing.T) {
	o := servicetest.NewOutpost(t, &servicetest.Host{})
	o.Svc.Core.ChangeSettings(func(c *core.Settings) { c.Simulator = true })
	o.Run()
	o.MustSend(o.Mailbox, submit.SendEmailIn{To: submit.Texts{"reply" + simulator, "complain" + simulator, "bounce" + simulator}, Subject: "s", Text: "t"})
	o.Becomes("reply"+simulator, store.OutgoingSent)
	o.Becomes("complain"+simulator, store.OutgoingComplained)
	o.Becomes("bounce"+simulator, store.OutgoingBounced)
	if n := len(o.Events(events.EventEmailComplained)); n != 1 {
		t.Errorf("%d email.complained", n)
	}
	if n := len(o.SMTP.Mails()); n != 0 {
		t.Errorf("its server got %d messages", n)
	}
	o.Until("the answer and the report are at its server", func() bool {
		var subjects []string
		o.IMAP.Change(func() {
			for _, m := range o.IMAP.Messages {
				subjects = append(subjects, msg.FieldValues([]byte(m.Text), "Subject")...)
			}
		})
		slices.Sort(subjects)
		return slices.Equal(subjects, []string{"Re: s", "Undelivered mail returned to sender"})
	})
}

// TestSimulatorOff: its addresses are ordinary ones.
func TestSimulatorOff(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"bounce" + simulator}, Subject: "s", Text: "t"})
	i.Becomes("bounce"+simulator, store.OutgoingCaptured)
	if err := i.Arrive("x@far.test", "ok"+simulator, servicetest.PlainMessage); servicetest.CodeOf(err) != 550 {
		t.Errorf("from outside: %v", err)
	}
}
