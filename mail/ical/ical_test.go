package ical

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

const berlin = "BEGIN:VTIMEZONE\r\nTZID:W. Europe Standard Time\r\nBEGIN:STANDARD\r\nDTSTART:16010101T030000\r\nTZOFFSETFROM:+0200\r\nTZOFFSETTO:+0100\r\n" +
	"RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=10\r\nEND:STANDARD\r\nBEGIN:DAYLIGHT\r\nDTSTART:16010101T020000\r\nTZOFFSETFROM:+0100\r\nTZOFFSETTO:+0200\r\n" +
	"RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=3\r\nEND:DAYLIGHT\r\nEND:VTIMEZONE\r\n"

func calendar(more, event string) []byte {
	return []byte("BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nPRODID:x\r\nVERSION:2.0\r\n" + more + "BEGIN:VEVENT\r\n" + event + "BEGIN:VALARM\r\nDESCRIPTION:no summary\r\nSUMMARY:alarm\r\nEND:VALARM\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n")
}

// Times in every form that calendars have them in.
func TestTimes(t *testing.T) {
	for _, c := range []struct{ more, lines, starts, ends string }{
		{"", "DTSTART:20261127T130000Z\r\nDTEND:20261127T140000Z\r\n", "2026-11-27T13:00:00Z", "2026-11-27T14:00:00Z"},
		{"", "DTSTART:20261127T130000Z\r\nDURATION:PT1H30M\r\n", "2026-11-27T13:00:00Z", "2026-11-27T14:30:00Z"},
		{"", "DTSTART;VALUE=DATE:20261127\r\n", "2026-11-27T00:00:00Z", "2026-11-28T00:00:00Z"},
		{"", "DTSTART;VALUE=DATE:20261127\r\nDTEND;VALUE=DATE:20261130\r\n", "2026-11-27T00:00:00Z", "2026-11-30T00:00:00Z"},
		{berlin, "DTSTART;TZID=W. Europe Standard Time:20261127T130000\r\nDTEND;TZID=\"W. Europe Standard Time\":20261127T140000\r\n", "2026-11-27T12:00:00Z", "2026-11-27T13:00:00Z"},
		{berlin, "DTSTART;TZID=W. Europe Standard Time:20260727T130000\r\n", "2026-07-27T11:00:00Z", "2026-07-27T11:00:00Z"},
		{berlin, "DTSTART;TZID=W. Europe Standard Time:20261025T020000\r\n", "2026-10-25T00:00:00Z", "2026-10-25T00:00:00Z"}, // still summer
		{berlin, "DTSTART;TZID=W. Europe Standard Time:20260329T040000\r\n", "2026-03-29T02:00:00Z", "2026-03-29T02:00:00Z"},
		{"", "DTSTART;TZID=Nowhere:20260329T040000\r\n", "", ""},
		{"", "DTSTART:tomorrow\r\n", "", ""},
	} {
		i, err := Read(calendar(c.more, "UID:u@x\r\n"+c.lines), "")
		if err != nil {
			t.Errorf("%q: %v", c.lines, err)
			continue
		}
		text := func(at time.Time) string {
			if at.IsZero() {
				return ""
			}
			return at.UTC().Format(time.RFC3339)
		}
		if text(i.Starts) != c.starts || text(i.Ends) != c.ends {
			t.Errorf("%q: %s to %s, want %s to %s", c.lines, text(i.Starts), text(i.Ends), c.starts, c.ends)
		}
	}
}

// What is read is answered with the same names, and an answer can be read.
func TestReply(t *testing.T) {
	i, err := Read(calendar("", "UID:040000008200E00074C5B7101A82E00800000000\r\nSEQUENCE:3\r\nSUMMARY:Berth 14\\, north pier\\; bring\r\n  the keys\r\n"+
		"ORGANIZER;CN=\"Marchetti, Ines\":MAILTO:Ines@Lighthouse.example\r\nATTENDEE;CN=Ann;PARTSTAT=NEEDS-ACTION;RSVP=TRUE:mailto:ann@example.com\r\nDTSTART:20261127T130000Z\r\nRECURRENCE-ID:20261127T120000Z\r\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	if i.Summary != "Berth 14, north pier; bring the keys" || i.Organizer != (Person{"Marchetti, Ines", "ines@lighthouse.example"}) || i.Attendees[0].Email != "ann@example.com" || i.Sequence != 3 || i.Method != "REQUEST" {
		t.Errorf("read %+v", i)
	}
	reply := i.Reply(Person{"Ann Ö. " + strings.Repeat("ö", 60), "ann@example.com"}, Accepted, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	for text := range strings.SplitSeq(string(reply), "\r\n") {
		if len(text) > 75 {
			t.Errorf("%d bytes in %q", len(text), text)
		}
	}
	again, err := Read(reply, "")
	if err != nil {
		t.Fatal(err)
	}
	if again.Method != "REPLY" || again.UID != i.UID || again.Sequence != 3 || again.Summary != i.Summary || again.Organizer != i.Organizer || again.recurrenceID != i.recurrenceID || !strings.HasPrefix(again.Attendees[0].Name, "Ann Ö. öö") {
		t.Errorf("read %+v", again)
	}
	if !bytes.Contains(bytes.ReplaceAll(reply, []byte("\r\n "), nil), []byte("PARTSTAT=ACCEPTED")) {
		t.Errorf("%s", reply)
	}
}

// Place, people and their answers are read; an answer that is none is left out.
func TestPlaceAndPeople(t *testing.T) {
	i, err := Read(calendar("", "UID:u@x\r\nLOCATION:Pier 3\\, shed B\r\nDTSTART;VALUE=DATE:20261127\r\nORGANIZER;CN=Ines:mailto:ines@x.test\r\n"+
		"ATTENDEE;CN=Ann;PARTSTAT=accepted:mailto:ann@x.test\r\nATTENDEE;PARTSTAT=NEEDS-ACTION:mailto:ben@x.test\r\nATTENDEE;PARTSTAT=\"DECLINED\";CN=Cleo:mailto:cleo@x.test\r\nATTENDEE:mailto:dora@x.test\r\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	want := []Attendee{{Person{"Ann", "ann@x.test"}, Accepted}, {Person{"", "ben@x.test"}, ""}, {Person{"Cleo", "cleo@x.test"}, Declined}, {Person{"", "dora@x.test"}, ""}}
	if i.Location != "Pier 3, shed B" || !i.AllDay || !slices.Equal(i.Attendees, want) {
		t.Errorf("read %+v", i)
	}
	timed, err := Read(calendar("", "UID:u@x\r\nDTSTART:20261127T130000Z\r\n"), "")
	if err != nil || timed.AllDay {
		t.Errorf("an event with a time: %+v, %v", timed, err)
	}
}

func TestNoCalendar(t *testing.T) {
	for _, text := range []string{"", "hello", "BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n", string(calendar("", "SUMMARY:no uid\r\n")), string(calendar("", "UID:"+strings.Repeat("u", 3000)+"\r\n")), strings.Repeat("A:\r\n", 20_001) + string(calendar("", "UID:u\r\n")), strings.Repeat("x", MaxSize+1)} {
		if i, err := Read([]byte(text), ""); err == nil {
			t.Errorf("%.40q: %+v", text, i)
		}
	}
}

// FuzzRead: what can be read is answered with the same event, and bounded.
func FuzzRead(f *testing.F) {
	f.Add(calendar(berlin, "UID:u\r\nDTSTART;TZID=W. Europe Standard Time:20261127T130000\r\nDURATION:P1W2DT3H\r\nORGANIZER:mailto:a@b.c\r\n"), "")
	for _, c := range zoneCases {
		f.Add(calendar(inZone(c.zone), "UID:u\r\nDTSTART;TZID=Own:"+c.local+"\r\nRECURRENCE-ID;RANGE=THISANDFUTURE;TZID=Own:"+c.local+"\r\nORGANIZER;CN=\"^'x\":mailto:a%25b@b.c\r\n"), "utf-8")
	}
	f.Add(calendar("", "UID:u\r\nSUMMARY:\x1b$B2q5\r\n D\x1b(B\r\nDTSTART;VALUE=DATE:20230710\r\n"), "iso-2022-jp")
	f.Add([]byte("\xff\xfeB\x00E\x00G\x00I\x00N\x00:\x00"), "utf-16")
	f.Fuzz(func(t *testing.T, text []byte, charset string) {
		i, err := Read(text, charset)
		if err != nil {
			return
		}
		reply := i.Reply(Person{"", "a@b.c"}, Declined, time.Unix(0, 0))
		again, err := Read(reply, "")
		if err != nil || again.Method != "REPLY" || again.UID != i.UID || again.Sequence != i.Sequence || again.Organizer != i.Organizer || again.Summary != i.Summary ||
			again.start.local != i.start.local || again.start.whole != i.start.whole || again.start.utc != i.start.utc || again.start.zone != i.start.zone || again.end.local != i.end.local || again.recurrenceID.local != i.recurrenceID.local || again.recurrenceID.thisAndFuture != i.recurrenceID.thisAndFuture ||
			!again.Starts.Equal(i.Starts) {
			t.Errorf("%q is answered by %q: %v\n%+v\n%+v", text, reply, err, i, again)
		}
		if i.Starts.Year() > maxYear || i.Ends.Year() > maxYear || len(i.Summary) > maxText || len(i.Location) > maxText || len(i.Attendees) > maxAttendees {
			t.Errorf("%q: %+v", text, i)
		}
	})
}
