package service

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

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/store"
)

func TestThrottles(t *testing.T) {
	for text, want := range map[string]bool{
		"421 4.7.0 try again later": true, "421 Service not available": true, "454 Throttling failure: Maximum sending rate exceeded.": true,
		"450 4.7.1 too many connections": true, "452 4.5.3 Too many recipients": true, "451 4.7.500 Server busy. Please try again later": true,
		"429 Rate limit": false, "450 4.2.1 The user is receiving mail at a rate that prevents more": false, "452 4.2.2 mailbox is over its limit": false,
		"450 4.2.0 Greylisted": false, "451 Greylisting in action, try again later": false, "451 4.3.0 corporate policy": false, "454 4.7.0 TLS not available": false,
		"550 5.7.1 rate exceeded": false,
	} {
		var code int
		var enhanced string
		fmt.Sscanf(text, "%d %s", &code, &enhanced)
		if strings.Count(enhanced, ".") != 2 {
			enhanced = fmt.Sprintf("%d.0.0", code/100)
		}
		r := deliver.Result{Status: deliver.Temporary, Code: code, Enhanced: enhanced, Reply: text}
		if code >= 500 {
			r.Status = deliver.Permanent
		}
		if code < 450 && code != 421 {
			want = code == 429
		}
		if got := throttles(r); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestPaceFallsAndRecovers sends against a host that takes one message in two seconds, and then as
// many as come.
func TestPaceFallsAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(time.Now)
		slow := deliver.Result{Status: deliver.Temporary, Code: 421}
		taken := deliver.Result{Status: deliver.Delivered, Code: 250}
		var last time.Time
		limit := 2 * time.Second
		send := func() (sent, refused int) {
			for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if _, ok := p.turn("mx far.test"); !ok {
					continue
				}
				if time.Since(last) < limit {
					p.tell("mx far.test", slow)
					refused++
					continue
				}
				last = time.Now()
				p.tell("mx far.test", taken)
				sent++
			}
			return sent, refused
		}
		if sent, refused := send(); sent < 100 || refused > sent/3 {
			t.Errorf("a host of one in 2 s took %d in 10 min, and refused %d", sent, refused)
		}
		limit = 0
		if sent, _ := send(); sent < 9000 {
			t.Errorf("the same host without a limit took %d", sent)
		}
		if len(p.lanes) != 0 {
			t.Errorf("%d paces are left", len(p.lanes))
		}
	})
}

// TestThoseWhoWaitComeInTurn: they are told times that a gap parts, and none that is far away.
func TestThoseWhoWaitComeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(time.Now)
		p.tell("a", deliver.Result{Status: deliver.Temporary, Code: 421})
		for range 5 { // told by those who were under way at the same time
			p.tell("a", deliver.Result{Status: deliver.Temporary, Code: 421})
		}
		var before time.Time
		for n := range 5000 {
			at, ok := p.turn("a")
			if ok || at.Before(before) || at.After(time.Now().Add(farthest)) {
				t.Fatalf("number %d: %s, %v", n, at, ok)
			}
			if n == 100 && time.Until(at) != firstHold+100*firstGap {
				t.Errorf("number 100 waits %s", time.Until(at))
			}
			before = at
		}
		if _, ok := p.turn("b"); !ok {
			t.Error("another hop has to wait")
		}
	})
}

// TestTurnIsATime: whoever may go on is told when, which is now.
func TestTurnIsATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(time.Now)
		for range 3 {
			if at, ok := p.turn("a"); !ok || !at.Equal(time.Now()) {
				t.Errorf("%s, %v", at, ok)
			}
			p.tell("a", deliver.Result{Status: deliver.Temporary, Code: 421})
			time.Sleep(time.Minute)
		}
	})
}

// TestPaceOfOneMailboxIsNotAnothers: two tenants have mailboxes at the same provider, which has had
// enough of one of them.
func TestPaceOfOneMailboxIsNotAnothers(t *testing.T) {
	provider := &host{answer: func(_ int, m taken) string {
		if m.from == "greedy@away.test" {
			return "421 4.7.0 too many messages from you"
		}
		return "250 ok"
	}}
	provider.start(t)
	i := install(t, Config{})
	i.addDomain(i.account, "away.test", func(d *store.Domain) { d.DNSProvider = providerExternal })
	add := func(name string) *store.Mailbox {
		server := &MailServerLogin{Host: "127.0.0.1", Port: provider.port, Security: "none", Username: name, Password: "s3cret"}
		made, err := i.svc.CreateEmailUser(t.Context(), actor(i.account), CreateEmailUserIn{Email: name + "@away.test", Type: "external", IMAP: server, SMTP: server})
		if err != nil {
			t.Fatal(err)
		}
		return &store.Mailbox{ID: made.ID, AccountID: i.account.AccountID}
	}
	greedy, modest := add("greedy"), add("modest")
	i.run()
	i.mustSend(greedy, SendEmailIn{To: Texts{"x@far.test"}, Subject: "s", Text: "s"})
	i.becomes("x@far.test", store.OutgoingDeferred)
	start := time.Now()
	i.mustSend(modest, SendEmailIn{To: Texts{"y@far.test"}, Subject: "s", Text: "s"})
	i.becomes("y@far.test", store.OutgoingRelayed)
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("the other mailbox waited for %s", took)
	}
}

// TestWaitingForATurnEnds: a message that has waited for five days for its turn at a slow host is
// given up, whoever else waits there.
func TestWaitingForATurnEnds(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("custom")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.mustSubmit(ann, plainMessage, "x@far.test")
	row := i.row("x@far.test")
	i.update(func(tx *store.Tx) error {
		row.QueuedAt, row.DelayTold = tx.Now().Add(-giveUpAfter+time.Second), true
		return store.Outgoings.Put(tx, row)
	})
	i.svc.paces.lanes["relay r1"] = &pace{gap: longGap, next: time.Now().Add(longGap)}
	i.run()
	if got := i.becomes("x@far.test", store.OutgoingBounced); !strings.HasPrefix(got.LastResponse, "not delivered within five days") {
		t.Errorf("given up for %q", got.LastResponse)
	}
}

// piped has the clients of a service connect to hosts in memory, by address, so that false time can
// pass.
func piped(i *installation, hosts map[string]func(net.Conn)) {
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
	i.svc.direct.Dialer, i.svc.relayed.Dialer = dial, dial
}

// TestThrottlingRelayPacesAndNothingFails is Amazon SES at its limit.
func TestThrottlingRelayPacesAndNothingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var last time.Time
		refused := 0
		h := &host{t: t, answer: func(n int, _ taken) string {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(last) < time.Second {
				refused++
				return "454 Throttling failure: Maximum sending rate exceeded."
			}
			last = time.Now()
			return fmt.Sprintf("250 Ok id-%d", n)
		}}
		i := install(t, Config{Relays: []Relay{h.relay("ses")}})
		piped(i, map[string]func(net.Conn){"127.0.0.1": h.serve})
		ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
		var to []string
		for n := range 60 {
			to = append(to, fmt.Sprintf("x%d@far.test", n))
		}
		i.mustSubmit(ann, plainMessage, to...)
		i.run()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		i.stop()
		i.svc.Close()
		for _, r := range to {
			if o := i.row(r); o.Status != store.OutgoingRelayed || o.Attempts != 1 {
				t.Errorf("%s is %s after %d attempts: %s", r, o.Status, o.Attempts, o.LastResponse)
			}
		}
		if refused == 0 || refused > 40 {
			t.Errorf("the relay refused %d", refused)
		}
	})
}

// TestStallingHostHoldsNobodyElseUp: 500 messages wait for a host that takes connections and says
// nothing.
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
		h := &host{t: t}
		i := install(t, Config{})
		piped(i, map[string]func(net.Conn){"127.0.0.2": stall, "127.0.0.1": h.serve})
		i.dns.ip = map[string]string{"mx.slow.test": "127.0.0.2"}
		i.dns.mx["slow.test"] = "mx.slow.test"
		ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
		var slow, others []string
		for n := range 500 {
			slow = append(slow, fmt.Sprintf("x%d@slow.test", n))
		}
		for n := range 300 {
			domain := fmt.Sprintf("far%d.test", n%3)
			i.dns.mx[domain] = "mx." + domain
			others = append(others, fmt.Sprintf("x%d@%s", n, domain))
		}
		i.mustSubmit(ann, plainMessage, slow...)
		i.mustSubmit(ann, plainMessage, others...)
		i.run()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(h.mails()); n != len(others) {
			t.Errorf("after a second %d of %d have gone out", n, len(others))
		}
		i.stop()
		i.svc.Close()
		if mu.Lock(); most != directLanes {
			t.Errorf("the slow host had %d connections at once, want %d", most, directLanes)
		}
		mu.Unlock()
	})
}
