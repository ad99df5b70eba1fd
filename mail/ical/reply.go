package ical

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Reply returns a calendar with the reply of an attendee (RFC 5546 section 3.2.3). answer is
// Accepted, Tentative or Declined. UID, SEQUENCE, RECURRENCE-ID and times are written as in the
// invitation, so that every calendar program finds the event.
func (i *Invitation) Reply(by Person, answer string, now time.Time) []byte {
	var b strings.Builder
	write := func(text string) {
		for limit := 74; len(text) > limit; { // a line has at most 75 bytes, and a fold must not split a character
			n := limit
			for n > 0 && !utf8.RuneStart(text[n]) {
				n--
			}
			b.WriteString(text[:n] + "\r\n ")
			text = text[n:]
			limit = 73
		}
		b.WriteString(text + "\r\n")
	}
	person := func(p Person) string {
		name := ""
		if p.Name != "" {
			name = `;CN=` + quotedParam(p.Name)
		}
		return name + ":mailto:" + strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23", " ", "%20").Replace(p.Email)
	}
	write("BEGIN:VCALENDAR")
	write("PRODID:-//Mailstead//Mailstead//EN")
	write("VERSION:2.0")
	write("METHOD:REPLY")
	for _, id := range i.usedZones() {
		for _, l := range i.zones.definitionLines(id) {
			write(l)
		}
	}
	write("BEGIN:VEVENT")
	write("UID:" + i.UID)
	write("DTSTAMP:" + now.UTC().Format(utcForm))
	write("SEQUENCE:" + strconv.Itoa(i.Sequence))
	write("ORGANIZER" + person(i.Organizer))
	write("ATTENDEE;PARTSTAT=" + answer + person(by))
	if !i.recurrenceID.isZero() {
		write("RECURRENCE-ID" + i.recurrenceID.String())
	}
	if !i.start.isZero() {
		write("DTSTART" + i.start.String())
		if _, _, ok := readDuration(i.duration); ok && i.end.isZero() {
			write("DURATION:" + i.duration)
		}
	}
	if !i.end.isZero() {
		write("DTEND" + i.end.String())
	}
	if i.Summary != "" {
		write("SUMMARY:" + escaped(i.Summary))
	}
	write("END:VEVENT")
	write("END:VCALENDAR")
	return []byte(b.String())
}
