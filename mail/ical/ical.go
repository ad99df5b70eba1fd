// Package ical reads invitations to events and writes the answers to them (RFC 5545, RFC 5546).
package ical

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxSize is how many bytes a calendar may have that Read takes.
const MaxSize = 256 << 10

const maxAttendees = 1000

// ErrFormat says that a text is no calendar with an event.
var ErrFormat = errors.New("no calendar with an event")

// An Invitation is the first event of a calendar, with its method.
type Invitation struct {
	Method    string // upper case, such as REQUEST; "" without one
	UID       string
	Sequence  int
	Summary   string
	Starts    time.Time // UTC; of an event of whole days, their beginning; zero where it is not known
	Ends      time.Time // likewise
	Recurs    time.Time // RECURRENCE-ID: which one of a series it is; zero for the whole series
	Organizer Person
	Attendees []Person
}

// A Person is an organizer or attendee.
type Person struct {
	Name  string
	Email string // lower case
}

// Answers to an invitation (RFC 5545 section 3.2.12).
const (
	Accepted  = "ACCEPTED"
	Tentative = "TENTATIVE"
	Declined  = "DECLINED"
)

// A line is one content line: its name and parameter names in upper case.
type line struct {
	name, value string
	params      map[string]string
}

// Read reads a calendar. The error is ErrFormat.
func Read(text []byte) (*Invitation, error) {
	if len(text) > MaxSize || !utf8.Valid(text) {
		return nil, ErrFormat
	}
	lines := readLines(string(text))
	zones := readZones(lines)
	out := &Invitation{}
	var path []string
	var starts, ends, recurs *line
	duration, found := time.Duration(0), false
	for i := range lines {
		l := &lines[i]
		switch l.name {
		case "BEGIN":
			path = append(path, strings.ToUpper(l.value))
			continue
		case "END":
			if len(path) > 0 {
				path = path[:len(path)-1]
			}
			if strings.EqualFold(l.value, "VEVENT") && found {
				out.setTimes(zones, starts, ends, recurs, duration)
				if out.UID == "" {
					return nil, ErrFormat
				}
				return out, nil
			}
			continue
		}
		if len(path) == 1 && l.name == "METHOD" {
			out.Method = strings.ToUpper(l.value)
		}
		if len(path) != 2 || path[1] != "VEVENT" {
			continue
		}
		found = true
		switch l.name {
		case "UID":
			out.UID = l.value
		case "SEQUENCE":
			out.Sequence, _ = strconv.Atoi(l.value)
		case "SUMMARY":
			out.Summary = unescaped(l.value)
		case "DTSTART":
			starts = l
		case "DTEND":
			ends = l
		case "DURATION":
			duration = readDuration(l.value)
		case "RECURRENCE-ID":
			recurs = l
		case "ORGANIZER":
			out.Organizer = personOf(l)
		case "ATTENDEE":
			if len(out.Attendees) < maxAttendees {
				out.Attendees = append(out.Attendees, personOf(l))
			}
		}
	}
	return nil, ErrFormat
}

func (i *Invitation) setTimes(zones map[string]zone, starts, ends, recurs *line, duration time.Duration) {
	whole := false
	if starts != nil {
		i.Starts, whole = readTime(zones, starts)
	}
	if ends != nil {
		i.Ends, _ = readTime(zones, ends)
	}
	if recurs != nil {
		i.Recurs, _ = readTime(zones, recurs)
	}
	switch {
	case i.Starts.IsZero() || !i.Ends.IsZero():
	case duration > 0:
		i.Ends = i.Starts.Add(duration)
	case whole:
		i.Ends = i.Starts.AddDate(0, 0, 1)
	default:
		i.Ends = i.Starts
	}
}

// readLines unfolds and splits a text (section 3.1). What is no content line is left out.
func readLines(text string) (out []line) {
	text = strings.NewReplacer("\r\n ", "", "\r\n\t", "", "\n ", "", "\n\t", "", "\r", "").Replace(text)
	for raw := range strings.SplitSeq(text, "\n") {
		head, value, ok := cutValue(raw)
		if !ok {
			continue
		}
		l := line{value: value}
		for n, part := range splitParams(head) {
			if n == 0 {
				l.name = strings.ToUpper(strings.TrimSpace(part))
				continue
			}
			name, v, _ := strings.Cut(part, "=")
			if l.params == nil {
				l.params = map[string]string{}
			}
			l.params[strings.ToUpper(name)] = strings.Trim(v, `"`)
		}
		out = append(out, l)
	}
	return out
}

// cutValue cuts a line at the first colon that no quotes hold.
func cutValue(text string) (head, value string, ok bool) {
	quoted := false
	for i := range len(text) {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == ':' && !quoted:
			return text[:i], strings.TrimSpace(text[i+1:]), true
		}
	}
	return "", "", false
}

func splitParams(head string) (out []string) {
	quoted := false
	return strings.FieldsFunc(head, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ';' && !quoted
	})
}

func personOf(l *line) Person {
	email := l.value
	if len(email) >= 7 && strings.EqualFold(email[:7], "mailto:") {
		email = email[7:]
	}
	return Person{l.params["CN"], strings.ToLower(strings.TrimSpace(email))}
}

// unescaped undoes the escapes of a text (section 3.3.11).
func unescaped(text string) string {
	return strings.NewReplacer(`\n`, "\n", `\N`, "\n", `\,`, ",", `\;`, ";", `\\`, `\`).Replace(text)
}

func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, "\r\n", `\n`, "\n", `\n`, "\r", "", ",", `\,`, ";", `\;`).Replace(text)
}

const (
	dateForm = "20060102"
	timeForm = "20060102T150405"
	utcForm  = timeForm + "Z"
)

// readTime reads a date or a time; whole tells that it is a date. A time that cannot be read, or
// whose zone is not known, is zero.
func readTime(zones map[string]zone, l *line) (at time.Time, whole bool) {
	if day, err := time.Parse(dateForm, l.value); err == nil {
		return day, true
	}
	if at, err := time.Parse(utcForm, l.value); err == nil {
		return at, false
	}
	local, err := time.Parse(timeForm, l.value)
	if err != nil {
		return time.Time{}, false
	}
	id := l.params["TZID"]
	if z, ok := zones[id]; ok {
		return local.Add(-z.offset(local)), false
	}
	if id == "" { // the same hour in every zone
		return local, false
	}
	place, err := time.LoadLocation(id)
	if err != nil || id == "Local" {
		return time.Time{}, false
	}
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, place).UTC(), false
}

// readDuration reads a duration (section 3.3.6); 0 if it is none, or negative.
func readDuration(text string) (d time.Duration) {
	const most = 10 * 366 * 24 * time.Hour
	text, ok := strings.CutPrefix(strings.TrimPrefix(text, "+"), "P")
	if !ok {
		return 0
	}
	units := map[byte]time.Duration{'W': 7 * 24 * time.Hour, 'D': 24 * time.Hour, 'H': time.Hour, 'M': time.Minute, 'S': time.Second}
	number := ""
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			number += string(c)
		case c == 'T':
		default:
			n, err := strconv.Atoi(number)
			if err != nil || units[c] == 0 || n > 1_000_000 {
				return 0
			}
			if d += time.Duration(n) * units[c]; d > most {
				return 0
			}
			number = ""
		}
	}
	return d
}

// Reply writes the answer of an attendee (RFC 5546 section 3.2.3).
func (i *Invitation) Reply(by Person, answer string, now time.Time) []byte {
	var b strings.Builder
	write := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		for limit := 74; len(text) > limit; { // a line has at most 75 bytes, and ends at no half letter
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
	name := func(p Person) string {
		if p.Name == "" || strings.ContainsAny(p.Name, "\"\r\n") {
			return ""
		}
		return `;CN="` + p.Name + `"`
	}
	write("BEGIN:VCALENDAR")
	write("PRODID:-//Mailstead//Mailstead//EN")
	write("VERSION:2.0")
	write("METHOD:REPLY")
	write("BEGIN:VEVENT")
	write("UID:%s", i.UID)
	write("DTSTAMP:%s", now.UTC().Format(utcForm))
	write("SEQUENCE:%d", i.Sequence)
	if !i.Recurs.IsZero() {
		write("RECURRENCE-ID:%s", i.Recurs.UTC().Format(utcForm))
	}
	write("ORGANIZER%s:mailto:%s", name(i.Organizer), i.Organizer.Email)
	write("ATTENDEE;PARTSTAT=%s%s:mailto:%s", answer, name(by), by.Email)
	if !i.Starts.IsZero() {
		write("DTSTART:%s", i.Starts.UTC().Format(utcForm))
		write("DTEND:%s", i.Ends.UTC().Format(utcForm))
	}
	if i.Summary != "" {
		write("SUMMARY:%s", escaped(i.Summary))
	}
	write("END:VEVENT")
	write("END:VCALENDAR")
	return []byte(b.String())
}
