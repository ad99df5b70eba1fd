package mta_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestForwardsWaitInSight: the row says that it waits, for what and until when, and no attempt is
// counted.
func TestForwardsWaitInSight(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Relays: []core.Relay{h.Relay("custom")}})
	d := i.AddDomain(i.Account, "example.test", nil)
	i.AddMailbox(d, "ann", func(mb *store.Mailbox) { mb.ForwardTo = "away@far.test" })
	i.AddMailbox(d, "bob", func(mb *store.Mailbox) { mb.ForwardTo = "free@far.test" })
	for range mta.ForwardMost {
		i.Svc.Forwards().Take("away@far.test", i.Svc.Now())
	}
	i.Run()
	i.MustArrive("pat@sender.test", "ann@example.test", servicetest.LetterFrom("pat@sender.test"))
	i.MustArrive("pat@sender.test", "bob@example.test", servicetest.LetterFrom("pat@sender.test"))
	i.Becomes("free@far.test", store.OutgoingRelayed)
	end := time.Now().Add(20 * time.Second)
	for i.Row("away@far.test").LastResponse == "" && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	row := i.Row("away@far.test")
	if wait := time.Until(row.NextAt); row.Status != store.OutgoingQueued || row.Attempts != 0 || !strings.Contains(row.LastResponse, "200 messages an hour") || wait < 50*time.Minute || wait > 70*time.Minute {
		t.Errorf("row %+v", row)
	}
	if j := i.DeliveryJob(); j == nil || j.Due.Before(row.NextAt) {
		t.Errorf("job %+v", j)
	}
}
