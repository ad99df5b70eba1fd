package core_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// monthLess is how long a network is known at least.
const monthLess = 29 * 24 * time.Hour

// inFlood runs a test in a bubble where each hash takes 50 ms, with the mailboxes ann, whom the
// server knows at 192.0.2.1 since some time, and bob, whom it knows nowhere.
func inFlood(t *testing.T, since time.Duration, test func(t *testing.T, b *servicetest.Sandbox)) {
	synctest.Test(t, func(t *testing.T) {
		b := servicetest.New(t, nil)
		b.SlowHashes(50 * time.Millisecond)
		b.Domain(t, b.Owner.AccountID, "boxes.test", "builtin", "complete")
		password := "password"
		for _, name := range []string{"ann", "bob"} {
			if _, err := b.CreateEmailUser(t.Context(), actor(b), mailboxes.CreateEmailUserIn{Username: name, Domain: "boxes.test", Password: &password}); err != nil {
				t.Fatal(err)
			}
		}
		if status, _ := login(t, b, "ann@boxes.test", "password", "192.0.2.1"); status != "" {
			t.Fatal(status)
		}
		time.Sleep(since) // much longer than a verified password is remembered
		test(t, b)
		if n := b.HashesWaiting(); n != 0 {
			t.Errorf("%d are left over", n)
		}
	})
}

// flood sends wrong passwords from many addresses at once, and counts the answers.
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

// TestFloodFromOnePrefix: ten thousand addresses of one /48, each in a /64 of its own, hold up
// nobody else.
func TestFloodFromOnePrefix(t *testing.T) {
	inFlood(t, time.Hour, func(t *testing.T, b *servicetest.Sandbox) {
		var wg sync.WaitGroup
		done := flood(t, b, &wg, addressesOf(10_000, func(i int) string { return fmt.Sprintf("2001:db8:7:%x::1", i) }))
		synctest.Wait()
		for email, ip := range map[string]string{"ann@boxes.test": "192.0.2.1", "bob@boxes.test": "203.0.113.5"} {
			if status, took := login(t, b, email, "password", ip); status != "" || took > time.Second {
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

// TestFloodFromManyNetworks: thousands of networks at once, and whoever is known somewhere logs in
// from there all the same.
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
		if status, took := login(t, b, "ann@boxes.test", "password", "192.0.2.1"); status != "" || took > time.Second {
			t.Errorf("ann: %q after %v", status, took)
		}
		if status, took := login(t, b, "bob@boxes.test", "password", "203.0.113.5"); status != "" && status != "busy" || took > 10*time.Second+100*time.Millisecond {
			t.Errorf("bob, whom nobody knows: %q after %v", status, took)
		}
		statuses := done()
		t.Logf("answers: %v", statuses)
		if statuses["busy"] < 9_000 || statuses["unauthorized"] < 300 {
			t.Errorf("answers: %v", statuses)
		}
		if status, _ := login(t, b, "bob@boxes.test", "password", "203.0.113.5"); status != "" {
			t.Errorf("bob, after it: %q", status)
		}
	})
}

// TestKnownNetworksEnd forgets where somebody logged in from after 30 days.
func TestKnownNetworksEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("a month of recurring jobs takes its time")
	}
	inFlood(t, monthLess, func(t *testing.T, b *servicetest.Sandbox) {
		time.Sleep(25 * time.Hour)
		var wg sync.WaitGroup
		done := flood(t, b, &wg, addressesOf(5_000, func(i int) string { return fmt.Sprintf("10.%d.%d.9", i/250, i%250) }))
		synctest.Wait()
		if status, _ := login(t, b, "ann@boxes.test", "password", "192.0.2.1"); status != "busy" {
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
			b.SlowHashes(0)
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

// TestWaitingLoginEndsWithItsClient frees the place of a client that has gone.
func TestWaitingLoginEndsWithItsClient(t *testing.T) {
	inFlood(t, time.Hour, func(t *testing.T, b *servicetest.Sandbox) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() { _, _ = b.LoginMailbox(ctx, "bob@boxes.test", "wrong", fmt.Sprintf("10.0.%d.1", i)) })
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

// TestFloodOfTheKnownFromOnePrefix: one tenant, whose mailboxes are known in every /64 of its /48,
// does not take the places of others who are known.
func TestFloodOfTheKnownFromOnePrefix(t *testing.T) {
	inFlood(t, time.Hour, func(t *testing.T, b *servicetest.Sandbox) {
		const boxes, networks = 515, 8 // which a mailbox is known at, at most
		err := b.Store.Update(func(tx *store.Tx) error {
			mb, err := store.MailboxByEmail.Get(tx, "bob@boxes.test")
			if err != nil {
				return err
			}
			for i := range boxes {
				more := *mb
				more.ID, more.Email, more.Seen = tx.NewID("eu"), fmt.Sprintf("u%d@boxes.test", i), nil
				if more.Num, err = tx.NextMailboxNum(); err != nil {
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
					_, _ = b.LoginMailbox(ctx, fmt.Sprintf("u%d@boxes.test", i), "wrong", fmt.Sprintf("2001:db8:7:%x::1", i*networks+n))
				})
			}
		}
		synctest.Wait()
		if status, took := login(t, b, "ann@boxes.test", "password", "192.0.2.1"); status != "" || took > time.Second {
			t.Errorf("ann: %q after %v", status, took)
		}
		cancel()
		wg.Wait()
	})
}
