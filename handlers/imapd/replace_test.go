package imapd

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/service/inbox"
)

// refusedReplaces are commands that must leave both the folder and the message as they are. Pieces
// are sent after the server's word; a synchronizing literal that cannot be used is not asked for.
var refusedReplaces = map[string]struct {
	pieces []string
	status string
}{
	"unknown folder, waiting":   {[]string{"s REPLACE 1 Nowhere {100}\r\n"}, "NO [TRYCREATE]"},
	"no such message, waiting":  {[]string{"s UID REPLACE 7 INBOX {100}\r\n"}, "NO There is no such message"},
	"empty, waiting":            {[]string{"s REPLACE 1 INBOX {0}\r\n"}, "NO [CANNOT]"},
	"too large, waiting":        {[]string{fmt.Sprintf("s REPLACE 1 INBOX {%d}\r\n", AppendLimit+1)}, "NO [TOOBIG]"},
	"too large":                 {[]string{literal("s REPLACE 1 INBOX {%d+}\r\n%s\r\n", strings.Repeat(evil, AppendLimit/len(evil)+1))}, "NO [TOOBIG]"},
	"over quota, waiting":       {[]string{"s REPLACE 1 INBOX {100001}\r\n"}, "NO [OVERQUOTA]"},
	"over quota":                {[]string{literal("s REPLACE 1 INBOX {%d+}\r\n%s\r\n", strings.Repeat(evil, 8000))}, "NO [OVERQUOTA]"},
	"a second message":          {[]string{"s REPLACE 1 INBOX {1}\r\n", "a {18+}\r\n" + evil + "\r\n"}, "BAD"},
	"a second message, waiting": {[]string{"s REPLACE 1 INBOX {1}\r\n", "a {18}\r\n"}, "BAD"},
	"something behind it":       {[]string{literal("s REPLACE 1 INBOX {%d+}\r\n%s x DELETE Archive\r\n", evil)}, "BAD"},
	"no parenthesis after UTF8": {[]string{"s REPLACE 1 INBOX UTF8 (~{1+}\r\na\r\n"}, "BAD"},
	"keyword not ASCII":         {[]string{literal("s REPLACE 1 INBOX (\xc3\xa4) {%d+}\r\n%s\r\n", evil)}, "BAD"},
	"long keyword":              {[]string{"s REPLACE 1 INBOX (" + strings.Repeat("k", 101) + ") {1+}\r\na\r\n"}, "NO [LIMIT]"},
	"unknown argument":          {[]string{literal("s REPLACE 1 INBOX FROB {%d+}\r\n%s\r\n", evil)}, "BAD"},
	"a number in quotes":        {[]string{literal("s REPLACE \"1\" INBOX {%d+}\r\n%s\r\n", evil)}, "BAD"},
	"a list for a folder":       {[]string{literal("s REPLACE 1 (INBOX) {%d+}\r\n%s\r\n", evil)}, "BAD"},
	"no number":                 {[]string{literal("s REPLACE INBOX {%d+}\r\n%s\r\n", evil)}, "BAD"}, // that is no message but the folder
	"two folders":               {[]string{literal("s REPLACE 1 INBOX INBOX {%d+}\r\n%s\r\n", evil)}, "BAD"},
	"UID of UID":                {[]string{literal("s UID UID REPLACE 1 INBOX {%d+}\r\n%s\r\n", "x")}, "BAD"},
}

func TestRefusedReplaceChangesNothing(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), inbox.FlagFlagged)
	for name, tc := range refusedReplaces {
		t.Run(name, func(t *testing.T) {
			h.setQuota(t, 1<<30)
			if strings.HasPrefix(name, "over quota") {
				h.setQuota(t, 100_000)
			}
			c := h.login(t)
			c.ok("SELECT INBOX")
			if got := c.synced(tc.pieces...); len(got) != 1 || !strings.HasPrefix(got[0], tc.status) {
				t.Errorf("answered %q, want %s", got, tc.status)
			}
			c.has(c.ok("FETCH 1:* (UID FLAGS RFC822.SIZE)"), `* 1 FETCH (UID 1 FLAGS (\Flagged) RFC822.SIZE 109)`)
			c.has(c.ok("STATUS INBOX (MESSAGES UIDNEXT)"), "* STATUS INBOX (MESSAGES 1 UIDNEXT 2)")
			c.has(c.ok(`LIST "" Archive`), `* LIST (\HasNoChildren \Archive) "/" "Archive"`)
			noneHeld(t, h)
		})
	}
}

// TestReplaceBeforeLogin: the literal is passed over, not run.
func TestReplaceBeforeLogin(t *testing.T) {
	c := dial(t, serve(t, nil).addr)
	c.line()
	c.send(literal("s REPLACE 1 INBOX {%d+}\r\n%s\r\n", "x LOGOUT\r\n"))
	if got := c.until("s"); !strings.HasPrefix(got[0], "BAD") {
		t.Errorf("answered %q", got)
	}
	c.ok("LOGIN %s %q", email, password)
}

// TestCutReplaceKeepsTheOldMessage ends the connection at every place of a command.
func TestCutReplaceKeepsTheOldMessage(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	command := "s REPLACE 1 INBOX (\\Seen) {3+}\r\nabc\r\n"
	for n := range len(command) - 1 {
		c := h.login(t)
		c.ok("SELECT INBOX")
		c.send(command[:n])
		if err := c.conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(c.in); strings.Contains(string(got), "s OK") {
			t.Errorf("after %q: %q", command[:n], got)
		}
	}
	c := h.login(t)
	c.has(c.ok("STATUS INBOX (MESSAGES UIDNEXT)"), "* STATUS INBOX (MESSAGES 1 UIDNEXT 2)")
	noneHeld(t, h)
}

// TestReplaceInFullMailbox: the quota counts the old message as gone.
func TestReplaceInFullMailbox(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "Drafts", letter("one"), 0) // 109 bytes
	h.setQuota(t, 109)
	c := h.login(t)
	c.ok("SELECT Drafts")
	c.send("s APPEND Drafts {10}\r\n")
	if got := c.until("s"); !strings.HasPrefix(got[0], "NO [OVERQUOTA]") {
		t.Fatalf("APPEND: %q", got)
	}
	c.send(literal("s REPLACE 1 Drafts {%d+}\r\n%s\r\n", strings.Repeat("x", 110)))
	if got := c.until("s"); len(got) != 1 || !strings.HasPrefix(got[0], "NO [OVERQUOTA]") {
		t.Errorf("one byte more: %q", got)
	}
	c.send(literal("s REPLACE 1 Drafts {%d+}\r\n%s\r\n", strings.Repeat("x", 109)))
	if got := c.until("s"); got[len(got)-1] != "OK REPLACE completed" {
		t.Errorf("the same size: %q", got)
	}
	c.has(c.ok("FETCH 1:* RFC822.SIZE"), "* 1 FETCH (RFC822.SIZE 109)")
}

// TestReplaceOfMessageThatGoes: another session deletes it while the new one is on its way.
func TestReplaceOfMessageThatGoes(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "Drafts", letter("one"), inbox.FlagDeleted)
	h.put(t, "Drafts", letter("two"), 0)
	c, other := h.login(t), h.login(t)
	c.ok("SELECT Drafts")
	c.send("s REPLACE 1 Sent {3}\r\n")
	if got := c.line(); got != "+ Ready for literal data" {
		t.Fatal(got)
	}
	other.ok("SELECT Drafts")
	other.ok("EXPUNGE")
	c.send("abc\r\n")
	if got := c.until("s"); !strings.HasPrefix(got[len(got)-1], "NO [EXPUNGEISSUED]") {
		t.Errorf("answered %q", got)
	}
	c.has(c.ok("NOOP"), "* 1 EXPUNGE")
	c.has(c.ok("STATUS Sent (MESSAGES)"), `* STATUS "Sent" (MESSAGES 0)`)
	noneHeld(t, h)
	// The next command is an APPEND again.
	c.ok("REPLACE 1 Drafts {1+}\r\nx")
	c.ok("APPEND Drafts {1+}\r\ny")
	c.has(c.ok("STATUS Drafts (MESSAGES)"), `* STATUS "Drafts" (MESSAGES 2)`)
}

// TestReplaceIsOneChange: another session never sees both messages, or neither.
func TestReplaceIsOneChange(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "Drafts", letter("one"), 0)
	c, other := h.login(t), h.login(t)
	c.ok("SELECT Drafts")
	var done atomic.Bool
	watched := make(chan string, 1)
	go func() {
		for !done.Load() {
			if line := other.ok("STATUS Drafts (MESSAGES)")[0]; line != `* STATUS "Drafts" (MESSAGES 1)` {
				watched <- line
				return
			}
		}
		watched <- ""
	}()
	for i := range 50 {
		lines := c.ok("REPLACE 1 Drafts (\\Draft) %s", literal("{%d+}\r\n%s", letter(fmt.Sprint(i))))
		if len(lines) != 3 || lines[1] != "* 1 EXPUNGE" || lines[2] != "* 1 EXISTS" || !strings.HasPrefix(lines[0], "* OK [APPENDUID ") {
			t.Fatalf("answered %q", lines)
		}
	}
	done.Store(true)
	if got := <-watched; got != "" {
		t.Errorf("another session sees %q", got)
	}
	c.has(c.ok("FETCH 1:* FLAGS"), `* 1 FETCH (UID 51 FLAGS (\Draft))`)
}

// TestFailedReplaceKeepsTheOldMessage: the new one cannot be filed, since its folder has no UID
// left.
func TestFailedReplaceKeepsTheOldMessage(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "Drafts", letter("one"), 0)
	uid := h.put(t, "INBOX", letter("two"), 0)
	h.LeaveUIDs(t, email, uid, "Sent", 0)
	c := h.login(t)
	c.ok("SELECT Drafts")
	c.expect("NO", "REPLACE 1 Sent {3+}\r\nabc")
	c.has(c.ok("FETCH 1:* UID"), "* 1 FETCH (UID 1)")
	noneHeld(t, h)
}
