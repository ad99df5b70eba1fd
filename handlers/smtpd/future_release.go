package smtpd

import (
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
)

// A futureRelease is the time at which a message is to be sent, from the parameters of MAIL (RFC
// 4865).
type futureRelease struct {
	at      time.Time // zero: send at once
	invalid string    // what is wrong with the parameters; "" if they are valid
}

// maxHoldSeconds is the longest time, in seconds, for which the sending of a message can be
// postponed.
const maxHoldSeconds = int64(core.MaxSchedule / time.Second)

// cutFutureRelease removes the parameters HOLDFOR and HOLDUNTIL from a MAIL command, because
// go-smtp does not know them.
func cutFutureRelease(line string, now time.Time) (rest string, f futureRelease) {
	end := pathEnd(line)
	given := 0
	var kept []string
	for _, parameter := range strings.Fields(line[end:]) {
		name, value, _ := strings.Cut(parameter, "=")
		switch strings.ToUpper(name) {
		case "HOLDFOR":
			seconds, err := strconv.ParseUint(value, 10, 32)
			if given++; err != nil || len(value) > 9 || int64(seconds) > maxHoldSeconds {
				f.invalid = "HOLDFOR must be a number of seconds up to " + strconv.FormatInt(maxHoldSeconds, 10)
				continue
			}
			f.at = now.Add(time.Duration(seconds) * time.Second)
		case "HOLDUNTIL":
			at, err := time.Parse(time.RFC3339, value)
			if given++; err != nil || at.Sub(now) > core.MaxSchedule {
				f.invalid = "HOLDUNTIL must be a date-time such as 2026-11-27T09:00:00Z, within " + strconv.FormatInt(maxHoldSeconds, 10) + " seconds"
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
		f.invalid = "HOLDFOR and HOLDUNTIL cannot be combined"
	}
	if !f.at.After(now) {
		f.at = time.Time{}
	}
	return strings.Join(append([]string{line[:end]}, kept...), " "), f
}

// futureReleaseLine returns the line about FUTURERELEASE for the reply to EHLO. It has the longest
// hold time in seconds and the latest release time.
func futureReleaseLine(now time.Time) string {
	return "250-FUTURERELEASE " + strconv.FormatInt(maxHoldSeconds, 10) + " " + now.Add(core.MaxSchedule).UTC().Format(time.RFC3339) + "\r\n"
}

// cutRequireTLS removes the parameter REQUIRETLS from a MAIL command (RFC 8689). go-smtp would
// refuse it, because it does not see TLS.
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
