package certs

import (
	"testing"
	"time"
)

func TestWaitsOfFailuresGrow(t *testing.T) {
	total, inAnHour := time.Duration(0), 1
	for n := 1; n < 20; n++ {
		wait := certificateBackoff(n, 0)
		total += wait
		if total < time.Hour {
			inAnHour++
		}
		if n > 1 && wait < certificateBackoff(n-1, 0) || certificateBackoff(n, 1) > 27*time.Hour {
			t.Errorf("wait %d: %s", n, wait)
		}
	}
	if inAnHour > 5 {
		t.Errorf("%d attempts in the first hour", inAnHour)
	}
	if certificateBackoff(19, 0.5) != 24*time.Hour {
		t.Errorf("the longest wait is %s", certificateBackoff(19, 0.5))
	}
}
