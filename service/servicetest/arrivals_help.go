package servicetest

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/store"
)

// ManyMailboxes makes a domain with n mailboxes.
func (i *Installation) ManyMailboxes(n int) (boxes []*store.Mailbox) {
	d := i.AddDomain(i.Account, "many.test", nil)
	for k := range n {
		boxes = append(boxes, i.AddMailbox(d, fmt.Sprintf("box%04d", k), nil))
	}
	return boxes
}

// Receive delivers a message from outside to the addresses.
func (i *Installation) Receive(from, text string, to ...string) error {
	i.T.Helper()
	in := inbound.Incoming{Client: inbound.Client{IP: netip.MustParseAddr("192.0.2.1"), Helo: "far.test"}, From: from}
	for _, address := range to {
		r, err := i.Svc.Inbound.Accepts(context.Background(), inbound.RecipientQuery{From: from, To: address, RemoteIP: in.Client.IP})
		if err != nil {
			return err
		}
		in.Recipients = append(in.Recipients, r)
	}
	body, err := i.Svc.Inbound.Spool(strings.NewReader(text))
	if err != nil {
		i.T.Fatal(err)
	}
	defer body.Close()
	in.Body = body
	_, err = i.Svc.Inbound.Receive(context.Background(), in)
	return err
}

// Counts returns how many messages each mailbox has in INBOX.
func (i *Installation) Counts(boxes []*store.Mailbox) (counts []int) {
	i.T.Helper()
	err := i.St.View(func(tx *store.Tx) error {
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
		i.T.Fatal(err)
	}
	return counts
}

func Total(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// WaitFiled waits until the mailboxes have n messages in all.
func (i *Installation) WaitFiled(boxes []*store.Mailbox, n int) {
	i.T.Helper()
	for end := time.Now().Add(20 * time.Second); Total(i.Counts(boxes)) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			i.T.Fatalf("%d of %d copies are filed", Total(i.Counts(boxes)), n)
		}
	}
}

// EachOnce fails unless each mailbox has one copy of the message, with one event for each.
func (i *Installation) EachOnce(boxes []*store.Mailbox) {
	i.T.Helper()
	for k, n := range i.Counts(boxes) {
		if n != 1 {
			i.T.Errorf("%s has %d copies", boxes[k].Email, n)
		}
	}
	told := map[any]int{}
	for _, e := range i.Events(events.EventEmailReceived) {
		told[e["mailbox"]]++
	}
	for _, mb := range boxes {
		if told[mb.Email] != 1 {
			i.T.Errorf("%d events tell of the copy of %s", told[mb.Email], mb.Email)
		}
	}
}

func (i *Installation) Arrivals() (out []*store.Arrival) {
	i.T.Helper()
	err := i.St.View(func(tx *store.Tx) error {
		for a := range store.Arrivals.All(tx) {
			out = append(out, a)
		}
		return nil
	})
	if err != nil {
		i.T.Fatal(err)
	}
	return out
}
