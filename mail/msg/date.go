package msg

import (
	"strconv"
	"strings"
	"time"
)

// dateParts gathers what the words of a date say, in whatever order they come.
type dateParts struct {
	day, month, year  int
	hour, minute, sec int
	offset            int // seconds east of UTC
	hasTime, pm, am   bool
}

// parseDate reads a Date field (RFC 5322 §3.3, §4.3), also in the order of asctime, with
// comments, dashes and the usual mistakes. It answers the zero time for anything else.
func parseDate(s string) time.Time {
	s = dropComments(cut(s, 128))
	if t, err := time.Parse(time.RFC3339, strings.TrimSpace(s)); err == nil {
		return t
	}
	var d dateParts
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
		if !d.word(word) {
			return time.Time{}
		}
	}
	return d.time()
}

func (d *dateParts) word(w string) bool {
	switch {
	case !d.hasTime && strings.Contains(w, ":"):
		return d.clock(w)
	case d.hasTime && len(w) == 5 && (w[0] == '+' || w[0] == '-'):
		n, err := strconv.Atoi(w[1:])
		if err != nil || n < 0 || n%100 > 59 || n >= 2400 {
			return true // an invalid zone counts as UTC (RFC 5256 §2.2)
		}
		d.offset = (n/100*60 + n%100) * 60
		if w[0] == '-' {
			d.offset = -d.offset
		}
		return true
	case w[0] >= '0' && w[0] <= '9':
		for part := range strings.SplitSeq(w, "-") {
			if !d.number(part) {
				return false
			}
		}
		return true
	}
	d.name(strings.ToLower(w))
	return true
}

func (d *dateParts) number(s string) bool {
	n, err := strconv.Atoi(s)
	switch {
	case err != nil:
		d.name(strings.ToLower(s))
	case len(s) <= 2 && d.day == 0:
		d.day = n
	case d.year == 0:
		d.year = fullYear(n, len(s))
	default:
		return false
	}
	return true
}

// fullYear completes a year of two or three digits as RFC 5322 §4.3 says.
func fullYear(n, digits int) int {
	switch {
	case digits == 2 && n < 50:
		return 2000 + n
	case digits <= 3:
		return 1900 + n
	}
	return n
}

func (d *dateParts) clock(s string) bool {
	var n [3]int
	i := 0
	for part := range strings.SplitSeq(s, ":") {
		part, _, _ = strings.Cut(part, ".")
		v, err := strconv.Atoi(part)
		if err != nil || i == len(n) {
			return false
		}
		n[i] = v
		i++
	}
	d.hour, d.minute, d.sec, d.hasTime = n[0], n[1], n[2], true
	return n[0] >= 0 && n[0] < 24 && n[1] >= 0 && n[1] < 60 && n[2] >= 0 && n[2] <= 60
}

// name takes a month or a zone; names of days and unknown zones say nothing.
func (d *dateParts) name(w string) {
	if d.hasTime {
		d.pm = d.pm || w == "pm"
		d.am = d.am || w == "am"
		if hours, ok := namedZones[w]; ok {
			d.offset = hours * 3600
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
	"est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7}

func (d *dateParts) time() time.Time {
	if d.pm && d.hour < 12 {
		d.hour += 12
	}
	if d.am && d.hour == 12 {
		d.hour = 0
	}
	if d.day == 0 || d.month == 0 || d.year < 1900 || d.year > 9999 {
		return time.Time{}
	}
	t := time.Date(d.year, time.Month(d.month), d.day, d.hour, d.minute, d.sec, 0, zone(d.offset))
	if d.sec < 60 && t.Day() != d.day {
		return time.Time{}
	}
	return t
}

func zone(offset int) *time.Location {
	if offset == 0 {
		return time.UTC
	}
	return time.FixedZone("", offset)
}

// dropComments removes parenthesised text, nested or not.
func dropComments(s string) string {
	if !strings.Contains(s, "(") {
		return s
	}
	var out strings.Builder
	depth := 0
	for i := range len(s) {
		switch {
		case s[i] == '(':
			depth++
		case s[i] == ')' && depth > 0:
			depth--
		case depth == 0:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}
