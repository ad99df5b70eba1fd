package service_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/clock"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestMailGoesOnWhenTheClockIsSet: the clock is set back and forward by a day and by a year, while
// the server runs and over a restart. Mail is received in order and sent; ids rise.
func TestMailGoesOnWhenTheClockIsSet(t *testing.T) {
	now := clock.New(nil, 0)
	i := servicetest.InstallWith(t, core.Config{Settings: core.Settings{Outbound: "capture"}}, store.Options{Clock: now, Unsynced: true})
	boxes := i.ManyMailboxes(1)
	i.Run()
	want, last := 0, ""
	mail := func(when string) {
		t.Helper()
		if err := i.Receive("x@far.test", "Subject: s\r\n\r\nhello\r\n", boxes[0].Email); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		want++
		i.WaitFiled(boxes, want)
		to := "to" + i.St.NewID("x") + "@away.test"
		i.MustSend(boxes[0], submit.SendEmailIn{To: submit.Texts{to}, Subject: "s", Text: "hello"})
		id := i.Becomes(to, store.OutgoingCaptured).ID
		if id <= last {
			t.Errorf("%s: the id %s comes after %s", when, id, last)
		}
		last = id
	}
	mail("at first")
	for _, by := range []time.Duration{-day, day, -365 * day, 2 * 365 * day, -365 * day} {
		now.Advance(by)
		mail("while it runs")
		i.Reopen()
		i.Run()
		mail("after a restart")
	}
	var modseq uint64
	for _, m := range i.Folder(boxes[0], "INBOX") {
		if m.ModSeq <= modseq || len(m.Raw) == 0 {
			t.Errorf("message %d has MODSEQ %d after %d and %d bytes", m.UID, m.ModSeq, modseq, len(m.Raw))
		}
		modseq = m.ModSeq
	}
}
