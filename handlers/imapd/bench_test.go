package imapd

import (
	"bufio"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cputime"
	"github.com/mailstead/mailstead/service/inbox"
)

// fill adds n messages to INBOX.
func fill(b *testing.B, h *host, n int) {
	b.Helper()
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			for i := w; i < n; i += 32 {
				h.put(b, "INBOX", fmt.Sprintf("From: Some Body <someone%d@example.org>\nTo: Ann Other <ann@example.test>, second@example.net\n"+
					"Subject: Letter number %d about something\nDate: Mon, 5 Jan 2026 23:30:00 +0100\nMessage-ID: <%d.letter@example.org>\n"+
					"MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\nHello\n", i, i, i), inbox.FlagSeen)
			}
		})
	}
	wg.Wait()
}

// BenchmarkTenThousand measures what a client does first in a folder of 10 000 messages, over
// loopback.
func BenchmarkTenThousand(b *testing.B) {
	h := serve(b, nil)
	fill(b, h, 10_000)
	for _, command := range []string{
		"SELECT INBOX", "FETCH 1:* FLAGS", "FETCH 1:* ENVELOPE", "FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE BODYSTRUCTURE)",
		"FETCH 9501:* (UID FLAGS ENVELOPE BODYSTRUCTURE)", "FETCH 1:* BODY.PEEK[]", "SEARCH UNSEEN", "SEARCH SUBJECT 9999", "SEARCH FROM nobody", "SEARCH BODY hello",
		"FETCH 1:* (EMAILID THREADID)", "FETCH 1:* PREVIEW", "SEARCH EMAILID em_0", "SEARCH THREADID thr_0",
	} {
		b.Run(strings.ReplaceAll(command, " ", "_"), func(b *testing.B) {
			c := h.login(b)
			c.conn.SetDeadline(time.Time{})
			c.ok("SELECT INBOX")
			c.in = bufio.NewReaderSize(c.conn, 1<<20)
			report := cputime.Start(b)
			for b.Loop() {
				c.send("b " + command + "\r\n")
				for {
					line, err := c.in.ReadSlice('\n')
					if err != nil {
						b.Fatal(err)
					}
					if len(line) > 4 && string(line[:4]) == "b OK" {
						break
					}
				}
			}
			report()
			c.ok("LOGOUT")
		})
	}
	b.Run("IDLE_wake", func(b *testing.B) { benchmarkIdle(b, h) })
}

// benchmarkIdle measures from the start of a delivery to the EXISTS; the delivery's own time is
// told apart.
func benchmarkIdle(b *testing.B, h *host) {
	c := h.login(b)
	c.conn.SetDeadline(time.Time{})
	c.ok("SELECT INBOX")
	c.send("i IDLE\r\n")
	c.line()
	var after time.Duration
	for b.Loop() {
		h.put(b, "INBOX", letter("x"), 0)
		delivered := time.Now()
		if got := c.line(); !strings.HasSuffix(got, "EXISTS") {
			b.Fatal(got)
		}
		after += time.Since(delivered)
	}
	b.ReportMetric(float64(after.Microseconds())/float64(b.N), "µs-after-delivery/op")
}

// BenchmarkCopy measures how long others wait for a COPY that is there as a whole or not at all.
func BenchmarkCopy(b *testing.B) {
	h := serve(b, nil)
	fill(b, h, 5000)
	c := h.login(b)
	c.conn.SetDeadline(time.Time{})
	c.ok("SELECT INBOX")
	report := cputime.Start(b)
	for b.Loop() {
		c.ok("COPY 1:5000 Archive")
	}
	report()
}

// BenchmarkAppend measures messages of 2 KiB, one and twenty in a command.
func BenchmarkAppend(b *testing.B) {
	message := letter("x") + strings.Repeat("0123456789 abcdefghijklmnopqrstuvwxyz\r\n", 48)
	message = strings.ReplaceAll(strings.ReplaceAll(message, "\r\n", "\n"), "\n", "\r\n")
	for _, each := range []int{1, 20} {
		b.Run(fmt.Sprintf("%d_a_command", each), func(b *testing.B) {
			h := serve(b, nil)
			c := h.login(b)
			c.conn.SetDeadline(time.Time{})
			command := "b APPEND INBOX" + strings.Repeat(" "+literal("{%d+}\r\n%s", message), each) + "\r\n"
			b.ReportAllocs()
			report := cputime.Start(b)
			for range (b.N + each - 1) / each {
				c.send(command)
				if got := c.until("b"); !strings.HasPrefix(got[0], "OK") {
					b.Fatal(got)
				}
			}
			report()
		})
	}
}
