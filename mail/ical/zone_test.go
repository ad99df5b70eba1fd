package ical

import (
	"strings"
	"testing"
	"time"
)

// inZone is a time zone named Own.
func inZone(observances string) string {
	return "BEGIN:VTIMEZONE\r\nTZID:Own\r\n" + observances + "END:VTIMEZONE\r\n"
}

// observed is one observance.
func observed(lines ...string) string {
	return "BEGIN:STANDARD\r\n" + strings.Join(lines, "\r\n") + "\r\nEND:STANDARD\r\n"
}

const from, to = "TZOFFSETFROM:", "TZOFFSETTO:"

var (
	winter = observed("DTSTART:19701025T030000", from+"+0200", to+"+0100", "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10")
	summer = observed("DTSTART:19700329T020000", from+"+0100", to+"+0200", "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3")
)

// zoneCases are times by the clock in zones that calendars describe; utc is "" for one that is not
// known.
var zoneCases = []struct{ name, zone, local, utc string }{
	{"summer", winter + summer, "20260710T120000", "2026-07-10T10:00:00Z"},
	{"winter", winter + summer, "20261210T120000", "2026-12-10T11:00:00Z"},
	{"the hour that the clock leaves out is taken by the offset before", winter + summer, "20260329T023000", "2026-03-29T01:30:00Z"},
	{"the hour after it", winter + summer, "20260329T030000", "2026-03-29T01:00:00Z"},
	{"of the hour that comes twice it is the first", winter + summer, "20261025T023000", "2026-10-25T00:30:00Z"},
	{"before every observance", winter + summer, "19690101T120000", "1969-01-01T11:00:00Z"},
	{"RDATE", observed("DTSTART:20200101T000000", from+"+0100", to+"+0100") + observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RDATE:20210401T000000,20220401T000000") +
		observed("DTSTART:20201001T000000", from+"+0300", to+"+0100", "RDATE:20211001T000000", "RDATE;VALUE=DATE-TIME:20221001T000000"), "20220710T120000", "2022-07-10T09:00:00Z"},
	{"after the last RDATE", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RDATE:20210401T000000") +
		observed("DTSTART:20201001T000000", from+"+0300", to+"+0100", "RDATE:20211001T000000"), "20230710T120000", "2023-07-10T11:00:00Z"},
	{"COUNT", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RRULE:FREQ=YEARLY;COUNT=3") +
		observed("DTSTART:20201001T000000", from+"+0300", to+"+0100", "RRULE:FREQ=YEARLY"), "20220710T120000", "2022-07-10T09:00:00Z"},
	{"after COUNT", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RRULE:FREQ=YEARLY;COUNT=3") +
		observed("DTSTART:20201001T000000", from+"+0300", to+"+0100", "RRULE:FREQ=YEARLY"), "20230710T120000", "2023-07-10T11:00:00Z"},
	{"UNTIL", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RRULE:FREQ=YEARLY;UNTIL=20220331T230000Z") +
		observed("DTSTART:20201001T000000", from+"+0300", to+"+0100", "RRULE:FREQ=YEARLY"), "20220710T120000", "2022-07-10T09:00:00Z"},
	{"UNTIL is a second before", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RRULE:FREQ=YEARLY;UNTIL=20220331T225959Z") +
		observed("DTSTART:20201001T000000", from+"+0300", to+"+0100", "RRULE:FREQ=YEARLY"), "20220710T120000", "2022-07-10T11:00:00Z"},
	{"UNTIL as a date", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RRULE:FREQ=YEARLY;UNTIL=20220401") +
		observed("DTSTART:20201001T000000", from+"+0300", to+"+0100", "RRULE:FREQ=YEARLY"), "20220710T120000", "2022-07-10T09:00:00Z"},
	{"old and new rules", observed("DTSTART:19670430T020000", from+"-0500", to+"-0400", "RRULE:FREQ=YEARLY;BYDAY=1SU;BYMONTH=4;UNTIL=20060402T070000Z") +
		observed("DTSTART:20070311T020000", from+"-0500", to+"-0400", "RRULE:FREQ=YEARLY;BYDAY=2SU;BYMONTH=3") +
		observed("DTSTART:19671029T020000", from+"-0400", to+"-0500", "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10;UNTIL=20061029T060000Z") +
		observed("DTSTART:20071104T020000", from+"-0400", to+"-0500", "RRULE:FREQ=YEARLY;BYDAY=1SU;BYMONTH=11"), "20261101T120000", "2026-11-01T17:00:00Z"},
	{"BYMONTHDAY", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RRULE:FREQ=YEARLY;BYMONTH=4;BYMONTHDAY=15") +
		observed("DTSTART:20201001T000000", from+"+0300", to+"+0100", "RRULE:FREQ=YEARLY;BYMONTH=10;BYMONTHDAY=-1"), "20230415T120000", "2023-04-15T09:00:00Z"},
	{"BYMONTHDAY from the end", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RRULE:FREQ=YEARLY;BYMONTH=4;BYMONTHDAY=15") +
		observed("DTSTART:20201001T000000", from+"+0300", to+"+0100", "RRULE:FREQ=YEARLY;BYMONTH=10;BYMONTHDAY=-1"), "20231030T120000", "2023-10-30T09:00:00Z"},
	{"the Sunday from the 8th on", observed("DTSTART:20200308T020000", from+"-0500", to+"-0400", "RRULE:FREQ=YEARLY;BYMONTH=3;BYMONTHDAY=8,9,10,11,12,13,14;BYDAY=SU") +
		observed("DTSTART:20201101T020000", from+"-0400", to+"-0500", "RRULE:FREQ=YEARLY;BYMONTH=11;BYMONTHDAY=1,2,3,4,5,6,7;BYDAY=SU"), "20260308T120000", "2026-03-08T16:00:00Z"},
	{"seconds", observed("DTSTART:18800101T000000", from+"+001730", to+"+001730"), "20260308T120000", "2026-03-08T11:42:30Z"},
	{"west and seconds", observed("DTSTART:18800101T000000", from+"-005320", to+"-005320"), "20260308T120000", "2026-03-08T12:53:20Z"},
	{"every second year", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RRULE:FREQ=YEARLY;INTERVAL=2") +
		observed("DTSTART:20201001T000000", from+"+0300", to+"+0100", "RRULE:FREQ=YEARLY"), "20230710T120000", "2023-07-10T11:00:00Z"},
	{"a rule of other parts", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RRULE:FREQ=YEARLY;BYWEEKNO=20"), "20230710T120000", ""},
	{"each month", observed("DTSTART:20200401T000000", from+"+0100", to+"+0300", "RRULE:FREQ=MONTHLY"), "20230710T120000", ""},
	{"no offset", observed("DTSTART:20200401T000000", from+"+0100"), "20230710T120000", ""},
	{"an offset that is none", observed("DTSTART:20200401T000000", from+"+0100", to+"+1h00"), "20230710T120000", ""},
	{"no start", observed(from+"+0100", to+"+0100"), "20230710T120000", ""},
	{"nothing", "", "20230710T120000", ""},
}

func TestTimeZonesOfCalendars(t *testing.T) {
	for _, c := range zoneCases {
		i, err := Read(calendar(inZone(c.zone), "UID:u\r\nDTSTART;TZID=Own:"+c.local+"\r\n"), "")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if !i.Starts.IsZero() {
			got = i.Starts.Format(time.RFC3339)
		}
		if got != c.utc {
			t.Errorf("%s: %s, want %s", c.name, got, c.utc)
		}
	}
}

// A name that is known goes before the calendar's own description, which says nine o'clock
// everywhere.
func TestTimeZoneNames(t *testing.T) {
	for _, c := range []struct{ id, local, utc string }{
		{"Europe/Berlin", "20230710T120000", "2023-07-10T10:00:00Z"},
		{"Europe/Berlin", "20260329T023000", "2026-03-29T01:30:00Z"}, // left out
		{"Europe/Berlin", "20261025T023000", "2026-10-25T00:30:00Z"}, // comes twice
		{"America/New_York", "20260308T023000", "2026-03-08T07:30:00Z"},
		{"America/New_York", "20261101T013000", "2026-11-01T05:30:00Z"},
		{"America/Argentina/Buenos_Aires", "20230710T120000", "2023-07-10T15:00:00Z"},
		{"/freeassociation.sourceforge.net/Europe/Berlin", "20230710T120000", "2023-07-10T10:00:00Z"},
		{"/freeassociation.sourceforge.net/Tzfile/Europe/Berlin", "20230710T120000", "2023-07-10T10:00:00Z"},
		{"/mozilla.org/20050126_1/America/Argentina/Buenos_Aires", "20230710T120000", "2023-07-10T15:00:00Z"},
		{"/softwarestudio.org/Olson_20011030_5/America/New_York", "20230710T120000", "2023-07-10T16:00:00Z"},
		{"/citadel.org/20190914_1/Asia/Kolkata", "20230710T120000", "2023-07-10T06:30:00Z"},
		{"/Europe/Berlin", "20230710T120000", "2023-07-10T10:00:00Z"},
		{"posix/Europe/Berlin", "20230710T120000", "2023-07-10T10:00:00Z"},
		{"right/Europe/Berlin", "20230710T120000", "2023-07-10T10:00:00Z"},
		{"W. Europe Standard Time", "20230710T120000", "2023-07-10T10:00:00Z"},
		{"w. europe standard time", "20230710T120000", "2023-07-10T10:00:00Z"},
		{"Eastern Standard Time", "20230710T120000", "2023-07-10T16:00:00Z"},
		{"Pacific Standard Time (Mexico)", "20230710T120000", "2023-07-10T19:00:00Z"},
		{"GMT Standard Time", "20230710T120000", "2023-07-10T11:00:00Z"},
		{"Russia Time Zone 3", "20230710T120000", "2023-07-10T08:00:00Z"},
		{"UTC-11", "20230710T120000", "2023-07-10T23:00:00Z"},
		{"tzone://Microsoft/Utc", "20230710T120000", "2023-07-10T12:00:00Z"},
		{"Microsoft/Utc", "20230710T120000", "2023-07-10T12:00:00Z"},
		{"UTC", "20230710T120000", "2023-07-10T12:00:00Z"},
		{"Customized Time Zone", "20230710T120000", "2023-07-10T03:00:00Z"},
		{"tzone://Microsoft/Custom", "20230710T120000", "2023-07-10T03:00:00Z"},
		{"(UTC+09:00) Osaka\\, Sapporo\\, Tokyo", "20230710T120000", "2023-07-10T03:00:00Z"},
		{"EST", "20230710T120000", "2023-07-10T03:00:00Z"}, // an abbreviation
		{"Local", "20230710T120000", "2023-07-10T03:00:00Z"},
	} {
		plain := strings.ReplaceAll(c.id, `\`, "")
		own := "BEGIN:VTIMEZONE\r\nTZID:" + c.id + "\r\n" + observed("DTSTART:19700101T000000", from+"+0900", to+"+0900") + "END:VTIMEZONE\r\n"
		i, err := Read(calendar(own, "UID:u\r\nDTSTART;TZID=\""+plain+"\":"+c.local+"\r\n"), "")
		if err != nil || i.Starts.Format(time.RFC3339) != c.utc {
			t.Errorf("%s: %v, want %s, %v", c.id, i, c.utc, err)
		}
	}
	for _, id := range []string{"Local", "localtime", "posixrules", "Factory", "../../etc/localtime", "Europe", "Customized Time Zone", "", strings.Repeat("/", 10_000) + "UTC", "Europe/Berlin\x00"} {
		if place := locationOf(id); place != nil && id != "Europe/Berlin\x00" {
			t.Errorf("%.40q is %s", id, place)
		}
	}
	// Without a description an abbreviation is what IANA takes it for.
	if i, err := Read(calendar("", "UID:u\r\nDTSTART;TZID=CET:20230710T120000\r\n"), ""); err != nil || i.Starts.Format(time.RFC3339) != "2023-07-10T10:00:00Z" {
		t.Errorf("CET: %v, %v", i, err)
	}
}

// Every name of Windows leads to a zone.
func TestWindowsZonesAreKnown(t *testing.T) {
	names := windowsZones()
	for name, zone := range names {
		if place := locationOf(name); place == nil || place.String() != zone {
			t.Errorf("%s is %v, want %s", name, place, zone)
		}
	}
	if len(names) < 140 {
		t.Errorf("%d names", len(names))
	}
}

// A stranger's rules cost little time, whatever they say.
func TestTimeZonesAreBounded(t *testing.T) {
	days := "RRULE:FREQ=YEARLY;BYMONTH=1,2,3,4,5,6,7,8,9,10,11,12;BYDAY=MO,TU,WE,TH,FR,SA,SU"
	never := "RRULE:FREQ=YEARLY;BYMONTH=" + strings.Repeat("2,", 61) + "2;BYDAY=" + strings.Repeat("53SU,", 99) + "53SU"
	for _, text := range []string{
		calendarOf(days, 999), calendarOf(never, 300), calendarOf("RRULE:FREQ=YEARLY;COUNT=100000", 999), calendarOf("RDATE:"+strings.Repeat("20200101T000000,", 20)+"20200101T000000", 500),
		string(calendar("", "UID:u\r\nDTSTART;TZID="+strings.Repeat("/", 200_000)+":20200101T000000\r\n")),
		string(calendar("", "UID:u\r\nDTSTART"+strings.Repeat(";", 200_000)+":20200101T000000\r\n")),
		string(calendar("", "UID:u\r\nDTSTART"+strings.Repeat("\r\n ", 80_000)+":20200101T000000\r\n")),
		string(calendar("", strings.Repeat("BEGIN:X\r\n", 19_000))),
		strings.Repeat("BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nEND:VEVENT\r\n", 5000),
	} {
		began := time.Now()
		Read([]byte(text), "")
		if took := time.Since(began); took > time.Second || len(text) > MaxSize {
			t.Errorf("%.150q of %d bytes took %s", text, len(text), took)
		}
	}
}

// calendarOf has a time zone of many observances with a line, and as many events in it as have
// place.
func calendarOf(rule string, many int) string {
	event := "BEGIN:VEVENT\r\nUID:u\r\nRECURRENCE-ID;TZID=Own:99990101T000000\r\nDTSTART;TZID=Own:99990101T000000\r\nDTEND;TZID=Own:99990101T000000\r\nEND:VEVENT\r\n"
	head := "BEGIN:VCALENDAR\r\n" + inZone(strings.Repeat(observed("DTSTART:00010101T000000", from+"+0000", to+"+0000", rule), many))
	return head + strings.Repeat(event, min(1000, (MaxSize-len(head))/len(event)))
}
