package ical

import (
	"strings"
	"time"
)

const (
	dateForm = "20060102"
	timeForm = "20060102T150405"
	utcForm  = timeForm + "Z"

	offsetForm = timeForm + "-0700" // time with an offset; not in RFC 5545, but programs write it

	maxYear = 9999 // later years do not fit into the formats
)

// A moment is a date or a time of an event, as it is written in a calendar (RFC 5545 sections 3.3.4
// and 3.3.5).
type moment struct {
	at            time.Time // the time in UTC, zero if the zone is unknown; a date, or a time without a zone, counts as UTC
	local         time.Time // the local time as written
	whole         bool      // the moment is a date, without a time
	utc           bool
	zone          string // TZID, "" if there is none
	thisAndFuture bool   // the RECURRENCE-ID has RANGE=THISANDFUTURE
}

// readMoment parses the value of a line. It also accepts the format of RFC 3339. It returns the
// zero moment if the value is invalid.
func readMoment(zones zoneSet, l line) (m moment) {
	value := strings.ToUpper(l.value)
	if len(value) > 10 && value[4] == '-' || len(value) == 10 {
		value = strings.Replace(value, "-", "", 2)
	}
	value = strings.ReplaceAll(value, ":", "")
	if clock := len(dateForm) + 1; len(value) > clock+3 && (len(value) == clock+4 || strings.IndexByte("Z+-", value[clock+4]) >= 0) { // the seconds are missing
		value = value[:clock+4] + "00" + value[clock+4:]
	}
	if strings.EqualFold(l.param("VALUE"), "DATE") && len(value) > len(dateForm) {
		value = value[:len(dateForm)]
	}
	var err error
	m.thisAndFuture = strings.EqualFold(l.param("RANGE"), "THISANDFUTURE")
	for _, form := range [...]string{dateForm, utcForm, timeForm, offsetForm} {
		m.local, err = time.Parse(form, value)
		if err != nil {
			continue
		}
		switch form {
		case dateForm:
			m.whole = true
		case utcForm:
			m.utc = true
		case timeForm:
			m.zone = l.param("TZID")
		case offsetForm:
			m.local, m.utc = m.local.UTC(), true
		}
		break
	}
	if err != nil || m.local.Year() < 1 || m.local.IsZero() {
		return moment{}
	}
	m.at = m.toUTC(zones, m.local)
	return m
}

func (m moment) isZero() bool { return m.local.IsZero() }

// toUTC converts a local time in the moment's time zone to UTC. It returns the zero time if the
// zone is unknown.
func (m moment) toUTC(zones zoneSet, local time.Time) time.Time {
	at := local
	if m.zone != "" {
		at = zones.toUTC(m.zone, local)
	}
	if at.Year() > maxYear {
		return time.Time{}
	}
	return at
}

// plusDays returns the time, in UTC, at which the clock shows the same local time a number of days
// later.
func (m moment) plusDays(zones zoneSet, days int) time.Time {
	return m.toUTC(zones, m.local.AddDate(0, 0, days))
}

// isSameTime reports whether two moments are the same time, even if they are written in different
// time zones.
func (m moment) isSameTime(other moment) bool {
	if !m.at.IsZero() && !other.at.IsZero() {
		return m.whole == other.whole && m.at.Equal(other.at)
	}
	return m.local.Equal(other.local) && m.zone == other.zone
}

// String returns the moment as it stands after the name of a property: parameters and value.
func (m moment) String() string {
	head := ""
	if m.thisAndFuture {
		head = ";RANGE=THISANDFUTURE"
	}
	switch {
	case m.whole:
		return head + ";VALUE=DATE:" + m.local.Format(dateForm)
	case m.utc:
		return head + ":" + m.local.Format(utcForm)
	case m.zone != "":
		head += ";TZID=" + quotedParam(m.zone)
	}
	return head + ":" + m.local.Format(timeForm)
}
