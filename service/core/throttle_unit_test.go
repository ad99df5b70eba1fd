package core

import (
	"fmt"
	"testing"
	"time"
)

func TestThrottleForgets(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	th := NewThrottle(10*time.Minute, 100)
	for _, step := range []struct {
		wait time.Duration
		want int // seen before this one is counted
	}{{0, 0}, {time.Minute, 1}, {5 * time.Minute, 2}, {4 * time.Minute, 3}, {2 * time.Minute, 2}, {time.Hour, 0}} {
		now = now.Add(step.wait)
		if got := th.Seen("k", now); got != step.want {
			t.Errorf("at %s: %d, want %d", now.Format(time.TimeOnly), got, step.want)
		}
		th.Count("k", now)
	}
	th.Forget("k")
	if got := th.Seen("k", now); got != 0 {
		t.Errorf("after forgetting: %d", got)
	}
}

func TestThrottleIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	th := NewThrottle(time.Hour, 100)
	for i := range 10_000 {
		th.Count(fmt.Sprint(i), now)
	}
	if n := len(th.newer) + len(th.older); n > 200 {
		t.Errorf("%d keys are kept", n)
	}
	if th.Seen("9999", now) != 1 {
		t.Error("the newest key is forgotten")
	}
}
