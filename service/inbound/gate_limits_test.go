package inbound_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// toSubject returns the subject under which automatic mail of a kind to an address is counted.
func toSubject(kind, address string) string {
	sum := sha256.Sum256([]byte(address))
	return "to " + kind + " " + hex.EncodeToString(sum[:16])
}

// setDay sets today's count of a subject.
func setDay(i *servicetest.Installation, accountID, subject string, n int) {
	i.T.Helper()
	i.Update(func(tx *store.Tx) error {
		return store.SendDays.Put(tx, &store.SendDay{AccountID: accountID, Day: tx.Now().UTC().Format(time.DateOnly), Subject: subject, Recipients: n})
	})
}

// waitingForwards returns the jobs of forwards that wait for another day.
func waitingForwards(i *servicetest.Installation) (list []*store.Job) {
	i.T.Helper()
	err := i.St.View(func(tx *store.Tx) error {
		list = nil
		for j := range store.Jobs.All(tx) {
			if j.Kind == outbound.KindForward && j.State == store.JobQueued && j.Due.After(tx.Now().Add(time.Second)) {
				list = append(list, j)
			}
		}
		return nil
	})
	if err != nil {
		i.T.Fatal(err)
	}
	return list
}

// TestTagsAreOneTarget: an address has one limit, whatever its +tag and case.
func TestTagsAreOneTarget(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	ways := []string{"victim@elsé.test", "victim+%d@elsé.test", "Victim+%d@ELSÉ.test", `"victim+%d"@elsé.test`, "vic\\tim+%d@xn--els-dma.test", "VICTIM@xn--els-dma.TEST.", `"victim"@xn--els-dma.test`}
	i.Update(func(tx *store.Tx) error {
		taken := 0
		for n := range 101 {
			way := ways[n%len(ways)]
			if strings.Contains(way, "%d") {
				way = fmt.Sprintf(way, n)
			}
			err := i.Svc.Reputation.AdmitAutomatic(tx, reputation.AutomaticReply, ann, d, ann.AccountID, strings.ToLower(way))
			if refused := new(core.SMTPError); err != nil && !errors.As(err, &refused) {
				return err
			}
			if err == nil {
				taken++
			}
		}
		if taken != 100 {
			t.Errorf("%d were admitted, want 100", taken)
		}
		return i.Svc.Reputation.AdmitAutomatic(tx, reputation.AutomaticReply, ann, d, ann.AccountID, "+victim@els.test")
	})
}

// TestAlertsAreLateNotLost: alerts above an address's hourly limit wait, and are sent together.
func TestAlertsAreLateNotLost(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	var passed atomic.Int64
	i := servicetest.InstallWith(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}}, store.Options{Now: func() time.Time {
		return time.Date(2026, 11, 28, 9, 5, 0, 0, time.UTC).Add(time.Duration(passed.Load()))
	}})
	log := listenIn(i)
	i.AddDomain(i.Account, "example.test", nil)
	i.Run()
	tell := func(n int) {
		t.Helper()
		i.Update(func(tx *store.Tx) error {
			return alert.Plan(i.Svc.Core, tx, alert.HostMail{About: i.Account.AccountID, To: "owner@elsewhere.test", Subject: fmt.Sprintf("alert %d.", n), Text: "t"})
		})
	}
	for n := range 6 {
		tell(n)
		servicetest.Eventually(t, "an alert is sent", func() bool { return len(h.Mails()) == n+1 })
	}
	tell(6)
	servicetest.Eventually(t, "one is past the limit", func() bool { return log.Count("past a limit") > 0 })
	for n := 7; n < 100; n++ {
		tell(n)
	}
	if len(h.Mails()) != 6 {
		t.Errorf("%d letters in an hour", len(h.Mails()))
	}
	passed.Add(int64(time.Hour))
	i.Update(func(tx *store.Tx) error { // starts the queue's next look
		return alert.Plan(i.Svc.Core, tx, alert.HostMail{To: "other@elsewhere.test", Subject: "s", Text: "t"})
	})
	servicetest.Eventually(t, "the others come in one letter", func() bool { return len(h.Mails()) == 8 })
	text := h.Mails()[6].Data + h.Mails()[7].Data
	for n := 6; n < 56; n++ {
		if !strings.Contains(text, fmt.Sprintf("alert %d.", n)) {
			t.Errorf("alert %d is lost", n)
		}
	}
	if !strings.Contains(text, "(and 93 more)") || !strings.Contains(text, "no room for 44 more") || log.Count("the queued message has no space for it") != 44 {
		t.Errorf("what has no room is not told of:\n%s", text)
	}
}

// wakeAll makes all waiting jobs of a kind due.
func wakeAll(i *servicetest.Installation, tx *store.Tx, kind string) error {
	for j := range store.Jobs.All(tx) {
		if j.Kind == kind && j.State == store.JobQueued {
			if err := i.Q.Wake(tx, j.ID, time.Time{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestForwardsLookAtFewRows: at most a thousand rows are read for a Message-ID that very many
// messages have.
func TestForwardsLookAtFewRows(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	addRule(i, ann, "", "forward on@else.test")
	put := func(many int, mailbox, recipient string) {
		for from := 0; from < many; from += 500 {
			i.Update(func(tx *store.Tx) error {
				for range min(500, many-from) {
					o := &store.Outgoing{ID: tx.NewID("msg"), AccountID: ann.AccountID, MailboxID: mailbox, MessageID: "<same@far.test>", Recipient: recipient, Status: store.OutgoingSent, QueuedAt: tx.Now()}
					if err := store.Outgoings.Put(tx, o); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	i.Run()
	for n, want := range []int{1, 1, 2} { // not again with 998 between, and with more nobody looks so far
		if err := i.Receive("far@far.test", fmt.Sprintf(ruled, ann.Email, "s", "same"), ann.Email); err != nil {
			t.Fatal(err)
		}
		settled(t, i)
		if rows := forwarded(i, "else.test"); rows != want {
			t.Errorf("%d: %d were sent on, want %d", n, rows, want)
		}
		put([]int{998, 2, 0}[n], "eu_other", "x@other.test")
	}
}

// TestForwardToEndsALoop: a mailbox forwards a message that comes back at most once more, even if
// the first one had several recipients.
func TestForwardToEndsALoop(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", func(mb *store.Mailbox) { mb.ForwardTo = "on@else.test" }), i.AddMailbox(d, "bob", nil)
	i.Run()
	if err := i.Receive("far@far.test", fmt.Sprintf(ruled, ann.Email, "s", "loop"), ann.Email, bob.Email); err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ {
		servicetest.Eventually(t, "it is sent on", func() bool { return len(h.Mails()) == n })
		err := i.Receive("far@far.test", h.Mails()[n-1].Data, ann.Email) // as it was sent
		if refused := new(core.SMTPError); errors.As(err, &refused) {
			if n != 2 || refused.Enhanced != "5.4.6" {
				t.Errorf("round %d: %v", n, err)
			}
			return
		}
		if err != nil || n > 5 {
			t.Fatal(n, err)
		}
	}
}

// TestForwardsThatWait: waiting forwards are due in the first two hours of the next day, one after
// the other, up to a number for each account; a forward that waits twice is sent once.
func TestForwardsThatWait(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	log := listenIn(i)
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	addRule(i, ann, "", "forward on@else.test")
	setDay(i, "", toSubject("forward", "on@else.test"), 5000)
	i.Run()
	receive := func(id string, waiting int) {
		t.Helper()
		if err := i.Receive("far@far.test", fmt.Sprintf(ruled, ann.Email, "s", id), ann.Email); err != nil {
			t.Fatal(err)
		}
		servicetest.Eventually(t, "the forward waits", func() bool { return len(waitingForwards(i)) == waiting })
	}
	for n := range 30 {
		receive(fmt.Sprint("m", n), n+1)
	}
	day := i.St.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
	early, late := 0, 0
	for _, j := range waitingForwards(i) {
		switch at := j.Due.Sub(day); {
		case at < 0 || at > 2*time.Hour:
			t.Errorf("due %s after the day", at)
		case at < time.Hour:
			early++
		default:
			late++
		}
	}
	if early == 0 || late == 0 {
		t.Errorf("%d are due in the first hour and %d in the second", early, late)
	}

	// A forward that is already queued waits twice and is sent once; forwards above the number are
	// dropped.
	receive("m0", 31)
	setDay(i, ann.AccountID, "waiting forwards", 1999)
	receive("m30", 32)
	if err := i.Receive("far@far.test", fmt.Sprintf(ruled, ann.Email, "s", "m31"), ann.Email); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "the log tells what is dropped", func() bool { return log.Count("waits=false") == 1 })
	if n := len(waitingForwards(i)); n != 32 || log.Count("waits=true") != 32 {
		t.Errorf("%d wait, want 32", n)
	}
	setDay(i, "", toSubject("forward", "on@else.test"), 0)
	i.Update(func(tx *store.Tx) error { return wakeAll(i, tx, outbound.KindForward) })
	servicetest.Eventually(t, "31 are sent on", func() bool { return forwarded(i, "else.test") == 31 })
	settled(t, i)
	if rows := forwarded(i, "else.test"); rows != 31 {
		t.Errorf("%d are sent on, want 31", rows)
	}
	noErrors(t, log)
}

// TestRequiredMailPassesTheLimits: mail to postmaster@ and abuse@ reaches a person even if other
// mail has used up the limits, and if the catch-all accepts nothing. Above a number it waits.
func TestRequiredMailPassesTheLimits(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture, Limits: core.Limits{RecipientsPerMailbox: 1, RecipientsPerDomain: 1, RecipientsPerAccount: 1}}})
	log := listenIn(i)
	d := i.AddDomain(i.Account, "example.test", nil)
	elsewhere := i.AddDomain(i.Account, "elsewhere.example.test", func(d *store.Domain) { d.CatchAll = "catch@else.test" })
	ann := i.AddMailbox(d, "ann", func(mb *store.Mailbox) { mb.Status = store.MailboxSuspended })
	i.AddDomain(i.Account, "suspended.test", func(d *store.Domain) { d.CatchAll = ann.Email })
	for _, used := range []string{d.ID, elsewhere.ID, i.Account.AccountID} {
		setDay(i, i.Account.AccountID, used, 1)
	}
	setDay(i, "", toSubject("forward", "owner@elsewhere.test"), 5000)
	i.Update(func(tx *store.Tx) error {
		return errors.Join(core.Suppress(tx, i.Account.AccountID, "owner@elsewhere.test", "complaint", ""), core.Suppress(tx, i.Account.AccountID, "catch@else.test", "complaint", ""))
	})
	i.Run()
	owners := 0
	for _, to := range []string{"postmaster@example.test", "abuse@example.test", "postmaster@mail.mailstead.test", "abuse@suspended.test"} {
		i.MustArrive("stranger@far.test", to, "Subject: x\r\n\r\nhello\r\n")
		owners++
		servicetest.Eventually(t, to+" is passed on", func() bool { return forwarded(i, "elsewhere.test") == owners })
	}
	i.MustArrive("stranger@far.test", "abuse@elsewhere.example.test", "Subject: x\r\n\r\nhello\r\n")
	i.Becomes("catch@else.test", store.OutgoingCaptured)

	// It ends when it comes back, and waits above a number.
	err := i.Arrive("stranger@far.test", "abuse@example.test", "Delivered-To: abuse@example.test\r\nSubject: x\r\n\r\nhello\r\n")
	if refused := new(core.SMTPError); !errors.As(err, &refused) || refused.Enhanced != "5.4.6" {
		t.Errorf("a loop: %v", err)
	}
	setDay(i, "", toSubject("required", "owner@elsewhere.test"), 1000)
	i.MustArrive("stranger@far.test", "abuse@example.test", "Subject: x\r\n\r\nhello\r\n")
	servicetest.Eventually(t, "it waits", func() bool { return len(waitingForwards(i)) == 1 && log.Count("past a limit") == 1 })
	noErrors(t, log)
}

// TestOldNotesOfRepliesCount: a correspondent whom a rule answered under the older record format is
// not answered again for seven days.
func TestOldNotesOfRepliesCount(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	i.DNS.Txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	r := addRule(i, ann, "", "reply I am here.")
	i.Update(func(tx *store.Tx) error {
		return store.AutoReplies.Put(tx, &store.AutoReply{ID: store.AutoReplyID(ann.ID, r.ID, rules.RuleReplier("", "I am here.").Version, "old@far.test"), Expires: tx.Now().Add(time.Hour)})
	})
	i.Run()
	for n, from := range []string{"old@far.test", "new@far.test"} {
		if err := i.Receive(from, fmt.Sprintf(ruled, ann.Email, "s", fmt.Sprint("o", n)), ann.Email); err != nil {
			t.Fatal(err)
		}
		settled(t, i)
	}
	if rows := forwarded(i, "far.test"); rows != 1 || i.Row("new@far.test") == nil {
		t.Errorf("%d are answered, want the new one", rows)
	}
}
