package smtpd_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
)

// BenchmarkReceive takes messages of 2 KiB, each on disk with its event before 250.
func BenchmarkReceive(b *testing.B) {
	for _, conns := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("connections=%d", conns), func(b *testing.B) { receive(b, conns) })
	}
}

func receive(b *testing.B, conns int) {
	h := open(b, nil)
	text := mail("bench") + strings.Repeat(strings.Repeat("x", 76)+"\r\n", 24)
	var todo sync.WaitGroup
	work := make(chan struct{})
	slowest := make([]time.Duration, conns)
	for i := range conns {
		c := dial(b, h.addr[smtpd.MX])
		c.conn.SetDeadline(time.Time{})
		c.ask("EHLO bench.test", "250")
		todo.Go(func() {
			for range work {
				began := time.Now()
				c.send("MAIL FROM:<pat@sender.test>\r\nRCPT TO:<ana@example.test>\r\nDATA\r\n")
				for range 3 {
					if _, err := c.reply(); err != nil {
						b.Error(err)
						return
					}
				}
				c.send(text + ".\r\n")
				if got, err := c.reply(); err != nil || got[:3] != "250" {
					b.Error(got, err)
					return
				}
				slowest[i] = max(slowest[i], time.Since(began))
			}
		})
	}
	b.ResetTimer()
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	todo.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(slices.Max(slowest).Milliseconds()), "max-ms")
}
