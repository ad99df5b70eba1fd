package imapd

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cputime"
)

// BenchmarkUpdate measures what a client hears of another one's changes in a folder of a thousand
// messages: by NOOP, of one with other flags and of twenty that are gone, and by IDLE.
func BenchmarkUpdate(b *testing.B) {
	const messages, gone = 1000, 20
	start := func(b *testing.B) (c, other *talker) {
		h := serve(b, nil)
		fill(b, h, messages)
		c, other = h.login(b), h.login(b)
		for _, one := range []*talker{c, other} {
			one.conn.SetDeadline(time.Time{})
			one.ok("SELECT INBOX")
		}
		return c, other
	}
	b.Run("NOOP_flags", func(b *testing.B) {
		c, other := start(b)
		sign := "+"
		report := cputime.Start(b)
		for b.Loop() {
			other.ok(`STORE 500 %sFLAGS.SILENT (\Flagged)`, sign)
			c.ok("NOOP")
			if sign == "+" {
				sign = "-"
			} else {
				sign = "+"
			}
		}
		report()
	})
	b.Run("NOOP_expunge", func(b *testing.B) {
		c, other := start(b)
		report := cputime.Start(b)
		for b.Loop() {
			other.ok(`COPY 1:%d INBOX`, gone)
			other.ok(`STORE 1:%d +FLAGS.SILENT (\Deleted)`, gone)
			other.ok("EXPUNGE")
			if got := c.ok("NOOP"); len(got) < 2 {
				b.Fatal(got)
			}
		}
		report()
	})
	b.Run("IDLE_expunge", func(b *testing.B) {
		c, other := start(b)
		c.send("i IDLE\r\n")
		c.line()
		report := cputime.Start(b)
		for b.Loop() {
			other.ok("COPY 1 INBOX")
			c.line()
			other.ok("MOVE 1 Archive")
			c.line()
		}
		report()
	})
}
