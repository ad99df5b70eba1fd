package service

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/store"
)

func TestRetryWaitRises(t *testing.T) {
	want := []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 8 * time.Hour}
	for n, w := range want {
		if got := retryWait(n+1, 0.5); got.Round(time.Second) != w {
			t.Errorf("after attempt %d: %s, want %s", n+1, got, w)
		}
		if low, high := retryWait(n+1, 0), retryWait(n+1, 0.9999); low < w*9/10-1 || high > w*11/10 || low >= high {
			t.Errorf("after attempt %d: %s to %s, want %s ± 10 %%", n+1, low, high, w)
		}
	}
	if retryWait(0, 0.5) != retryWait(1, 0.5) || retryWait(1<<40, 0.5).Round(time.Second) != 8*time.Hour {
		t.Error("numbers of attempts beyond the table")
	}
}

// TestFiveDaysOfRetries lets a host be unreachable for good.
func TestFiveDaysOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t, Config{})
		i.q.Rand = func() float64 { return 0.5 } // no jitter
		i.dns.mx["far.test"] = "mx.far.test"
		var tries []time.Duration
		start := i.st.Now()
		i.svc.direct.Dialer = func(context.Context, string, string) (net.Conn, error) {
			tries = append(tries, time.Since(start))
			return nil, errors.New("no route to host")
		}
		ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
		i.mustSubmit(ann, plainMessage, "x@far.test")
		i.run()

		time.Sleep(4*time.Hour - time.Second)
		synctest.Wait()
		if got := i.folder(ann, "INBOX"); len(got) != 0 {
			t.Fatalf("%d messages before four hours are over", len(got))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		notice := i.folder(ann, "INBOX")
		if len(notice) != 1 {
			t.Fatalf("%d messages after four hours, want the notice", len(notice))
		}
		r := i.report(notice[0].raw).Recipients[0]
		if r.Action != "delayed" || !r.WillRetryUntil.Equal(start.Add(giveUpAfter).Truncate(time.Second)) || !strings.HasPrefix(r.Status, "4.") {
			t.Errorf("notice: %+v, want %s", r, start.Add(giveUpAfter))
		}
		o := i.row("x@far.test")
		if o.Status != store.OutgoingDeferred || !o.NextAt.Equal(start.Add(minutes(1+5+15+30+60+120+240))) {
			t.Errorf("row after the notice: %+v", o)
		}

		time.Sleep(5 * 24 * time.Hour)
		synctest.Wait()
		i.stop()
		checkTries(t, tries)
		if o := i.row("x@far.test"); o.Status != store.OutgoingBounced || len(o.Log) != min(len(tries), keptAttempts) || o.Attempts != len(tries) {
			t.Errorf("at the end: %+v", o)
		}
		inbox := i.folder(ann, "INBOX")
		if len(inbox) != 2 {
			t.Fatalf("%d messages at the end, want notice and bounce", len(inbox))
		}
		if r := i.report(inbox[1].raw).Recipients[0]; r.Action != "failed" || r.Status != "4.4.7" || !strings.Contains(r.Diagnostic, "no route to host") {
			t.Errorf("bounce: %+v", r)
		}
		if e := i.events(EventEmailBounced); len(e) != 1 || e[0]["bounce_type"] != "soft" || e[0]["bounce_subtype"] != "expired" || e[0]["suppressed"] != false {
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
		at = min(at+retryWait(n+1, 0.5), giveUpAfter)
	}
	if last := tries[len(tries)-1]; last < giveUpAfter || last > giveUpAfter+time.Second {
		t.Errorf("the last try came after %s", last)
	}
}

// TestNoticeIsForThoseWhoAsk: NOTIFY=FAILURE asks for no notice of delay (RFC 3461 section 4.1).
func TestNoticeIsForThoseWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t, Config{})
		ann := i.addMailbox(i.addDomain(i.account, "example.test", func(d *store.Domain) { d.SendingMode = "relay" }), "ann", nil)
		in := Submission{From: ann.Email, Body: i.spool(plainMessage), To: []Rcpt{{Address: "x@far.test", Notify: "FAILURE"}}}
		if _, err := i.svc.Submit(context.Background(), MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in); err != nil {
			t.Fatal(err)
		}
		i.run()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		i.stop()
		if o := i.row("x@far.test"); o.Status != store.OutgoingDeferred || !strings.Contains(o.LastResponse, "no relay is configured") {
			t.Errorf("row %+v", o)
		}
		if got := i.folder(ann, "INBOX"); len(got) != 0 {
			t.Errorf("%d messages", len(got))
		}
	})
}
