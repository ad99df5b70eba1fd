package feedback

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/outbound"
)

// answers are hosts' replies about a recipient, from the published texts of common servers, and
// whether each means that the address is at fault.
var answers = []struct {
	name, code, status, words string
	address                   bool
}{
	{"unknown", "550", "5.1.1", "<{RCPT}>: Recipient address rejected: User unknown in virtual mailbox table", true},
	{"no such user", "550", "5.1.1", "No such user here", true},
	{"google unknown", "550", "5.1.1", "The email account that you tried to reach does not exist. Please try again", true},
	{"exchange unknown", "550", "5.1.1", "RESOLVER.ADR.RecipNotFound; not found", true},
	{"unknown mailbox", "550", "5.1.1", "Mailbox does not exist", true},
	{"no account", "554", "5.1.1", "delivery error: dd This user doesn't have a far.test account", true},
	{"disabled", "550", "5.2.1", "The email account that you tried to reach is disabled", true},
	{"inactive", "554", "5.2.1", "Invalid/inactive user", true},
	{"no host", "550", "5.1.2", "Host unknown: Domain name not found", true},
	{"moved", "551", "5.1.6", "Destination mailbox has moved, no forwarding address", true},
	{"full", "552", "5.2.2", "Mailbox full", false},
	{"over quota", "552", "5.2.2", "The email account that you tried to reach is over quota", false},
	{"full for now", "452", "4.2.2", "Mailbox is full, try again later", false},
	{"spam", "554", "5.7.1", "Message rejected as spam by content filtering", false},
	{"policy", "550", "5.7.1", "Message rejected for policy reasons", false},
	{"blocklist", "554", "5.7.1", "Service unavailable; Client host [192.0.2.1] blocked using zen.blocklist.test", false},
	{"spf", "550", "5.7.23", "The message was rejected because of Sender Policy Framework violation", false},
	{"dmarc", "550", "5.7.26", "Unauthenticated email from here.test is not accepted due to domain's DMARC policy", false},
	{"relaying", "550", "5.7.1", "Relaying denied", false},
	{"reverse", "550", "5.7.25", "Client host rejected: cannot find your reverse DNS", false},
	{"rate", "450", "4.7.1", "Too many messages from your IP, try again later", false},
	{"too large", "552", "5.3.4", "Message size exceeds fixed maximum message size", false},
	{"virus", "554", "5.7.1", "Virus found in message", false},
	{"timed out", "451", "4.4.1", "Connection timed out", false},
	{"expired", "450", "4.4.7", "Message expired in the queue", false},
	{"broken", "451", "4.3.0", "Local error in processing", false},
}

// quiet are automatic messages to a return path that report no failure; they contain {RCPT} and
// {N}.
var quiet = []string{
	"From: X <{RCPT}>\nSubject: Out of office: s\nAuto-Submitted: auto-replied\n\nI am away until the {N}th. Mail could not be delivered to my desk; room 550 is empty.\n",
	"From: X <{RCPT}>\nSubject: Automatic reply: s\nX-Auto-Response-Suppress: All\n\nBack in week {N}. For urgent things call 555.\n",
	"From: X <{RCPT}>\nSubject: vacation\nPrecedence: bulk\nAuto-Submitted: auto-replied (vacation)\n\nOn holiday for {N} days.\n",
	"From: fbl@far.test\nSubject: FW: s\nMIME-Version: 1.0\nContent-Type: multipart/report; report-type=feedback-report; boundary=f\n\n--f\nContent-Type: text/plain\n\nThis is an abuse report, number {N}.\n\n--f\nContent-Type: message/feedback-report\n\nFeedback-Type: abuse\nUser-Agent: FBL/{N}\nVersion: 1\nOriginal-Rcpt-To: {RCPT}\n\n--f\nContent-Type: message/rfc822\n\n{COPY}\n--f--\n",
	"From: postmaster@far.test\nSubject: Delivered: s\nMIME-Version: 1.0\nContent-Type: multipart/report; report-type=delivery-status; boundary=d\n\n--d\nContent-Type: text/plain\n\nYour message number {N} was delivered.\n\n--d\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mx.far.test\n\nFinal-Recipient: rfc822; {RCPT}\nAction: delivered\nStatus: 2.0.0\n\n--d--\n",
	"From: MAILER-DAEMON@out.far.test (Mail Delivery System)\nSubject: Delayed Mail (still being retried)\nMIME-Version: 1.0\nContent-Type: multipart/report; report-type=delivery-status; boundary=w\n\n--w\nContent-Type: text/plain\n\nYour message could not be delivered for more than {N} hours. It will be retried until it is 5 days old.\n\n<{RCPT}>: connect to mx.far.test[192.0.2.9]:25: Connection timed out\n\n--w\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; out.far.test\n\nFinal-Recipient: rfc822; {RCPT}\nAction: delayed\nStatus: 4.4.1\nDiagnostic-Code: X-Postfix; connect to mx.far.test[192.0.2.9]:25: Connection timed out\n\n--w--\n",
}

const returnedCopy = "Received: from here.test by out.far.test; Mon, 7 Feb 2022 10:00:00 +0000\nFrom: ann@here.test\nTo: {RCPT}\nSubject: s\nMessage-ID: <c1@here.test>\n\nError 421 4.7.0 stands in the text.\n"

// A madeReport is a report that the test generates.
type madeReport struct {
	name, form, answer string
	text, recipient    string
	failed, address    bool // what it reports
	class              byte // of its status
}

// makeReports generates every answer in every format, and the messages without a failure.
func makeReports(t testing.TB) (out []madeReport) {
	raw, err := os.ReadFile("testdata/reports/formats.txt")
	if err != nil {
		t.Fatal(err)
	}
	head := "Return-Path: <>\nReceived: from out.far.test by here.test; Mon, 7 Feb 2022 10:00:05 +0000\nTo: b-1@here.test\nDate: Mon, 7 Feb 2022 10:00:03 +0000\nMessage-ID: <r1@out.far.test>\n"
	for _, section := range strings.Split(string(raw), "\n== ")[1:] {
		form, text, _ := strings.Cut(section, "\n")
		for n, a := range answers {
			rcpt := fmt.Sprintf("x%d.%s@far.test", n, strings.ReplaceAll(form, "-", "."))
			full := strings.NewReplacer("{COPY}", returnedCopy, "{WORDS}", a.words).Replace(text)
			full = strings.NewReplacer("{RCPT}", rcpt, "{CODE}", a.code, "{STATUS}", a.status, "{CLASS}", a.status[:1]).Replace(full)
			out = append(out, madeReport{form + "/" + a.name, form, a.name, head + full, rcpt, true, a.address, a.status[0]})
		}
	}
	for n, text := range quiet {
		for i := range 8 {
			rcpt := fmt.Sprintf("quiet%d@far.test", n)
			text = strings.NewReplacer("{COPY}", returnedCopy).Replace(text)
			full := strings.NewReplacer("{RCPT}", rcpt, "{N}", fmt.Sprint(i+5)).Replace(text)
			out = append(out, madeReport{fmt.Sprintf("quiet/%d.%d", n, i), "quiet", "", head + full, rcpt, false, false, 0})
		}
	}
	return out
}

// verdict is the result of reading a report: nothing, or a failure with its status class, and
// whether the address is at fault.
func verdict(t testing.TB, raw []byte, recipient string) string {
	root, err := msg.Scan(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	report, ok := msg.ParseReturned(bytes.NewReader(raw), root, recipient)
	if !ok {
		return "nothing"
	}
	f := reportedFailure(report, recipient)
	if f == nil {
		return "nothing"
	}
	f.SetAddressFault()
	if f.Address {
		return outbound.BounceType(f.Status) + " address"
	}
	return outbound.BounceType(f.Status)
}

// TestReportsAreReadAsTheyWereMade: every answer in every format is read correctly.
func TestReportsAreReadAsTheyWereMade(t *testing.T) {
	made := makeReports(t)
	if len(made) < 500 {
		t.Fatalf("%d reports", len(made))
	}
	for _, m := range made {
		want := "nothing"
		if m.failed {
			want = outbound.BounceType(string(m.class) + ".0.0")
		}
		if m.address {
			want += " address"
		}
		if got := verdict(t, []byte(m.text), m.recipient); got != want {
			t.Errorf("%s: %s, want %s", m.name, got, want)
		}
	}
}

// The result of Sisimai for one recipient.
type peerFinding struct {
	Recipient, Action, Status, Reason string
}

// verdict converts Sisimai's result. A status whose detail begins with 9 is invented by Sisimai, so
// that its class means nothing.
func (p *peerFinding) verdict(ours string) string {
	switch {
	case p == nil, p.Reason == "vacation", p.Reason == "feedback", p.Reason == "delivered", p.Action == "delayed":
		return "nothing"
	}
	kind := outbound.BounceType(p.Status)
	if _, detail, _ := strings.Cut(p.Status, ".0."); len(detail) == 3 && detail[0] == '9' {
		kind, _, _ = strings.Cut(ours, " ")
		if ours == "nothing" {
			kind = "undetermined"
		}
	}
	switch p.Reason {
	case "userunknown", "hostunknown", "hasmoved", "suspend":
		return kind + " address"
	}
	return kind
}

// differences explains where Sisimai's results differ: a reason, and the reports that it applies
// to.
var differences = []struct {
	why  string
	fits func(m madeReport, p *peerFinding) bool
}{
	{"it does not know the form", func(m madeReport, p *peerFinding) bool { return p == nil && m.form == "dma" }},
	{"it finds no reason where the host names the address", func(m madeReport, p *peerFinding) bool {
		return p != nil && m.address && p.Reason == "onhold"
	}},
	{"it takes exim's 5.0.0 for the status of a host that answered 4xx", func(m madeReport, p *peerFinding) bool {
		return p != nil && m.form == "exim-mime" && m.class == '4' && p.Status == "5.0.0"
	}},
}

// TestReportsAgainstAnotherReader compares with Sisimai, another reader of bounces, over the
// generated reports: both agree on at least 95 %, and the table explains the rest.
// MAILSTEAD_REPORTS may name a directory of other reports, for which differences are only logged.
func TestReportsAgainstAnotherReader(t *testing.T) {
	if exec.Command("perl", "-MSisimai", "-e1").Run() != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("libsisimai-perl is not installed")
		}
		t.Skip("libsisimai-perl is not installed")
	}
	if dir := os.Getenv("MAILSTEAD_REPORTS"); dir != "" {
		showDifferences(t, dir)
		return
	}
	dir, made := t.TempDir(), makeReports(t)
	var names []string
	for i, m := range made {
		names = append(names, filepath.Join(dir, fmt.Sprintf("%04d.eml", i)))
		if err := os.WriteFile(names[i], []byte(m.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := askPeer(t, names)
	differ, used := 0, map[string]int{}
	for i, m := range made {
		var p *peerFinding
		if len(found[i]) > 0 {
			p = &found[i][0]
		}
		ours := verdict(t, []byte(m.text), m.recipient)
		theirs := p.verdict(ours)
		if ours == theirs {
			continue
		}
		differ++
		n := slices.IndexFunc(differences, func(d struct {
			why  string
			fits func(madeReport, *peerFinding) bool
		}) bool {
			return d.fits(m, p)
		})
		if n < 0 {
			t.Errorf("%s: %s; the peer: %s %+v", m.name, ours, theirs, p)
			continue
		}
		used[differences[n].why]++
	}
	if differ*20 > len(made) {
		t.Errorf("%d of %d differ", differ, len(made))
	}
	for _, d := range differences {
		if t.Logf("%d: %s", used[d.why], d.why); used[d.why] == 0 {
			t.Errorf("no report is read otherwise since %s", d.why)
		}
	}
	t.Logf("%d of %d reports are read alike", len(made)-differ, len(made))
}

// askPeer returns Sisimai's results for each file.
func askPeer(t *testing.T, files []string) (found [][]peerFinding) {
	cmd := exec.Command("perl", "testdata/reports/sisimai.pl")
	cmd.Stdin, cmd.Stderr = strings.NewReader(strings.Join(files, "\n")+"\n"), io.Discard
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(out) {
		var one []peerFinding
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatal(err)
		}
		found = append(found, one)
	}
	if len(found) != len(files) {
		t.Fatalf("%d answers about %d files", len(found), len(files))
	}
	return found
}

// showDifferences logs the differences for a directory of reports.
func showDifferences(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.eml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	differ := 0
	for i, list := range askPeer(t, files) {
		raw, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		p, recipient := (*peerFinding)(nil), "nobody@nowhere.test"
		if len(list) > 0 {
			p, recipient = &list[0], list[0].Recipient
		}
		ours := verdict(t, raw, recipient)
		if theirs := p.verdict(ours); ours != theirs {
			differ++
			t.Logf("%s: %s; the peer: %s %+v", filepath.Base(files[i]), ours, theirs, p)
		}
	}
	t.Logf("%d of %d differ", differ, len(files))
}

// TestNoticesAreJudgedToo: a relay's notice quotes a host's reply, whose host it need not name.
func TestNoticesAreJudgedToo(t *testing.T) {
	for diagnostic, want := range map[string]bool{
		"550 5.1.1 no such user": true, "550 5.1.1 the reputation of the sender is low": false, "550 5.1.1 mailbox full": false,
	} {
		f := failureOfNotice(feedback.Notice{Type: feedback.Hard, Status: "5.1.1", Diagnostic: diagnostic})
		if f.SetAddressFault(); f.Address != want {
			t.Errorf("%q: suppressed %v", diagnostic, f.Address)
		}
	}
}
