// Package ical parses invitations to events and writes replies to them (RFC 5545, RFC 5546). It
// does not know how a calendar arrived or how a reply is sent.
package ical

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
)

// MaxSize is the maximum size in bytes of a calendar that callers pass to Read.
const MaxSize = 256 << 10

// Limits on how much of one calendar is read.
const (
	maxLines     = 20_000
	maxEvents    = 1000 // further events are ignored
	maxAttendees = 1000 // attendees of one event; further ones are ignored
	maxText      = 2048 // bytes; a longer summary or name is shortened, a calendar with a longer UID is refused
)

// ErrFormat is returned by Read if the text is not a calendar with an event.
var ErrFormat = errors.New("the text is not a calendar with an event")

// An Invitation is an event with the method of its calendar. The event is the first one in the
// calendar or, if that event is part of a series, the whole series.
type Invitation struct {
	Method    string // upper case, such as REQUEST; "" if the calendar has none
	UID       string
	Sequence  int
	Summary   string
	Location  string
	Starts    time.Time // UTC; zero if the time zone is unknown, see moment.at
	Ends      time.Time // UTC, like Starts; equal to Starts if the event has no length
	AllDay    bool      // the event has dates and no times; Starts and Ends are at 00:00 UTC, and Ends is the day after the last one
	Organizer Person
	Attendees []Attendee

	start, end, recurrenceID moment  // as written
	duration                 string  // value of DURATION, if there is no end
	organizers               int     // number of ORGANIZER properties
	zones                    zoneSet // time zones that the calendar defines
}

// A Person is an organizer or attendee.
type Person struct {
	Name  string
	Email string // in the form of msg.NormalizeEmail; "" if there is not exactly one valid address
}

// An Attendee is a person who is invited, with the answer that the organizer knows.
type Attendee struct {
	Person
	Status string // Accepted, Tentative or Declined; "" for every other PARTSTAT
}

// Replies to an invitation (RFC 5545 section 3.2.12).
const (
	Accepted  = "ACCEPTED"
	Tentative = "TENTATIVE"
	Declined  = "DECLINED"
)

// Read parses a calendar. charset is the charset of the text, "" if unknown. The only error is
// ErrFormat.
func Read(text []byte, charset string) (*Invitation, error) {
	if len(text) > MaxSize {
		return nil, ErrFormat
	}
	lines := readLines(decodeUnfolded(text, charset))
	if len(lines) > maxLines {
		return nil, ErrFormat
	}
	method := ""
	var path []string
	var events [][]line
	var now []line
read:
	for _, l := range lines {
		inEvent := len(path) == 2 && path[1] == "VEVENT"
		switch {
		case l.name == "BEGIN":
			path = append(path, strings.ToUpper(l.value))
		case l.name == "END" && len(path) > 0:
			if inEvent && len(events) < maxEvents {
				events = append(events, now)
			}
			if len(path) <= 2 {
				now = nil
			}
			path = path[:len(path)-1]
			if len(path) == 0 && len(events) > 0 {
				break read // end of the calendar; another one after it is ignored
			}
		case len(path) == 1 && l.name == "METHOD":
			method = strings.ToUpper(l.value)
		case inEvent:
			now = append(now, l)
		}
	}
	if len(events) == 0 {
		return nil, ErrFormat
	}
	uid := valueOf(events[0], "UID")
	if uid == "" || len(uid) > maxText {
		return nil, ErrFormat
	}
	series := func(event []line) bool { return valueOf(event, "UID") == uid && valueOf(event, "RECURRENCE-ID") == "" }
	about := events[max(0, slices.IndexFunc(events, series))]
	out := &Invitation{Method: method, UID: uid, zones: readZones(lines)}
	for _, l := range about {
		out.readProperty(l)
	}
	out.Starts, out.Ends, out.AllDay = out.start.at, out.endTime(), out.start.whole
	return out, nil
}

// valueOf returns the value of the first line with the name, "" if there is none.
func valueOf(lines []line, name string) string {
	for _, l := range lines {
		if l.name == name {
			return l.value
		}
	}
	return ""
}

// readProperty stores a content line of the event.
func (i *Invitation) readProperty(l line) {
	switch l.name {
	case "SEQUENCE":
		if n, err := strconv.ParseInt(l.value, 10, 32); err == nil && n >= 0 {
			i.Sequence = int(n)
		}
	case "SUMMARY":
		i.Summary = shortened(unescaped(l.value))
	case "LOCATION":
		i.Location = shortened(unescaped(l.value))
	case "DTSTART":
		i.start = readMoment(i.zones, l)
	case "DTEND":
		i.end = readMoment(i.zones, l)
	case "DURATION":
		i.duration = l.value
	case "RECURRENCE-ID":
		i.recurrenceID = readMoment(i.zones, l)
	case "ORGANIZER":
		i.Organizer = personOf(l)
		if i.organizers++; i.organizers > 1 {
			i.Organizer.Email = ""
		}
	case "ATTENDEE":
		if len(i.Attendees) < maxAttendees {
			status := strings.ToUpper(l.param("PARTSTAT"))
			if status != Accepted && status != Tentative && status != Declined {
				status = ""
			}
			i.Attendees = append(i.Attendees, Attendee{personOf(l), status})
		}
	}
}

// endTime returns the end of the event (RFC 5545 section 3.6.1), zero if its start is unknown.
func (i *Invitation) endTime() time.Time {
	if !i.end.isZero() || i.start.at.IsZero() {
		return i.end.at
	}
	if days, rest, ok := readDuration(i.duration); ok {
		at := i.start.plusDays(i.zones, days).Add(rest)
		if at.Year() > maxYear {
			return time.Time{}
		}
		return at
	}
	if i.start.whole {
		return i.start.plusDays(i.zones, 1)
	}
	return i.start.at
}

// Cancels reports whether i cancels event, or the series to which event belongs, in the name of the
// organizer of event (RFC 5546 section 3.2.5).
func (i *Invitation) Cancels(event *Invitation) bool {
	return i.Method == "CANCEL" && i.UID == event.UID && i.Sequence >= event.Sequence &&
		i.Organizer.Email == event.Organizer.Email && (i.recurrenceID.isZero() || i.recurrenceID.isSameTime(event.recurrenceID))
}

// personOf reads a calendar address (RFC 5545 section 3.3.3), which is usually a mailto URI (RFC
// 6068).
func personOf(l line) Person {
	email := strings.Trim(l.value, ` "'`)
	if len(email) >= 7 && strings.EqualFold(email[:7], "mailto:") {
		email = email[7:]
		if plain, err := url.PathUnescape(email); err == nil {
			email = plain
		}
		email = strings.TrimPrefix(email, "//")
	} else if named := l.param("EMAIL"); named != "" { // the address is in a parameter (RFC 7986 section 6.2)
		email = named
	}
	email, err := msg.NormalizeEmail(strings.Trim(email, " <>"))
	if err != nil {
		email = ""
	}
	return Person{shortened(l.param("CN")), email}
}

// shortened shortens a text to maxText bytes without splitting a character.
func shortened(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "")
}

// readDuration parses a duration (RFC 5545 section 3.3.6). days is separate from rest, since a day
// in local time may not have 24 hours. ok is false if the duration is negative, longer than ten
// years, or invalid.
func readDuration(text string) (days int, rest time.Duration, ok bool) {
	text, ok = strings.CutPrefix(strings.TrimPrefix(strings.ToUpper(text), "+"), "P")
	if !ok || text == "" {
		return 0, 0, false
	}
	const most = 10 * 366
	units := "WDHMS"
	lengths := []time.Duration{'W': 0, 'D': 0, 'H': time.Hour, 'M': time.Minute, 'S': time.Second}
	for text != "" {
		text = strings.TrimPrefix(text, "T")
		at := strings.IndexAny(text, units)
		if at < 0 {
			return 0, 0, false
		}
		n, err := strconv.ParseUint(text[:at], 10, 31)
		if err != nil {
			return 0, 0, false
		}
		switch unit := text[at]; unit {
		case 'W':
			days += int(n) * 7
		case 'D':
			days += int(n)
		default:
			rest += time.Duration(n) * lengths[unit]
		}
		if days > most || rest > most*24*time.Hour {
			return 0, 0, false
		}
		text = text[at+1:]
	}
	return days, rest, true
}

// usedZones returns the names of the time zones in the event's times.
func (i *Invitation) usedZones() (out []string) {
	for _, m := range []moment{i.start, i.end, i.recurrenceID} {
		if m.zone != "" && !slices.Contains(out, m.zone) {
			out = append(out, m.zone)
		}
	}
	return out
}
