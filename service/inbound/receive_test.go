package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestTraceOfUsersTellsNoAddress: the Received field of a user's message does not reveal the user's
// address.
func TestTraceOfUsersTellsNoAddress(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	c := inbound.Client{IP: netip.MustParseAddr("192.0.2.77"), Helo: "[10.1.2.3]", Extended: true, TLS: "TLS 1.3", Authenticated: true}
	field, id := i.Svc.Inbound.Trace(c, "")
	if got := string(field); strings.Contains(got, "192.0.2") || strings.Contains(got, "10.1.2") || !strings.HasPrefix(got, "Received: by mail.mailstead.test (TLS 1.3)\r\n\twith ESMTPSA id "+id+";\r\n\t") {
		t.Errorf("%q", got)
	}
	c.Authenticated = false
	if field, _ := i.Svc.Inbound.Trace(c, ""); !strings.HasPrefix(string(field), "Received: from [10.1.2.3] ([192.0.2.77])\r\n\tby mail.mailstead.test ") {
		t.Errorf("of a stranger: %q", field)
	}
}

// manyTo is a message with n addresses in To, as many in Cc and 40 references.
func manyTo(n int) string {
	var b strings.Builder
	b.WriteString("From: Far <far@far.test>\r\nTo: ")
	list := func() {
		for i := range n {
			if i > 0 {
				b.WriteString(",\r\n ")
			}
			fmt.Fprintf(&b, "Somebody Number %04d <box%04d@many.test>", i, i)
		}
	}
	list()
	b.WriteString("\r\nCc: ")
	list()
	b.WriteString("\r\nReferences:")
	for i := range 40 {
		fmt.Fprintf(&b, "\r\n <ref%02d@far.test>", i)
	}
	b.WriteString("\r\nSubject: to many\r\nMessage-ID: <many@far.test>\r\nDate: Mon, 02 Nov 2026 10:00:00 +0000\r\n\r\nHello.\r\n")
	return b.String()
}

func addressesIn(boxes []*store.Mailbox) (out []string) {
	for _, mb := range boxes {
		out = append(out, mb.Email)
	}
	return out
}

// idle waits until there are no jobs.
func idle(i *servicetest.Installation) {
	i.T.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		n := 0
		if err := i.St.View(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				if !j.Ended() && j.Kind == inbound.KindArrival {
					n++
				}
			}
			return nil
		}); err != nil {
			i.T.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			i.T.Fatalf("%d jobs are left", n)
		}
	}
}

func TestMessageToManyMailboxes(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	boxes := i.ManyMailboxes(130)
	text := manyTo(1000)
	// Two addresses of one mailbox are one destination.
	if err := i.Receive("far@far.test", text, append(addressesIn(boxes), "box0000+tag@many.test", "box0129+tag@many.test")...); err != nil {
		t.Fatal(err)
	}
	if n := servicetest.Total(i.Counts(boxes)); n == 0 || n > 50 {
		t.Errorf("the transaction that takes a message files it in %d mailboxes, want 1 to 50", n)
	}
	i.Run()
	i.WaitFiled(boxes, len(boxes))
	idle(i)
	i.EachOnce(boxes)
	for _, e := range i.Events(events.EventEmailReceived) {
		if n := len(fmt.Sprint(e)); n > 16<<10 {
			t.Fatalf("an event about a message of %d bytes has %d", len(text), n)
		}
	}
}

func TestArrivalGoesOnAfterACrash(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	boxes := i.ManyMailboxes(230)
	if err := i.Receive("far@far.test", manyTo(10), addressesIn(boxes)...); err != nil {
		t.Fatal(err)
	}
	for before := -1; servicetest.Total(i.Counts(boxes)) != before; { // it is cut after each transaction but the last
		i.Reopen()
		a := i.Arrivals()
		if len(a) != 1 {
			t.Fatalf("there are %d arrivals", len(a))
		}
		before = servicetest.Total(i.Counts(boxes))
		if len(a[0].To) <= outbound.RecipientsAtATime {
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
	if left := i.Arrivals(); len(left) != 0 {
		t.Errorf("%d arrivals are left", len(left))
	}
}

// Changes after acceptance: one mailbox is deleted, another is full.
func TestArrivalTellsOfWhoCannotBeServed(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	boxes := i.ManyMailboxes(60)
	i.DNS.Txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
	if err := i.Receive("far@far.test", manyTo(3), addressesIn(boxes)...); err != nil {
		t.Fatal(err)
	}
	i.Update(func(tx *store.Tx) error {
		gone, err := store.Mailboxes.Get(tx, boxes[58].ID)
		if err != nil {
			return err
		}
		gone.Status = "deleting"
		full, err := store.Mailboxes.Get(tx, boxes[59].ID)
		if err != nil {
			return err
		}
		none := int64(0)
		full.QuotaBytes = &none
		return errors.Join(store.Mailboxes.Put(tx, gone), store.Mailboxes.Put(tx, full))
	})
	i.Run()
	o := i.Becomes("far@far.test", store.OutgoingCaptured)
	if o.Sender != "" {
		t.Errorf("the report is from %q", o.Sender)
	}
	i.WaitFiled(boxes, 58)
	a := i.Arrivals()
	if len(a) != 1 || len(a[0].To) != 1 || a[0].To[0] != boxes[59].Email {
		t.Fatalf("arrivals: %+v", a)
	}
	i.Stop()
	i.Update(func(tx *store.Tx) error { // there is room again
		full, err := store.Mailboxes.Get(tx, boxes[59].ID)
		if err != nil {
			return err
		}
		full.QuotaBytes = nil
		for j := range store.Jobs.All(tx) {
			if j.Kind == inbound.KindArrival {
				if err := i.Q.Wake(tx, j.ID, tx.Now()); err != nil {
					return err
				}
			}
		}
		return store.Mailboxes.Put(tx, full)
	})
	i.Run()
	idle(i)
	if got := i.Counts(boxes); got[58] != 0 || got[59] != 1 || servicetest.Total(got) != 59 {
		t.Errorf("copies: %v", got)
	}
}

func TestSubmissionToManyMailboxes(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	boxes := i.ManyMailboxes(130)
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Update(func(tx *store.Tx) error {
		return core.Suppress(tx, i.Account.AccountID, boxes[120].Email, "manual", "")
	})
	out := i.MustSubmit(ann, servicetest.PlainMessage, addressesIn(boxes)...)
	if len(out.Recipients) != 130 || out.Recipients[120].Status != store.OutgoingSuppressed || out.Recipients[129].Status != store.OutgoingQueued {
		t.Errorf("submitted to %d: %+v", len(out.Recipients), out.Recipients)
	}
	if err := i.St.View(func(tx *store.Tx) error {
		n := 0
		for range store.Outgoings.All(tx) {
			n++
		}
		if n > 50 {
			t.Errorf("the transaction that takes a submission makes %d rows, want at most 50", n)
		}
		sent, err := reputation.SentToday(tx, ann)
		if err == nil && sent != 129 {
			t.Errorf("%d recipients are counted, want 129", sent)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	i.Reopen()
	i.Run()
	i.WaitFiled(boxes, 129)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if subs, jobs := i.Left(); subs == 0 && jobs == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d submissions and %d deliveries are left", subs, jobs)
		}
	}
	for k, n := range i.Counts(boxes) {
		if want := map[bool]int{true: 0, false: 1}[k == 120]; n != want {
			t.Errorf("%s has %d copies, want %d", boxes[k].Email, n, want)
		}
	}
}

func TestEventNamesFewOfManyRecipients(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	boxes := i.ManyMailboxes(1)
	if err := i.Receive("far@far.test", manyTo(60), boxes[0].Email); err != nil {
		t.Fatal(err)
	}
	e := i.Events(events.EventEmailReceived)[0]
	for field, want := range map[string]int{"to": 50, "cc": 50, "references": 20} {
		if got := len(e[field].([]any)); got != want {
			t.Errorf("%s has %d values, want %d", field, got, want)
		}
	}
	for field, want := range map[string]float64{"to_count": 60, "cc_count": 60, "references_count": 40} {
		if e[field] != want {
			t.Errorf("%s is %v, want %v", field, e[field], want)
		}
	}
	refs := e["references"].([]any)
	if refs[0] != "<ref00@far.test>" || refs[1] != "<ref21@far.test>" || refs[19] != "<ref39@far.test>" {
		t.Errorf("references are %v, want the first and the newest 19", refs)
	}

	// All addresses count, although only some are stored.
	if err := i.Receive("far@far.test", manyTo(1300), boxes[0].Email); err != nil {
		t.Fatal(err)
	}
	all := i.Events(events.EventEmailReceived)
	if len(all) != 2 {
		t.Fatalf("%d events, want 2", len(all))
	}
	for _, e := range all {
		if e["to_count"] == 60.0 {
			continue
		}
		if e["to_count"] != 1300.0 || e["cc_count"] != 1300.0 || len(e["to"].([]any)) != 50 {
			t.Errorf("of 1300 addresses in To and Cc the event counts %v and %v", e["to_count"], e["cc_count"])
		}
	}
}

// TestSlicesEndWithTheirWrites: if each copy needs many writes, a transaction has fewer copies.
func TestSlicesEndWithTheirWrites(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	boxes := i.ManyMailboxes(60)
	i.MaxWrites = 300 // fifty copies take more
	i.Reopen()
	if err := i.Receive("far@far.test", manyTo(3), addressesIn(boxes)...); err != nil {
		t.Fatal(err)
	}
	i.Run()
	i.WaitFiled(boxes, len(boxes))
	idle(i)
	i.EachOnce(boxes)
}

// TestRewrittenPathsTakeReportsAlone: a rewritten return path accepts mail only from the null
// sender; otherwise anybody could send through it to a stranger.
func TestRewrittenPathsTakeReportsAlone(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	path := i.Svc.Recipients.SRSForward("victim@far.test", "example.test")
	again := i.Svc.Recipients.SRSForward(i.Svc.Recipients.SRSForward("victim@far.test", "forwarder.test"), "example.test")
	for _, to := range []string{path, strings.ToLower(path), again} {
		if err := i.Arrive("pat@sender.test", to, servicetest.LetterFrom("pat@sender.test")); servicetest.CodeOf(err) != 550 || core.AsSMTPError(err).Enhanced != "5.7.1" {
			t.Errorf("from a sender to %s: %v", to, err)
		}
	}
	i.MustArrive("", strings.ToLower(path), servicetest.LetterFrom("mailer-daemon@sender.test"))
	i.Becomes("victim@far.test", store.OutgoingCaptured)
	other := i.Svc.Recipients.SRSForward("second@far.test", "example.test")
	_, err := i.Submit(ann, servicetest.PlainMessage, other)
	if err == nil {
		i.Becomes(strings.ToLower(other), store.OutgoingBounced)
	}
	if row := i.Row("second@far.test"); row.ID != "" {
		t.Errorf("it went on from a mailbox: %+v", row)
	}
	body, err := i.Svc.Inbound.Spool(strings.NewReader(servicetest.LetterFrom("pat@sender.test")))
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	in := inbound.Incoming{From: "pat@sender.test", Recipients: []inbound.Recipient{inbound.RecipientAt(strings.ToLower(other))}, Body: body}
	if _, err := i.Svc.Inbound.Receive(context.Background(), in); servicetest.CodeOf(err) != 550 {
		t.Errorf("named for one sender, sent by another: %v", err)
	}
}

// TestOneBoundForLoops: a message with 49 hops is accepted and one with 50 is refused, from outside
// and from a mailbox here.
func TestOneBoundForLoops(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.AddMailbox(d, "near", nil)
	i.AddMailbox(d, "far", nil)
	i.Run()
	hops := func(n int, message string) string {
		return strings.Repeat("Received: from a.test by b.test; Fri, 20 Nov 2026 00:00:00 +0000\r\n", n) + message
	}
	i.MustArrive("pat@sender.test", "ann@example.test", hops(49, servicetest.LetterFrom("pat@sender.test")))
	err := i.Arrive("pat@sender.test", "ann@example.test", hops(50, servicetest.LetterFrom("pat@sender.test")))
	if servicetest.CodeOf(err) != 554 || core.AsSMTPError(err).Enhanced != "5.4.6" {
		t.Errorf("from outside, after 50 servers: %v", err)
	}
	i.MustSubmit(ann, hops(49, servicetest.PlainMessage), "near@example.test")
	i.Becomes("near@example.test", store.OutgoingDelivered)
	i.MustSubmit(ann, hops(50, servicetest.PlainMessage), "far@example.test")
	if row := i.Becomes("far@example.test", store.OutgoingBounced); !strings.Contains(row.LastResponse, "554 5.4.6") {
		t.Errorf("from a mailbox here, after 50 servers: %q", row.LastResponse)
	}
}
