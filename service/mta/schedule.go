package mta

import (
	"time"
)

const (
	giveUpAfter = 5 * 24 * time.Hour // RFC 5321 section 4.5.4.1: at least 4 to 5 days
	noticeAfter = 4 * time.Hour
	lastWait    = 8 * time.Hour
)

// retryWait is how long to wait after the attempt (from 1) of a delivery that failed for now: 1, 5,
// 15, 30 minutes, 1, 2, 4, 6 hours, then 8 hours each time, up to a tenth less or more as r goes
// from 0 to 1. Where r stays the same the waits never fall.
func retryWait(attempt int, r float64) time.Duration {
	waits := [...]time.Duration{
		time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour,
	}
	wait := lastWait
	if n := max(attempt, 1) - 1; n < len(waits) {
		wait = waits[n]
	}
	return time.Duration(float64(wait) * (0.9 + 0.2*r))
}
