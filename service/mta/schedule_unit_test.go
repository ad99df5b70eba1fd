package mta

import (
	"testing"
	"time"
)

func TestRetryWaitRises(t *testing.T) {
	want := []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 8 * time.Hour}
	for n, w := range want {
		if got := retryWait(n+1, 0.5); got.Round(time.Second) != w {
			t.Errorf("after attempt %d: %s, want %s", n+1, got, w)
		}
		if low, high := retryWait(n+1, 0), retryWait(n+1, 0.9999); low < w*9/10-1 || high > w*11/10 || low >= high {
			t.Errorf("after attempt %d: %s to %s, want %s ± 10 %%", n+1, low, high, w)
		}
	}
	if retryWait(0, 0.5) != retryWait(1, 0.5) || retryWait(1<<40, 0.5).Round(time.Second) != 8*time.Hour {
		t.Error("numbers of attempts beyond the table")
	}
}
