package imapd

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var dated = regexp.MustCompile(` INTERNALDATE "[^"]*"`)

// synced sends a command piece by piece: before each but the first it awaits the server's word.
func (c *talker) synced(pieces ...string) []string {
	c.t.Helper()
	for i, p := range pieces {
		if i > 0 {
			if got := c.line(); got != "+ Ready for literal data" {
				c.t.Fatalf("before piece %d: %q", i, got)
			}
		}
		c.send(p)
	}
	return c.until("s")
}

// TestAppendOfMany has every form of RFC 3502, with the answer of RFC 4315 section 3.
func TestAppendOfMany(t *testing.T) {
	const date = `"17-Jul-1996 02:44:25 -0700"`
	for name, tc := range map[string]struct {
		pieces []string
		want   []string // the messages, as FETCH reports them
	}{
		"without waiting": {[]string{"s APPEND INBOX {1+}\r\na {2+}\r\nbb {3+}\r\nccc\r\n"},
			[]string{"FLAGS () BODY[] {1} a", "FLAGS () BODY[] {2} bb", "FLAGS () BODY[] {3} ccc"}},
		"with waiting": {[]string{"s APPEND INBOX {1}\r\n", "a {2}\r\n", "bb\r\n"}, []string{"FLAGS () BODY[] {1} a", "FLAGS () BODY[] {2} bb"}},
		"both":         {[]string{"s APPEND INBOX {1+}\r\na {2}\r\n", "bb {1+}\r\nc\r\n"}, []string{"FLAGS () BODY[] {1} a", "FLAGS () BODY[] {2} bb", "FLAGS () BODY[] {1} c"}},
		"flags": {[]string{"s APPEND INBOX (\\Seen) {1+}\r\na {1+}\r\nb (\\flagged $Mine) {1+}\r\nc () {1+}\r\nd\r\n"},
			[]string{`FLAGS (\Seen) BODY[] {1} a`, "FLAGS () BODY[] {1} b", `FLAGS (\Flagged $Mine) BODY[] {1} c`, "FLAGS () BODY[] {1} d"}},
		"dates":            {[]string{"s APPEND INBOX {1+}\r\na " + date + " {1+}\r\nb\r\n"}, []string{"FLAGS () BODY[] {1} a", "FLAGS () BODY[] {1} b"}},
		"flags and dates":  {[]string{"s APPEND {5+}\r\nINBOX (\\Seen) " + date + " {1+}\r\na (\\Draft) " + date + " {1+}\r\nb\r\n"}, []string{`FLAGS (\Seen) BODY[] {1} a`, `FLAGS (\Draft) BODY[] {1} b`}},
		"literal8":         {[]string{"s APPEND INBOX ~{1+}\r\na ~{3+}\r\nb\x00c {1+}\r\nd\r\n"}, []string{"FLAGS () BODY[] {1} a", "FLAGS () BODY[] {3} b\x80c", "FLAGS () BODY[] {1} d"}},
		"NUL":              {[]string{"s APPEND INBOX {3+}\r\na\x00b {3+}\r\nb\x00c\r\n"}, []string{"FLAGS () BODY[] {3} a\x80b", "FLAGS () BODY[] {3} b\x80c"}},
		"UTF8":             {[]string{"s APPEND INBOX UTF8 (~{1+}\r\na) (\\Seen) utf8 (~{1}\r\n", "b) " + date + " UTF8 (~{1+}\r\nc)\r\n"}, []string{"FLAGS () BODY[] {1} a", `FLAGS (\Seen) BODY[] {1} b`, "FLAGS () BODY[] {1} c"}},
		"UTF8, then plain": {[]string{"s APPEND INBOX UTF8 (~{1+}\r\na) {1+}\r\nb\r\n"}, []string{"FLAGS () BODY[] {1} a", "FLAGS () BODY[] {1} b"}},
		"plain, then UTF8": {[]string{"s APPEND INBOX {1+}\r\na UTF8 (~{1+}\r\nb)\r\n"}, []string{"FLAGS () BODY[] {1} a", "FLAGS () BODY[] {1} b"}},
		"commands in them": {[]string{literal("s APPEND INBOX {%d+}\r\n%[2]s {%[1]d+}\r\n%[2]s\r\n", evil)}, []string{"FLAGS () BODY[] {18} x DELETE Archive ", "FLAGS () BODY[] {18} x DELETE Archive "}},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, nil)
			c := h.login(t)
			c.ok("SELECT INBOX")
			got := c.synced(tc.pieces...)
			want := fmt.Sprintf("APPENDUID %d 1:%d] APPEND completed", uidValidity(t, c), len(tc.want))
			if len(got) != 2 || got[0] != fmt.Sprintf("* %d EXISTS", len(tc.want)) || got[1] != "OK ["+want {
				t.Errorf("answered %q, want %s", got, want)
			}
			lines := strings.Join(c.ok("FETCH 1:* (INTERNALDATE FLAGS BODY.PEEK[])"), " ")
			plain := dated.ReplaceAllString(lines, "")
			for i, want := range tc.want {
				want = fmt.Sprintf("* %d FETCH (UID %d %s)", i+1, i+1, want)
				if !strings.Contains(plain, want) {
					t.Errorf("no %q in %q", want, plain)
				}
			}
			if n := strings.Count(strings.Join(tc.pieces, ""), date); strings.Count(lines, `"17-Jul-1996 09:44:25 +0000"`) != n {
				t.Errorf("not %d dates in %q", n, lines)
			}
			c.has(c.ok(`LIST "" Archive`), `* LIST (\HasNoChildren \Archive) "/" "Archive"`)
			noneHeld(t, h)
		})
	}
}

func uidValidity(t *testing.T, c *talker) (n uint32) {
	t.Helper()
	if _, err := fmt.Sscanf(c.ok("STATUS INBOX (UIDVALIDITY)")[0], "* STATUS INBOX (UIDVALIDITY %d)", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// noneHeld fails where an APPEND has left bytes for compaction to wait for.
func noneHeld(t *testing.T, h *host) {
	t.Helper()
	if n := h.Core.Store.LeaseCount(); n != 0 {
		t.Errorf("%d messages are held that nothing refers to", n)
	}
}

// refusedAppends are APPENDs of several messages, none of which may be stored.
var refusedAppends = map[string]struct {
	pieces []string
	status string
}{
	"unknown folder":             {[]string{"s APPEND Nowhere {1+}\r\na {1+}\r\nb\r\n"}, "NO [TRYCREATE]"},
	"unknown folder, waiting":    {[]string{"s APPEND Nowhere {1}\r\n"}, "NO [TRYCREATE]"},
	"flags of the third":         {[]string{"s APPEND INBOX {1+}\r\na {1+}\r\nb (\\Seen (x)) {18+}\r\n" + evil + "\r\n"}, "BAD"},
	"\\Recent on the second":     {[]string{"s APPEND INBOX {1+}\r\na (\\Recent) {18+}\r\n" + evil + " {18+}\r\n" + evil + "\r\n"}, "BAD"},
	"keyword not ASCII":          {[]string{"s APPEND INBOX {1+}\r\na (\xc3\xa4) {18+}\r\n" + evil + "\r\n"}, "BAD"},
	"long keyword":               {[]string{"s APPEND INBOX {1+}\r\na (" + strings.Repeat("k", 101) + ") {1+}\r\nb\r\n"}, "NO [LIMIT]"},
	"date of the second":         {[]string{"s APPEND INBOX {1+}\r\na \"yesterday\" {18+}\r\n" + evil + " {1+}\r\nc\r\n"}, "BAD"},
	"date, waiting":              {[]string{"s APPEND INBOX {1}\r\n", "a \"yesterday\" {18}\r\n"}, "BAD"},
	"date before flags":          {[]string{"s APPEND INBOX {1+}\r\na \"17-Jul-1996 02:44:25 -0700\" () {1+}\r\nb\r\n"}, "BAD"},
	"unknown argument":           {[]string{"s APPEND INBOX {1+}\r\na FROB {18+}\r\n" + evil + "\r\n"}, "BAD"},
	"no space":                   {[]string{"s APPEND INBOX {1+}\r\na{18+}\r\n" + evil + "\r\n"}, "BAD"},
	"two spaces":                 {[]string{"s APPEND INBOX {1+}\r\na  {18+}\r\n" + evil + "\r\n"}, "BAD"},
	"something after all":        {[]string{"s APPEND INBOX {1+}\r\na {1+}\r\nb x DELETE Archive\r\n"}, "BAD"},
	"arguments, no message":      {[]string{"s APPEND INBOX {1+}\r\na (\\Seen)\r\n"}, "BAD"},
	"a parenthesis":              {[]string{"s APPEND INBOX {1+}\r\na {1+}\r\nb)\r\n"}, "BAD"},
	"no parenthesis after UTF8":  {[]string{"s APPEND INBOX UTF8 (~{1+}\r\na {1+}\r\nb\r\n"}, "BAD"},
	"none after the second UTF8": {[]string{"s APPEND INBOX UTF8 (~{1+}\r\na) UTF8 (~{1+}\r\nb\r\n"}, "BAD"},
	"empty first":                {[]string{"s APPEND INBOX {0+}\r\n {1+}\r\nb\r\n"}, "NO [CANNOT]"},
	"empty last":                 {[]string{"s APPEND INBOX {1+}\r\na {0+}\r\n\r\n"}, "NO [CANNOT]"},
	"empty in the middle":        {[]string{"s APPEND INBOX {1+}\r\na {0+}\r\n {18+}\r\n" + evil + "\r\n"}, "NO [CANNOT]"},
	"empty, waiting":             {[]string{"s APPEND INBOX {1}\r\n", "a {0}\r\n"}, "NO [CANNOT]"},
	"second too large":           {[]string{literal("s APPEND INBOX {1+}\r\na {%d+}\r\n%s {1+}\r\nc\r\n", strings.Repeat(evil, AppendLimit/len(evil)+1))}, "NO [TOOBIG]"},
	"second too large, waiting":  {[]string{"s APPEND INBOX {1}\r\n", fmt.Sprintf("a {%d}\r\n", AppendLimit+1)}, "NO [TOOBIG]"},
	"after two pages":            {[]string{"s APPEND INBOX {18+}\r\n" + strings.Repeat(evil+" {18+}\r\n", 2*maxBatchMessages+9) + evil + " {0+}\r\n\r\n"}, "NO [CANNOT]"},
	"no end after two pages":     {[]string{"s APPEND INBOX {18+}\r\n" + strings.Repeat(evil+" {18+}\r\n", 2*maxBatchMessages+9) + evil + ")\r\n"}, "BAD"},
	"over quota in all":          {[]string{literal("s APPEND INBOX {%d+}\r\n%[2]s {%[1]d+}\r\n%[2]s {1+}\r\nc\r\n", strings.Repeat(evil, 4000))}, "NO [OVERQUOTA]"},
	"over quota, waiting":        {[]string{literal("s APPEND INBOX {%d+}\r\n%[2]s {%[1]d}\r\n", strings.Repeat(evil, 4000))}, "NO [OVERQUOTA]"},
}

// TestRefusedAppendKeepsNothing: of a command in error no message stays, none of it runs as a
// command, and the connection goes on.
func TestRefusedAppendKeepsNothing(t *testing.T) {
	h := serve(t, nil)
	for name, tc := range refusedAppends {
		t.Run(name, func(t *testing.T) {
			h.setQuota(t, 1<<30)
			if strings.HasPrefix(name, "over quota") {
				h.setQuota(t, 100_000)
			}
			c := h.login(t)
			if got := c.synced(tc.pieces...); len(got) != 1 || !strings.HasPrefix(got[0], tc.status) {
				t.Errorf("answered %q, want %s", got, tc.status)
			}
			c.has(c.ok("STATUS INBOX (MESSAGES)"), "* STATUS INBOX (MESSAGES 0)")
			if got := c.ok("GETQUOTA mailbox"); !strings.HasPrefix(got[0], "* QUOTA mailbox (STORAGE 0 ") {
				t.Errorf("usage: %q", got)
			}
			c.has(c.ok(`LIST "" Archive`), `* LIST (\HasNoChildren \Archive) "/" "Archive"`)
			noneHeld(t, h)
		})
	}
}

// TestCutAppendKeepsNothing ends the connection at every place of a command.
func TestCutAppendKeepsNothing(t *testing.T) {
	h := serve(t, nil)
	command := "s APPEND INBOX (\\Seen) {3+}\r\nabc (\\Seen) {4+}\r\ndefg UTF8 (~{3+}\r\nhij)\r\n"
	for n := range len(command) - 1 {
		c := h.login(t)
		c.send(command[:n])
		if err := c.conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(c.in); strings.Contains(string(got), "s OK") {
			t.Errorf("after %q: %q", command[:n], got)
		}
	}
	c := h.login(t)
	c.has(c.ok("STATUS INBOX (MESSAGES UIDNEXT)"), "* STATUS INBOX (MESSAGES 0 UIDNEXT 1)")
	noneHeld(t, h)
}

// TestStopEndsAppend: the server's stop does not wait for messages that have not come.
func TestStopEndsAppend(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.send("s APPEND INBOX {1+}\r\na {100+}\r\nb")
	time.Sleep(20 * time.Millisecond)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	c.bye()
	noneHeld(t, h)
}

// TestOthersSeeAllOfAnAppend: another session never sees a part of a command's messages, and one
// that idles is told of them at once.
func TestOthersSeeAllOfAnAppend(t *testing.T) {
	const each, times = 7, 20
	h := serve(t, nil)
	idle := h.login(t)
	idle.ok("SELECT INBOX")
	idle.send("i IDLE\r\n")
	idle.line()
	var done atomic.Bool
	watched := make(chan error, 1)
	other := h.login(t)
	go func() {
		var err error
		for !done.Load() && err == nil {
			var n int
			line := other.ok("STATUS INBOX (MESSAGES)")[0]
			if _, err = fmt.Sscanf(line, "* STATUS INBOX (MESSAGES %d)", &n); err == nil && n%each != 0 {
				err = fmt.Errorf("%d messages, of commands of %d", n, each)
			}
		}
		watched <- err
	}()
	c := h.login(t)
	for i := range times {
		c.send("s APPEND INBOX" + strings.Repeat(" "+literal("{%d+}\r\n%s", letter(strconv.Itoa(i))), each) + "\r\n")
		if got := c.until("s"); len(got) != 1 || !strings.HasSuffix(got[0], fmt.Sprintf(" %d:%d] APPEND completed", i*each+1, (i+1)*each)) {
			t.Fatalf("command %d: %q", i, got)
		}
	}
	done.Store(true)
	if err := <-watched; err != nil {
		t.Error(err)
	}
	for got := ""; got != fmt.Sprintf("* %d EXISTS", each*times); {
		var n int
		got = idle.line()
		if _, err := fmt.Sscanf(got, "* %d EXISTS", &n); err != nil || n%each != 0 {
			t.Fatalf("idling, told %q", got)
		}
	}
}

// TestAppendOfManyMessages: one command takes any number, in pages.
func TestAppendOfManyMessages(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	var command strings.Builder
	for i := range 3*maxBatchMessages + 7 {
		command.WriteString(" " + literal("{%d+}\r\n%s", letter(strconv.Itoa(i))))
	}
	c.send("s APPEND Archive" + command.String() + "\r\n")
	if got := c.until("s"); !strings.HasSuffix(got[0], fmt.Sprintf(" 1:%d] APPEND completed", 3*maxBatchMessages+7)) {
		t.Errorf("answered %q", got)
	}
}

// TestMultiAppendIsOffered: after log-in, where APPEND can be used.
func TestMultiAppendIsOffered(t *testing.T) {
	c := dial(t, serve(t, nil).addr)
	if got := c.line(); strings.Contains(got, "MULTIAPPEND") {
		t.Errorf("greeting: %q", got)
	}
	c.n++
	for _, told := range [][]string{c.do("LOGIN %s %q", email, password), c.ok("CAPABILITY")} {
		if !strings.Contains(strings.Join(told, "\n"), " MULTIAPPEND") {
			t.Errorf("told %q", told)
		}
	}
}
