package e2e

import (
	"fmt"
	"net/smtp"
	"sync"
	"testing"
	"time"
)

const (
	crashes      = 10
	crashSenders = 500
)

// TestKillWhileReceiving kills the program in the middle of 500 concurrent deliveries, ten times.
// Every message that was acknowledged must be there once, told of once, and the store must be
// whole.
func TestKillWhileReceiving(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	hook, world := newHook(t), newResolver(t)
	i := newInstance(t, generousLimits, "--ca-file", hook.caFile, "--resolver", world.addr)
	world.delegate(i.ready.DNS)
	i.addDomain("example.test")
	box := i.addMailbox("ann@example.test", "correct horse")
	hook.subscribe(i, "email.received")
	acked := map[string]bool{}
	for round := range crashes {
		before := len(acked)
		deliverUntilKilled(i, round, acked)
		if len(acked) == before {
			t.Errorf("round %d: nothing was acknowledged before the kill", round)
		}
		i.start()
		world.delegate(i.ready.DNS)
	}
	stored := map[string]int{}
	for _, r := range i.inbox(box) {
		stored[r.Subject]++
	}
	for id := range acked {
		if stored[id] != 1 {
			t.Errorf("%s was acknowledged and is stored %d times", id, stored[id])
		}
	}
	for id, n := range stored {
		if n > 1 {
			t.Errorf("%s is stored %d times", id, n)
		}
	}
	i.until("every stored message was told of", func() bool { return len(hook.of("email.received", "subject")) == len(stored) })
	for id, events := range hook.of("email.received", "subject") {
		if len(events) != 1 {
			t.Errorf("%s has the events %v", id, events)
		}
	}
	t.Logf("%d messages acknowledged, %d stored", len(acked), len(stored))
	i.stop()
	if out, code := mailstead(t, "check", "--data", i.dir); code != 0 {
		t.Errorf("check: %s", out)
	}
}

// deliverUntilKilled starts every sender at once, each on a connection of its own, and kills the
// server once some of their messages were acknowledged.
func deliverUntilKilled(i *instance, round int, acked map[string]bool) {
	var mu sync.Mutex
	var senders sync.WaitGroup
	some := make(chan struct{}, crashSenders*4)
	for n := range crashSenders {
		senders.Go(func() {
			for k := range 4 {
				id := fmt.Sprintf("round %d sender %d message %d", round, n, k)
				if sendOne(i.ready.SMTP, id) != nil {
					return
				}
				mu.Lock()
				acked[id] = true
				mu.Unlock()
				some <- struct{}{}
			}
		})
	}
	for range 50 + 60*round {
		select {
		case <-some:
		case <-time.After(10 * time.Second):
			i.t.Errorf("round %d: the deliveries stall", round)
		}
	}
	i.kill()
	senders.Wait()
}

func sendOne(addr, id string) error {
	c, err := smtp.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Mail("bob@elsewhere.test"); err != nil {
		return err
	}
	if err := c.Rcpt("ann@example.test"); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "From: bob@elsewhere.test\r\nSubject: %s\r\n\r\n%04000d\r\n", id, 0)
	return w.Close()
}
