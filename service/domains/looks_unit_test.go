package domains

import (
	"testing"
	"time"
)

// The looks at a waiting domain follow a schedule, of which a random number changes each time by at
// most a tenth.
func TestTimesOfLooks(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var want []time.Duration
	for _, minutes := range []int{1, 2, 5, 10} {
		want = append(want, time.Duration(minutes)*time.Minute)
	}
	for at := 25 * time.Minute; at < 7*24*time.Hour+15*time.Minute; at += 15 * time.Minute {
		want = append(want, at)
	}
	for at := want[len(want)-1] + time.Hour; at < 14*24*time.Hour; at += time.Hour {
		want = append(want, at)
	}
	want = append(want, 14*24*time.Hour)
	now := since
	for i, after := range want {
		now = lookAfter(since, now, 0.5)
		if got := now.Sub(since); got != after {
			t.Fatalf("look %d is after %s, want %s", i+1, got, after)
		}
	}

	for _, r := range []float64{0, 0.999} { // the shortest and the longest times
		now, gap := since, time.Duration(0)
		for looks := 1; now.Before(since.Add(waitPeriod)); looks++ {
			next := lookAfter(since, now, r)
			gap = next.Sub(now)
			least, most := frequentLook*9/10, frequentLook*11/10
			if now.Sub(since) >= frequentPeriod {
				least, most = infrequentLook*9/10, infrequentLook*11/10
			}
			if looks <= len(firstLooks) {
				at := firstLooks[looks-1]
				least, most = at*9/10-now.Sub(since), at*11/10-now.Sub(since)
			}
			if next.Equal(since.Add(waitPeriod)) {
				least = 0
			}
			if gap < least || gap > most {
				t.Fatalf("r is %v, look %d is %s after the one before, want %s to %s", r, looks, gap, least, most)
			}
			now = next
		}
		if !now.Equal(since.Add(waitPeriod)) {
			t.Errorf("r is %v, the last look is %s after the wait began", r, now.Sub(since))
		}
	}
	if next := lookAfter(since, now, 0.5); next.Sub(since) != waitPeriod+time.Hour {
		t.Errorf("after the end of the wait the next look is at %s", next.Sub(since))
	}
	late := since.Add(4 * time.Minute) // a look that was late is followed by the one that is due next
	if next := lookAfter(since, late, 0.5); next.Sub(since) != 5*time.Minute {
		t.Errorf("after a late look the next one is at %s", next.Sub(since))
	}
}
