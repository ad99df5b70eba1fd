package imapd

import (
	"fmt"
	"strings"
	"testing"
)

// TestFolderCommandsAreLimited: the 601st command of a minute that changes folders is refused, in
// whichever session; what is done with messages is not.
func TestFolderCommandsAreLimited(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	h.put(t, "INBOX", letter("two"), 0)
	c, other := h.login(t), h.login(t)
	var all strings.Builder
	round := []string{"CREATE one", "SUBSCRIBE one", "RENAME one two", "UNSUBSCRIBE one", "DELETE two"}
	for n := range 600 {
		fmt.Fprintf(&all, "p%d %s\r\n", n, round[n%len(round)])
	}
	c.send(all.String())
	for n := range 600 {
		if got := c.until(fmt.Sprintf("p%d", n)); !strings.HasPrefix(got[len(got)-1], "OK") {
			t.Fatalf("command %d, %s: %q", n+1, round[n%len(round)], got)
		}
	}
	for _, command := range append(round, "CREATE a/b", "RENAME INBOX Before") {
		c.expect("NO [LIMIT]", "%s", command)
		other.expect("NO [LIMIT]", "%s", command)
	}
	c.ok("SELECT INBOX")
	c.send(literal("s APPEND INBOX {%d+}\r\n%s\r\n", letter("three")))
	if got := c.until("s"); !strings.HasPrefix(got[len(got)-1], "OK [APPENDUID ") {
		t.Errorf("APPEND: %q", got)
	}
	c.ok(`STORE 1:3 +FLAGS (\Flagged)`)
	c.ok("COPY 1:3 Archive")
	c.ok("MOVE 3 Trash")
	c.has(c.ok("STATUS Archive (MESSAGES)"), "* STATUS \"Archive\" (MESSAGES 3)")
}

// TestCopyThatFailsLeavesNothing: a COPY of several transactions whose second one fails takes back
// what the first has done, and says NO (RFC 9051 section 6.4.7). A MOVE tells what it has moved
// (RFC 6851 section 3.3).
func TestCopyThatFailsLeavesNothing(t *testing.T) {
	h := serve(t, nil)
	uid := h.put(t, "INBOX", letter("one"), 0)
	const all, left = 1000, 500 // messages of INBOX, and UIDs that are left in the folders that it goes to
	h.Repeat(t, "ann@example.test", uid, all)
	for _, folder := range []string{"Archive", "Junk"} {
		h.LeaveUIDs(t, "ann@example.test", uid, folder, left)
	}
	c := h.login(t)
	c.ok("SELECT INBOX")
	lines := c.do("COPY 1:* Archive")
	if got := lines[len(lines)-1]; len(lines) != 1 || !strings.HasPrefix(got, "NO ") || strings.Contains(got, "COPYUID") {
		t.Errorf("COPY: %q", lines)
	}
	c.has(c.ok("STATUS Archive (MESSAGES)"), "* STATUS \"Archive\" (MESSAGES 1)")
	c.has(c.ok("STATUS INBOX (MESSAGES)"), fmt.Sprintf("* STATUS INBOX (MESSAGES %d)", all))
	if n := h.CopyIntents(t); n != 0 {
		t.Errorf("%d notes of a COPY stay", n)
	}
	lines = c.do("MOVE 1:* Junk")
	if got := lines[len(lines)-1]; len(lines) < 2 || !strings.HasPrefix(got, "NO ") || !strings.HasPrefix(lines[0], "* OK [COPYUID ") {
		t.Errorf("MOVE: %q", lines)
	}
	moved, stayed := counted(c, "Junk")-1, counted(c, "INBOX")
	if gone := len(lines) - 2; gone != moved || moved == 0 || moved+stayed != all {
		t.Errorf("MOVE told of %d messages, moved %d and left %d", gone, moved, stayed)
	}
}

// counted says how many messages a folder has.
func counted(c *talker, folder string) (n int) {
	c.t.Helper()
	lines := c.ok("STATUS %s (MESSAGES)", folder)
	_, number, _ := strings.Cut(lines[len(lines)-1], "(MESSAGES ")
	if _, err := fmt.Sscan(strings.TrimSuffix(number, ")"), &n); err != nil {
		c.t.Fatalf("%q: %v", lines, err)
	}
	return n
}

// TestRenameOfInboxToAFolderThatIs answers NO and moves nothing.
func TestRenameOfInboxToAFolderThatIs(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	c := h.login(t)
	c.expect("NO [ALREADYEXISTS]", "RENAME INBOX Archive")
	c.expect("NO [ALREADYEXISTS]", "RENAME INBOX inbox")
	c.has(c.ok("STATUS INBOX (MESSAGES)"), "* STATUS INBOX (MESSAGES 1)")
	c.has(c.ok("STATUS Archive (MESSAGES)"), "* STATUS \"Archive\" (MESSAGES 0)")
}
