package ical

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"
)

// folded folds lines after each so many bytes, also within characters.
func folded(text []byte, every int) (out []byte) {
	n := 0
	for _, c := range text {
		if c == '\n' {
			n = -1
		}
		if n >= every && c != '\r' {
			out = append(out, "\r\n "...)
			n = 0
		}
		out = append(out, c)
		n++
	}
	return out
}

func TestCharsetsOfCalendars(t *testing.T) {
	const summary = "会議 Zürich"
	utf16 := func(order unicode.Endianness, bom unicode.BOMPolicy) encoding.Encoding {
		return unicode.UTF16(order, bom)
	}
	for _, c := range []struct {
		name, charset, summary string
		by                     encoding.Encoding
	}{
		{"UTF-8", "utf-8", summary, unicode.UTF8},
		{"UTF-8 with a mark", "utf-8", summary, unicode.UTF8BOM},
		{"UTF-8 with a mark and no name", "", summary, unicode.UTF8BOM},
		{"UTF-8 that says ASCII", "us-ascii", summary, unicode.UTF8},
		{"UTF-8 that says UTF-16", "utf-16", summary, unicode.UTF8},
		{"UTF-16", "utf-16", summary, utf16(unicode.BigEndian, unicode.UseBOM)},
		{"UTF-16 in the other order", "utf-16", summary, utf16(unicode.LittleEndian, unicode.UseBOM)},
		{"UTF-16LE", "utf-16le", summary, utf16(unicode.LittleEndian, unicode.IgnoreBOM)},
		{"UTF-16 that says UTF-8", "utf-8", summary, utf16(unicode.LittleEndian, unicode.UseBOM)},
		{"UTF-16 without a name or a mark", "", summary, utf16(unicode.LittleEndian, unicode.IgnoreBOM)},
		{"ISO-2022-JP", "iso-2022-jp", "会議", japanese.ISO2022JP},
		{"ISO-2022-JP without a name", "", "会議", japanese.ISO2022JP},
		{"Shift_JIS", "shift_jis", "会議表", japanese.ShiftJIS},
		{"ISO-8859-1", "iso-8859-1", "Zürich", charmap.ISO8859_1},
		{"windows-1252 without a name", "", "Zürich", charmap.Windows1252},
		{"windows-1251", "windows-1251", "Встреча", charmap.Windows1251},
	} {
		for _, every := range []int{1 << 20, 75, 20, 19, 18, 17, 16} {
			text := calendar("", "UID:"+strings.Repeat("u", 40)+"\r\nSUMMARY:"+c.summary+"\r\nDTSTART:20230710T100000Z\r\n")
			wide := strings.HasPrefix(c.name, "UTF-16")
			if wide && every == 1<<20 {
				text = folded(text, 33)
			}
			raw, err := c.by.NewEncoder().Bytes(text)
			if err != nil {
				t.Fatal(err)
			}
			if !wide {
				raw = folded(raw, every)
			}
			i, err := Read(raw, c.charset)
			if err != nil || i.Summary != c.summary || i.UID != strings.Repeat("u", 40) || i.Method != "REQUEST" {
				t.Errorf("%s, folded after %d bytes: %+v, %v", c.name, every, i, err)
			}
		}
	}
}

// reply is the answer to an event, unfolded.
func reply(t *testing.T, more, event string) []string {
	t.Helper()
	i, err := Read(calendar(more, event), "")
	if err != nil {
		t.Fatal(err)
	}
	text := i.Reply(Person{"Ann", "ann@here.test"}, Accepted, time.Unix(0, 0))
	return strings.Split(strings.ReplaceAll(string(text), "\r\n ", ""), "\r\n")
}

// An answer has the event's identity and times as the invitation has them (RFC 5546 section 3.2.3).
func TestReplyKeepsForms(t *testing.T) {
	own := inZone(observed("DTSTART:19701025T030000", "X-WORDS:read me", "TZNAME:CET", from+"+0200", to+"+0100", "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10"))
	unclear := inZone(observed("DTSTART:19701025T030000", from+"+0200", to+"+0100", "RRULE:FREQ=YEARLY;BYWORDS=READ ME"))
	for _, c := range []struct {
		name, more, event string
		has, hasNot       []string
	}{
		{"whole days", "", "DTSTART;VALUE=DATE:20230710\r\nDTEND;VALUE=DATE:20230712\r\n", []string{"DTSTART;VALUE=DATE:20230710", "DTEND;VALUE=DATE:20230712"}, nil},
		{"one whole day", "", "DTSTART;VALUE=DATE:20230710\r\n", []string{"DTSTART;VALUE=DATE:20230710"}, []string{"DTEND"}},
		{"a date that does not say so", "", "DTSTART:20230710\r\n", []string{"DTSTART;VALUE=DATE:20230710"}, nil},
		{"a date with a time", "", "DTSTART;VALUE=DATE:20230710T000000\r\n", []string{"DTSTART;VALUE=DATE:20230710"}, nil},
		{"an instant", "", "DTSTART:20230710T100000Z\r\nDTEND:20230710T110000Z\r\n", []string{"DTSTART:20230710T100000Z", "DTEND:20230710T110000Z"}, nil},
		{"the clock's time", "", "DTSTART:20230710T100000\r\nDURATION:PT1H\r\n", []string{"DTSTART:20230710T100000", "DURATION:PT1H"}, []string{"DTEND"}},
		{"a duration that is none", "", "DTSTART:20230710T100000\r\nDURATION:one hour\r\n", []string{"DTSTART:20230710T100000"}, []string{"DURATION"}},
		{"a zone", "", "DTSTART;TZID=Europe/Berlin:20230710T100000\r\n", []string{"DTSTART;TZID=Europe/Berlin:20230710T100000"}, []string{"BEGIN:VTIMEZONE"}},
		{"an own zone", own, "DTSTART;X-A=1;TZID=Own:20230710T100000\r\n", []string{"BEGIN:VTIMEZONE", "TZID:Own", "BEGIN:STANDARD", "DTSTART:19701025T030000", "TZOFFSETFROM:+0200", "TZOFFSETTO:+0100",
			"RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10", "END:STANDARD", "END:VTIMEZONE", "DTSTART;TZID=Own:20230710T100000"}, []string{"X-WORDS", "TZNAME"}},
		{"a zone that is not used", own, "DTSTART:20230710T100000Z\r\n", nil, []string{"BEGIN:VTIMEZONE"}},
		{"a zone that cannot be read", unclear, "DTSTART;TZID=Own:20230710T100000\r\n", []string{"DTSTART;TZID=Own:20230710T100000"}, []string{"BEGIN:VTIMEZONE", "RRULE"}},
		{"one of a series", "", "SEQUENCE:7\r\nRECURRENCE-ID;TZID=Europe/Berlin;RANGE=THISANDFUTURE:20230710T100000\r\nDTSTART;TZID=Europe/Berlin:20230711T100000\r\n",
			[]string{"SEQUENCE:7", "RECURRENCE-ID;RANGE=THISANDFUTURE;TZID=Europe/Berlin:20230710T100000", "DTSTART;TZID=Europe/Berlin:20230711T100000"}, nil},
		{"one of whole days", "", "RECURRENCE-ID;VALUE=DATE:20230710\r\nDTSTART;VALUE=DATE:20230711\r\n", []string{"RECURRENCE-ID;VALUE=DATE:20230710"}, nil},
		{"one of the clock's", "", "RECURRENCE-ID:20230710T100000\r\nDTSTART:20230711T100000\r\n", []string{"RECURRENCE-ID:20230710T100000"}, nil},
		{"an odd number", "", "SEQUENCE:99999999999999999999\r\n", []string{"SEQUENCE:0"}, []string{"DTSTART", "RECURRENCE-ID"}},
		{"odd names", "", "ORGANIZER;CN=\"^'Ines^' ^^ A, B\":mailto:i%25n@x.test\r\n", []string{"ORGANIZER;CN=\"^'Ines^' ^^ A, B\":mailto:i%25n@x.test"}, nil},
	} {
		lines := reply(t, c.more, "UID:040000008200E0;07\r\n"+c.event)
		for _, want := range append(c.has, "UID:040000008200E0;07", "METHOD:REPLY", "DTSTAMP:19700101T000000Z") {
			if !slices.Contains(lines, want) {
				t.Errorf("%s: no %s in\n%s", c.name, want, strings.Join(lines, "\n"))
			}
		}
		for _, bad := range c.hasNot {
			if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, bad) }) {
				t.Errorf("%s: %s in\n%s", c.name, bad, strings.Join(lines, "\n"))
			}
		}
	}
}

func TestOrganizerIsOneAddress(t *testing.T) {
	for value, want := range map[string]string{
		"ORGANIZER:mailto:Ines@X.test": "ines@x.test", "ORGANIZER:MAILTO:ines@x.test": "ines@x.test", "ORGANIZER:ines@x.test": "ines@x.test", "ORGANIZER:mailto:<ines@x.test>": "ines@x.test",
		"ORGANIZER:mailto: ines@x.test ": "ines@x.test", "ORGANIZER:mailto:o%27neil@x.test": "o'neil@x.test", "ORGANIZER:mailto:ines@bücher.test": "ines@xn--bcher-kva.test",
		"ORGANIZER:mailto:ines@x.test,bob@y.test": "", "ORGANIZER:mailto:ines@x.test;bob@y.test": "", "ORGANIZER:mailto:ines@x.test bob@y.test": "", "ORGANIZER:mailto:ines@x.test%2Cbob@y.test": "",
		"ORGANIZER:mailto:ines@x.test?cc=bob@y.test": "", "ORGANIZER:mailto:Ines <ines@x.test>": "", "ORGANIZER:mailto:ines@x.test%0D%0Abob@y.test": "",
		"ORGANIZER:mailto:ines@x.test\r\nORGANIZER:mailto:bob@y.test": "", "ORGANIZER:urn:uuid:1": "", "ORGANIZER:": "", "SUMMARY:none": "", "ORGANIZER:mailto:@x.test": "", "ORGANIZER:https://x.test/@ines": "",
	} {
		i, err := Read(calendar("", "UID:u\r\n"+value+"\r\n"), "")
		if err != nil || i.Organizer.Email != want {
			t.Errorf("%s: %q, want %q, %v", value, i.Organizer.Email, want, err)
		}
	}
}

// What is answered is the series, where it comes with changed events.
func TestSeriesGoesBeforeItsEvents(t *testing.T) {
	event := func(lines string) string { return "BEGIN:VEVENT\r\n" + lines + "END:VEVENT\r\n" }
	for _, c := range []struct{ events, want string }{
		{event("UID:a\r\nRECURRENCE-ID:20230710T100000Z\r\nSUMMARY:changed\r\n") + event("UID:a\r\nSUMMARY:series\r\n"), "series"},
		{event("UID:a\r\nSUMMARY:series\r\n") + event("UID:a\r\nRECURRENCE-ID:20230710T100000Z\r\nSUMMARY:changed\r\n"), "series"},
		{event("UID:a\r\nRECURRENCE-ID:20230710T100000Z\r\nSUMMARY:one\r\n") + event("UID:b\r\nSUMMARY:another\r\n"), "one"},
		{event("UID:a\r\nSUMMARY:first\r\n") + "END:VCALENDAR\r\nBEGIN:VCALENDAR\r\nMETHOD:CANCEL\r\n" + event("UID:a\r\nSUMMARY:later\r\n"), "first"},
	} {
		i, err := Read([]byte("BEGIN:VCALENDAR\r\n"+c.events+"METHOD:REQUEST\r\nEND:VCALENDAR\r\n"), "")
		if err != nil || i.Summary != c.want {
			t.Errorf("%q: %+v, %v", c.events, i, err)
		}
	}
}

func TestCancels(t *testing.T) {
	read := func(method, lines string) *Invitation {
		i, err := Read([]byte("BEGIN:VCALENDAR\r\nMETHOD:"+method+"\r\nBEGIN:VEVENT\r\n"+lines+"END:VEVENT\r\nEND:VCALENDAR\r\n"), "")
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	const ines, base = "ORGANIZER:mailto:ines@x.test\r\n", "UID:u\r\nSEQUENCE:3\r\n"
	for _, c := range []struct {
		name, event, method, cancel string
		want                        bool
	}{
		{"it", base + ines, "CANCEL", base + ines, true},
		{"a later one", base + ines, "CANCEL", "UID:u\r\nSEQUENCE:4\r\n" + ines, true},
		{"an earlier one", base + ines, "CANCEL", "UID:u\r\nSEQUENCE:2\r\n" + ines, false},
		{"another event", base + ines, "CANCEL", "UID:v\r\nSEQUENCE:3\r\n" + ines, false},
		{"another organizer", base + ines, "CANCEL", base + "ORGANIZER:mailto:bob@x.test\r\n", false},
		{"no cancel", base + ines, "REQUEST", base + ines, false},
		{"the series", base + ines + "RECURRENCE-ID:20230710T100000Z\r\n", "CANCEL", base + ines, true},
		{"one of the series", base + ines, "CANCEL", base + ines + "RECURRENCE-ID:20230710T100000Z\r\n", false},
		{"one of an unknown zone", base + ines, "CANCEL", base + ines + "RECURRENCE-ID;TZID=Nowhere:20230710T100000\r\n", false},
		{"the same one", base + ines + "RECURRENCE-ID:20230710T100000Z\r\n", "CANCEL", base + ines + "RECURRENCE-ID;TZID=Europe/Berlin:20230710T120000\r\n", true},
		{"the same one of an unknown zone", base + ines + "RECURRENCE-ID;TZID=Nowhere:20230710T100000\r\n", "CANCEL", base + ines + "RECURRENCE-ID;TZID=Nowhere:20230710T100000\r\n", true},
		{"another one", base + ines + "RECURRENCE-ID:20230710T100000Z\r\n", "CANCEL", base + ines + "RECURRENCE-ID:20230711T100000Z\r\n", false},
	} {
		if got := read(c.method, c.cancel).Cancels(read("REQUEST", c.event)); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// Lengths count days by the clock on the wall, and hours by seconds (RFC 5545 section 3.3.6).
func TestLengthsOverTheChangeOfTheClock(t *testing.T) {
	for length, want := range map[string]string{
		"P1D": "2026-03-29T10:00:00Z", "PT24H": "2026-03-29T11:00:00Z", "P1DT1H": "2026-03-29T11:00:00Z", "P1W": "2026-04-04T10:00:00Z", "+PT90S": "2026-03-28T11:01:30Z",
		"-PT1H": "2026-03-28T11:00:00Z", "PT": "2026-03-28T11:00:00Z", "P1Y": "2026-03-28T11:00:00Z", "P99999999W": "2026-03-28T11:00:00Z", "PT9999999999H": "2026-03-28T11:00:00Z", "P-1D": "2026-03-28T11:00:00Z",
	} {
		i, err := Read(calendar("", "UID:u\r\nDTSTART;TZID=Europe/Berlin:20260328T120000\r\nDURATION:"+length+"\r\n"), "")
		if err != nil || i.Ends.Format(time.RFC3339) != want {
			t.Errorf("%s: %s, want %s, %v", length, i.Ends.Format(time.RFC3339), want, err)
		}
	}
}
