package mta_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
)

// BenchmarkSubmissionToRelay counts messages of 2 KiB from Submit, by eight clients, to the relay's
// 250.
func BenchmarkSubmissionToRelay(b *testing.B) {
	var got atomic.Int64
	all := make(chan struct{})
	h := (&servicetest.Host{Answer: func(n int, _ servicetest.Taken) string {
		if got.Add(1) == int64(b.N) {
			close(all)
		}
		return fmt.Sprintf("250 Ok id-%d", n)
	}}).Start(b)
	i := servicetest.Install(b, core.Config{Relays: []core.Relay{h.Relay("ses")}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	text := strings.Replace(servicetest.PlainMessage, "Message-ID: <own@example.test>\r\n", "", 1) + strings.Repeat("all work and no play makes a dull message\r\n", 45)
	b.ReportAllocs()
	b.SetParallelism(4)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		user := core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}
		for pb.Next() {
			sp := i.Spool(text)
			_, err := i.Svc.Submit(context.Background(), user, mta.Submission{From: ann.Email, Body: sp, To: []mta.Rcpt{{Address: "x@far.test"}}})
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
