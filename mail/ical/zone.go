package ical

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits on the time zones of a calendar. A zone that exceeds one counts as unknown.
const (
	maxZones       = 100
	maxObservances = 1000    // observances of one zone
	maxTries       = 100_000 // days that are examined to find one time
)

// A zoneSet holds the time zones that a calendar defines, by their TZID.
type zoneSet map[string]*zone

// A zone is a time zone that a calendar defines (VTIMEZONE, RFC 5545 section 3.6.5).
type zone struct {
	observances []observance
	unclear     bool // some of its lines cannot be parsed
}

// An observance is a UTC offset of a zone, with the times at which it begins (onsets): a list of
// times, and a recurrence rule.
type observance struct {
	kind                     string      // STANDARD or DAYLIGHT
	onsets                   []time.Time // in the local time that applies before each onset; the first is DTSTART
	from, to                 time.Duration
	hasStart, hasFrom, hasTo bool
	yearly                   *yearlyRule // the recurrence rule, nil if there is none
	lines                    []string    // the content lines of the observance
}

// readZones parses the time zones of a calendar.
func readZones(lines []line) zoneSet {
	zones := zoneSet{}
	var z *zone
	var now *observance
	named := false
	for _, l := range lines {
		kind := strings.ToUpper(l.value)
		switch {
		case l.name == "BEGIN" && kind == "VTIMEZONE":
			z, now, named = &zone{}, nil, false
		case z == nil:
		case l.name == "END" && kind == "VTIMEZONE":
			z.unclear = z.unclear || now != nil
			z = nil
		case l.name == "TZID" && !named:
			if id := unescaped(l.value); zones[id] == nil && len(zones) < maxZones {
				zones[id] = z
			}
			named = true
		case l.name == "BEGIN":
			z.unclear = z.unclear || now != nil || kind != "STANDARD" && kind != "DAYLIGHT"
			now = &observance{kind: kind}
		case now == nil:
		case l.name == "END":
			if kind != now.kind || !now.hasStart || !now.hasFrom || !now.hasTo || len(z.observances) == maxObservances {
				z.unclear = true
			} else {
				z.observances = append(z.observances, *now)
			}
			now = nil
		case !now.readProperty(l):
			z.unclear = true
		}
	}
	return zones
}

// readProperty stores a content line of an observance. It returns false if the line is invalid.
func (o *observance) readProperty(l line) (ok bool) {
	switch l.name {
	case "DTSTART":
		var at time.Time
		at, ok = readLocalTime(l.value)
		o.onsets = slices.Insert(o.onsets, 0, at)
		o.hasStart = ok
	case "RDATE":
		for value := range strings.SplitSeq(l.value, ",") {
			at, ok := readLocalTime(value)
			if !ok {
				return false
			}
			o.onsets = append(o.onsets, at)
		}
		ok = true
	case "TZOFFSETFROM":
		o.from, o.hasFrom = readOffset(l.value)
		ok = o.hasFrom
	case "TZOFFSETTO":
		o.to, o.hasTo = readOffset(l.value)
		ok = o.hasTo
	case "RRULE":
		o.yearly, ok = readYearlyRule(l.value)
	default:
		return true
	}
	o.lines = append(o.lines, l.name+":"+strings.ToUpper(l.value))
	return ok
}

// definitionLines returns the calendar's definition of a time zone as content lines, without
// comments and names. It returns nil if there is no definition or it is unclear.
func (zones zoneSet) definitionLines(id string) (out []string) {
	z := zones[unescaped(id)]
	if z == nil || z.unclear {
		return nil
	}
	out = append(out, "BEGIN:VTIMEZONE", "TZID:"+escaped(unescaped(id)))
	for _, o := range z.observances {
		out = append(out, "BEGIN:"+o.kind)
		out = append(out, o.lines...)
		out = append(out, "END:"+o.kind)
	}
	return append(out, "END:VTIMEZONE")
}

// readLocalTime parses a local time or date.
func readLocalTime(value string) (at time.Time, ok bool) {
	value = strings.TrimSuffix(strings.TrimSpace(value), "Z")
	at, err := time.Parse(timeForm, value)
	if err != nil {
		at, err = time.Parse(dateForm, value)
	}
	return at, err == nil && at.Year() > 0
}

// readOffset parses a UTC offset such as -0500 or +013000 (RFC 5545 section 3.3.14).
func readOffset(text string) (d time.Duration, ok bool) {
	if len(text) != 5 && len(text) != 7 || text[0] != '+' && text[0] != '-' {
		return 0, false
	}
	n, err := strconv.ParseUint(text[1:], 10, 32)
	if err != nil {
		return 0, false
	}
	if len(text) == 5 {
		n *= 100
	}
	hours, minutes, seconds := n/10000, n/100%100, n%100
	if hours > 24 || minutes > 59 || seconds > 59 {
		return 0, false
	}
	d = time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute + time.Duration(seconds)*time.Second
	if text[0] == '-' {
		d = -d
	}
	return d, true
}

// offsetAt returns the UTC offset for a local time. If the clock skips the time when it goes
// forward, the offset before the change applies. If the time occurs twice, the first applies (RFC
// 5545 section 3.3.5). ok is false if the zone is unclear.
func (z *zone) offsetAt(local time.Time) (_ time.Duration, ok bool) {
	if z.unclear || len(z.observances) == 0 {
		return 0, false
	}
	tries := maxTries
	var latest, earliest time.Time // UTC
	offset, before := time.Duration(0), time.Duration(0)
	for n := range z.observances {
		o := &z.observances[n]
		if first := o.onsets[0].Add(-o.from); n == 0 || first.Before(earliest) {
			earliest, before = first, o.from
		}
		at, ok := o.lastOnset(local.Add(-max(0, o.to-o.from)), &tries)
		if !ok {
			continue
		}
		at = at.Add(-o.from)
		if latest.IsZero() || at.After(latest) {
			latest, offset = at, o.to
		}
	}
	if latest.IsZero() {
		offset = before
	}
	return offset, tries > 0
}

// lastOnset returns the last onset of an observance that is not after at. at and last are in the
// local time that applies before the onset. It subtracts from *tries the number of days that it
// examines.
func (o *observance) lastOnset(at time.Time, tries *int) (last time.Time, ok bool) {
	for _, begins := range o.onsets {
		if !begins.After(at) && !begins.Before(last) {
			last, ok = begins, true
		}
	}
	start := o.onsets[0]
	r := o.yearly
	if r == nil || start.After(at) {
		return last, ok
	}
	count := 1 // DTSTART is the first onset
	for year := start.Year(); year <= at.Year() && *tries > 0; year += r.interval {
		for _, day := range r.selectedDays(year, start, tries) {
			begins := day.Add(start.Sub(start.Truncate(24 * time.Hour)))
			if !begins.After(start) {
				continue
			}
			if count++; r.count > 0 && count > r.count || begins.After(at) || r.isAfterEnd(begins, o.from) {
				return last, ok
			}
			if begins.After(last) {
				last = begins
			}
		}
	}
	return last, ok
}

// A yearlyRule is a recurrence rule with FREQ=YEARLY (RFC 5545 section 3.3.10). Time zones use no
// other frequency.
type yearlyRule struct {
	interval  int // years
	count     int // maximum number of onsets; 0 means no limit
	until     time.Time
	untilUTC  bool // until is in UTC; otherwise it is in the local time that applies before the onset
	months    []int
	monthDays []int     // 1 to 31; -1 is the last
	weekdays  []weekday // as ordered in the rule
}

// A weekday selects a weekday of a month, or of the year if the rule has no months.
type weekday struct {
	day time.Weekday
	nth int // 1 means the first, -1 the last, 0 every such day
}

// readYearlyRule parses a recurrence rule. It returns false if the rule is not yearly or has a part
// that is not supported.
func readYearlyRule(rule string) (_ *yearlyRule, ok bool) {
	r := &yearlyRule{interval: 1}
	frequency := ""
	for part := range strings.SplitSeq(strings.ToUpper(rule), ";") {
		name, value, _ := strings.Cut(part, "=")
		ok := true
		switch name {
		case "FREQ":
			frequency = value
		case "INTERVAL":
			r.interval, ok = readNumber(value, 1, 1000)
		case "COUNT":
			r.count, ok = readNumber(value, 1, 100_000)
		case "UNTIL":
			r.untilUTC = strings.HasSuffix(value, "Z")
			r.until, ok = readLocalTime(value)
			if ok && len(value) == len(dateForm) {
				r.until = r.until.AddDate(0, 0, 1).Add(-time.Second)
			}
		case "BYMONTH":
			r.months, ok = readNumbers(value, 1, 12)
		case "BYMONTHDAY":
			r.monthDays, ok = readNumbers(value, -31, 31)
		case "BYDAY":
			ok = r.readWeekdays(value)
		case "WKST", "":
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	return r, frequency == "YEARLY"
}

func readNumber(text string, least, most int) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= least && n <= most && n != 0
}

func readNumbers(text string, least, most int) (out []int, ok bool) {
	for value := range strings.SplitSeq(text, ",") {
		n, ok := readNumber(value, least, most)
		if !ok || len(out) == 62 {
			return nil, false
		}
		out = append(out, n)
	}
	return out, true
}

func (r *yearlyRule) readWeekdays(text string) (ok bool) {
	names := []string{"SU", "MO", "TU", "WE", "TH", "FR", "SA"}
	for value := range strings.SplitSeq(text, ",") {
		if len(value) < 2 || len(r.weekdays) == 100 {
			return false
		}
		nth, ok := 0, true
		if number := value[:len(value)-2]; number != "" {
			nth, ok = readNumber(number, -53, 53)
		}
		day := slices.Index(names, value[len(value)-2:])
		if !ok || day < 0 {
			return false
		}
		r.weekdays = append(r.weekdays, weekday{time.Weekday(day), nth})
	}
	return true
}

// isAfterEnd reports whether an onset is after the end of the rule. begins is the onset in the
// local time that applies before it; from is the UTC offset of that local time.
func (r *yearlyRule) isAfterEnd(begins time.Time, from time.Duration) bool {
	if r.untilUTC {
		begins = begins.Add(-from)
	}
	return !r.until.IsZero() && begins.After(r.until)
}

// selectedDays returns the days of a year that the rule selects, in order. If the rule names no
// month or no day, those of start apply. It subtracts from *tries the number of days that it
// examines.
func (r *yearlyRule) selectedDays(year int, start time.Time, tries *int) (out []time.Time) {
	date := func(month, day int) time.Time { return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC) }
	months := r.months
	switch {
	case len(months) > 0:
	case len(r.weekdays) > 0 && len(r.monthDays) == 0:
		return r.weekdaysBetween(date(1, 1), date(12, 31), out, tries)
	case len(r.monthDays) > 0:
		months = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	default:
		months = []int{int(start.Month())}
	}
	for _, month := range months {
		first, last := date(month, 1), date(month+1, 0)
		if len(r.monthDays) == 0 && len(r.weekdays) > 0 {
			out = r.weekdaysBetween(first, last, out, tries)
			continue
		}
		numbers := r.monthDays
		if len(numbers) == 0 {
			numbers = []int{start.Day()}
		}
		for _, n := range numbers {
			*tries--
			if n < 0 {
				n += last.Day() + 1
			}
			day := date(month, n)
			named := func(w weekday) bool { return w.day == day.Weekday() }
			if n >= 1 && n <= last.Day() && (len(r.weekdays) == 0 || slices.ContainsFunc(r.weekdays, named)) {
				out = append(out, day)
			}
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.Compact(out)
}

// weekdaysBetween appends to out the rule's weekdays from first to last, both inclusive.
func (r *yearlyRule) weekdaysBetween(first, last time.Time, out []time.Time, tries *int) []time.Time {
	for _, w := range r.weekdays {
		*tries--
		day := first.AddDate(0, 0, (int(w.day)-int(first.Weekday())+7)%7)
		step := 7
		switch {
		case w.nth > 0:
			day = day.AddDate(0, 0, 7*(w.nth-1))
		case w.nth < 0:
			day = last.AddDate(0, 0, -(int(last.Weekday())-int(w.day)+7)%7).AddDate(0, 0, 7*(w.nth+1))
		}
		if w.nth != 0 {
			step = 400
		}
		for ; !day.After(last); day = day.AddDate(0, 0, step) {
			*tries--
			if !day.Before(first) {
				out = append(out, day)
			}
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.Compact(out)
}
