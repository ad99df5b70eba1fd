package imapd

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cputime"
)

func TestOrderingIsOfferedAfterLogin(t *testing.T) {
	h := serve(t, nil)
	const offered = " SORT THREAD=REFERENCES THREAD=ORDEREDSUBJECT"
	c := dial(t, h.addr)
	if got := c.line(); strings.Contains(got, "SORT") {
		t.Errorf("before log-in: %q", got)
	}
	c.expect("BAD", "SORT (DATE) UTF-8 ALL")
	c.ok("LOGIN %s %q", email, password)
	if got := c.ok("CAPABILITY"); !strings.Contains(got[0], offered) {
		t.Errorf("%q", got)
	}
}

// TestOrderingOfLongTag: the parser's answer, which is left out, must be in one piece.
func TestOrderingOfLongTag(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	c := h.login(t)
	c.ok("ENABLE IMAP4rev2")
	c.ok("SELECT INBOX")
	for _, tag := range []string{strings.Repeat("x", maxTag), strings.Repeat("x", 9000)} {
		c.send(tag + " UID SORT (DATE) UTF-8 ALL\r\n")
		lines := c.until(tag)
		want := []string{"* SORT 1", "OK UID SORT completed"}
		if len(tag) > maxTag {
			want = []string{"BAD [CLIENTBUG] The arguments cannot be read"}
		}
		if strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("a tag of %d bytes: %q", len(tag), lines)
		}
	}
}

func FuzzOrdering(f *testing.F) {
	for _, seed := range []string{"a SORT (REVERSE DATE SUBJECT) UTF-8 OR FROM \"x\" MODSEQ 5\r\n", "a UID THREAD ORDEREDSUBJECT us-ascii (SEEN)\r\n",
		"a UID SORT (DATE) \"koi8-r\" ALL\r\n", "SORT( SORT (DATE) UTF-8 ALL\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if m, err := scanLine(line); err != nil || m.found {
			return
		}
		tag, verb := commandName(line)
		got, newVerb, o, err := takeOrdering(tag, verb, line)
		if !isOrdering(verb) {
			if string(got) != string(line) || newVerb != verb || o != nil || err != nil {
				t.Errorf("%q became %q, %v, %v", line, got, o, err)
			}
			return
		}
		if err != nil {
			return
		}
		if strings.HasSuffix(verb, "SORT") != (len(o.keys) > 0) || len(o.keys) > len(sortFields) {
			t.Errorf("%q has the keys %v", line, o.keys)
		}
		newTag, name := commandName(got)
		if newTag != tag || name != newVerb || newVerb != searchVerb(verb) {
			t.Errorf("%q became %q", line, got)
		}
		if m, err := scanLine(got); err != nil || m.found {
			t.Errorf("%q became %q, which is no command: %v", line, got, err)
		}
		takeExtensions(newVerb, got)
	})
}

// TestLargeOrdersTakeTurns: more of them than may run at a time all get their answer.
func TestLargeOrdersTakeTurns(t *testing.T) {
	h := serve(t, nil)
	for range maxLargeOrders {
		h.server.largeOrders <- struct{}{}
	}
	h.put(t, "INBOX", letter("one"), 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.has(c.ok("SORT (DATE) UTF-8 ALL"), "* SORT 1") // it is small
	for range maxLargeOrders {
		<-h.server.largeOrders
	}
}

// BenchmarkOrderings measures SORT and THREAD of whole folders over loopback.
func BenchmarkOrderings(b *testing.B) {
	for _, n := range []int{5_000, 50_000} {
		h := serve(b, nil)
		fill(b, h, n)
		for _, command := range []string{"SORT (ARRIVAL) UTF-8 ALL", "SORT (REVERSE DATE) UTF-8 ALL", "SORT (SUBJECT FROM) UTF-8 ALL", "THREAD REFERENCES UTF-8 ALL", "THREAD ORDEREDSUBJECT UTF-8 ALL"} {
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(command, " ", "_"), n), func(b *testing.B) {
				c := h.login(b)
				c.conn.(*net.TCPConn).SetDeadline(time.Time{})
				c.ok("SELECT INBOX")
				c.in = bufio.NewReaderSize(c.conn, 1<<20)
				b.ReportAllocs()
				report := cputime.Start(b)
				for b.Loop() {
					c.ok("%s", command)
				}
				report()
				c.ok("LOGOUT")
			})
		}
	}
}
