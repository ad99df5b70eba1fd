package smtpd

import (
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
)

// A futureRelease is what MAIL says of when a message is to be sent (RFC 4865).
type futureRelease struct {
	at  time.Time // zero: at once
	bad string    // what is wrong with it; "": nothing
}

const longestHold = int64(core.MaxSchedule / time.Second)

// cutFutureRelease takes HOLDFOR and HOLDUNTIL out of a MAIL command, since go-smtp knows neither.
func cutFutureRelease(line string, now time.Time) (rest string, f futureRelease) {
	end := pathEnd(line)
	given := 0
	var kept []string
	for _, parameter := range strings.Fields(line[end:]) {
		name, value, _ := strings.Cut(parameter, "=")
		switch strings.ToUpper(name) {
		case "HOLDFOR":
			seconds, err := strconv.ParseUint(value, 10, 32)
			if given++; err != nil || len(value) > 9 || int64(seconds) > longestHold {
				f.bad = "HOLDFOR must be a number of seconds up to " + strconv.FormatInt(longestHold, 10)
				continue
			}
			f.at = now.Add(time.Duration(seconds) * time.Second)
		case "HOLDUNTIL":
			at, err := time.Parse(time.RFC3339, value)
			if given++; err != nil || at.Sub(now) > core.MaxSchedule {
				f.bad = "HOLDUNTIL must be a date-time such as 2026-11-27T09:00:00Z, within " + strconv.FormatInt(longestHold, 10) + " seconds"
				continue
			}
			f.at = at
		default:
			kept = append(kept, parameter)
		}
	}
	if given == 0 {
		return line, f
	}
	if given > 1 {
		f.bad = "HOLDFOR and HOLDUNTIL cannot be combined"
	}
	if !f.at.After(now) {
		f.at = time.Time{}
	}
	return strings.Join(append([]string{line[:end]}, kept...), " "), f
}

// offerFutureRelease is the line of EHLO: the longest time, and the latest date-time.
func offerFutureRelease(now time.Time) string {
	return "250-FUTURERELEASE " + strconv.FormatInt(longestHold, 10) + " " + now.Add(core.MaxSchedule).UTC().Format(time.RFC3339) + "\r\n"
}

// cutRequireTLS takes REQUIRETLS out of a MAIL command (RFC 8689), which go-smtp does not take
// where it does not see TLS.
func cutRequireTLS(line string) (rest string, given bool) {
	end := pathEnd(line)
	var kept []string
	for _, parameter := range strings.Fields(line[end:]) {
		if strings.EqualFold(parameter, "REQUIRETLS") {
			given = true
			continue
		}
		kept = append(kept, parameter)
	}
	if !given {
		return line, false
	}
	return strings.Join(append([]string{line[:end]}, kept...), " "), true
}
