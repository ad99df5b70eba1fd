package imapd

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/inbox"
)

// TestCondStore walks through RFC 7162 section 3.1.
func TestCondStore(t *testing.T) {
	h := serve(t, nil)
	for _, s := range []string{"one", "two", "three"} {
		h.put(t, "INBOX", letter(s), 0)
	}
	c, other := h.login(t), h.login(t)
	highest := modSeqOf(t, c.ok("SELECT INBOX (CONDSTORE)"))
	other.ok("SELECT INBOX")
	if got := modSeqOf(t, c.ok("STATUS INBOX (MESSAGES HIGHESTMODSEQ UNSEEN)")); got != highest {
		t.Errorf("STATUS says %d, SELECT %d", got, highest)
	}
	c.has(c.ok("STATUS INBOX (HIGHESTMODSEQ)"), fmt.Sprintf("* STATUS INBOX (HIGHESTMODSEQ %d)", highest))
	c.has(c.ok("UID FETCH 1:3 (FLAGS MODSEQ)"), fmt.Sprintf("* 3 FETCH (MODSEQ (%d) UID 3 FLAGS ())", highest))
	if lines := c.ok("FETCH 1:* (UID FLAGS) (CHANGEDSINCE %d)", highest); len(lines) > 0 {
		t.Errorf("nothing has changed since: %q", lines)
	}

	lines := other.ok(`STORE 2 +FLAGS (\Flagged)`) // it has not asked for MODSEQs
	other.has(lines, `* 2 FETCH (UID 2 FLAGS (\Flagged))`)
	c.has(c.ok("NOOP"), fmt.Sprintf(`* 2 FETCH (MODSEQ (%d) UID 2 FLAGS (\Flagged))`, highest+1))
	c.has(c.ok("UID FETCH 1:* (FLAGS) (CHANGEDSINCE %d)", highest), fmt.Sprintf(`* 2 FETCH (MODSEQ (%d) UID 2 FLAGS (\Flagged))`, highest+1))

	lines = c.do(`UID STORE 1:3 (UNCHANGEDSINCE %d) +FLAGS.SILENT (\Seen)`, highest)
	if got := lines[len(lines)-1]; got != "OK [MODIFIED 2] Some messages have changed since" {
		t.Errorf("conditional STORE: %q", lines)
	}
	c.has(lines, fmt.Sprintf("* 1 FETCH (MODSEQ (%d) UID 1)", highest+2))
	c.has(lines, fmt.Sprintf("* 3 FETCH (MODSEQ (%d) UID 3)", highest+3))
	c.has(c.ok("FETCH 2 FLAGS"), `* 2 FETCH (UID 2 FLAGS (\Flagged))`)
	lines = c.do(`STORE 2:3 (UNCHANGEDSINCE %d) FLAGS (\Answered)`, highest+2)
	if got := lines[len(lines)-1]; got != "OK [MODIFIED 3] Some messages have changed since" {
		t.Errorf("conditional STORE by number: %q", lines)
	}
	c.has(lines, fmt.Sprintf(`* 2 FETCH (MODSEQ (%d) UID 2 FLAGS (\Answered))`, highest+4))
	c.ok(`STORE 1:3 (UNCHANGEDSINCE %d) +FLAGS ()`, highest+9)
	c.ok(`STORE 1:3 +FLAGS () (UNCHANGEDSINCE %d)`, highest+9)
	c.has(c.ok("FETCH 2 BODY[TEXT]"), fmt.Sprintf(`* 2 FETCH (MODSEQ (%d) UID 2 FLAGS (\Answered \Seen) BODY[TEXT] {11}`, highest+5))
}

func modSeqOf(t *testing.T, lines []string) (n uint64) {
	t.Helper()
	m := regexp.MustCompile(`HIGHESTMODSEQ (\d+)`).FindStringSubmatch(strings.Join(lines, "\n"))
	if m == nil {
		t.Fatalf("no HIGHESTMODSEQ in %q", lines)
	}
	fmt.Sscan(m[1], &n)
	return n
}

func TestCondStoreSearch(t *testing.T) {
	h := serve(t, nil)
	for _, s := range []string{"one", "two", "MODSEQ"} {
		h.put(t, "INBOX", letter(s), 0)
	}
	c := h.login(t)
	n := modSeqOf(t, c.ok("SELECT INBOX"))
	lines := c.ok("SEARCH MODSEQ %d", n)
	c.has(lines, fmt.Sprintf("* OK [HIGHESTMODSEQ %d] Highest", n)) // the command turns it on
	c.has(lines, fmt.Sprintf("* SEARCH 3 (MODSEQ %d)", n))
	c.has(c.ok(`UID SEARCH OR NOT MODSEQ "/flags/\\draft" all %d SUBJECT MODSEQ`, n), fmt.Sprintf("* SEARCH 1 2 3 (MODSEQ %d)", n))
	c.has(c.ok("SEARCH MODSEQ %d", n+1), "* SEARCH")
	c.has(c.ok("SEARCH SUBJECT MODSEQ"), "* SEARCH 3")
	c.has(c.ok("SEARCH RETURN (MIN COUNT) MODSEQ %d", n-1), fmt.Sprintf(`* ESEARCH (TAG "a%d") MIN 2 COUNT 2 MODSEQ %d`, c.n, n))
	for _, bad := range []string{"SEARCH MODSEQ x", "SEARCH MODSEQ", "SEARCH MODSEQ 99999999999999999999", `SEARCH MODSEQ "/flags/\\seen" 4`,
		"FETCH 1 FLAGS (CHANGEDSINCE 0)", "FETCH 1 FLAGS (CHANGEDSINCE 5 VANISHED)", "STORE 1 (UNCHANGEDSINCE x) +FLAGS (a)", "SELECT INBOX (QRESYNC (1 2))"} {
		c.expect("BAD", "%s", bad)
	}
}

func TestEnableCondStore(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), inbox.FlagSeen)
	c := h.login(t)
	c.has(c.ok("ENABLE CONDSTORE IMAP4rev2"), "* ENABLED CONDSTORE IMAP4rev2")
	n := modSeqOf(t, c.ok("SELECT INBOX"))
	c.has(c.ok(`STORE 1 +FLAGS (\Flagged)`), fmt.Sprintf(`* 1 FETCH (MODSEQ (%d) UID 1 FLAGS (\Flagged \Seen))`, n+1))
	lines := c.ok(`LIST "" INBOX RETURN (STATUS (MESSAGES HIGHESTMODSEQ) SUBSCRIBED)`)
	c.has(lines, fmt.Sprintf("* STATUS INBOX (MESSAGES 1 HIGHESTMODSEQ %d)", n+1))
}

// TestSmallerBesideOtherKeys: each of several keys of sizes and dates counts.
func TestSmallerBesideOtherKeys(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	h.put(t, "INBOX", letter("two")+strings.Repeat("x\n", 1000), 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.has(c.ok("SEARCH SMALLER 1000 SINCE 1-Jan-2000"), "* SEARCH 1")
	c.has(c.ok("SEARCH OR SMALLER 1000 LARGER 1000 SMALLER 9000 LARGER 1000"), "* SEARCH 2")
	c.has(c.ok("SEARCH SMALLER 0"), "* SEARCH")
	c.has(c.ok("SEARCH NOT SMALLER 0 SMALLER 200"), "* SEARCH 1")
}

// TestModifiedNamesSequenceNumbers: those of a STORE are numbers even if "$" stands for its
// messages (RFC 7162 section 3.1.3).
func TestModifiedNamesSequenceNumbers(t *testing.T) {
	h := serve(t, nil)
	for _, s := range []string{"one", "two", "three"} {
		h.put(t, "INBOX", letter(s), 0)
	}
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.ok(`STORE 1 +FLAGS (\Deleted)`)
	c.ok("EXPUNGE")
	c.ok("SEARCH RETURN (SAVE) 1")
	for command, want := range map[string]string{"STORE": "1", "UID STORE": "2"} {
		lines := c.do(`%s $ (UNCHANGEDSINCE 0) +FLAGS (\Seen)`, command)
		if got := lines[len(lines)-1]; got != "OK [MODIFIED "+want+"] Some messages have changed since" {
			t.Errorf("%s: %q", command, lines)
		}
	}
}
