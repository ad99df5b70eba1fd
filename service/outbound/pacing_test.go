package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestPaceOfOneMailboxIsNotAnothers: two tenants have mailboxes at the same provider, which
// throttles one of them.
func TestPaceOfOneMailboxIsNotAnothers(t *testing.T) {
	provider := &servicetest.Host{Answer: func(_ int, m servicetest.Taken) string {
		if m.From == "greedy@away.test" {
			return "421 4.7.0 too many messages from you"
		}
		return "250 ok"
	}}
	provider.Start(t)
	i := servicetest.Install(t, core.Config{})
	i.AddDomain(i.Account, "away.test", func(d *store.Domain) { d.DNSProvider = store.DomainProviderExternal })
	add := func(name string) *store.Mailbox {
		server := &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: provider.Port, Security: "none", Username: name, Password: "s3cret"}
		made, err := i.Svc.Mailboxes.CreateEmailUser(t.Context(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{Email: name + "@away.test", Type: "external", IMAP: server, SMTP: server})
		if err != nil {
			t.Fatal(err)
		}
		return &store.Mailbox{ID: made.ID, AccountID: i.Account.AccountID}
	}
	greedy, modest := add("greedy"), add("modest")
	i.Run()
	i.MustSend(greedy, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "s", Text: "s"})
	i.Becomes("x@far.test", store.OutgoingDeferred)
	start := time.Now()
	i.MustSend(modest, submit.SendEmailIn{To: submit.Texts{"y@far.test"}, Subject: "s", Text: "s"})
	i.Becomes("y@far.test", store.OutgoingRelayed)
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("the other mailbox waited for %s", took)
	}
}

// TestWaitingForATurnEnds: a message that has waited five days for its turn at a slow host is given
// up, even if others wait there.
func TestWaitingForATurnEnds(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	row := i.Row("x@far.test")
	i.Update(func(tx *store.Tx) error {
		row.QueuedAt, row.DelayTold = tx.Now().Add(-outbound.GiveUpAfter+time.Second), true
		return store.Outgoings.Put(tx, row)
	})
	i.Svc.Outbound.Paces().Lanes["relay r1"] = &outbound.Pace{Gap: outbound.LongGap, Next: time.Now().Add(outbound.LongGap)}
	i.Run()
	if got := i.Becomes("x@far.test", store.OutgoingBounced); !strings.HasPrefix(got.LastResponse, "not delivered within five days") {
		t.Errorf("given up for %q", got.LastResponse)
	}
}

// piped connects the clients of a service to hosts in memory, by address, so that the test can use
// a fake clock.
func piped(i *servicetest.Installation, hosts map[string]func(net.Conn)) {
	dial := func(_ context.Context, _, addr string) (net.Conn, error) {
		ip, _, _ := net.SplitHostPort(addr)
		serve := hosts[ip]
		if serve == nil {
			return nil, errors.New("no route to host")
		}
		ours, theirs := net.Pipe()
		go serve(theirs)
		return ours, nil
	}
	i.Svc.Outbound.Direct().Dialer, i.Svc.Outbound.Relayed().Dialer = dial, dial
}

// TestThrottlingRelayPacesAndNothingFails: the relay behaves like Amazon SES at its limit.
func TestThrottlingRelayPacesAndNothingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var last time.Time
		refused := 0
		h := &servicetest.Host{T: t, Answer: func(n int, _ servicetest.Taken) string {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(last) < time.Second {
				refused++
				return "454 Throttling failure: Maximum sending rate exceeded."
			}
			last = time.Now()
			return fmt.Sprintf("250 Ok id-%d", n)
		}}
		i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
		piped(i, map[string]func(net.Conn){"127.0.0.1": h.Serve})
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
		var to []string
		for n := range 60 {
			to = append(to, fmt.Sprintf("x%d@far.test", n))
		}
		i.MustSubmit(ann, servicetest.PlainMessage, to...)
		i.Run()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		i.Stop()
		i.Svc.Close()
		for _, r := range to {
			if o := i.Row(r); o.Status != store.OutgoingRelayed || o.Attempts != 1 {
				t.Errorf("%s is %s after %d attempts: %s", r, o.Status, o.Attempts, o.LastResponse)
			}
		}
		if refused == 0 || refused > 48 { // those that are on their way at the first refusal, and some tries of its pace
			t.Errorf("the relay refused %d", refused)
		}
	})
}

// TestStallingHostHoldsNobodyElseUp: 500 messages wait for a host that accepts connections and
// never answers.
func TestStallingHostHoldsNobodyElseUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		open, most := 0, 0
		stall := func(c net.Conn) {
			mu.Lock()
			open++
			most = max(most, open)
			mu.Unlock()
			_, _ = c.Read(make([]byte, 1))
			mu.Lock()
			open--
			mu.Unlock()
		}
		h := &servicetest.Host{T: t}
		i := servicetest.Install(t, core.Config{})
		piped(i, map[string]func(net.Conn){"127.0.0.2": stall, "127.0.0.1": h.Serve})
		i.DNS.IP = map[string]string{"mx.slow.test": "127.0.0.2"}
		i.DNS.MX["slow.test"] = "mx.slow.test"
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
		var slow, others []string
		for n := range 500 {
			slow = append(slow, fmt.Sprintf("x%d@slow.test", n))
		}
		for n := range 300 {
			domain := fmt.Sprintf("far%d.test", n%3)
			i.DNS.MX[domain] = "mx." + domain
			others = append(others, fmt.Sprintf("x%d@%s", n, domain))
		}
		i.MustSubmit(ann, servicetest.PlainMessage, slow...)
		i.MustSubmit(ann, servicetest.PlainMessage, others...)
		i.Run()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(h.Mails()); n != len(others) {
			t.Errorf("after a second %d of %d have gone out", n, len(others))
		}
		i.Stop()
		i.Svc.Close()
		if mu.Lock(); most != outbound.DirectLanes {
			t.Errorf("the slow host had %d connections at once, want %d", most, outbound.DirectLanes)
		}
		mu.Unlock()
	})
}

// TestForwardsWaitInSight: the row of a waiting forward says why and until when, and no attempt is
// counted.
func TestForwardsWaitInSight(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	i.AddMailbox(d, "ann", func(mb *store.Mailbox) { mb.ForwardTo = "away@far.test" })
	i.AddMailbox(d, "bob", func(mb *store.Mailbox) { mb.ForwardTo = "free@far.test" })
	for range outbound.ForwardMost {
		i.Svc.Outbound.Forwards().Take("away@far.test", i.Svc.Core.Now())
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

// TestSlowRelayIsUsedFully: a relay with a limited rate gets most of that rate, although it refused
// more at first; nothing bounces.
func TestSlowRelayIsUsedFully(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, rate = 1500, 14
		var mu sync.Mutex
		level, last := float64(rate), time.Now()
		var taken []time.Time
		h := &servicetest.Host{T: t, Answer: func(n int, _ servicetest.Taken) string {
			mu.Lock()
			defer mu.Unlock()
			level = min(rate, level+time.Since(last).Seconds()*rate)
			last = time.Now()
			if level < 1 {
				return "454 Throttling failure: Maximum sending rate exceeded."
			}
			level--
			taken = append(taken, time.Now())
			return fmt.Sprintf("250 Ok id-%d", n)
		}}
		i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
		piped(i, map[string]func(net.Conn){"127.0.0.1": h.Serve})
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
		var to []string
		for n := range total {
			to = append(to, fmt.Sprintf("x%d@far.test", n))
		}
		for from := 0; from < total; from += 100 {
			i.MustSubmit(ann, servicetest.PlainMessage, to[from:from+100]...)
		}
		i.Run()
		began := time.Now()
		for len(to) > len(taken) && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		took := time.Since(began)
		i.Stop()
		i.Svc.Close()
		t.Logf("%d were taken in %s", len(taken), took)
		if len(taken) != total || took > 3*total*time.Second/rate/2 {
			t.Errorf("%d of %d were taken in %s", len(taken), total, took)
		}
	})
}
