package ical

import (
	"strings"
	"testing"
	"time"
)

// TestZonesOfOtherWriters has names that are not quite those of a zone. A description goes before
// what is made of them.
func TestZonesOfOtherWriters(t *testing.T) {
	own := inZone(observed("DTSTART:19700101T000000", from+"+0900", to+"+0900"))
	for _, c := range []struct{ id, utc string }{
		{"GMT+0200", "10:00"}, {"gmt+02:00", "10:00"}, {"GMT-0500", "17:00"}, {"UTC+2", "10:00"}, {"+02:00", "10:00"}, {"+0530", "06:30"}, {"UTC-3:30", "15:30"}, {"GMT+9900", ""}, {"Z", "12:00"},
		{"Coordinated Universal Time", "12:00"}, {"Greenwich Mean Time", "12:00"},
		{"(UTC+01:00) Amsterdam, Berlin, Bern, Rome, Stockholm, Vienna", "10:00"}, {"(GMT+01.00) Sarajevo/Warsaw/Zagreb", "10:00"},
		{"(UTC-05:00) Eastern Time (US & Canada)", "16:00"}, {"(GMT-08.00) Pacific Time (US & Canada)", "19:00"}, {"(UTC) Dublin, Edinburgh, Lisbon, London", "11:00"},
		{"(UTC+05:30) Chennai, Kolkata, Mumbai, New Delhi", "06:30"}, {"(UTC+10:00) Canberra, Melbourne, Sydney", "02:00"}, {"(UTC) Coordinated Universal Time", "12:00"},
		{"(UTC-03:00) Brasilia", "15:00"}, {"(UTC+03:00) Berlin", "09:00"}, {"(UTC+99:00) Berlin", ""},
		{"W. Europe Daylight Time", "10:00"}, {"Eastern Daylight Time", "16:00"}, {"W. Europe", "10:00"}, {"Eastern", "16:00"}, {"Eastern Time", "16:00"}, {"Romance Standard Time 1", "10:00"}, {"Mid-Atlantic Standard Time", "14:00"},
		{"europe/berlin", "10:00"}, {"EUROPE/BERLIN", "10:00"}, {"America/new_york", "16:00"}, {`Europe\/Berlin`, "10:00"}, {"Nowhere Standard Time", ""},
	} {
		for _, more := range []string{"", strings.Replace(own, "Own", strings.ReplaceAll(c.id, ",", `\,`), 1)} {
			i, err := Read(calendar(more, "UID:u\r\nDTSTART;TZID=\""+c.id+"\":20230710T120000\r\n"), "")
			got, want := "", c.utc
			if err == nil && !i.Starts.IsZero() {
				got = i.Starts.Format("15:04")
			}
			if more != "" && locationOf(c.id) == nil {
				want = "03:00"
			}
			if got != want {
				t.Errorf("%s is %s, want %s, %v, with %q", c.id, got, want, err, more)
			}
		}
	}
}

// TestCalendarsOfOtherWriters has times, addresses and line ends that RFC 5545 does not have.
func TestCalendarsOfOtherWriters(t *testing.T) {
	for lines, want := range map[string]string{
		"DTSTART:20230710T1000Z":                         "2023-07-10T10:00:00Z",
		"DTSTART:2023-07-10T10:00:00Z":                   "2023-07-10T10:00:00Z",
		"DTSTART;TZID=Europe/Berlin:2023-07-10T12:00:00": "2023-07-10T10:00:00Z",
		"DTSTART:20230710t100000z":                       "2023-07-10T10:00:00Z",
		"DTSTART:20230710T100000+0200":                   "2023-07-10T08:00:00Z",
		"DTSTART:2023-07-10T10:00:00+02:00":              "2023-07-10T08:00:00Z",
		"DTSTART;VALUE=DATE:2023-07-10":                  "2023-07-10T00:00:00Z",
		"DTSTART:2023-07-10":                             "2023-07-10T00:00:00Z",
		"DTSTART:20230710T1":                             "0001-01-01T00:00:00Z",
		"DTSTART:2023071-T10":                            "0001-01-01T00:00:00Z",
	} {
		for _, end := range []string{"\r\n", "\n", "\r"} {
			text := strings.ReplaceAll(string(calendar("", "UID:u\r\n"+lines+"\r\nDURATION:pt1h\r\n")), "\r\n", end)
			i, err := Read([]byte("\ufeff\ufeff"+text), "")
			if err != nil || i.Starts.Format(time.RFC3339) != want || !i.Starts.IsZero() && i.Ends.Sub(i.Starts) != time.Hour {
				t.Errorf("%q with %q: %+v, %v", lines, end, i, err)
			}
		}
	}
	for value, want := range map[string]string{
		"ORGANIZER;CN=Org;EMAIL=org@x.test:invalid:nomail": "org@x.test", "ORGANIZER;CN=Org;EMAIL=\"org@x.test\":/principals/1/": "org@x.test", "ORGANIZER;EMAIL=a@x.test:mailto:org@x.test": "org@x.test", "ORGANIZER;EMAIL=\"a@x.test,b@x.test\":urn:x": "",
		"ORGANIZER;CN=\"Zürich \\\"x\":mailto:org@x.test": "org@x.test", "ORGANIZER:\"mailto:org@x.test\"": "org@x.test", "ORGANIZER:'org@x.test'": "org@x.test", "ORGANIZER:mailto://org@x.test": "org@x.test",
	} {
		i, err := Read(calendar("", "UID:u\r\n"+value+"\r\n"), "")
		if err != nil || i.Organizer.Email != want {
			t.Errorf("%s: %+v, want %q, %v", value, i, want, err)
		}
	}
}
