package outbound_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// A thinker is an SMTP server that pauses at one point of the dialogue, and counts the messages
// that it accepts.
type thinker struct {
	port int

	mu      sync.Mutex
	at      string        // where it pauses; "": nowhere
	gate    chan struct{} // closed to end the pause
	waiting int
	end     func(to string) string // decides the answer to a message during the pause; nil: it is accepted
	copies  map[string]int         // accepted messages, by recipient
	doubt   map[string]int         // of these, messages whose sender did not get the answer
}

// stations are the points at which a thinker can pause. At "dot" it has the message and has not
// decided; at "answer" it has decided and has not answered.
var stations = []string{"greeting", "EHLO", "MAIL", "RCPT", "DATA", "body", "dot", "answer"}

func startThinker(t *testing.T) *thinker {
	k := &thinker{copies: map[string]int{}, doubt: map[string]int{}, gate: make(chan struct{})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k.port = ln.Addr().(*net.TCPAddr).Port
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { k.serve(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); k.open(); all.Wait() })
	return k
}

// think makes it pause at a point from now on.
func (k *thinker) think(at string, end func(string) string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.end, k.gate, k.waiting = at, end, make(chan struct{}), 0
}

// open ends all pauses.
func (k *thinker) open() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at != "" {
		close(k.gate)
	}
	k.at, k.end = "", nil
}

func (k *thinker) thinking() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waiting
}

// pass is called at each point. It returns the result for the message.
func (k *thinker) pass(at, to string) (end string) {
	k.mu.Lock()
	gate, thinks := k.gate, k.at == at
	if k.end != nil {
		end = k.end(to)
	}
	if thinks {
		k.waiting++
	}
	k.mu.Unlock()
	if thinks {
		<-gate
	}
	return end
}

func (k *thinker) count(of map[string]int, to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	of[to]++
}

func (k *thinker) counts(to string) (copies, doubt int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.copies[to], k.doubt[to]
}

func (k *thinker) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	say := func(text string) bool { _, err := fmt.Fprintf(c, "%s\r\n", text); return err == nil }
	k.pass("greeting", "")
	say("220 thinker")
	to := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if verb == "RCPT" {
			to, _, _ = strings.Cut(rest[strings.IndexByte(rest, '<')+1:], ">")
		}
		k.pass(verb, to)
		switch verb {
		case "EHLO":
			say("250-thinker\r\n250-8BITMIME\r\n250 PIPELINING")
		case "DATA":
			say("354 go on")
			k.pass("body", to)
			for line != ".\r\n" {
				line, err = r.ReadString('\n')
				if err != nil {
					return
				}
			}
			if !k.decide(to, k.pass("dot", to), say) {
				return
			}
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// decide accepts or refuses a message; false ends the connection.
func (k *thinker) decide(to, end string, say func(string) bool) bool {
	switch end {
	case "lost":
		return false
	case "later":
		k.pass("answer", to)
		return say("451 4.3.0 later")
	case "never":
		k.pass("answer", to)
		return say("554 5.6.0 never")
	}
	k.count(k.copies, to)
	k.pass("answer", to)
	if end == "silent" || !say("250 taken") {
		k.count(k.doubt, to)
		return false
	}
	return true
}

func rounds(t *testing.T) (n int, seed uint64) {
	n, seed = 20, uint64(time.Now().UnixNano()&0xffffff)
	if v, err := strconv.Atoi(os.Getenv("MAILSTEAD_ROUNDS")); err == nil {
		n = v
	}
	if v, err := strconv.ParseUint(os.Getenv("MAILSTEAD_SEED"), 10, 64); err == nil && v > 0 {
		seed = v
	}
	t.Logf("%d rounds, seed %d", n, seed)
	return n, seed
}

// TestHoldAndCancelActOnWhatWaits holds, cancels, releases, discards, deletes, stops and crashes at
// every point of deliveries: no message arrives twice, and each row has the right result. A message
// may arrive again only if the host could not answer, or the server died before it recorded the
// answer (RFC 5321 section 4.5.4.1).
func TestHoldAndCancelActOnWhatWaits(t *testing.T) {
	n, seed := rounds(t)
	k := startThinker(t)
	i := servicetest.Install(t, core.Config{MXPort: k.port, Settings: core.Settings{Relays: []core.Relay{{Name: "r1", Kind: "custom", Host: "127.0.0.1", Port: k.port, TLS: "none"}}}})
	i.DNS.MX["far.test"] = "mx.far.test"
	i.Q.Grace = 0
	i.Run()
	var direct, relayed *store.Domain
	for round := range n {
		if round%12 == 0 { // sending of a domain with 50 messages is paused where many of them bounce
			direct = i.AddDomain(i.Account, fmt.Sprintf("direct%d.test", round), func(d *store.Domain) { d.SendingMode = "direct" })
			relayed = i.AddDomain(i.Account, fmt.Sprintf("relayed%d.test", round), func(d *store.Domain) { d.SendingMode = "relay" })
		}
		g := &holdRound{T: t, i: i, k: k, dice: rand.New(rand.NewPCG(seed, uint64(round))), name: fmt.Sprintf("r%d", round)}
		d := direct
		if g.dice.IntN(2) == 0 {
			d = relayed
		}
		g.play(d)
		if t.Failed() {
			t.Fatalf("round %d of seed %d: %v", round, seed, g.done)
		}
	}
}

// TestWhatIsBeingDeliveredEndsAsItEnds: a message that is held, cancelled or discarded while the
// host pauses at the dot arrives once, and its row says so; if the host then defers it, it is held,
// or cancelled with the host's answer.
func TestWhatIsBeingDeliveredEndsAsItEnds(t *testing.T) {
	k := startThinker(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{{Name: "r1", Kind: "custom", Host: "127.0.0.1", Port: k.port, TLS: "none"}}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	i.Run()
	ctx, who := t.Context(), servicetest.Actor(i.Account)
	hold := func(mb *store.Mailbox) error {
		_, err := i.Svc.Mailboxes.UpdateEmailUser(ctx, who, mailboxes.UpdateEmailUserIn{UserID: mb.ID, Status: ptr("suspended"), Hold: ptr(true)})
		return err
	}
	settle := func(mb *store.Mailbox, action string) error {
		out, err := i.Svc.Outbound.ReleaseHeldMessages(ctx, who, outbound.ReleaseIn{UserID: mb.ID, Action: action})
		if err == nil && *out != (outbound.Released{}) {
			t.Errorf("%s: %+v of what is being delivered", action, out)
		}
		return err
	}
	for n, c := range []struct {
		about        string
		do           func(*store.Mailbox, string) error
		end          string
		status, says string
		copies       int
	}{
		{"hold and release", func(mb *store.Mailbox, _ string) error { return errors.Join(hold(mb), settle(mb, "release")) }, "", "relayed", "250", 1},
		{"hold and discard", func(mb *store.Mailbox, _ string) error { return errors.Join(hold(mb), settle(mb, "discard")) }, "", "relayed", "250", 1},
		{"hold", func(mb *store.Mailbox, _ string) error { return hold(mb) }, "later", "held", "451", 0},
		{"hold and discard", func(mb *store.Mailbox, _ string) error { return errors.Join(hold(mb), settle(mb, "discard")) }, "later", "cancelled", "451 4.3.0 later", 0},
		{"cancel", func(_ *store.Mailbox, id string) error {
			row, err := i.Svc.Submit.CancelMessage(ctx, who, outbound.SentMessageIn{ID: id})
			if err == nil && row.Status != store.OutgoingQueued {
				t.Errorf("cancel answers %s", row.Status)
			}
			return err
		}, "", "relayed", "250", 1},
		{"cancel", func(_ *store.Mailbox, id string) error {
			_, err := i.Svc.Submit.CancelMessage(ctx, who, outbound.SentMessageIn{ID: id})
			return err
		}, "later", "cancelled", "451 4.3.0 later", 0},
		{"cancel", func(_ *store.Mailbox, id string) error {
			_, err := i.Svc.Submit.CancelMessage(ctx, who, outbound.SentMessageIn{ID: id})
			return err
		}, "silent", "cancelled", deliver.ErrOutcomeUnknown.Error(), 1},
		{"delete", func(mb *store.Mailbox, _ string) error {
			_, err := i.Svc.Mailboxes.DeleteEmailUser(ctx, who, mailboxes.DeleteEmailUserIn{UserID: mb.ID})
			return err
		}, "", "relayed", "250", 1},
	} {
		about := fmt.Sprintf("%s, then %q", c.about, c.end)
		mb := i.AddMailbox(d, fmt.Sprint("box", n), nil)
		to := fmt.Sprintf("to%d@far.test", n)
		k.think("dot", func(string) string { return c.end })
		sent := i.MustSend(mb, submit.SendEmailIn{To: submit.Texts{to}, Subject: "s", Text: "t"})
		servicetest.Eventually(t, about+": it is being delivered", func() bool { return k.thinking() > 0 })
		if err := c.do(mb, sent.Recipients[0].ID); err != nil {
			t.Fatalf("%s: %v", about, err)
		}
		if row := i.Row(to); row.Status != store.OutgoingQueued {
			t.Errorf("%s: meanwhile it is %s", about, row.Status)
		}
		k.open()
		row := i.Becomes(to, c.status)
		if copies, _ := k.counts(to); copies != c.copies || !strings.Contains(row.LastResponse, c.says) {
			t.Errorf("%s: it arrived %d times, and its row says %q", about, copies, row.LastResponse)
		}
	}
}

// A holdRound is one mailbox with three messages, and the actions on them.
type holdRound struct {
	*testing.T
	i    *servicetest.Installation
	k    *thinker
	dice *rand.Rand
	name string
	mb   *store.Mailbox
	ids  []string
	done []string // the actions, in order

	held, gone, takenBack bool
	cuts                  int // interruptions of this server
}

func (g *holdRound) play(d *store.Domain) {
	at := stations[g.dice.IntN(len(stations))]
	ends := []string{"", "", "", "later", "never", "lost", "silent"}
	chosen := map[string]string{}
	g.k.think(at, func(to string) string {
		if _, ok := chosen[to]; !ok {
			chosen[to] = ends[g.dice.IntN(len(ends))]
		}
		return chosen[to]
	})
	g.done = append(g.done, "thinks at "+at)
	g.mb = g.i.AddMailbox(d, g.name, nil)
	for m := range 3 {
		out := g.i.MustSend(g.mb, submit.SendEmailIn{To: submit.Texts{fmt.Sprintf("%s-%d@far.test", g.name, m)}, Subject: "s", Text: "t"})
		g.ids = append(g.ids, out.Recipients[0].ID)
	}
	for end := time.Now().Add(time.Second); g.k.thinking() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // with connections that are kept some points are not passed
	}
	time.Sleep(time.Duration(g.dice.IntN(4)) * time.Millisecond)
	for range 1 + g.dice.IntN(3) {
		g.act()
	}
	g.k.open()
	for range g.dice.IntN(3) {
		g.act()
	}
	g.settle()
	for _, id := range g.ids {
		g.check(id)
	}
}

func (g *holdRound) note(what string, err error) {
	if err != nil {
		what += " (" + servicetest.ErrorCode(err) + ")"
	}
	g.done = append(g.done, what)
}

// act performs one random action.
func (g *holdRound) act() {
	who, ctx := servicetest.Actor(g.i.Account), context.Background()
	one := outbound.SentMessageIn{ID: g.ids[g.dice.IntN(len(g.ids))]}
	switch g.dice.IntN(9) {
	case 0, 1:
		_, err := g.i.Svc.Mailboxes.UpdateEmailUser(ctx, who, mailboxes.UpdateEmailUserIn{UserID: g.mb.ID, Status: ptr("suspended"), Hold: ptr(true)})
		g.held = g.held || err == nil
		g.note("hold", err)
	case 2, 3:
		_, err := g.i.Svc.Submit.CancelMessage(ctx, who, one)
		g.takenBack = g.takenBack || err == nil
		g.note("cancel "+one.ID, err)
	case 4:
		hold := g.dice.IntN(2) == 0
		_, err := g.i.Svc.Mailboxes.DeleteEmailUser(ctx, who, mailboxes.DeleteEmailUserIn{UserID: g.mb.ID, Hold: hold})
		g.held = g.held || err == nil && hold
		g.gone = g.gone || err == nil
		g.note(fmt.Sprintf("delete, hold %v", hold), err)
	case 5:
		g.release("release")
	case 6:
		g.release("discard")
	case 7:
		_, err := g.i.Svc.Outbound.RetryMessage(ctx, who, one)
		g.note("retry "+one.ID, err)
	case 8:
		g.restart(g.dice.IntN(2) == 0)
	}
}

func (g *holdRound) release(action string) {
	out, err := g.i.Svc.Outbound.ReleaseHeldMessages(context.Background(), servicetest.Actor(g.i.Account), outbound.ReleaseIn{UserID: g.mb.ID, Action: action})
	g.takenBack = g.takenBack || action == "discard" && err == nil
	g.note(fmt.Sprintf("%s %+v", action, out), err)
}

// restart stops the server, which interrupts its attempts, and starts it on the same store, or on
// the store as a crash leaves it.
func (g *holdRound) restart(crash bool) {
	g.cuts++
	if crash {
		g.i.Crash(g.i.Stall())
	} else {
		g.i.Reopen()
	}
	g.i.Q.Grace = 0
	g.i.Run()
	g.note(fmt.Sprintf("restart, crash %v", crash), nil)
}

func (g *holdRound) rows() (out []*store.Outgoing) {
	g.Helper()
	if err := g.i.St.View(func(tx *store.Tx) error {
		out = nil
		for _, id := range g.ids {
			row, err := store.Outgoings.Get(tx, id)
			if err != nil {
				return err
			}
			out = append(out, row)
		}
		return nil
	}); err != nil {
		g.Fatal(err)
	}
	return out
}

// settle retries pending messages until there are none.
func (g *holdRound) settle() {
	ctx, who := context.Background(), servicetest.Actor(g.i.Account)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		waits, held := 0, 0
		for _, row := range g.rows() {
			switch {
			case row.Status == store.OutgoingHeld:
				held++
			case row.Waits():
				waits++
				_, _ = g.i.Svc.Outbound.RetryMessage(ctx, who, outbound.SentMessageIn{ID: row.ID})
			}
		}
		if waits+held == 0 {
			return
		}
		if waits == 0 {
			g.release([]string{"release", "discard"}[g.dice.IntN(2)])
		}
		if time.Now().After(end) {
			g.Fatalf("%d wait, %d are held: %v", waits, held, g.done)
		}
	}
}

// check compares a row with the messages that the host has.
func (g *holdRound) check(id string) {
	row := g.rows()[0]
	for _, r := range g.rows() {
		if r.ID == id {
			row = r
		}
	}
	copies, doubt := g.k.counts(row.Recipient)
	if copies > 1+doubt+g.cuts || g.cuts+doubt == 0 && copies > 1 {
		g.Errorf("%s arrived %d times", id, copies)
	}
	sent := row.Status == store.OutgoingSent || row.Status == store.OutgoingRelayed
	switch {
	case sent && copies == 0:
		g.Errorf("%s is %s (%s) and did not arrive", id, row.Status, row.LastResponse)
	case !sent && copies > doubt && g.cuts == 0:
		g.Errorf("%s is %s (%s) and did arrive", id, row.Status, row.LastResponse)
	case !sent && copies > 0 && g.cuts == 0 && row.Status == store.OutgoingCancelled && !strings.Contains(row.LastResponse, deliver.ErrOutcomeUnknown.Error()):
		g.Errorf("%s is cancelled and says %q of what may have arrived", id, row.LastResponse)
	case row.Status == store.OutgoingCancelled && !g.takenBack && !g.gone:
		g.Errorf("%s is cancelled (%s), which nobody asked for", id, row.LastResponse)
	case !sent && row.Status != store.OutgoingCancelled && row.Status != store.OutgoingBounced:
		g.Errorf("%s is %s (%s)", id, row.Status, row.LastResponse)
	}
}
