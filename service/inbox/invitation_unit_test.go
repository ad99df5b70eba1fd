package inbox

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/ical"
	"github.com/mailstead/mailstead/mail/msg"
)

func readInvitationFile(t *testing.T, raw []byte) *ical.Invitation {
	t.Helper()
	root, err := msg.Scan(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	i, err := readCalendar(bytes.NewReader(raw), root)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// Calendars with other media types or only an .ics file name are found. The method decides what a
// calendar is.
func TestCalendarsOfOtherTypes(t *testing.T) {
	const calendar = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:u\nSUMMARY:meet\nORGANIZER:mailto:org@outside.test\nEND:VEVENT\nEND:VCALENDAR\n"
	for header, want := range map[string]string{
		"Content-Type: text/calendar; Method=request":                                                          "REQUEST",
		"Content-Type: text/calendar; METHOD=\"Request\"; charset=utf-8":                                       "REQUEST",
		"Content-Type: text/x-vcalendar; method=REQUEST":                                                       "REQUEST",
		"Content-Type: application/x-ics; method=REQUEST":                                                      "REQUEST",
		"Content-Type: application/octet-stream; name=Meet.ICS; method=REQUEST":                                "REQUEST",
		"Content-Type: application/x-unknown; method=REQUEST\nContent-Disposition: attachment; filename=a.ics": "REQUEST",
		"Content-Type: text/calendar; method=PUBLISH":                                                          "PUBLISH",
		"Content-Type: text/calendar":                                                                          "",
	} {
		for _, raw := range []string{"From: a@b.test\n" + header + "\n\n" + calendar, "From: a@b.test\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nwords\n--b\n" + header + "\n\n" + calendar + "\n--b--\n"} {
			if i := readInvitationFile(t, []byte(raw)); i == nil || i.Method != want || i.Summary != "meet" {
				t.Errorf("%s: %+v", header, i)
			}
		}
	}
}

// Invitations as foreign programs write them are read and answered.
func TestSloppyInvitationsAreRead(t *testing.T) {
	for _, want := range []struct{ file, summary, starts, reply string }{
		{"application-ics-only", "meet", "2023-07-10T10:00:00Z", "DTSTART:20230710T100000Z"},
		{"bom", "meet", "2023-07-10T10:00:00Z", "DTSTART:20230710T100000Z"},
		{"iana-tzid-in-scratch-image", "meet", "2023-07-10T10:00:00Z", "DTSTART;TZID=Europe/Berlin:20230710T120000"},
		{"iso-2022-jp", "会議", "2023-07-10T10:00:00Z", "SUMMARY:会議"},
		{"method-in-content-type-only", "meet", "2023-07-10T10:00:00Z", "DTSTART:20230710T100000Z"},
		{"tzid-microsoft-utc", "meet", "2023-07-10T10:00:00Z", `DTSTART;TZID="tzone://Microsoft/Utc":20230710T100000`},
		{"tzid-path", "meet", "2023-07-10T10:00:00Z", "DTSTART;TZID=/freeassociation.sourceforge.net/Europe/Berlin:20230710T120000"},
		{"utf-16", "Zürich", "2023-07-10T10:00:00Z", "SUMMARY:Zürich"},
		{"whole-day-reply", "meet", "2023-07-10T00:00:00Z", "DTSTART;VALUE=DATE:20230710"},
	} {
		raw, err := os.ReadFile("testdata/invitations/" + want.file + ".eml")
		if err != nil {
			t.Fatal(err)
		}
		i := readInvitationFile(t, raw)
		if i == nil {
			t.Errorf("%s: no invitation", want.file)
			continue
		}
		if got := i.Starts.Format(time.RFC3339); i.Method != "REQUEST" || i.Summary != want.summary || got != want.starts || i.Organizer.Email != "org@outside.test" {
			t.Errorf("%s: %s %q at %s of %q", want.file, i.Method, i.Summary, got, i.Organizer.Email)
		}
		reply := strings.ReplaceAll(string(i.Reply(i.Attendees[0].Person, ical.Accepted, time.Unix(0, 0))), "\r\n ", "")
		if !strings.Contains(reply, "\r\n"+want.reply+"\r\n") {
			t.Errorf("%s: no %s in the answer\n%s", want.file, want.reply, reply)
		}
	}
}
