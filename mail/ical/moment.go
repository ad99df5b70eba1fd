package ical

import (
	"strings"
	"time"
)

const (
	dateForm = "20060102"
	timeForm = "20060102T150405"
	utcForm  = timeForm + "Z"

	offsetForm = timeForm + "-0700" // which RFC 5545 does not have

	maxYear = 9999 // a later time cannot be written
)

// A moment is a date or a time of an event, as it is written (RFC 5545 sections 3.3.4 and 3.3.5).
type moment struct {
	at     time.Time // UTC; the beginning of a date, and what every clock shows, are given as UTC too; zero where the zone is not known
	local  time.Time // what the clock shows there; of all three forms
	whole  bool      // it is a date
	utc    bool
	zone   string // the TZID, "" without one
	onward bool   // RANGE=THISANDFUTURE of a RECURRENCE-ID
}

// readMoment reads the value of a line, also as RFC 3339 writes it; what cannot be read is zero.
func readMoment(zones zoneSet, l line) (m moment) {
	value := strings.ToUpper(l.value)
	if len(value) > 10 && value[4] == '-' || len(value) == 10 {
		value = strings.Replace(value, "-", "", 2)
	}
	value = strings.ReplaceAll(value, ":", "")
	if clock := len(dateForm) + 1; len(value) > clock+3 && (len(value) == clock+4 || strings.IndexByte("Z+-", value[clock+4]) >= 0) { // no seconds
		value = value[:clock+4] + "00" + value[clock+4:]
	}
	if strings.EqualFold(l.param("VALUE"), "DATE") && len(value) > len(dateForm) {
		value = value[:len(dateForm)]
	}
	var err error
	m.onward = strings.EqualFold(l.param("RANGE"), "THISANDFUTURE")
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
	m.at = m.instant(zones, m.local)
	return m
}

func (m moment) isZero() bool { return m.local.IsZero() }

// instant is when a clock at the moment's place shows a time.
func (m moment) instant(zones zoneSet, local time.Time) time.Time {
	at := local
	if m.zone != "" {
		at = zones.instant(m.zone, local)
	}
	if at.Year() > maxYear {
		return time.Time{}
	}
	return at
}

// plusDays is when the clock there shows the same time some days later.
func (m moment) plusDays(zones zoneSet, days int) time.Time {
	return m.instant(zones, m.local.AddDate(0, 0, days))
}

// is reports whether two moments are the same one, in whatever zones they are written.
func (m moment) is(other moment) bool {
	if !m.at.IsZero() && !other.at.IsZero() {
		return m.whole == other.whole && m.at.Equal(other.at)
	}
	return m.local.Equal(other.local) && m.zone == other.zone
}

// String is the moment as a property has it behind its name.
func (m moment) String() string {
	head := ""
	if m.onward {
		head = ";RANGE=THISANDFUTURE"
	}
	switch {
	case m.whole:
		return head + ";VALUE=DATE:" + m.local.Format(dateForm)
	case m.utc:
		return head + ":" + m.local.Format(utcForm)
	case m.zone != "":
		head += ";TZID=" + quoted(m.zone)
	}
	return head + ":" + m.local.Format(timeForm)
}
