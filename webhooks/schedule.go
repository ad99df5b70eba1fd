package webhooks

import "time"

// waits holds the time after each failed attempt but the last: 51 min 35 s in all.
var waits = [...]time.Duration{
	5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
}

// Schedule returns how long to wait after failed attempt number attempt (1 is the first), spread by
// ±10 % with r in [0,1): 0 is 10 % early, 0.5 exact. It is false when the attempts, 7 in all, are
// used up.
func Schedule(attempt int, r float64) (time.Duration, bool) {
	if attempt < 1 || attempt > len(waits) {
		return 0, false
	}
	wait := waits[attempt-1]
	return wait + time.Duration((r-0.5)*float64(wait)/5), true
}
