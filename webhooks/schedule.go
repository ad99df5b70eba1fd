package webhooks

import "time"

// retryWaits has the wait after each failed attempt except the last: 51 min 35 s in total.
var retryWaits = [...]time.Duration{
	5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
}

// RetryWait returns how long to wait after a failed attempt. attempt is its number, from 1. random
// is a number in [0,1) that changes the wait by up to 10 %. RetryWait returns false after attempt
// 7, which is the last.
func RetryWait(attempt int, random float64) (wait time.Duration, ok bool) {
	if attempt < 1 || attempt > len(retryWaits) {
		return 0, false
	}
	wait = retryWaits[attempt-1]
	return wait + time.Duration((random-0.5)*float64(wait)/5), true
}
