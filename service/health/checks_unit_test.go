package health

import (
	"testing"
	"time"
)

// TestMovedClock: only a change of the clock of more than a minute since the last check is
// reported, for a day.
func TestMovedClock(t *testing.T) {
	start := time.Now()
	c := clock{start: start}
	for _, tc := range []struct {
		passed, moved time.Duration // since the start
		by            time.Duration
	}{
		{5 * time.Minute, 0, 0},
		{10 * time.Minute, 50 * time.Second, 0},
		{15 * time.Minute, -30 * time.Minute, -30*time.Minute - 50*time.Second},
		{20 * time.Minute, -30 * time.Minute, -30*time.Minute - 50*time.Second},
		{25 * time.Hour, -30 * time.Minute, 0},
	} {
		if at, by := c.check(start.Add(tc.passed+tc.moved), tc.passed); by != tc.by || at.IsZero() != (by == 0) {
			t.Errorf("%s after the start the clock was moved by %s, want %s", tc.passed, by, tc.by)
		}
	}
}
