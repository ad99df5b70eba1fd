package msg

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBounceCorpus reads bounces in the shapes of many servers, and messages that look like bounces
// and are none; each has beside it what must be found.
func TestBounceCorpus(t *testing.T) {
	names, err := filepath.Glob("testdata/bounces/*.eml")
	if err != nil || len(names) < 25 {
		t.Fatalf("corpus has %d messages, %v", len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".eml"), func(t *testing.T) {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(name, ".eml") + ".want")
			if err != nil {
				t.Fatal(err)
			}
			if got := bounceText(raw); got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			bare := bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n"))
			if got := bounceText(bare); got != string(want) {
				t.Errorf("with bare line ends got\n%s", got)
			}
		})
	}
}

func bounceText(raw []byte) string {
	r := bytes.NewReader(raw)
	root, err := Scan(bytes.NewReader(raw))
	if err != nil {
		return err.Error()
	}
	report, ok := ParseReport(r, root)
	if !ok {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "original %s\n", report.OriginalMessageID)
	for _, rcpt := range report.Recipients {
		status := rcpt.Status
		if status == "" {
			status = "-"
		}
		fmt.Fprintf(&out, "%s %s %s", rcpt.Action, status, rcpt.Final)
		if rcpt.Original != "" {
			fmt.Fprintf(&out, " original=%s", rcpt.Original)
		}
		if rcpt.Actual != "" {
			fmt.Fprintf(&out, " actual=%s", rcpt.Actual)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// TestStatusThatTheReporterMadeUp: what another server said counts, where the reporter has a status
// for any 550.
func TestStatusThatTheReporterMadeUp(t *testing.T) {
	for diagnostic, want := range map[string]string{
		"smtp; 550 5.1.1 unknown": "5.1.1", "smtp; 550 5.7.1 go away": "5.1.1", "smtp; 550 no such user here": "5.1.1",
		"smtp; 550 Requested action not taken: mailbox unavailable": "5.1.1", "X-Notes; nobody of that name": "5.1.1", "": "5.1.1",
		"smtp; 550 account is disabled": "5.1.1", "smtp; 550 No": "5.0.0", "smtp; 550 unknown": "5.0.0",
		"smtp; 550 Blocked, see https://bl.example/?ip=192.0.2.1": "5.7.1", "smtp; 550 mailbox full": "5.2.2",
	} {
		got := readRecipient(map[string]string{"final-recipient": "rfc822; x@y.test", "action": "failed", "status": "5.1.1", "diagnostic-code": diagnostic})
		if got.Status != want {
			t.Errorf("%q: %s, want %s", diagnostic, got.Status, want)
		}
	}
}

func TestStatusIn(t *testing.T) {
	for text, want := range map[string]string{
		"550 5.1.1 no such user":                     "5.1.1",
		"said: 452-4.2.2 over quota":                 "4.2.2",
		"sorry (#5.7.17)":                            "5.7.17",
		"all is well at 5.1.1.":                      "5.1.1",
		"host 5.1.1.7 refuses":                       "",
		"host 15.1.1 refuses":                        "",
		"250 2.0.0 ok":                               "",
		"User unknown in virtual alias table":        "5.1.1",
		"The mailbox is FULL":                        "4.2.2",
		"552 I do not want it":                       "5.0.0",
		"552 Mailbox full":                           "5.2.2",
		"451 user unknown for now":                   "4.1.1",
		"ERROR_CODE :550, ERROR_CODE :x":             "5.0.0",
		"571 No PTR record":                          "5.0.0",
		"host said: 421 come back":                   "4.0.0",
		"554":                                        "5.0.0",
		"it cost 450 dollars-ish":                    "4.0.0",
		"message 5501 was lost":                      "",
		"":                                           "",
		"mail was rejected due to its reputation":    "5.7.1",
		"5.300.1234 is no code, 4.4.7 is":            "4.4.7",
		"in the queue too long":                      "4.4.7",
		"User nobody not listed in Domino Directory": "5.1.1",
	} {
		if got := StatusIn(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

const abuseReport = "From: <feedback@fbl.example.com>\r\nTo: <abuse@example.org>\r\nSubject: FW: Earn money\r\nMIME-Version: 1.0\r\n" +
	"Content-Type: multipart/report; report-type=feedback-report; boundary=\"x\"\r\n\r\n" +
	"--x\r\nContent-Type: text/plain\r\n\r\nThis is an email abuse report.\r\n" +
	"--x\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse (spam)\r\nUser-Agent: SomeGenerator/1.0\r\nVersion: 1\r\n" +
	"Original-Mail-From: <b-1@example.org>\r\nOriginal-Rcpt-To: <user@example.com>\r\nOriginal-Rcpt-To: rfc822; other@example.com\r\n" +
	"Received-Date: Thu, 8 Mar 2026 14:00:00 EDT\r\nReported-Domain: example.org\r\n\r\n" +
	"--x\r\nContent-Type: message/rfc822\r\n\r\nReturn-Path: <b-1@example.org>\r\nFrom: ann@example.org\r\nMessage-ID: <o1@example.org>\r\n\r\nbody\r\n--x--\r\n"

func TestComplaint(t *testing.T) {
	c, ok := ParseComplaint(strings.NewReader(abuseReport), scanBytes(t, []byte(abuseReport)))
	if !ok {
		t.Fatal("not seen")
	}
	if c.FeedbackType != "abuse" || c.UserAgent != "SomeGenerator/1.0" || c.MailFrom != "b-1@example.org" || c.MessageID != "<o1@example.org>" ||
		!slices.Equal(c.Recipients, []string{"user@example.com", "other@example.com"}) || !c.ArrivalDate.Equal(time.Date(2026, 3, 8, 18, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", c)
	}
	if got := FieldValues(c.Returned, "return-path"); !slices.Equal(got, []string{"<b-1@example.org>"}) {
		t.Errorf("return path %q", got)
	}
	for name, text := range map[string]string{
		"a bounce":  "Content-Type: multipart/report; boundary=x\r\n\r\n--x\r\nContent-Type: message/delivery-status\r\n\r\nFeedback-Type: abuse\r\n--x--\r\n",
		"no type":   "Content-Type: multipart/report; boundary=x\r\n\r\n--x\r\nContent-Type: message/feedback-report\r\n\r\nVersion: 1\r\n--x--\r\n",
		"forwarded": "Content-Type: multipart/mixed; boundary=y\r\n\r\n--y\r\nContent-Type: message/rfc822\r\n\r\n" + abuseReport + "\r\n--y--\r\n",
	} {
		if c, ok := ParseComplaint(strings.NewReader(text), scanBytes(t, []byte(text))); ok {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// FuzzParseComplaint reads any bytes as a complaint.
func FuzzParseComplaint(f *testing.F) {
	f.Add([]byte(abuseReport))
	f.Add([]byte(strings.Replace(abuseReport, "message/rfc822", "text/rfc822-headers", 1)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, ok := ParseComplaint(bytes.NewReader(raw), scanBytes(t, raw))
		if !ok {
			return
		}
		if c.FeedbackType == "" || len(c.Recipients) > maxReportRecipients || len(c.Returned) > MaxHeader {
			t.Errorf("%+v", c)
		}
	})
}

// FuzzStatusIn finds nothing but codes of failures.
func FuzzStatusIn(f *testing.F) {
	f.Add("550 5.1.1 x")
	f.Fuzz(func(t *testing.T, text string) {
		if got := StatusIn(text); got != "" && (statusCode(got) != got || got[0] == '2') {
			t.Errorf("%q gives %q", text, got)
		}
	})
}

// TestFeedbackReport: what is written is read as the complaint that it is.
func TestFeedbackReport(t *testing.T) {
	at := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	f := &FeedbackReport{
		From: Address{Mailbox: "complaints", Host: "sim.test"}, To: "b-1@example.org", ReportingMTA: "sim.test", FeedbackType: "abuse", UserAgent: "Simulator/1",
		MailFrom: "b-1@example.org", Recipient: "complain+x@sim.test", Original: strings.NewReader("From: ann@example.org\r\nMessage-ID: <o1@example.org>\r\n\r\nbody secret\r\n"),
		MessageID: "<c1@sim.test>", Date: at, ArrivalDate: at.Add(-time.Hour),
	}
	if _, err := f.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	c, ok := ParseComplaint(bytes.NewReader(out.Bytes()), scanBytes(t, out.Bytes()))
	if !ok {
		t.Fatalf("not a complaint:\n%s", out.String())
	}
	if c.FeedbackType != "abuse" || c.UserAgent != "Simulator/1" || c.MailFrom != "b-1@example.org" || c.MessageID != "<o1@example.org>" ||
		!slices.Equal(c.Recipients, []string{"complain+x@sim.test"}) || !c.ArrivalDate.Equal(at.Add(-time.Hour)) {
		t.Errorf("%+v", c)
	}
	if strings.Contains(out.String(), "body secret") {
		t.Error("it holds more than the header of the message")
	}
	f.UserAgent = "two\r\nlines"
	if _, err := f.WriteTo(&out); !errors.Is(err, ErrHeader) {
		t.Errorf("two lines in a field: %v", err)
	}
}

// countingReader counts the bytes that are read.
type countingReader struct {
	io.ReaderAt
	n int
}

func (c *countingReader) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, at)
	c.n += n
	return n, err
}

// TestLargeReportsAreReadInPart: who writes to a return path chooses how much there is to read.
func TestLargeReportsAreReadInPart(t *testing.T) {
	line := "x@far.test: nothing is told of it\n\n"
	many := strings.Repeat(line, 8<<20/len(line))
	status := "Reporting-MTA: dns; a\n\n" + strings.Repeat("Final-Recipient: rfc822; y@far.test\nStatus: 5.0.0\n\n", 100_000)
	for name, text := range map[string]string{
		"one text":      "From: mailer-daemon@far.test\n\n" + many,
		"many parts":    "Content-Type: multipart/mixed; boundary=b\n\n" + strings.Repeat("--b\n\n"+many[:64<<10]+"\n", 100) + "--b--\n",
		"many blocks":   "Content-Type: multipart/report; report-type=delivery-status; boundary=b\n\n--b\n\nx\n--b\nContent-Type: message/delivery-status\n\n" + status + "\n--b--\n",
		"one HTML":      "Content-Type: text/html\n\n" + strings.Repeat("<p>x@far.test<p>", 500_000),
		"one long line": "From: mailer-daemon@far.test\n\n" + strings.Repeat("x@far.test 55 ", 500_000),
	} {
		r := &countingReader{ReaderAt: strings.NewReader(text)}
		report, ok := ParseReturned(r, scanBytes(t, []byte(text)), "x@far.test")
		if r.n > 2<<20 || ok && len(report.Recipients) > maxReportRecipients {
			t.Errorf("%s: %d of %d bytes are read", name, r.n, len(text))
		}
	}
}
