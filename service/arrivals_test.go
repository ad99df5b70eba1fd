package service

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store"
)

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

// manyMailboxes makes a domain with n mailboxes.
func (i *installation) manyMailboxes(n int) (boxes []*store.Mailbox) {
	d := i.addDomain(i.account, "many.test", nil)
	for k := range n {
		boxes = append(boxes, i.addMailbox(d, fmt.Sprintf("box%04d", k), nil))
	}
	return boxes
}

// receive takes a message from outside for the addresses.
func (i *installation) receive(from, text string, to ...string) error {
	i.t.Helper()
	in := Incoming{Client: Client{IP: netip.MustParseAddr("192.0.2.1"), Helo: "far.test"}, From: from}
	for _, address := range to {
		r, err := i.svc.Accepts(context.Background(), RecipientQuery{From: from, To: address, RemoteIP: in.Client.IP})
		if err != nil {
			i.t.Fatal(err)
		}
		in.Recipients = append(in.Recipients, r)
	}
	body, err := i.svc.Spool(strings.NewReader(text))
	if err != nil {
		i.t.Fatal(err)
	}
	defer body.Close()
	in.Body = body
	_, err = i.svc.Receive(context.Background(), in)
	return err
}

// counts gives how many messages each mailbox's INBOX has.
func (i *installation) counts(boxes []*store.Mailbox) (counts []int) {
	i.t.Helper()
	err := i.st.View(func(tx *store.Tx) error {
		for _, mb := range boxes {
			f, err := tx.Folder(mb.Num, store.InboxID)
			if err != nil {
				return err
			}
			counts = append(counts, int(f.Messages))
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return counts
}

func total(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// waitFiled waits until the mailboxes have n messages in all.
func (i *installation) waitFiled(boxes []*store.Mailbox, n int) {
	i.t.Helper()
	for end := time.Now().Add(20 * time.Second); total(i.counts(boxes)) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			i.t.Fatalf("%d of %d copies are filed", total(i.counts(boxes)), n)
		}
	}
}

func addressesIn(boxes []*store.Mailbox) (out []string) {
	for _, mb := range boxes {
		out = append(out, mb.Email)
	}
	return out
}

// idle waits until no job is left.
func idle(i *installation) {
	i.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		n := 0
		if err := i.st.View(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				if !j.Ended() && j.Kind == kindArrival {
					n++
				}
			}
			return nil
		}); err != nil {
			i.t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			i.t.Fatalf("%d jobs are left", n)
		}
	}
}

// eachOnce fails unless each mailbox has one copy and the account one event for each.
func (i *installation) eachOnce(boxes []*store.Mailbox) {
	i.t.Helper()
	for k, n := range i.counts(boxes) {
		if n != 1 {
			i.t.Errorf("%s has %d copies", boxes[k].Email, n)
		}
	}
	told := map[any]int{}
	for _, e := range i.events(EventEmailReceived) {
		told[e["mailbox"]]++
	}
	for _, mb := range boxes {
		if told[mb.Email] != 1 {
			i.t.Errorf("%d events tell of the copy of %s", told[mb.Email], mb.Email)
		}
	}
}

func TestMessageToManyMailboxes(t *testing.T) {
	i := install(t, Config{})
	boxes := i.manyMailboxes(130)
	text := manyTo(1000)
	// Two addresses of one mailbox are one place.
	if err := i.receive("far@far.test", text, append(addressesIn(boxes), "box0000+tag@many.test", "box0129+tag@many.test")...); err != nil {
		t.Fatal(err)
	}
	if n := total(i.counts(boxes)); n == 0 || n > 50 {
		t.Errorf("the transaction that takes a message files it in %d mailboxes, want 1 to 50", n)
	}
	i.run()
	i.waitFiled(boxes, len(boxes))
	idle(i)
	i.eachOnce(boxes)
	for _, e := range i.events(EventEmailReceived) {
		if n := len(fmt.Sprint(e)); n > 16<<10 {
			t.Fatalf("an event about a message of %d bytes has %d", len(text), n)
		}
	}
}

func TestArrivalGoesOnAfterACrash(t *testing.T) {
	i := install(t, Config{})
	boxes := i.manyMailboxes(230)
	if err := i.receive("far@far.test", manyTo(10), addressesIn(boxes)...); err != nil {
		t.Fatal(err)
	}
	for before := -1; total(i.counts(boxes)) != before; { // it is cut after each transaction but the last
		i.reopen()
		a := i.arrivals()
		if len(a) != 1 {
			t.Fatalf("there are %d arrivals", len(a))
		}
		before = total(i.counts(boxes))
		if len(a[0].To) <= placesAtATime {
			break
		}
		d, err := i.svc.rereadArrival(a[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.svc.fileSome(a[0].ID, d, false); err != nil {
			t.Fatal(err)
		}
	}
	i.run()
	idle(i)
	i.eachOnce(boxes)
	if left := i.arrivals(); len(left) != 0 {
		t.Errorf("%d arrivals are left", len(left))
	}
}

// What could not be known when the message was taken: a mailbox is deleted, another has filled up.
func TestArrivalTellsOfWhoCannotBeServed(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	boxes := i.manyMailboxes(60)
	i.dns.txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
	if err := i.receive("far@far.test", manyTo(3), addressesIn(boxes)...); err != nil {
		t.Fatal(err)
	}
	i.update(func(tx *store.Tx) error {
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
	i.run()
	o := i.becomes("far@far.test", store.OutgoingCaptured)
	if o.Sender != "" {
		t.Errorf("the report is from %q", o.Sender)
	}
	i.waitFiled(boxes, 58)
	a := i.arrivals()
	if len(a) != 1 || len(a[0].To) != 1 || a[0].To[0] != boxes[59].Email {
		t.Fatalf("arrivals: %+v", a)
	}
	i.stop()
	i.update(func(tx *store.Tx) error { // there is room again
		full, err := store.Mailboxes.Get(tx, boxes[59].ID)
		if err != nil {
			return err
		}
		full.QuotaBytes = nil
		for j := range store.Jobs.All(tx) {
			if j.Kind == kindArrival {
				if err := i.q.Wake(tx, j.ID, tx.Now()); err != nil {
					return err
				}
			}
		}
		return store.Mailboxes.Put(tx, full)
	})
	i.run()
	idle(i)
	if got := i.counts(boxes); got[58] != 0 || got[59] != 1 || total(got) != 59 {
		t.Errorf("copies: %v", got)
	}
}

func (i *installation) arrivals() (out []*store.Arrival) {
	i.t.Helper()
	err := i.st.View(func(tx *store.Tx) error {
		for a := range store.Arrivals.All(tx) {
			out = append(out, a)
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

func TestSubmissionToManyMailboxes(t *testing.T) {
	i := install(t, Config{})
	boxes := i.manyMailboxes(130)
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.update(func(tx *store.Tx) error { return suppress(tx, i.account.AccountID, boxes[120].Email, "manual", "") })
	out := i.mustSubmit(ann, plainMessage, addressesIn(boxes)...)
	if len(out.Recipients) != 130 || out.Recipients[120].Status != store.OutgoingSuppressed || out.Recipients[129].Status != store.OutgoingQueued {
		t.Errorf("submitted to %d: %+v", len(out.Recipients), out.Recipients)
	}
	if err := i.st.View(func(tx *store.Tx) error {
		n := 0
		for range store.Outgoings.All(tx) {
			n++
		}
		if n > 50 {
			t.Errorf("the transaction that takes a submission makes %d rows, want at most 50", n)
		}
		mb, err := store.Mailboxes.Get(tx, ann.ID)
		if err == nil && mb.SentToday != 129 {
			t.Errorf("%d recipients are counted, want 129", mb.SentToday)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	i.reopen()
	i.run()
	i.waitFiled(boxes, 129)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if subs, jobs := i.left(); subs == 0 && jobs == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d submissions and %d deliveries are left", subs, jobs)
		}
	}
	for k, n := range i.counts(boxes) {
		if want := map[bool]int{true: 0, false: 1}[k == 120]; n != want {
			t.Errorf("%s has %d copies, want %d", boxes[k].Email, n, want)
		}
	}
}

func TestEventNamesFewOfManyRecipients(t *testing.T) {
	i := install(t, Config{})
	boxes := i.manyMailboxes(1)
	if err := i.receive("far@far.test", manyTo(60), boxes[0].Email); err != nil {
		t.Fatal(err)
	}
	e := i.events(EventEmailReceived)[0]
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
}

// TestSlicesEndWithTheirWrites: where each copy takes many writes, fewer share a transaction.
func TestSlicesEndWithTheirWrites(t *testing.T) {
	i := install(t, Config{})
	boxes := i.manyMailboxes(60)
	i.maxWrites = 300 // fifty copies take more
	i.reopen()
	if err := i.receive("far@far.test", manyTo(3), addressesIn(boxes)...); err != nil {
		t.Fatal(err)
	}
	i.run()
	i.waitFiled(boxes, len(boxes))
	idle(i)
	i.eachOnce(boxes)
}
