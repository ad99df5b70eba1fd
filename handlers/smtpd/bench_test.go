package smtpd_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/internal/cputime"
)

// BenchmarkReceive takes messages of 2 KiB, each on disk with its event before 250.
func BenchmarkReceive(b *testing.B) {
	for _, conns := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("connections=%d", conns), func(b *testing.B) { receive(b, conns) })
	}
}

// BenchmarkReceiveWords takes messages of about 300 words, and does so again while they are indexed
// for searches.
func BenchmarkReceiveWords(b *testing.B) {
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, "word%d", i*i%211)
		text.WriteString([]string{" ", " ", " ", "\r\n"}[i%4])
	}
	b.Run("plain", func(b *testing.B) { take(b, open(b, nil), 8, mail("bench")+text.String()+"\r\n") })
	b.Run("indexed", func(b *testing.B) {
		h := open(b, nil)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		take(b, h, 8, mail("bench")+text.String()+"\r\n")
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
}

// BenchmarkReceiveLarge takes messages of 200 KiB.
func BenchmarkReceiveLarge(b *testing.B) {
	take(b, open(b, nil), 8, mail("bench")+strings.Repeat(strings.Repeat("x", 76)+"\r\n", 200<<10/78))
}

func receive(b *testing.B, conns int) {
	take(b, open(b, nil), conns, mail("bench")+strings.Repeat(strings.Repeat("x", 76)+"\r\n", 24))
}

func take(b *testing.B, h *house, conns int, text string) {
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
	report := cputime.Start(b)
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	todo.Wait()
	b.StopTimer()
	report()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(slices.Max(slowest).Milliseconds()), "max-ms")
}
