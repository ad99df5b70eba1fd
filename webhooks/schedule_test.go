package webhooks

import (
	"testing"
	"time"
)

func TestScheduleTakesFiftyOneMinutes(t *testing.T) {
	want := []time.Duration{5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute}
	var total time.Duration
	for attempt := 1; ; attempt++ {
		wait, again := RetryWait(attempt, 0.5)
		if !again {
			if attempt != 7 || wait != 0 {
				t.Errorf("used up after attempt %d with wait %s, want 7 attempts", attempt, wait)
			}
			break
		}
		if wait != want[attempt-1] {
			t.Errorf("wait after attempt %d is %s, want %s", attempt, wait, want[attempt-1])
		}
		total += wait
	}
	if total != 51*time.Minute+35*time.Second {
		t.Errorf("total %s, want 51m35s", total)
	}
}

func TestScheduleSpreadsTenPercentEitherWay(t *testing.T) {
	for attempt := 1; attempt <= 6; attempt++ {
		exact, _ := RetryWait(attempt, 0.5)
		early, _ := RetryWait(attempt, 0)
		late, _ := RetryWait(attempt, 0.999999)
		if early != exact*9/10 || late <= exact || late > exact*11/10 || late < exact*109/100 {
			t.Errorf("attempt %d waits from %s to %s around %s", attempt, early, late, exact)
		}
	}
}

func TestScheduleKnowsNoOtherAttempts(t *testing.T) {
	for _, attempt := range []int{-1, 0, 7, 8, 1 << 40} {
		if wait, again := RetryWait(attempt, 0.5); again || wait != 0 {
			t.Errorf("attempt %d waits %s", attempt, wait)
		}
	}
}
