package inbound_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// installAckFirst returns an installation that acknowledges mail before its rows are written.
func installAckFirst(t *testing.T) *servicetest.Installation {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	i.AckFirst = true
	i.Reopen()
	i.DNS.Txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
	return i
}

// TestAcceptedMailOutlivesACrash: mail that was acknowledged while the store could not commit is
// filed once by the next process, and not again by later ones.
func TestAcceptedMailOutlivesACrash(t *testing.T) {
	i := installAckFirst(t)
	boxes := i.ManyMailboxes(60)
	release := i.Stall()
	for n := range 3 {
		if err := i.Receive("far@far.test", manyTo(3+n), addressesIn(boxes[:20*(n+1)])...); err != nil {
			t.Fatal(err)
		}
	}
	if got := servicetest.Total(i.Counts(boxes)); got != 0 || i.St.UnfiledCount() != 3 {
		t.Fatalf("%d messages are seen, %d are not filed", got, i.St.UnfiledCount())
	}
	i.Crash(release)
	if err := i.St.Compact(t.Context()); err != nil { // takes none of them away
		t.Fatal(err)
	}
	if n := len(i.St.Unfiled()); n != 3 {
		t.Fatalf("%d messages are left to be filed", n)
	}
	i.Svc.Inbound.FileUnfiled()
	i.Run()
	idle(i)
	for n, count := range i.Counts(boxes) {
		if want := 3 - n/20; count != want {
			t.Errorf("mailbox %d has %d messages, not %d", n, count, want)
		}
	}
	if got := len(i.Events(events.EventEmailReceived)); got != 120 {
		t.Errorf("%d events", got)
	}
	i.Stop()
	for range 2 {
		i.Reopen()
		if n := len(i.St.Unfiled()); n != 0 {
			t.Errorf("%d messages are left after they were filed", n)
		}
		i.Svc.Inbound.FileUnfiled()
	}
	if got := servicetest.Total(i.Counts(boxes)); got != 120 {
		t.Errorf("%d messages in the end", got)
	}
}

// TestAcceptedMailToAMailboxThatGoes: if the mailbox is deleted before filing, the sender gets a
// report.
func TestAcceptedMailToAMailboxThatGoes(t *testing.T) {
	i := installAckFirst(t)
	boxes := i.ManyMailboxes(2)
	release := i.Stall()
	if err := i.Receive("far@far.test", manyTo(2), addressesIn(boxes)...); err != nil {
		t.Fatal(err)
	}
	i.Crash(release)
	i.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, boxes[1].ID)
		if err != nil {
			return err
		}
		mb.Status = store.MailboxDeleting
		return store.Mailboxes.Put(tx, mb)
	})
	i.Svc.Inbound.FileUnfiled()
	i.Run()
	idle(i)
	if counts := i.Counts(boxes); counts[0] != 1 || counts[1] != 0 {
		t.Errorf("filed: %v", counts)
	}
	var told []string
	if err := i.St.View(func(tx *store.Tx) error {
		for o := range store.Outgoings.All(tx) {
			told = append(told, o.Recipient)
		}
		return nil
	}); err != nil || fmt.Sprint(told) != "[far@far.test]" {
		t.Errorf("told: %q, %v", told, err)
	}
}

// TestParallelMailKeepsTheQuota: accepted messages that are not filed yet count against the quota.
func TestParallelMailKeepsTheQuota(t *testing.T) {
	i := installAckFirst(t)
	box := i.ManyMailboxes(1)[0]
	text := "From: far@far.test\r\nSubject: x\r\n\r\n" + strings.Repeat("0123456789\r\n", 300)
	quota := int64(18_000) // four of them, and some space left
	i.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, box.ID)
		if err != nil {
			return err
		}
		mb.QuotaBytes = &quota
		return store.Mailboxes.Put(tx, mb)
	})
	release := i.Stall()
	var taken atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			switch err := i.Receive("far@far.test", text, box.Email); {
			case err == nil:
				taken.Add(1)
			case servicetest.CodeOf(err) != 452:
				t.Errorf("refused with %v", err)
			}
		})
	}
	all.Wait()
	release()
	i.Svc.Inbound.WaitFiled(t.Context(), 0)
	if got := i.Counts([]*store.Mailbox{box})[0]; got != 4 || taken.Load() != 4 {
		t.Errorf("%d were taken, %d are there", taken.Load(), got)
	}
	if err := i.Receive("far@far.test", text, box.Email); servicetest.CodeOf(err) != 452 {
		t.Errorf("one more: %v", err)
	}
}

// TestParallelMailKeepsTheStorage: accepted messages that are not filed yet count against the
// storage of the account, over all of its mailboxes.
func TestParallelMailKeepsTheStorage(t *testing.T) {
	i := installAckFirst(t)
	boxes := i.ManyMailboxes(3)
	text := "From: far@far.test\r\nSubject: x\r\n\r\n" + strings.Repeat("0123456789\r\n", 300)
	limit := int64(18_000) // four of them, and some space left
	i.ChangeAccount(i.Account.AccountID, func(a *servicetest.Account) { a.Limits.StorageBytes = &limit })
	release := i.Stall()
	var taken atomic.Int32
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			switch err := i.Receive("far@far.test", text, boxes[n%3].Email); {
			case err == nil:
				taken.Add(1)
			case servicetest.CodeOf(err) != 452:
				t.Errorf("refused with %v", err)
			}
		})
	}
	all.Wait()
	release()
	i.Svc.Inbound.WaitFiled(t.Context(), 0)
	counts := i.Counts(boxes)
	if got := counts[0] + counts[1] + counts[2]; got != 4 || taken.Load() != 4 {
		t.Errorf("%d were taken, %v are there", taken.Load(), counts)
	}
	if err := i.Receive("far@far.test", text, boxes[0].Email, boxes[1].Email); servicetest.CodeOf(err) != 452 {
		t.Errorf("one more: %v", err)
	}
}

// TestAcceptedMailWaitsForTheDisk: while the store cannot write, acknowledged mail waits.
func TestAcceptedMailWaitsForTheDisk(t *testing.T) {
	i := installAckFirst(t)
	boxes := i.ManyMailboxes(1)
	var failing atomic.Bool
	i.Svc.Inbound.FilingFails(func() error {
		if failing.Load() {
			return store.ErrFull
		}
		return nil
	})
	failing.Store(true)
	if err := i.Receive("far@far.test", manyTo(1), boxes[0].Email); err != nil {
		t.Fatal(err)
	}
	if got := i.Counts(boxes)[0]; got != 0 {
		t.Errorf("%d are there", got)
	}
	i.Svc.Inbound.WaitFiled(t.Context(), 0) // not for ever
	failing.Store(false)
	for end := time.Now().Add(20 * time.Second); i.St.UnfiledCount() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if got := i.Counts(boxes)[0]; got != 1 {
		t.Errorf("%d are there in the end", got)
	}
}

// TestAcceptedMailThatCannotBeFiled becomes an arrival, which a job retries.
func TestAcceptedMailThatCannotBeFiled(t *testing.T) {
	i := installAckFirst(t)
	boxes := i.ManyMailboxes(2)
	var left atomic.Int32
	left.Store(4) // the batch, and the message alone, each of them twice
	i.Svc.Inbound.FilingFails(func() error {
		if left.Add(-1) >= 0 {
			panic(errors.New("a fault"))
		}
		return nil
	})
	if err := i.Receive("far@far.test", manyTo(1), addressesIn(boxes)...); err != nil {
		t.Fatal(err)
	}
	i.Svc.Inbound.WaitFiled(t.Context(), 0)
	if got := i.Arrivals(); len(got) != 1 || len(got[0].To) != 2 {
		t.Fatalf("arrivals: %+v", got)
	}
	i.Run()
	idle(i)
	i.EachOnce(boxes)
}

// TestAcceptedMailOfANewerVersion: a record of a newer version stays in its segment.
func TestAcceptedMailOfANewerVersion(t *testing.T) {
	i := installAckFirst(t)
	body := i.St.NewSpool(100)
	if _, err := body.Write([]byte("Subject: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := i.St.AppendAccepted([]byte(`{"version":99}`), body); err != nil {
		t.Fatal(err)
	}
	body.Close()
	i.Cut = true
	for range 2 {
		i.Reopen()
		i.Svc.Inbound.FileUnfiled()
		if n := len(i.St.Unfiled()); n != 1 {
			t.Errorf("%d are left", n)
		}
		i.Cut = true
	}
	if list, err := filepath.Glob(filepath.Join(i.St.Dir(), "segments", "*")); err != nil || len(list) == 0 {
		t.Errorf("%q, %v", list, err)
	}
}

// TestFilingGathers: messages that arrive soon after a transaction wait for more, except if a
// reader waits, if there are enough for a transaction, or when the server stops.
func TestFilingGathers(t *testing.T) {
	i := installAckFirst(t)
	box := i.ManyMailboxes(1)
	receive := func(n int) {
		t.Helper()
		for range n {
			i.Svc.Inbound.HoldFiling()
			if err := i.Receive("far@far.test", manyTo(1), box[0].Email); err != nil {
				t.Fatal(err)
			}
		}
	}
	receive(1)
	if got := i.Counts(box)[0]; got != 0 || i.St.UnfiledCount() != 1 {
		t.Errorf("%d are filed, %d wait", got, i.St.UnfiledCount())
	}
	i.Svc.Inbound.WaitFiled(t.Context(), box[0].Num)
	if got := i.Counts(box)[0]; got != 1 {
		t.Errorf("%d are filed when somebody has waited", got)
	}
	i.Svc.Inbound.HoldFiling()
	for range inbound.FiledAtOnce {
		if err := i.Receive("far@far.test", manyTo(1), box[0].Email); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(20 * time.Second); i.St.UnfiledCount() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if got := i.Counts(box)[0]; got != 1+inbound.FiledAtOnce {
		t.Errorf("%d are filed of a whole transaction", got)
	}
	receive(1)
	i.Reopen()
	if got := i.Counts(box)[0]; got != 2+inbound.FiledAtOnce {
		t.Errorf("%d are filed at the end", got)
	}
}
