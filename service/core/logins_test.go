package core_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// monthLess is a little less than the time for which a network is known.
const monthLess = 29 * 24 * time.Hour

// inFlood runs a test in a bubble where each hash takes 50 ms, with two mailboxes: ann is known at
// 192.0.2.1, bob nowhere.
func inFlood(t *testing.T, since time.Duration, test func(t *testing.T, b *servicetest.Sandbox)) {
	synctest.Test(t, func(t *testing.T) {
		b := servicetest.New(t, nil)
		b.Core.SlowHashes(50 * time.Millisecond)
		b.Domain(t, b.Owner.AccountID, "boxes.test", "builtin", "complete")
		password := "correct horse"
		for _, name := range []string{"ann", "bob"} {
			if _, err := b.Mailboxes.CreateEmailUser(t.Context(), actor(b), mailboxes.CreateEmailUserIn{Username: name, Domain: "boxes.test", Password: &password}); err != nil {
				t.Fatal(err)
			}
		}
		if status, _ := login(t, b, "ann@boxes.test", "correct horse", "192.0.2.1"); status != "" {
			t.Fatal(status)
		}
		time.Sleep(since) // much longer than a verified password is cached
		test(t, b)
		if n := b.Core.HashesWaiting(); n != 0 {
			t.Errorf("%d are left over", n)
		}
	})
}

// flood sends wrong passwords from many addresses in parallel and counts the results.
func flood(t *testing.T, b *servicetest.Sandbox, wg *sync.WaitGroup, addresses []string) func() map[string]int {
	var mu sync.Mutex
	statuses := map[string]int{}
	for i, ip := range addresses {
		wg.Go(func() {
			status, took := login(t, b, fmt.Sprintf("u%d@boxes.test", i%500), "wrong", ip)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
			if most := 10*time.Second + 100*time.Millisecond; took > most {
				t.Errorf("%s had to wait for %v", ip, took)
			}
		})
	}
	return func() map[string]int {
		wg.Wait()
		return statuses
	}
}

func addressesOf(n int, form func(int) string) (out []string) {
	for i := range n {
		out = append(out, form(i))
	}
	return out
}

// TestFloodFromOnePrefix: ten thousand addresses of one /48, each in another /64, delay nobody
// else.
func TestFloodFromOnePrefix(t *testing.T) {
	inFlood(t, time.Hour, func(t *testing.T, b *servicetest.Sandbox) {
		var wg sync.WaitGroup
		done := flood(t, b, &wg, addressesOf(10_000, func(i int) string { return fmt.Sprintf("2001:db8:7:%x::1", i) }))
		synctest.Wait()
		for email, ip := range map[string]string{"ann@boxes.test": "192.0.2.1", "bob@boxes.test": "203.0.113.5"} {
			if status, took := login(t, b, email, "correct horse", ip); status != "" || took > time.Second {
				t.Errorf("%s: %q after %v", email, status, took)
			}
		}
		statuses := done()
		t.Logf("answers: %v", statuses)
		if statuses["busy"] < 9_000 || statuses["unauthorized"] == 0 {
			t.Errorf("answers: %v", statuses)
		}
	})
}

// TestFloodFromManyNetworks: during a flood from thousands of networks, a known user can log in.
func TestFloodFromManyNetworks(t *testing.T) {
	since := monthLess
	if testing.Short() {
		since = time.Hour
	}
	inFlood(t, since, func(t *testing.T, b *servicetest.Sandbox) {
		var wg sync.WaitGroup
		done := flood(t, b, &wg, append(
			addressesOf(8_000, func(i int) string { return fmt.Sprintf("10.%d.%d.9", i/250, i%250) }),
			addressesOf(2_000, func(i int) string { return fmt.Sprintf("2001:db8:%x::1", i+16) })...))
		synctest.Wait()
		if status, took := login(t, b, "ann@boxes.test", "correct horse", "192.0.2.1"); status != "" || took > time.Second {
			t.Errorf("ann: %q after %v", status, took)
		}
		if status, took := login(t, b, "bob@boxes.test", "correct horse", "203.0.113.5"); status != "" && status != "busy" || took > 10*time.Second+100*time.Millisecond {
			t.Errorf("bob, whom nobody knows: %q after %v", status, took)
		}
		statuses := done()
		t.Logf("answers: %v", statuses)
		if statuses["busy"] < 9_000 || statuses["unauthorized"] < 300 {
			t.Errorf("answers: %v", statuses)
		}
		if status, _ := login(t, b, "bob@boxes.test", "correct horse", "203.0.113.5"); status != "" {
			t.Errorf("bob, after it: %q", status)
		}
	})
}

// TestKnownNetworksEnd: a network is no longer known 30 days after its last login.
func TestKnownNetworksEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("a month of recurring jobs takes its time")
	}
	inFlood(t, monthLess, func(t *testing.T, b *servicetest.Sandbox) {
		time.Sleep(25 * time.Hour)
		var wg sync.WaitGroup
		done := flood(t, b, &wg, addressesOf(5_000, func(i int) string { return fmt.Sprintf("10.%d.%d.9", i/250, i%250) }))
		synctest.Wait()
		if status, _ := login(t, b, "ann@boxes.test", "correct horse", "192.0.2.1"); status != "busy" {
			t.Errorf("after 30 days: %q", status)
		}
		done()
	})
}

// TestWiderNetworksAreCounted: a /56 may send twice as many wrong passwords as a /64, a /48 four
// times as many.
func TestWiderNetworksAreCounted(t *testing.T) {
	for _, tc := range []struct {
		bits, budget  int
		from          func(i int) string
		inside, aside string
	}{
		{64, 100, func(i int) string { return fmt.Sprintf("2001:db8:7:0::%x", i) }, "2001:db8:7:0::ffff", "2001:db8:7:1::1"},
		{56, 200, func(i int) string { return fmt.Sprintf("2001:db8:7:%x::1", i%0x100) }, "2001:db8:7:77::2", "2001:db8:7:100::1"},
		{48, 400, func(i int) string { return fmt.Sprintf("2001:db8:7:%x::1", i%0x1000*0x10) }, "2001:db8:7:ffff::1", "2001:db8:8::1"},
	} {
		withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
			b.Core.SlowHashes(0)
			for i := range tc.budget {
				if status, _ := login(t, b, fmt.Sprintf("u%d@boxes.test", i), "wrong", tc.from(i)); status != "unauthorized" {
					t.Fatalf("/%d: wrong password %d: %q", tc.bits, i, status)
				}
			}
			if status, _ := login(t, b, "x@boxes.test", "wrong", tc.inside); status != "rate_limited" {
				t.Errorf("/%d: %q after its budget", tc.bits, status)
			}
			if status, _ := login(t, b, "x@boxes.test", "wrong", tc.aside); status != "unauthorized" {
				t.Errorf("beside the /%d: %q", tc.bits, status)
			}
		})
	}
}

// TestWaitingLoginEndsWithItsClient: a client that disconnects frees its place in the queue.
func TestWaitingLoginEndsWithItsClient(t *testing.T) {
	inFlood(t, time.Hour, func(t *testing.T, b *servicetest.Sandbox) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				_, _ = b.Mailboxes.LoginMailbox(ctx, core.MailLogin{Protocol: "imap", Username: "bob@boxes.test", Password: "wrong", IP: fmt.Sprintf("10.0.%d.1", i)})
			})
		}
		synctest.Wait()
		cancel()
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("they waited for %v after their clients had gone", took)
		}
	})
}

// TestFloodOfTheKnownFromOnePrefix: one tenant with mailboxes that are known in every /64 of its
// /48 does not take the places of other known users.
func TestFloodOfTheKnownFromOnePrefix(t *testing.T) {
	inFlood(t, time.Hour, func(t *testing.T, b *servicetest.Sandbox) {
		const boxes, networks = 515, 8 // networks at which a mailbox is known, at most
		err := b.Core.Store.Update(func(tx *store.Tx) error {
			mb, err := store.MailboxByEmail.Get(tx, "bob@boxes.test")
			if err != nil {
				return err
			}
			for i := range boxes {
				more := *mb
				more.ID, more.Email, more.Seen = tx.NewID("eu"), fmt.Sprintf("u%d@boxes.test", i), nil
				more.Num, err = tx.NextMailboxNum()
				if err != nil {
					return err
				}
				for n := range networks {
					more.Seen = append(more.Seen, store.SeenNetwork{Network: fmt.Sprintf("2001:db8:7:%x::/64", i*networks+n), At: tx.Now()})
				}
				if err := store.Mailboxes.Put(tx, &more); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		for i := range boxes {
			for n := range networks {
				wg.Go(func() {
					_, _ = b.Mailboxes.LoginMailbox(ctx, core.MailLogin{Protocol: "imap", Username: fmt.Sprintf("u%d@boxes.test", i), Password: "wrong", IP: fmt.Sprintf("2001:db8:7:%x::1", i*networks+n)})
				})
			}
		}
		synctest.Wait()
		if status, took := login(t, b, "ann@boxes.test", "correct horse", "192.0.2.1"); status != "" || took > time.Second {
			t.Errorf("ann: %q after %v", status, took)
		}
		cancel()
		wg.Wait()
	})
}

// withMailboxes runs a test in a bubble with mailboxes ann and bob. Their passwords are
// "correct horse".
func withMailboxes(t *testing.T, test func(t *testing.T, b *servicetest.Sandbox)) {
	synctest.Test(t, func(t *testing.T) {
		b := servicetest.New(t, nil)
		b.Domain(t, b.Owner.AccountID, "boxes.test", "builtin", "complete")
		password := "correct horse"
		who := actor(b)
		for _, name := range []string{"ann", "bob"} {
			_, err := b.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Username: name, Domain: "boxes.test", Password: &password})
			if err != nil {
				t.Fatal(err)
			}
		}
		test(t, b)
	})
}

func actor(b *servicetest.Sandbox) core.Actor {
	return core.Actor{AccountID: b.Owner.AccountID, AccountNum: 1, UserID: b.Owner.UserID, Role: "owner", Permissions: []string{"admin"}}
}

// login returns the status of a login, 200 for success, and how long it took.
func login(t *testing.T, b *servicetest.Sandbox, email, password, ip string) (string, time.Duration) {
	t.Helper()
	start := time.Now()
	_, err := b.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: "imap", Username: email, Password: password, IP: ip})
	took := time.Since(start)
	if err == nil {
		return "", took
	}
	e, ok := core.AsError(err)
	if !ok {
		t.Fatal(err)
	}
	return e.Code, took
}

func TestLoginMailbox(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		u, err := b.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: "imap", Username: "Ann@Boxes.test", Password: "correct horse", IP: "192.0.2.1"})
		if err != nil {
			t.Fatal(err)
		}
		if u.Email != "ann@boxes.test" || u.AccountID != b.Owner.AccountID || u.AccountNum != 1 || u.Mailbox != 1 || u.IP != "192.0.2.1" {
			t.Errorf("logged in as %+v", u)
		}
		first := lastLogin(t, b, u.MailboxID)
		time.Sleep(59 * time.Second)
		login(t, b, "ann@boxes.test", "correct horse", "192.0.2.1")
		if got := lastLogin(t, b, u.MailboxID); first.IsZero() || !got.Equal(first) {
			t.Errorf("last log-in is %v, then %v within the minute", first, got)
		}
		time.Sleep(time.Second)
		login(t, b, "ann@boxes.test", "correct horse", "192.0.2.1")
		if got := lastLogin(t, b, u.MailboxID); !got.After(first) {
			t.Errorf("last log-in is still %v", got)
		}
		for _, email := range []string{"ann@boxes.test", "nobody@boxes.test", "no address", ""} {
			if status, _ := login(t, b, email, "wrong", "192.0.2.1"); status != "unauthorized" {
				t.Errorf("%q: %q", email, status)
			}
		}
	})
}

func lastLogin(t *testing.T, b *servicetest.Sandbox, id string) (at time.Time) {
	t.Helper()
	err := b.Core.Store.View(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, id)
		at = mb.LastLoginAt
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestWrongPasswordsAreSlowedThenRefused: wrong passwords from one network at one mailbox are
// delayed, then refused; nobody else is affected.
func TestWrongPasswordsAreSlowedThenRefused(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		for i := range 16 {
			status, took := login(t, b, "ann@boxes.test", fmt.Sprintf("wrong %d", i), "192.0.2.1")
			want := time.Duration(0)
			if i >= 5 {
				want = min(time.Second<<(i-5), 8*time.Second)
			}
			if status != "unauthorized" || took != want {
				t.Errorf("wrong password %d: %q after %v, want %v", i, status, took, want)
			}
		}
		for _, tc := range []struct {
			email, ip string
			want      string
		}{
			{"ann@boxes.test", "192.0.2.1", "rate_limited"},
			{"ann@boxes.test", "192.0.2.2", ""},
			{"bob@boxes.test", "192.0.2.1", ""},
		} {
			if status, took := login(t, b, tc.email, "correct horse", tc.ip); status != tc.want || took != 0 {
				t.Errorf("%s from %s: %q after %v, want %q", tc.email, tc.ip, status, took, tc.want)
			}
		}
		time.Sleep(31 * time.Minute)
		if status, _ := login(t, b, "ann@boxes.test", "correct horse", "192.0.2.1"); status != "" {
			t.Errorf("half an hour later: %q", status)
		}
	})
}

// TestManyGuessesAtOnceAreNoFaster: parallel guesses are delayed as much as sequential ones.
func TestManyGuessesAtOnceAreNoFaster(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		var mu sync.Mutex
		looked := 0
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				if status, _ := login(t, b, "ann@boxes.test", fmt.Sprintf("wrong %d", i), "192.0.2.1"); status == "unauthorized" {
					mu.Lock()
					looked++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if looked != 16 {
			t.Errorf("%d guesses were looked at, want 16", looked)
		}
	})
}

func TestManyRightLoginsAtOnce(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if status, took := login(t, b, "ann@boxes.test", "correct horse", "192.0.2.1"); status != "" || took != 0 {
					t.Errorf("%q after %v", status, took)
				}
			})
		}
		wg.Wait()
	})
}

// TestGuessesOverMailboxesRefuseTheNetwork: users who have logged in from the network before are
// not refused.
func TestGuessesOverMailboxesRefuseTheNetwork(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		const inside = "2001:db8::1:0:0:7"
		if status, _ := login(t, b, "ann@boxes.test", "correct horse", inside); status != "" {
			t.Fatal(status)
		}
		for i := range 100 {
			login(t, b, fmt.Sprintf("u%d@boxes.test", i), "wrong", fmt.Sprintf("2001:db8::1:0:0:%x", i))
		}
		if status, _ := login(t, b, "bob@boxes.test", "correct horse", "2001:db8::1:9:9:9"); status != "rate_limited" {
			t.Errorf("from the same /64: %q", status)
		}
		if status, _ := login(t, b, "ann@boxes.test", "correct horse", inside); status != "" {
			t.Errorf("known there: %q", status)
		}
		if status, _ := login(t, b, "bob@boxes.test", "correct horse", "2001:db8:0:1::1"); status != "" {
			t.Errorf("from another /64: %q", status)
		}
	})
}

func TestSlowedLoginEndsWithItsContext(t *testing.T) {
	withMailboxes(t, func(t *testing.T, b *servicetest.Sandbox) {
		for range 8 {
			login(t, b, "ann@boxes.test", "wrong", "192.0.2.1")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Mailboxes.LoginMailbox(ctx, core.MailLogin{Protocol: "imap", Username: "ann@boxes.test", Password: "correct horse", IP: "192.0.2.1"}); err == nil || ctx.Err() == nil {
			t.Errorf("log-in: %v", err)
		}
	})
}
