package ical

import (
	"strconv"
	"strings"
	"time"
)

// A zone is what a VTIMEZONE says: when which offset begins.
type zone []observance

// An observance is one offset and when it begins: once, or each year.
type observance struct {
	begins time.Time // the first time, by the clock on the wall
	offset time.Duration
	yearly bool
	month  time.Month
	week   int // of the month, 1 to 5; -1 is the last
	day    time.Weekday
	until  time.Time // zero: for ever
}

// readZones reads the time zones of a calendar.
func readZones(lines []line) map[string]zone {
	zones := map[string]zone{}
	id := ""
	var now *observance
	for i := range lines {
		l := &lines[i]
		kind := strings.ToUpper(l.value)
		switch {
		case l.name == "BEGIN" && kind == "VTIMEZONE":
			id = ""
		case l.name == "TZID":
			id = l.value
		case l.name == "BEGIN" && (kind == "STANDARD" || kind == "DAYLIGHT"):
			now = &observance{}
		case l.name == "END" && (kind == "STANDARD" || kind == "DAYLIGHT"):
			if now != nil && !now.begins.IsZero() && id != "" && len(zones[id]) < 100 {
				zones[id] = append(zones[id], *now)
			}
			now = nil
		case now == nil:
		case l.name == "DTSTART":
			now.begins, _ = time.Parse(timeForm, l.value)
		case l.name == "TZOFFSETTO":
			now.offset = readOffset(l.value)
		case l.name == "RRULE":
			now.repeat(l.value)
		}
	}
	return zones
}

// readOffset reads an offset such as -0500 or +013000.
func readOffset(text string) time.Duration {
	if len(text) < 5 {
		return 0
	}
	hours, _ := strconv.Atoi(text[1:3])
	minutes, _ := strconv.Atoi(text[3:5])
	d := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if text[0] == '-' {
		return -d
	}
	return d
}

// repeat takes a rule of the one form that time zones have: each year on the nth weekday of a
// month.
func (o *observance) repeat(rule string) {
	for part := range strings.SplitSeq(strings.ToUpper(rule), ";") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "FREQ":
			o.yearly = value == "YEARLY"
		case "BYMONTH":
			n, _ := strconv.Atoi(value)
			o.month = time.Month(n)
		case "BYDAY":
			days := []string{"SU", "MO", "TU", "WE", "TH", "FR", "SA"}
			for i, day := range days {
				if week, ok := strings.CutSuffix(value, day); ok {
					o.day = time.Weekday(i)
					o.week, _ = strconv.Atoi(strings.TrimPrefix(week, "+"))
				}
			}
		case "UNTIL":
			if until, err := time.Parse(utcForm, value); err == nil {
				o.until = until
			}
		}
	}
	if o.month < time.January || o.month > time.December || o.week < -1 || o.week == 0 || o.week > 5 {
		o.yearly = false
	}
}

// latest is when the observance began last before a time; zero if it has not begun by then.
func (o *observance) latest(at time.Time) time.Time {
	if at.Before(o.begins) {
		return time.Time{}
	}
	if !o.yearly {
		return o.begins
	}
	for year := at.Year(); year >= at.Year()-1; year-- {
		begins := o.inYear(year)
		if !begins.After(at) && !begins.Before(o.begins) && (o.until.IsZero() || !begins.After(o.until.Add(24*time.Hour))) {
			return begins
		}
	}
	return o.begins
}

func (o *observance) inYear(year int) time.Time {
	clock := o.begins.Sub(o.begins.Truncate(24 * time.Hour))
	if o.week > 0 {
		first := time.Date(year, o.month, 1, 0, 0, 0, 0, time.UTC)
		skip := (int(o.day) - int(first.Weekday()) + 7) % 7
		return first.AddDate(0, 0, skip+7*(o.week-1)).Add(clock)
	}
	last := time.Date(year, o.month+1, 0, 0, 0, 0, 0, time.UTC)
	back := (int(last.Weekday()) - int(o.day) + 7) % 7
	return last.AddDate(0, 0, -back).Add(clock)
}

// offset is that of a time by the clock on the wall.
func (z zone) offset(local time.Time) time.Duration {
	var best time.Time
	offset := z[0].offset
	for i := range z {
		if at := z[i].latest(local); !at.IsZero() && !at.Before(best) {
			best, offset = at, z[i].offset
		}
	}
	return offset
}
