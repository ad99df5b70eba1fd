package ical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// readByPython reads calendars with Debian's python3-icalendar, and times in zones that a calendar
// describes with dateutil.
const readByPython = `
import datetime, io, json, re, sys
import icalendar
from dateutil import tz
utc = datetime.timezone.utc
out = []
for text in json.load(sys.stdin):
    calendar = icalendar.Calendar.from_ical(re.sub("BEGIN:VTIMEZONE.*END:VTIMEZONE\r\n", "", text, flags=re.S))
    event = calendar.walk("VEVENT")[0]
    def instant(at):
        if not isinstance(at.dt, datetime.datetime):
            at = datetime.datetime(at.dt.year, at.dt.month, at.dt.day, tzinfo=utc)
        elif at.params.get("TZID") == "Own":
            zone = tz.tzical(io.StringIO(text.replace("\r\n ", ""))).get("Own")
            at = at.dt.replace(tzinfo=zone)
        else:
            at = at.dt
        return at if at.tzinfo is None else at.astimezone(utc)
    start = instant(event["DTSTART"])
    if "DTEND" in event:
        end = instant(event["DTEND"])
    elif "DURATION" in event:
        end = start + event["DURATION"].dt
    else:
        whole = not isinstance(event["DTSTART"].dt, datetime.datetime)
        end = start + datetime.timedelta(days=1 if whole else 0)
    out.append([str(event["UID"]), int(event.get("SEQUENCE", 0)), str(event["SUMMARY"]), str(event["ORGANIZER"]).lower().replace("mailto:", ""),
        start.strftime("%Y-%m-%dT%H:%M:%SZ"), end.strftime("%Y-%m-%dT%H:%M:%SZ")])
json.dump(out, sys.stdout)
`

// drawn is a calendar with an event in one of many ways to write it. Its times are never within
// hours of a change of the clock, which dateutil takes otherwise than RFC 5545 has it.
func drawn(r *rand.Rand) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	day := func() string {
		return fmt.Sprintf("%d%02d%02d", 2005+r.IntN(30), []int{1, 2, 6, 7, 8, 12}[r.IntN(6)], 1+r.IntN(28))
	}
	offset := func() string {
		return pick("+", "-") + fmt.Sprintf("%02d%02d", r.IntN(12), []int{0, 15, 30, 45}[r.IntN(4)]) + pick("", "", "30")
	}
	// A zone with two observances a year, which change in spring and autumn.
	winter, summer := offset(), offset()
	rule := func(month int) string {
		day := 1 + r.IntN(28)
		from := fmt.Sprintf("%d%02d%02dT%02d0000", 1970+r.IntN(30), month, day, r.IntN(4))
		end := pick("", "", fmt.Sprintf(";UNTIL=%d1231T000000Z", 2001+r.IntN(30)))
		on := pick(fmt.Sprintf(";BYDAY=%s%s", pick("1", "2", "3", "4", "-1", "-2", "+1"), pick("SU", "SA", "FR", "MO")), ";BYMONTHDAY=-1", ";BYMONTHDAY=8,9,10,11,12,13,14;BYDAY=SU")
		if r.IntN(2) == 0 { // only where the start is a day of the rule, programs count alike
			on = pick("", fmt.Sprintf(";BYMONTHDAY=%d", day))
			end = pick(end, fmt.Sprintf(";COUNT=%d", 1+r.IntN(60)))
		}
		every := pick("", "", ";INTERVAL=1", ";INTERVAL=2", ";INTERVAL=3")
		if r.IntN(5) == 0 {
			list := ""
			for year := 2000; year < 2000+r.IntN(35); year++ {
				list += fmt.Sprintf("RDATE:%d%02d%02dT020000\r\n", year, month, 1+r.IntN(28))
			}
			return "DTSTART:" + from + "\r\n" + list
		}
		return "DTSTART:" + from + "\r\nRRULE:FREQ=YEARLY" + every + fmt.Sprintf(";BYMONTH=%d", month) + on + end + "\r\n"
	}
	zone := "BEGIN:VTIMEZONE\r\nTZID:Own\r\nBEGIN:STANDARD\r\n" + rule(10) + from + summer + "\r\n" + to + winter + "\r\nEND:STANDARD\r\n" +
		"BEGIN:DAYLIGHT\r\n" + rule(4) + from + winter + "\r\n" + to + summer + "\r\nEND:DAYLIGHT\r\nEND:VTIMEZONE\r\n"
	times := pick("utc", "own", "own", "own", "named", "named", "utc", "date", "floating")
	at := day()
	clock := fmt.Sprintf("T%02d%02d%02d", 8+r.IntN(10), r.IntN(60), r.IntN(60))
	var lines string
	switch times {
	case "own":
		lines = "DTSTART;TZID=Own:" + at + clock + "\r\n"
	case "named":
		id := pick("Europe/Berlin", "America/New_York", "Australia/Sydney", "Asia/Kathmandu", "America/Sao_Paulo", "W. Europe Standard Time", "Pacific Standard Time", "Tokyo Standard Time")
		lines = "DTSTART;TZID=" + pick(`"`+id+`"`, id) + ":" + at + clock + "\r\n"
	case "date":
		lines = "DTSTART;VALUE=DATE:" + at + "\r\n"
	case "floating":
		lines = "DTSTART:" + at + clock + "\r\n"
	default:
		lines = "DTSTART:" + at + clock + "Z\r\n"
	}
	switch {
	case times == "date" && r.IntN(2) == 0:
		lines += strings.Replace(lines, "DTSTART", "DTEND", 1)
	case times == "date":
	case r.IntN(2) == 0:
		lines += "DURATION:" + pick("PT1H", "PT90M", "PT1H30M15S", "PT0S") + "\r\n"
	case r.IntN(2) == 0:
		lines += strings.Replace(lines, "DTSTART", "DTEND", 1)
	}
	summary := pick("Berth 14", `Berth\, north\; pier \\ 7\nlast`, "Zürich – 会議 und "+strings.Repeat("sehr ", r.IntN(30))+"lang", "Ein Termin: später")
	event := fmt.Sprintf("UID:%x@%d\r\n", r.Uint64(), r.IntN(100)) + pick("", fmt.Sprintf("SEQUENCE:%d\r\n", r.IntN(20))) + "SUMMARY" + pick("", ";LANGUAGE=de", `;X-A="a:b;c"`) + ":" + summary + "\r\n" +
		"ORGANIZER" + pick("", ";CN=Ines", `;CN="Marchetti, Ines";SENT-BY="mailto:bob@x.test"`) + ":" + pick("mailto:", "MAILTO:") + "Ines@X.test\r\n" + lines
	// Python folds between characters alone.
	var out strings.Builder
	every := 20 + r.IntN(60)
	for n, c := 0, 0; c < len(event); c++ {
		if n++; n > every && event[c]&0xc0 != 0x80 && event[c] != '\r' && event[c] != '\n' {
			out.WriteString("\r\n ")
			n = 0
		}
		if event[c] == '\n' {
			n = 0
		}
		out.WriteByte(event[c])
	}
	return "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nMETHOD:REQUEST\r\n" + zone + "BEGIN:VEVENT\r\nDTSTAMP:20230101T000000Z\r\n" + out.String() + "END:VEVENT\r\nEND:VCALENDAR\r\n"
}

// TestDrawnEventsAreAsPythonReadsThem compares events that are drawn with Debian's
// python3-icalendar, which CI must have.
func TestDrawnEventsAreAsPythonReadsThem(t *testing.T) {
	const python = "/usr/bin/python3"
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import icalendar, dateutil").CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skipf("%v: %s", err, out)
	}
	r := rand.New(rand.NewPCG(25, 37))
	var texts []string
	for range 300 {
		texts = append(texts, drawn(r))
	}
	input, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", readByPython)
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stderr = os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var theirs [][]any
	if err := json.Unmarshal(answer, &theirs); err != nil || len(theirs) != len(texts) {
		t.Fatal(len(theirs), err)
	}
	for n, text := range texts {
		i, err := Read([]byte(text), "utf-8")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		ours := fmt.Sprint([]any{i.UID, i.Sequence, i.Summary, i.Organizer.Email, i.Starts.Format(time.RFC3339), i.Ends.Format(time.RFC3339)})
		if want := fmt.Sprint(theirs[n]); ours != want {
			t.Errorf("%s, Python reads %s\n%s", ours, want, text)
		}
	}
}
