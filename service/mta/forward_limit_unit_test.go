package mta

import (
	"testing"
	"time"
)

// TestForwardsToOneAddressAreBounded: 200 in any hour, the others one by one after them; other
// addresses do not wait.
func TestForwardsToOneAddressAreBounded(t *testing.T) {
	f, start := newForwards(), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for n := range forwardMost {
		if _, ok := f.Take("a@far.test", start.Add(time.Duration(n)*time.Second)); !ok {
			t.Fatalf("the %d. waits", n+1)
		}
	}
	now, last := start.Add(10*time.Minute), time.Time{}
	for n := range 3 {
		at, ok := f.Take("a@far.test", now)
		if ok || n == 0 && !at.Equal(start.Add(forwardWindow)) || n > 0 && at.Sub(last) != forwardGap {
			t.Errorf("one more: %v, %v after %v", ok, at, last)
		}
		last = at
	}
	if _, ok := f.Take("b@far.test", now); !ok {
		t.Error("another address waits")
	}
	f.giveBack("a@far.test")
	if _, ok := f.Take("a@far.test", now); !ok {
		t.Error("what did not go counts")
	}
	// Whoever asks when it is told to goes, and no hour has more than 200.
	var went []time.Time
	for at := start.Add(forwardWindow); at.Before(start.Add(5 * time.Hour)); at = at.Add(forwardGap / 3) {
		if _, ok := f.Take("a@far.test", at); ok {
			went = append(went, at)
		}
	}
	for n := forwardMost; n < len(went); n++ {
		if went[n].Sub(went[n-forwardMost]) < forwardWindow {
			t.Fatalf("201 messages within %v", went[n].Sub(went[n-forwardMost]))
		}
	}
	if len(went) < 3*forwardMost {
		t.Errorf("%d went in four hours", len(went))
	}
}

// TestForwardsDoNotWaitForAPastFlood: what waited in a flood and is gone keeps nobody for days.
func TestForwardsDoNotWaitForAPastFlood(t *testing.T) {
	f, start := newForwards(), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for range forwardMost + 100_000 {
		f.Take("a@far.test", start)
	}
	later := start.Add(giveUpAfter + time.Hour) // by then the last of them has been given up
	for range forwardMost {
		if _, ok := f.Take("a@far.test", later); !ok {
			t.Fatal("a free place is not given")
		}
	}
	if at, ok := f.Take("a@far.test", later); ok || at.Sub(later) > 2*forwardWindow {
		t.Errorf("one more: %v, asked again after %v", ok, at.Sub(later))
	}
}
