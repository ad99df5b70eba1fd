package webhooks

import "time"

// waits holds the wait after each failed attempt except the last: 51 min 35 s in total.
var waits = [...]time.Duration{
	5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
}

// Schedule returns how long to wait after the failed attempt with the given number; the first is 1.
// r in [0,1) adds jitter of ±10 %: 0 is 10 % early, 0.5 exact. It returns false after the last of 7
// attempts.
func Schedule(attempt int, r float64) (time.Duration, bool) {
	if attempt < 1 || attempt > len(waits) {
		return 0, false
	}
	wait := waits[attempt-1]
	return wait + time.Duration((r-0.5)*float64(wait)/5), true
}
