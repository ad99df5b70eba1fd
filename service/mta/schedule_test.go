package mta_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestFiveDaysOfRetries lets a host be unreachable for good.
func TestFiveDaysOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := servicetest.Install(t, core.Config{})
		i.Q.Rand = func() float64 { return 0.5 } // no jitter
		i.DNS.MX["far.test"] = "mx.far.test"
		var tries []time.Duration
		start := i.St.Now()
		i.Svc.Direct().Dialer = func(context.Context, string, string) (net.Conn, error) {
			tries = append(tries, time.Since(start))
			return nil, errors.New("no route to host")
		}
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
		i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
		i.Run()

		time.Sleep(4*time.Hour - time.Second)
		synctest.Wait()
		if got := i.Folder(ann, "INBOX"); len(got) != 0 {
			t.Fatalf("%d messages before four hours are over", len(got))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		notice := i.Folder(ann, "INBOX")
		if len(notice) != 1 {
			t.Fatalf("%d messages after four hours, want the notice", len(notice))
		}
		r := i.Report(notice[0].Raw).Recipients[0]
		if r.Action != "delayed" || !r.WillRetryUntil.Equal(start.Add(mta.GiveUpAfter).Truncate(time.Second)) || !strings.HasPrefix(r.Status, "4.") {
			t.Errorf("notice: %+v, want %s", r, start.Add(mta.GiveUpAfter))
		}
		o := i.Row("x@far.test")
		if o.Status != store.OutgoingDeferred || !o.NextAt.Equal(start.Add(minutes(1+5+15+30+60+120+240))) {
			t.Errorf("row after the notice: %+v", o)
		}

		time.Sleep(5 * 24 * time.Hour)
		synctest.Wait()
		i.Stop()
		checkTries(t, tries)
		if o := i.Row("x@far.test"); o.Status != store.OutgoingBounced || len(o.Log) != min(len(tries), mta.KeptAttempts) || o.Attempts != len(tries) {
			t.Errorf("at the end: %+v", o)
		}
		inbox := i.Folder(ann, "INBOX")
		if len(inbox) != 2 {
			t.Fatalf("%d messages at the end, want notice and bounce", len(inbox))
		}
		if r := i.Report(inbox[1].Raw).Recipients[0]; r.Action != "failed" || r.Status != "4.4.7" || !strings.Contains(r.Diagnostic, "no route to host") {
			t.Errorf("bounce: %+v", r)
		}
		if e := i.Events(events.EventEmailBounced); len(e) != 1 || e[0]["bounce_type"] != "soft" || e[0]["bounce_subtype"] != "expired" || e[0]["suppressed"] != false {
			t.Errorf("event: %v", e)
		}
	})
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// checkTries wants the waits of the contract, and the last try at the date that the notice
// promised.
func checkTries(t *testing.T, tries []time.Duration) {
	t.Helper()
	at := time.Duration(0)
	for n, got := range tries {
		if d := got - at; d < 0 || d > time.Second {
			t.Errorf("try %d came after %s, want %s", n+1, got, at)
		}
		at = min(at+mta.RetryWait(n+1, 0.5), mta.GiveUpAfter)
	}
	if last := tries[len(tries)-1]; last < mta.GiveUpAfter || last > mta.GiveUpAfter+time.Second {
		t.Errorf("the last try came after %s", last)
	}
}

// TestNoticeIsForThoseWhoAsk: NOTIFY=FAILURE asks for no notice of delay (RFC 3461 section 4.1).
func TestNoticeIsForThoseWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := servicetest.Install(t, core.Config{})
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.SendingMode = "relay" }), "ann", nil)
		in := mta.Submission{From: ann.Email, Body: i.Spool(servicetest.PlainMessage), To: []mta.Rcpt{{Address: "x@far.test", Notify: "FAILURE"}}}
		if _, err := i.Svc.Submit(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in); err != nil {
			t.Fatal(err)
		}
		i.Run()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		i.Stop()
		if o := i.Row("x@far.test"); o.Status != store.OutgoingDeferred || !strings.Contains(o.LastResponse, "no relay is configured") {
			t.Errorf("row %+v", o)
		}
		if got := i.Folder(ann, "INBOX"); len(got) != 0 {
			t.Errorf("%d messages", len(got))
		}
	})
}
