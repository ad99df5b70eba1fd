package limit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSemaphoreLimitsAllAndEach(t *testing.T) {
	s := NewSemaphore[string](5, 2)
	var mu sync.Mutex
	all, most, mostOf := 0, 0, map[string]int{}
	running := map[string]int{}
	var wg sync.WaitGroup
	for i := range 300 {
		key := fmt.Sprint(i % 6)
		wg.Go(func() {
			release, err := s.Acquire(t.Context(), key)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			all++
			running[key]++
			most, mostOf[key] = max(most, all), max(mostOf[key], running[key])
			mu.Unlock()
			time.Sleep(100 * time.Microsecond)
			mu.Lock()
			all--
			running[key]--
			mu.Unlock()
			release()
		})
	}
	wg.Wait()
	if most > 5 {
		t.Errorf("%d ran at a time", most)
	}
	for key, n := range mostOf {
		if n > 2 {
			t.Errorf("%d of key %s ran at a time", n, key)
		}
	}
	if len(s.keys) != 0 || len(s.all) != 0 {
		t.Errorf("%d idle keys and %d slots are kept", len(s.keys), len(s.all))
	}
}

// TestSemaphoreKeyTakesNothingFromOthers: callers that wait for their key hold no slot of the
// total.
func TestSemaphoreKeyTakesNothingFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore[string](2, 1)
		release, err := s.Acquire(t.Context(), "greedy")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 10 {
			go func() {
				if _, err := s.Acquire(ctx, "greedy"); !errors.Is(err, context.Canceled) {
					t.Errorf("a waiter got %v", err)
				}
			}()
		}
		synctest.Wait()
		other, ok := s.TryAcquire("modest")
		if !ok {
			t.Fatal("another key has no slot")
		}
		if _, ok := s.TryAcquire("third"); ok {
			t.Error("there are more slots than in all")
		}
		if _, ok := s.TryAcquire("greedy"); ok {
			t.Error("a key has more slots than each may")
		}
		timeout, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := s.Acquire(timeout, "third"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for all: %v", err)
		}
		cancel()
		synctest.Wait()
		release()
		other()
		if len(s.keys) != 0 || len(s.all) != 0 {
			t.Errorf("%d idle keys and %d slots are kept", len(s.keys), len(s.all))
		}
	})
}

func TestSemaphoreLimitsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore[string](4, 1)
		s.MaxWaiting = 2
		release, err := s.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var done atomic.Int32
		for range 2 {
			go func() {
				release, err := s.Acquire(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
				release()
			}()
		}
		synctest.Wait()
		if _, err := s.Acquire(t.Context(), "a"); !errors.Is(err, ErrBusy) {
			t.Errorf("a third waiter: %v", err)
		}
		other, err := s.Acquire(t.Context(), "b")
		if err != nil {
			t.Fatalf("another key: %v", err)
		}
		other()
		release()
		synctest.Wait()
		if done.Load() != 2 || len(s.keys) != 0 {
			t.Errorf("%d waiters came to their slot, %d keys are kept", done.Load(), len(s.keys))
		}
	})
}

func TestKeyedMutex(t *testing.T) {
	var m KeyedMutex[string]
	counts := map[string]*int{"a": new(int), "b": new(int)}
	var wg sync.WaitGroup
	for range 200 {
		for key, n := range counts {
			wg.Go(func() {
				unlock, err := m.Lock(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				*n++ // the race detector sees two at a time
				unlock()
			})
		}
	}
	wg.Wait()
	if *counts["a"] != 200 || *counts["b"] != 200 || len(m.locked) != 0 {
		t.Errorf("counted %d and %d; %d keys are kept", *counts["a"], *counts["b"], len(m.locked))
	}
}

func TestKeyedMutexWaitsForItsKeyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m KeyedMutex[string]
		unlock, ok := m.TryLock("a")
		if !ok {
			t.Fatal("a fresh key is locked")
		}
		if _, ok := m.TryLock("a"); ok {
			t.Error("a key was locked twice")
		}
		other, ok := m.TryLock("b")
		if !ok {
			t.Fatal("another key is locked")
		}
		other()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a locked key: %v", err)
		}
		time.AfterFunc(time.Second, unlock)
		unlock, err := m.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		unlock()
	})
}

func TestCounterHasFixedWindows(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 30, 0, time.UTC)
	c := NewCounter[string](time.Minute)
	minute := func() time.Time { return now.Truncate(time.Minute) }
	if a, b, other := c.Add("a", minute()), c.Add("a", minute()), c.Add("b", minute()); a != 1 || b != 2 || other != 1 {
		t.Errorf("counted %d, %d and %d", a, b, other)
	}
	now = now.Add(29 * time.Second)
	if n := c.Count("a", minute()); n != 2 {
		t.Errorf("at the end of the minute: %d", n)
	}
	now = now.Add(time.Second)
	if n := c.Count("a", minute()); n != 0 || len(c.newer)+len(c.older) != 0 {
		t.Errorf("in the next minute: %d, %d keys are kept", n, len(c.newer)+len(c.older))
	}
	for i := range 10_000 {
		c.Add(fmt.Sprint(i), minute())
	}
	if n := c.Count("0", minute()); n != 1 {
		t.Errorf("among many keys: %d", n)
	}
}

func TestSlidingCounterForgets(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	c := NewSlidingCounter[string](10*time.Minute, 100)
	for _, step := range []struct {
		wait time.Duration
		want int // before this one is counted
	}{{0, 0}, {time.Minute, 1}, {5 * time.Minute, 2}, {4 * time.Minute, 3}, {2 * time.Minute, 2}, {time.Hour, 0}} {
		now = now.Add(step.wait)
		if got := c.Count("k", now); got != step.want {
			t.Errorf("at %s: %d, want %d", now.Format(time.TimeOnly), got, step.want)
		}
		if got := c.Add("k", now); got != step.want+1 {
			t.Errorf("at %s: added to %d, want %d", now.Format(time.TimeOnly), got, step.want+1)
		}
	}
	c.Delete("k")
	if got := c.Count("k", now); got != 0 {
		t.Errorf("after Delete: %d", got)
	}
}

func TestSlidingCounterIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	c := NewSlidingCounter[int](time.Hour, 100)
	for i := range 10_000 {
		c.Add(i, now)
	}
	if n := len(c.newer) + len(c.older); n > 200 {
		t.Errorf("%d keys are kept", n)
	}
	if c.Count(9999, now) != 1 {
		t.Error("the newest key is forgotten")
	}
}

func TestPrefix(t *testing.T) {
	for _, tc := range []struct{ ip, host, site, household string }{
		{"192.0.2.77", "192.0.2.77/32", "192.0.2.0/24", "192.0.2.0/24"},
		{"::ffff:192.0.2.77", "192.0.2.77/32", "192.0.2.0/24", "192.0.2.0/24"},
		{"2001:db8:1:2345:6::7", "2001:db8:1:2345::/64", "2001:db8:1::/48", "2001:db8:1:2300::/56"},
		{"fe80::1%eth0", "fe80::/64", "fe80::/48", "fe80::/56"},
	} {
		ip := netip.MustParseAddr(tc.ip)
		if h, s, b := HostNetwork(ip), SiteNetwork(ip), Prefix(ip, 24, 56); h.String() != tc.host || s.String() != tc.site || b.String() != tc.household {
			t.Errorf("%s: %s, %s, %s", tc.ip, h, s, b)
		}
	}
	if p := HostNetwork(netip.Addr{}); p != (netip.Prefix{}) {
		t.Errorf("no address: %s", p)
	}
}

// TestCounterBeginsAnewWhenTheClockIsSetBack: otherwise a limited caller would stay limited until
// the clock catches up.
func TestCounterBeginsAnewWhenTheClockIsSetBack(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]*Counter[string]{"fixed": NewCounter[string](time.Minute), "sliding": NewSlidingCounter[string](time.Minute, 0)} {
		for range 5 {
			c.Add("a", now)
		}
		if n := c.Add("a", now.AddDate(-1, 0, 0)); n != 1 {
			t.Errorf("%s: %d events a year before", name, n)
		}
	}
}

// TestBytesGiveRoomOnce: a caller that already holds memory gets more at once, even if none is
// left.
func TestBytesGiveRoomOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, other := NewByteLimit(10, 1), NewByteLimit(10, 1)
		within, release, err := b.Acquire(t.Context(), 20, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, again, err := b.Acquire(within, 20, time.Second); err != nil {
			t.Errorf("who has room: %v", err)
		} else {
			again()
		}
		if _, small, err := b.Acquire(t.Context(), 1, time.Second); err != nil {
			t.Errorf("what is small: %v", err)
		} else {
			small()
		}
		if _, _, err := b.Acquire(t.Context(), 2, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another: %v", err)
		}
		_, all, err := other.Acquire(within, 10, time.Second)
		if err != nil {
			t.Errorf("another limit: %v", err)
		}
		if _, _, err := other.Acquire(within, 2, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another limit that is full: %v", err)
		}
		all()
		release()
		if _, release, err := b.Acquire(t.Context(), 10, time.Second); err != nil {
			t.Errorf("after the release: %v", err)
		} else {
			release()
		}
	})
}
