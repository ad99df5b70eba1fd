package peers

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// An imapTalk is a conversation with an IMAP server, word for word.
type imapTalk struct {
	t    *testing.T
	name string
	conn net.Conn
	in   *bufio.Reader
}

func talkIMAP(t *testing.T, name, addr, user, password string) *imapTalk {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Minute))
	c := &imapTalk{t, name, conn, bufio.NewReader(conn)}
	if _, err := c.in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	c.do("LOGIN " + user + " \"" + password + "\"")
	return c
}

// do gives the untagged lines of the answer, which must be OK.
func (c *imapTalk) do(command string) (lines []string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, "a "+command+"\r\n"); err != nil {
		c.t.Fatal(err)
	}
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%s: %.200s: %v", c.name, command, err)
		}
		line = strings.TrimRight(line, "\r\n ") // Dovecot leaves a blank behind THREAD
		if status, ok := strings.CutPrefix(line, "a "); ok {
			if !strings.HasPrefix(status, "OK") {
				c.t.Fatalf("%s: %.200s: %s", c.name, command, status)
			}
			return lines
		}
		lines = append(lines, line)
	}
}

// answer gives the numbers of a SORT or the threads of a THREAD.
func (c *imapTalk) answer(command string) string {
	c.t.Helper()
	for _, line := range c.do(command) {
		if strings.HasPrefix(line, "* SORT") || strings.HasPrefix(line, "* THREAD") {
			return line
		}
	}
	c.t.Fatalf("%s: no answer to %s", c.name, command)
	return ""
}

type sortedLetter struct {
	text, arrived, flags string
}

func (c *imapTalk) appendAll(list []sortedLetter) {
	c.t.Helper()
	for batch := range slices.Chunk(list, 50) {
		var command strings.Builder
		command.WriteString("APPEND INBOX")
		for _, m := range batch {
			fmt.Fprintf(&command, " (%s) \"%s\" {%d+}\r\n%s", m.flags, m.arrived, len(m.text), m.text)
		}
		c.do(command.String())
	}
	c.do("SELECT INBOX")
}

// TestSortAsDovecot puts made-up messages into INBOX here and at Dovecot, and compares all orders
// and threads. MAILSTEAD_SORT says how many; make soak-sort takes 5 000.
func TestSortAsDovecot(t *testing.T) {
	t.Parallel()
	n, seed := rig.NumberFrom(t, "MAILSTEAD_SORT", 1200), uint64(rig.NumberFrom(t, "MAILSTEAD_SEED", 2026))
	list := sortedLetters(rand.New(rand.NewPCG(seed, 5256)), n)
	ours, theirs := bothIMAP(t)
	begun := time.Now()
	ours.appendAll(list)
	theirs.appendAll(list)
	t.Logf("appended in %v", time.Since(begun))

	fields := []string{"ARRIVAL", "CC", "DATE", "FROM", "SIZE", "SUBJECT", "TO"}
	var commands []string
	for _, f := range fields {
		commands = append(commands, "SORT ("+f+")", "SORT (REVERSE "+f+")", "UID SORT (REVERSE "+f+" FROM)")
	}
	commands = append(commands, "SORT (SUBJECT DATE)", "SORT (FROM REVERSE DATE)", "SORT (REVERSE TO CC REVERSE SIZE)", "UID SORT (SUBJECT REVERSE FROM TO ARRIVAL)",
		"SORT (CC TO FROM)", "UID SORT (REVERSE SUBJECT REVERSE DATE)", "THREAD REFERENCES", "UID THREAD REFERENCES", "THREAD ORDEREDSUBJECT", "UID THREAD ORDEREDSUBJECT")
	searches := []string{"UTF-8 ALL", fmt.Sprintf("US-ASCII %d:%d", n/3, n/2), "US-ASCII OR FLAGGED SMALLER 900", "UTF-8 NOT SEEN SINCE 1-Mar-2021", "US-ASCII UID 1:40,90:100 DELETED"}
	count := 0
	for _, command := range commands {
		for _, search := range searches {
			got, want := ours.answer(command+" "+search), theirs.answer(command+" "+search)
			count++
			if got != want {
				at := 0
				for at < min(len(got), len(want)) && got[at] == want[at] {
					at++
				}
				at = strings.LastIndexAny(got[:at], " (") + 1
				clip := func(s string) string { return s[max(0, at-60):min(len(s), at+80)] }
				t.Errorf("%s %s differs at byte %d:\n got …%s…\nwant …%s…\n%s", command, search, at, clip(got), clip(want), about(list, got[at:], want[at:]))
				break
			}
		}
	}
	t.Logf("%d messages, %d commands, %v", n, count, time.Since(begun))
}

// TestSortUnlikeDovecot has where the answers differ, and the sentence that says that ours is
// right.
func TestSortUnlikeDovecot(t *testing.T) {
	ours, theirs := bothIMAP(t)
	for _, c := range []struct {
		command, field string
		values         []string // of the field, one in each message
		ours, theirs   string
		because        string
	}{
		{
			"SORT (SUBJECT)", "Subject", []string{"e", "Ǆ"}, "* SORT 2 1", "* SORT 1 2",
			"RFC 5051 section 2: its example is that U+01C4 becomes U+0044 U+007A U+030C",
		},
		{
			"SORT (DATE)", "Date", []string{"1 Jan 99 10:00:00 +0000", "1 Jan 60 10:00:00 +0000"}, "* SORT 2 1", "* SORT 1 2",
			"RFC 5322 section 4.3: a two digit year between 50 and 99 is interpreted by adding 1900",
		},
		{
			"SORT (DATE)", "Date", []string{"1 Jan 2000 10:00:00 +0000", "1 Jan 099 10:00:00 +0000"}, "* SORT 2 1", "* SORT 1 2",
			"RFC 5322 section 4.3: any three digit year is interpreted by adding 1900",
		},
		{
			"SORT (DATE)", "Date", []string{"2 Jan 2021 10:00:00 +0000", "4 Jan 2021 10:00:00 +9959"}, "* SORT 1 2", "* SORT 2 1",
			"RFC 5256 section 2.2: if the time zone is invalid, the date and time should be treated as UTC",
		},
		{
			"SORT (DATE)", "Date", []string{"2 Jan 2021 09:30:00 +0000", "2 Jan 2021 10:00:00 A"}, "* SORT 1 2", "* SORT 2 1",
			"RFC 5322 section 4.3: the military zones should all be considered equivalent to -0000",
		},
	} {
		var list []sortedLetter
		for _, value := range c.values {
			list = append(list, sortedLetter{text: c.field + ": " + value + "\r\n\r\n", arrived: " 1-Jul-2021 12:00:00 +0000"})
		}
		for client, want := range map[*imapTalk]string{ours: c.ours, theirs: c.theirs} {
			client.appendAll(list)
			if got := client.answer(c.command + " UTF-8 ALL"); got != want {
				t.Errorf("%s of %q: %s gives %s, not %s (%s)", c.command, c.values, client.name, got, want, c.because)
			}
			client.do(`STORE 1:* +FLAGS (\Deleted)`)
			client.do("EXPUNGE")
		}
	}
}

// about shows the messages that two answers begin with.
func about(list []sortedLetter, answers ...string) (out string) {
	for _, a := range answers {
		digits := a[:len(a)-len(strings.TrimLeft(a, "0123456789"))]
		if k, err := strconv.Atoi(digits); err == nil && k > 0 && k <= len(list) {
			header, _, _ := strings.Cut(list[k-1].text, "\r\n\r\n")
			out += fmt.Sprintf("message %d, arrived %s:\n%s\n", k, list[k-1].arrived, header)
		}
	}
	return out
}

// bothIMAP gives a mailbox here and one at Dovecot.
func bothIMAP(t *testing.T) (ours, theirs *imapTalk) {
	t.Helper()
	d := rig.StartDovecot(t, []string{"ann"})
	in := rig.Start(t, rig.GenerousLimits)
	in.AddDomain("example.test")
	in.AddMailbox(rig.AnnsAddress, rig.AnnsPassword)
	return talkIMAP(t, "ours", in.Ready.IMAP, rig.AnnsAddress, rig.AnnsPassword),
		talkIMAP(t, "Dovecot", net.JoinHostPort("127.0.0.1", strconv.Itoa(d.Port)), "ann", "secret")
}

// sortedLetters makes messages whose subjects, dates, addresses and ids are often equal, or nearly
// so, and often not what RFC 5322 allows.
func sortedLetters(r *rand.Rand, n int) []sortedLetter {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	words := strings.Fields("report Report plan größe GRÖSSE Größe Жук жук ЖУК 한글 日本語 éclair e\u0301clair ﬁne fine ＲＥＰＯＲＴ ıstanbul İstanbul ﬃ x² straße q")
	subjectText := func() string {
		var s []string
		for range 1 + r.IntN(3) {
			s = append(s, words[r.IntN(len(words))])
		}
		if r.IntN(3) == 0 {
			s = append(s, strconv.Itoa(r.IntN(max(n/20, 2))))
		}
		return strings.Join(s, " ")
	}
	decorate := func(s string) string {
		for range r.IntN(4) {
			switch r.IntN(12) {
			case 0, 1, 2:
				s = pick("Re: ", "RE:", "re : ", "Re[2]: ", "Re [x]: ", "AW: ") + s
			case 3, 4:
				s = pick("Fwd: ", "FW:", "fw: ") + s
			case 5, 6:
				s = pick("[list] ", "[list]", "[dev-ops][x] ", "[a [b] ") + s
			case 7:
				s += pick(" (fwd)", "(FWD)", " (fwd) ")
			case 8:
				s = "[fwd: " + s + "]"
			case 9:
				s = pick("  ", " \t ") + s
			case 10:
				s = strings.Replace(s, " ", "  ", 1)
			case 11:
				s = pick("Re:", "[x]", "[]", "(fwd)", "[fwd:]", "Fwd: [one] [two]")
			}
		}
		return s
	}
	encode := func(s string) string {
		switch r.IntN(8) {
		case 0:
			return mime.QEncoding.Encode("utf-8", s)
		case 1:
			return mime.BEncoding.Encode("UTF-8", s)
		case 2: // one word, of ASCII too
			return "=?utf-8?B?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
		case 3:
			if len(s) < 200 {
				return strings.Replace(s, " ", "\r\n ", 1)
			}
		}
		return s
	}
	latin := func() string {
		return pick("=?iso-8859-1?q?Gr=F6=DFe?=", "=?ISO-8859-1?Q?gr=f6=dfe?= 3", "Re: =?iso-8859-15?q?=E9clair?=", "=?koi8-r?B?9tXL?=")
	}

	year := time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
	dateText := func() string {
		when := year.Add(time.Duration(r.IntN(n)) * 7 * time.Hour)
		zone := time.FixedZone("", (r.IntN(27)-12)*3600+r.IntN(2)*1800)
		switch r.IntN(16) {
		case 0:
			return pick("", "yesterday", "now and then", "Mon, 99 Foo 2026 10:00:00 +0000", "2026")
		case 1:
			return when.Format("2 Jan 2006 15:04:05") // without a zone
		case 2:
			return when.Format("02 Jan 06 15:04 ") + pick("EST", "PDT", "GMT", "UT", "XYZ")
		case 3:
			return when.Format("Mon, 2 Jan 2006 15:04:05 -0700 (MST)")
		case 4:
			return when.In(zone).Format("2 January 2006 15:04:05 -0700")
		}
		return when.In(zone).Format("Mon, 02 Jan 2006 15:04:05 -0700")
	}

	names := []string{"ann", "Ann", "bob", "BOB", "zoë", "Żak", "o'neil", "a.b", "x+y", "carl"}
	address := func() string {
		local := names[r.IntN(len(names))]
		switch r.IntN(9) {
		case 0:
			return local + "@example.org"
		case 1:
			return "\"Doe, " + local + "\" <" + local + "@example.net>"
		case 2:
			return "=?utf-8?q?J=C3=B6rg?= <" + local + "@example.org>"
		case 3:
			return local + "@example.org (comment)"
		case 4:
			return "\"" + local + " x\"@example.org"
		case 5:
			return pick("Team", "team", "\"The Team\"") + ": " + local + "@example.org, other@example.org;"
		case 6:
			return "undisclosed-recipients:;"
		case 7:
			return "<" + local + "@[127.0.0.1]>"
		}
		return "Some Body <" + local + "@example.org>"
	}
	addresses := func() string {
		list := make([]string, 1+r.IntN(3))
		for i := range list {
			list[i] = address()
		}
		return strings.Join(list, pick(", ", ",\r\n "))
	}

	threads := max(n/6, 2)
	id := func() string {
		if r.IntN(60) == 0 {
			return pick("<without-an-at>", "<>", "none")
		}
		thread, k := r.IntN(threads), r.IntN(8)
		if r.IntN(20) == 0 {
			return fmt.Sprintf("<\"%d.%d\"@example.org>", thread, k)
		}
		return fmt.Sprintf("<%d.%d@example.org>", thread, k)
	}
	list := make([]sortedLetter, n)
	for i := range list {
		var h strings.Builder
		field := func(chance int, name, value string) {
			if r.IntN(chance) > 0 {
				h.WriteString(name + ": " + value + "\r\n")
			}
		}
		thread, k := r.IntN(threads), r.IntN(8)
		subject := encode(decorate(subjectText()))
		if r.IntN(15) == 0 {
			subject = latin()
		}
		if r.IntN(30) == 0 {
			subject = ""
		}
		field(25, "Subject", subject)
		field(20, "From", addresses())
		field(8, "To", addresses())
		if r.IntN(2) == 0 {
			field(1000, "Cc", pick(addresses(), ""))
		}
		field(20, "Date", dateText())
		if r.IntN(30) > 0 {
			field(1000, "Message-ID", pick(fmt.Sprintf("<%d.%d@example.org>", thread, k), fmt.Sprintf("<%d.%d@example.org>", thread, k), fmt.Sprintf("<own.%d@example.org>", i), id()))
		}
		if r.IntN(3) > 0 { // the way that mail programs do it, but messages are missing
			var refs []string
			for j := range k {
				if r.IntN(6) > 0 {
					refs = append(refs, fmt.Sprintf("<%d.%d@example.org>", thread, j))
				}
			}
			switch r.IntN(12) {
			case 0: // and then loops
				refs = append(refs, id(), id())
			case 1:
				slices.Reverse(refs)
			case 2:
				refs = append(refs, fmt.Sprintf("<%d.%d@example.org>", thread, k), id())
			case 3:
				for j := range 150 {
					refs = slices.Insert(refs, r.IntN(len(refs)+1), fmt.Sprintf("<%d.%d.lost@example.org>", i, j))
				}
				refs = refs[:min(len(refs), 100)]
			}
			field(8, "References", strings.Join(refs, pick(" ", "\r\n ", "\t")))
		}
		if r.IntN(3) == 0 {
			field(1000, "In-Reply-To", pick(id(), id()+" "+id(), "Your message of yesterday "+id(), "nothing"))
		}
		if i%500 == 3 && !strings.Contains(h.String(), "References:") { // all in one chain as well
			field(1000, "References", fmt.Sprintf("<own.%d@example.org>", max(i-500, 0)))
		}
		text := h.String() + "X-Number: " + strconv.Itoa(i) + "\r\n\r\n" + strings.Repeat("Some text.\r\n", r.IntN(60))
		flags := pick("", `\Seen`, `\Seen \Flagged`, `\Deleted`)
		list[i] = sortedLetter{text, year.Add(time.Duration(r.IntN(n)) * 5 * time.Hour).Format("_2-Jan-2006 15:04:05 -0700"), flags}
	}
	return list
}
