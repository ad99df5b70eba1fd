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

// TestLargeOrdersTakeTurns: more of them than may run at a time all get their answer.
func TestLargeOrdersTakeTurns(t *testing.T) {
	h := serve(t, nil)
	for range maxLargeSorts {
		h.server.largeSorts <- struct{}{}
	}
	h.put(t, "INBOX", letter("one"), 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.has(c.ok("SORT (DATE) UTF-8 ALL"), "* SORT 1") // it is small
	for range maxLargeSorts {
		<-h.server.largeSorts
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
