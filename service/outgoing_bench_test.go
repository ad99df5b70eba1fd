package service

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkSubmissionToRelay counts messages of 2 KiB from Submit, by eight clients, to the relay's
// 250.
func BenchmarkSubmissionToRelay(b *testing.B) {
	var got atomic.Int64
	all := make(chan struct{})
	h := (&host{answer: func(n int, _ taken) string {
		if got.Add(1) == int64(b.N) {
			close(all)
		}
		return fmt.Sprintf("250 Ok id-%d", n)
	}}).start(b)
	i := install(b, Config{Relays: []Relay{h.relay("ses")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	text := strings.Replace(plainMessage, "Message-ID: <own@example.test>\r\n", "", 1) + strings.Repeat("all work and no play makes a dull message\r\n", 45)
	b.ReportAllocs()
	b.SetParallelism(4)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		user := MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}
		for pb.Next() {
			sp := i.spool(text)
			_, err := i.svc.Submit(context.Background(), user, Submission{From: ann.Email, Body: sp, To: []Rcpt{{Address: "x@far.test"}}})
			sp.Close()
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	select {
	case <-all:
	case <-time.After(time.Minute):
		b.Fatalf("the relay took %d of %d", got.Load(), b.N)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
