// Package date reads the dates of messages.
package date

import (
	"strconv"
	"strings"
	"time"
	"unicode"
)

// dateParts collects the values of a date, word by word. The words may come in any order.
type dateParts struct {
	day, month, year  int
	hour, minute, sec int
	offset            int // seconds east of UTC
	hasTime, pm, am   bool
	hasOffset         bool // the zone was given as a number, which overrides a zone name
	location          *time.Location
}

// Parse parses the value of a Date field (RFC 5322 §3.3, §4.3). It also accepts the order of
// asctime, dashes, common mistakes, and ISO 8601 with or without dashes and colons, but no
// comments. A date without a zone is in UTC. It returns the zero time if the value is no date.
func Parse(s string) time.Time {
	s = strings.Trim(s, " \t\"")
	if t, err := time.Parse(time.RFC3339, s); err == nil && t.Year() >= 1900 {
		return t
	}
	var d dateParts
	s = timeFixes.Replace(timeFixes.Replace(s))
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
		if !d.readWord(word) {
			return time.Time{}
		}
	}
	return d.time()
}

// timeFixes removes the blanks around colons, which RFC 5322 §4.3 permits in a time. Parse
// applies it twice, since one pass leaves the second of two blanks. It also replaces the
// typographic minus sign (U+2212) by "-".
var timeFixes = strings.NewReplacer(" : ", ":", " :", ":", ": ", ":", "\u2212", "-")

// readWord reads one word of a date. It returns false if the date is invalid.
func (d *dateParts) readWord(w string) (valid bool) {
	if i := strings.IndexAny(w, "Tt"); i > 0 && beginsWithDigit(w) && beginsWithDigit(w[i+1:]) { // ISO 8601
		return d.readWord(w[:i]) && d.readClock(w[i+1:])
	}
	if len(w) == 14 && strings.Trim(w, "0123456789") == "" {
		return d.readWord(w[:8]) && d.readClock(w[8:])
	}
	whole := d.year != 0 && d.day != 0
	switch sign := strings.IndexAny(w, "+-"); {
	case !d.hasTime && strings.Contains(w, ":"):
		return d.readClock(w)
	case d.hasTime && sign >= 0 && !beginsWithDigit(w): // +0100, +01:00, GMT+0100
		d.readName(strings.ToLower(w[:sign]))
		if !d.hasOffset {
			d.readZone(w[sign:])
		}
		return true
	case d.hasTime && whole && len(w) == 4 && beginsWithDigit(w): // a zone without its sign
		d.readZone("+" + w)
		return true
	case d.hasTime && whole && beginsWithDigit(w): // a fraction of a second after a comma; ignored
		return true
	case beginsWithDigit(w) && !d.hasTime && whole && (strings.Contains(w, ".") || len(w) == 4): // 10.30, 1030
		return d.readClock(strings.ReplaceAll(w, ".", ":"))
	case beginsWithDigit(w):
		return d.readNumbers(w)
	case d.hasTime && d.location == nil && strings.ContainsAny(w, "/5678"): // Europe/Berlin, EST5EDT
		d.location, _ = time.LoadLocation(w)
	}
	d.readName(strings.ToLower(w))
	return true
}

func beginsWithDigit(w string) bool { return w != "" && '0' <= w[0] && w[0] <= '9' }

// readZone reads the offset of a zone: a sign and hours, with or without minutes. It ignores
// letters after them. An invalid zone counts as UTC (RFC 5256 section 2.2).
func (d *dateParts) readZone(w string) {
	behind := strings.TrimLeft(w[1:], "0123456789:")
	if behind != "" && behind[0] != ';' && !unicode.IsLetter(rune(behind[0])) { // +0100GMT
		return
	}
	digits := strings.Replace(w[1:len(w)-len(behind)], ":", "", 1)
	if len(digits) == 3 && strings.IndexByte(w, ':') == 2 { // +1:00
		digits = "0" + digits
	}
	if len(digits) <= 2 {
		digits += "00"
	}
	n, err := strconv.Atoi(digits)
	if err != nil || len(digits) > 4 || !beginsWithDigit(digits) || n%100 > 59 || n >= 2400 {
		return
	}
	d.offset, d.hasOffset = (n/100*60+n%100)*60, true
	if w[0] == '-' {
		d.offset = -d.offset
	}
}

// readNumbers reads one number, or a whole date of three numbers: 20-Nov-2026, 2026-11-20,
// 2026/11/20, 11/20/2026, 20.11.2026. It returns false if the date already has all numbers.
func (d *dateParts) readNumbers(w string) (valid bool) {
	if len(w) == 8 && d.year == 0 && strings.Trim(w, "0123456789") == "" {
		w = w[:4] + "-" + w[4:6] + "-" + w[6:]
	}
	parts := strings.FieldsFunc(w, func(r rune) bool { return r == '-' || r == '/' || r == '.' })
	if len(parts) == 3 && d.day == 0 && d.month == 0 && d.year == 0 {
		var n [3]int
		for i := range parts {
			v, err := strconv.Atoi(parts[i])
			if err != nil || v < 0 {
				v = -1
			}
			n[i] = v
		}
		switch {
		case n[0] < 0 || n[1] < 0 || n[2] < 0:
		case len(parts[0]) == 4:
			d.year, d.month, d.day = n[0], n[1], n[2]
			return true
		case strings.Contains(w, "/") && n[0] <= 12: // month first, as in the United States
			d.month, d.day, d.year = n[0], n[1], fullYear(n[2], len(parts[2]))
			return true
		default:
			d.day, d.month, d.year = n[0], n[1], fullYear(n[2], len(parts[2]))
			return true
		}
	}
	for _, part := range parts {
		if !d.readNumber(part) {
			return false
		}
	}
	return true
}

func (d *dateParts) readNumber(s string) (valid bool) {
	n, err := strconv.Atoi(s)
	if err != nil && len(s) > 2 && strings.Contains("st nd rd th", strings.ToLower(s[len(s)-2:])) {
		s = s[:len(s)-2]
		n, err = strconv.Atoi(s)
	}
	switch {
	case err != nil:
		d.readName(strings.ToLower(s))
	case len(s) <= 2 && d.day == 0:
		d.day = n
	case d.year == 0:
		d.year = fullYear(n, len(s))
	default:
		return false
	}
	return true
}

// fullYear returns the full year for a year of two or three digits (RFC 5322 §4.3).
func fullYear(n, digits int) int {
	switch {
	case digits == 2 && n < 50:
		return 2000 + n
	case digits <= 3:
		return 1900 + n
	}
	return n
}

// readClock reads hours, minutes and seconds, and a zone or am/pm that follows without a space. It
// returns false for an impossible time.
func (d *dateParts) readClock(s string) (valid bool) {
	end := len(s)
	if i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != ':' && r != '.' }); i >= 0 {
		end = i
	}
	var n [3]int
	i := 0
	digits := s[:end]
	for at := 2; at < len(digits) && at < 6 && strings.Trim(s[:at], "0123456789") == "" && beginsWithDigit(digits[at:]); at += 3 { // put colons into 103000
		digits = digits[:at] + ":" + digits[at:]
	}
	for part := range strings.SplitSeq(digits, ":") {
		part, _, _ = strings.Cut(part, ".")
		v, err := strconv.Atoi(part)
		if err != nil || i == len(n) {
			return false
		}
		n[i] = v
		i++
	}
	d.hour, d.minute, d.sec, d.hasTime = n[0], n[1], n[2], true
	if end < len(s) && !d.readWord(s[end:]) {
		return false
	}
	return n[0] < 24 && n[1] < 60 && n[2] <= 60 || n == [3]int{24}
}

// readName reads the name of a month or zone, or am/pm. It ignores names of weekdays and unknown
// zones.
func (d *dateParts) readName(w string) {
	if d.hasTime {
		w = strings.ReplaceAll(w, ".", "") // p.m.
		d.pm = d.pm || w == "pm"
		d.am = d.am || w == "am"
		if hours, ok := namedZones[w]; ok {
			if !d.hasOffset {
				d.offset = hours * 3600
			}
			return
		}
	}
	if d.month == 0 && len(w) >= 3 {
		if i := strings.Index("janfebmaraprmayjunjulaugsepoctnovdec", w[:3]); i%3 == 0 {
			d.month = i/3 + 1
		}
	}
}

var namedZones = map[string]int{"gmt": 0, "ut": 0, "utc": 0, "z": 0,
	"bst": 1, "cet": 1, "cest": 2, "met": 1, "mest": 2, "mez": 1, "mesz": 2, "wet": 0, "west": 1, "eet": 2, "eest": 3, "msk": 3, "jst": 9, "kst": 9, "hkt": 8,
	"aest": 10, "aedt": 11, "nzst": 12, "nzdt": 13, "hst": -10, "akst": -9, "akdt": -8, "brt": -3,
	"est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7}

// time returns the date from its parts, or the zero time if they are no date.
func (d *dateParts) time() time.Time {
	if d.pm && d.hour < 12 {
		d.hour += 12
	}
	if d.am && d.hour == 12 {
		d.hour = 0
	}
	if d.day == 0 || d.month == 0 || d.month > 12 || d.year < 1900 || d.year > 9999 {
		return time.Time{}
	}
	in := Location(d.offset)
	if d.location != nil && !d.hasOffset {
		in = d.location
	}
	t := time.Date(d.year, time.Month(d.month), d.day, d.hour, d.minute, d.sec, 0, in)
	if d.sec < 60 && d.hour < 24 && t.Day() != d.day {
		return time.Time{}
	}
	return t
}

// Location returns a time zone with the offset in seconds east of UTC.
func Location(offset int) *time.Location {
	if offset == 0 {
		return time.UTC
	}
	return time.FixedZone("", offset)
}
