package outbound_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/recordid"
)

func TestRelayMintsOneIDForEachRecipient(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	sent := i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"x@far.test, y@far.test"}, Subject: "hello", Text: "hello"})
	x, y := i.Becomes("x@far.test", store.OutgoingRelayed), i.Becomes("y@far.test", store.OutgoingRelayed)
	if sent.Transport != core.ViaRelay || x.Provider != "r1" || x.ProviderMessageID == y.ProviderMessageID || x.Attempts != 1 {
		t.Errorf("sent by %s; rows %+v %+v", sent.Transport, x, y)
	}
	told := i.Events(events.EventMessageRelayed)
	if len(told) != 2 {
		t.Fatalf("%d message.relayed, want 2", len(told))
	}
	for _, e := range told {
		id := i.Row(e["recipient"].(string)).ProviderMessageID
		want := map[string]any{
			"original_message_id": sent.MessageID, "provider_message_id": id, "provider": "r1", "sender": "ann@example.test",
			"sending_domain": "example.test", "user_id": ann.ID, "recipient": e["recipient"], "relayed_at": e["relayed_at"], "tags": map[string]any{},
		}
		if fmt.Sprint(e) != fmt.Sprint(want) || !strings.HasSuffix(id, "@email.amazonses.com>") || e["relayed_at"] == nil {
			t.Errorf("event %v, want %v", e, want)
		}
	}
	for _, m := range h.Mails() {
		v := i.Verify([]byte(m.Data))
		if v.DKIM != auth.Pass || len(v.Signatures) != 2 {
			t.Errorf("DKIM is %s: %+v\n%s", v.DKIM, v.Signatures, m.Data)
		}
		replaced := strings.Replace(m.Data, sent.MessageID, "<minted@email.amazonses.com>", 1)
		if v := i.Verify([]byte(replaced)); v.DKIM != auth.Pass {
			t.Errorf("with the Message-ID replaced DKIM is %s", v.DKIM)
		}
	}
	if subs, js := i.Left(); subs+js != 0 {
		t.Errorf("%d submissions and %d jobs are left", subs, js)
	}
}

func TestLookupGoesBothWaysAndStaysInTheAccount(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	sent := i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"x@far.test", "y@far.test"}, Subject: "hello"})
	i.Becomes("y@far.test", store.OutgoingRelayed)
	minted := i.Becomes("x@far.test", store.OutgoingRelayed).ProviderMessageID
	ctx := context.Background()
	by, err := i.Svc.Outbound.LookupMessage(ctx, servicetest.Actor(i.Account), outbound.LookupIn{Original: strings.Trim(sent.MessageID, "<>")})
	if err != nil || by.Count != 2 || len(by.ProviderMessageIDs) != 2 || *by.OriginalMessageID != sent.MessageID {
		t.Errorf("by the original: %+v, %v", by, err)
	}
	by, err = i.Svc.Outbound.LookupMessage(ctx, servicetest.Actor(i.Account), outbound.LookupIn{Provider: minted})
	if err != nil || by.Count != 1 || *by.OriginalMessageID != sent.MessageID || by.Data[0].Recipient != "x@far.test" {
		t.Errorf("by the provider's: %+v, %v", by, err)
	}
	other := i.AddAccount("other@elsewhere.test")
	by, err = i.Svc.Outbound.LookupMessage(ctx, servicetest.Actor(other), outbound.LookupIn{Provider: minted})
	if err != nil || by.Count != 0 || by.OriginalMessageID != nil || by.ProviderMessageIDs == nil || by.Data == nil {
		t.Errorf("of another account: %+v, %v", by, err)
	}
	for _, in := range []outbound.LookupIn{{}, {Provider: "a", Original: "b"}} {
		if _, err := i.Svc.Outbound.LookupMessage(ctx, servicetest.Actor(i.Account), in); !servicetest.HasCode(err, "exactly_one_parameter") {
			t.Errorf("%+v: %v", in, err)
		}
	}
}

func TestReplyToRelayedMailNamesTheOriginal(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	i.Run()
	sent := i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "hello"})
	minted := i.Becomes("x@far.test", store.OutgoingRelayed).ProviderMessageID
	i.MustSend(bob, submit.SendEmailIn{To: submit.Texts{"ann@example.test"}, Subject: "Re: hello", InReplyTo: minted})
	i.Becomes("ann@example.test", store.OutgoingDelivered)
	if got := i.Folder(ann, "INBOX"); len(got) != 1 || got[0].Meta.OriginalMessageID != sent.MessageID {
		t.Errorf("inbox %+v, want a reply to %s", got, sent.MessageID)
	}
}

func TestCustomRelayWithoutPatternKeepsTheID(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	if o := i.Becomes("x@far.test", store.OutgoingRelayed); o.ProviderMessageID != "" || len(i.Events(events.EventMessageRelayed)) != 0 {
		t.Errorf("row %+v", o)
	}
	replaced := strings.Replace(h.Mails()[0].Data, "<own@example.test>", "<other@example.test>", 1)
	if v := i.Verify([]byte(replaced)); v.DKIM == auth.Pass {
		t.Error("the Message-ID is not signed")
	}
}

func TestDirectMailGoesToTheMX(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSubmit(ann, "Bcc: secret@far.test\n"+strings.ReplaceAll(servicetest.PlainMessage, "\r\n", "\n"), "x@far.test")
	o := i.Becomes("x@far.test", store.OutgoingSent)
	if o.Transport != core.ViaDirect || len(o.Log) != 1 || o.Log[0].Host != "mx.far.test" || !strings.HasPrefix(o.LastResponse, "250 ") {
		t.Errorf("row %+v", o)
	}
	got := h.Mails()[0]
	if !strings.HasSuffix(got.From, "@example.test") || i.Svc.Recipients.BouncedRowID(got.From) != o.ID || strings.Contains(got.Data, "secret") || !strings.HasSuffix(got.Data, "\r\n\r\nhello\r\n") {
		t.Errorf("the host took %+v", got)
	}
	if v := i.Verify([]byte(got.Data)); v.DKIM != auth.Pass || len(v.Signatures) != 2 {
		t.Errorf("DKIM is %s: %+v", v.DKIM, v.Signatures)
	}
	if len(i.Events(events.EventMessageRelayed)) != 0 {
		t.Error("mail sent directly fired message.relayed")
	}
}

func TestSendingModeOfTheDomainCounts(t *testing.T) {
	mx, relay := (&servicetest.Host{}).Start(t), (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: mx.Port, Settings: core.Settings{Relays: []core.Relay{relay.Relay("custom")}}})
	i.DNS.MX["far.test"] = "mx.far.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.SendingMode = "direct" }), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	i.Becomes("x@far.test", store.OutgoingSent)
	if len(mx.Mails()) != 1 || len(relay.Mails()) != 0 {
		t.Errorf("MX has %d, relay %d", len(mx.Mails()), len(relay.Mails()))
	}
}

func TestCaptureWinsOverEverythingButLocal(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture", Relays: []core.Relay{h.Relay("ses")}}})
	d := i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.SendingMode = "relay" })
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	i.Run()
	out := i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Cc: submit.Texts{"bob@example.test"}, Subject: "hello", Text: "hi"})
	if out.Transport != "mixed" {
		t.Errorf("transport %s", out.Transport)
	}
	i.Becomes("x@far.test", store.OutgoingCaptured)
	i.Becomes("bob@example.test", store.OutgoingDelivered)
	if len(h.Mails()) != 0 {
		t.Error("something was sent")
	}
	if got := i.Folder(bob, "INBOX"); len(got) != 1 || got[0].Meta.DMARC != "pass" || i.Verify(got[0].Raw).DKIM != auth.Pass {
		t.Errorf("inbox %+v", got)
	}
	if got := i.Folder(ann, "Sent"); len(got) != 1 || got[0].Flags != store.FlagSeen || strings.Contains(string(got[0].Raw), "DKIM") {
		t.Errorf("Sent: %+v", got)
	}
	if got := i.Events(events.EventEmailReceived); len(got) != 1 || got[0]["mailbox"] != "bob@example.test" {
		t.Errorf("email.received: %v", got)
	}
}

// TestLocalMailIsFiledOnceOverACrash runs the work of a delivery twice without its writes, as if
// the process had died in between, and then starts again.
func TestLocalMailIsFiledOnceOverACrash(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	i.MustSubmit(ann, servicetest.PlainMessage, "bob@example.test")
	for range 2 {
		j := i.DeliveryJob()
		if w, err := i.Svc.Outbound.AttemptDelivery(context.Background(), j, i.Svc.Inbound); w == nil || err != nil {
			t.Fatalf("work: %v", err)
		}
	}
	i.Cut = true
	i.Reopen()
	i.Run()
	i.Becomes("bob@example.test", store.OutgoingDelivered)
	i.Stop()
	if got := i.Folder(bob, "INBOX"); len(got) != 1 || len(i.Events(events.EventEmailReceived)) != 1 {
		t.Errorf("%d messages, %d events", len(got), len(i.Events(events.EventEmailReceived)))
	}
}

func TestRelayThatDropsTheConnectionIsTriedAgain(t *testing.T) {
	h := &servicetest.Host{}
	drops := make(chan bool, 2)
	drops <- true
	drops <- false
	h.During = func(net.Conn) bool { return !<-drops }
	h.Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	o := i.Becomes("x@far.test", store.OutgoingDeferred)
	if o.Attempts != 1 || o.NextAt.Before(time.Now().Add(50*time.Second)) || o.LastResponse == "" {
		t.Errorf("row %+v", o)
	}
	if _, err := i.Svc.Outbound.RetryMessage(context.Background(), servicetest.Actor(i.Account), outbound.SentMessageIn{ID: o.ID}); err != nil {
		t.Fatal(err)
	}
	i.Becomes("x@far.test", store.OutgoingRelayed)
	if n := len(h.Mails()); n != 1 {
		t.Errorf("the relay took %d messages", n)
	}
}

// TestStalledRelayHoldsNobodyElseUp: a relay that does not answer after DATA delays nobody else;
// meanwhile the queue is stopped.
func TestStalledRelayHoldsNobodyElseUp(t *testing.T) {
	h := &servicetest.Host{}
	stalled := make(chan struct{})
	h.During = func(c net.Conn) bool {
		close(stalled)
		_, _ = c.Read(make([]byte, 1<<20))
		_, _ = c.Read(make([]byte, 1))
		return false
	}
	h.Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
	i.Q.Grace = 50 * time.Millisecond
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.AddMailbox(d, "bob", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	<-stalled
	i.MustSubmit(ann, servicetest.PlainMessage, "bob@example.test")
	i.Becomes("bob@example.test", store.OutgoingDelivered)
	i.Stop()
	if o := i.Row("x@far.test"); o.Status != store.OutgoingQueued || o.Attempts != 0 {
		t.Errorf("our own stop counts as the relay's failure: %+v", o)
	}
}

func TestCancelTakesAWaitingMessageBack(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test", "y@far.test")
	ctx, id := context.Background(), i.Row("x@far.test").ID
	if _, err := i.Svc.Submit.CancelMessage(ctx, servicetest.Actor(i.AddAccount("other@elsewhere.test")), outbound.SentMessageIn{ID: id}); !servicetest.HasCode(err, "not_found") {
		t.Errorf("by another account: %v", err)
	}
	out, err := i.Svc.Submit.CancelMessage(ctx, servicetest.Actor(i.Account), outbound.SentMessageIn{ID: id})
	if err != nil || out.Status != store.OutgoingCancelled {
		t.Fatalf("%+v, %v", out, err)
	}
	if _, err := i.Svc.Outbound.RetryMessage(ctx, servicetest.Actor(i.Account), outbound.SentMessageIn{ID: id}); !servicetest.HasCode(err, "not_queued") {
		t.Errorf("retry of a cancelled message: %v", err)
	}
	i.Run()
	i.Becomes("y@far.test", store.OutgoingCaptured)
	if o := i.Row("x@far.test"); o.Status != store.OutgoingCancelled {
		t.Errorf("row %+v", o)
	}
	if subs, js := i.Left(); subs+js != 0 {
		t.Errorf("%d submissions and %d jobs are left", subs, js)
	}
}

func TestSendingLogFilters(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	other := i.AddAccount("other@elsewhere.test")
	eve := i.AddMailbox(i.AddDomain(other, "other.test", nil), "eve", nil)
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"x@far.test", "y@far.test"}, Subject: "one"})
	i.MustSend(bob, submit.SendEmailIn{To: submit.Texts{"z@far.test"}, Subject: "two"})
	i.MustSend(eve, submit.SendEmailIn{To: submit.Texts{"w@far.test"}, Subject: "three"})
	today := time.Now().UTC().Format(time.DateOnly)
	for _, c := range []struct {
		in   outbound.ListMessagesIn
		want string
	}{
		{outbound.ListMessagesIn{}, "z y x"},
		{outbound.ListMessagesIn{Mailbox: "ann@example.test"}, "y x"},
		{outbound.ListMessagesIn{Recipient: "X@far.test"}, "x"},
		{outbound.ListMessagesIn{Domain: "example.test", Status: "queued", DateFrom: today, DateTo: today}, "z y x"},
		{outbound.ListMessagesIn{Domain: "other.test"}, ""},
		{outbound.ListMessagesIn{Status: "sent"}, ""},
		{outbound.ListMessagesIn{DateTo: "2020-01-01"}, ""},
		{outbound.ListMessagesIn{Sort: "queued_at"}, "x y z"},
		{outbound.ListMessagesIn{Sort: "queued_at", DateTo: "2020-01-01"}, ""},
		{outbound.ListMessagesIn{Sort: "queued_at", DateFrom: today, Mailbox: "ann@example.test"}, "x y"},
	} {
		page, err := i.Svc.Outbound.ListMessages(context.Background(), servicetest.Actor(i.Account), c.in)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range page.Data {
			got = append(got, strings.TrimSuffix(m.Recipient, "@far.test"))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %v, want %s", c.in, got, c.want)
		}
	}
	if _, err := i.Svc.Outbound.ListMessages(context.Background(), servicetest.Actor(i.Account), outbound.ListMessagesIn{DateFrom: "yesterday"}); !servicetest.HasCode(err, "validation_error") {
		t.Errorf("a bad date: %v", err)
	}
}

// TestSendingLogUpToADay: the log with date_to has every row up to that day, including rows queued
// shortly after the clock was set back.
func TestSendingLogUpToADay(t *testing.T) {
	s, who := servicetest.NewBare(t)
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	made := []time.Duration{-25 * time.Hour, -time.Millisecond, 0, time.Minute, 9 * time.Minute, time.Hour, 24*time.Hour - time.Millisecond, 24 * time.Hour, 200 * time.Hour}
	servicetest.Update(t, s, func(tx *store.Tx) error {
		for n, after := range made {
			o := &store.Outgoing{ID: recordid.First("msg", midnight.Add(after)), AccountID: who.AccountID, Recipient: fmt.Sprint(n), Status: store.OutgoingSent, QueuedAt: midnight.Add(after)}
			if after == 9*time.Minute {
				o.QueuedAt = midnight.Add(-time.Second)
			}
			if err := store.Outgoings.Put(tx, o); err != nil {
				return err
			}
		}
		return nil
	})
	for day, want := range map[string]string{"0001-01-01": "", "1969-12-31": "", "2026-02-27": "", "2026-02-28": "0", "2026-03-01": "4 1 0", "2026-03-02": "6 5 4 3 2 1 0", "2026-03-31": "8 7 6 5 4 3 2 1 0", "9999-12-31": "8 7 6 5 4 3 2 1 0"} {
		for _, limit := range []int{2, 50} {
			got := recipients(t, s, who, outbound.ListMessagesIn{Query: page.Query{Limit: &limit}, DateTo: day, Status: store.OutgoingSent})
			if strings.Join(got, " ") != want {
				t.Errorf("up to %s: %v, want %s", day, got, want)
			}
			slices.Reverse(got)
			if up := recipients(t, s, who, outbound.ListMessagesIn{Query: page.Query{Limit: &limit}, DateTo: day, Sort: "queued_at"}); !slices.Equal(up, got) {
				t.Errorf("up to %s, oldest first: %v, want %v", day, up, got)
			}
		}
	}
	for _, sort := range []string{"queued_at", "-queued_at"} {
		got := recipients(t, s, who, outbound.ListMessagesIn{DateFrom: "2026-03-02", DateTo: "2026-03-02", Sort: sort})
		slices.Sort(got)
		if want := "2 3 5 6"; strings.Join(got, " ") != want {
			t.Errorf("of one day, %s: %v, want %s", sort, got, want)
		}
	}
}

// recipients returns the recipients of the sending log's rows, from all pages.
func recipients(t *testing.T, s *service.Service, who core.Actor, in outbound.ListMessagesIn) (all []string) {
	t.Helper()
	for {
		page, err := s.Outbound.ListMessages(t.Context(), who, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Data {
			all = append(all, m.Recipient)
		}
		if !page.Pagination.HasMore {
			return all
		}
		in.Cursor = *page.Pagination.Cursor
	}
}

// TestSendingLogByStatus: the log of each status has its rows, newest and oldest first, wherever
// that status is looked up, and one page is enough for a status that few of many rows have.
func TestSendingLogByStatus(t *testing.T) {
	s, who := servicetest.NewBare(t)
	statuses := []string{
		store.OutgoingQueued, store.OutgoingScheduled, store.OutgoingHeld, store.OutgoingSent, store.OutgoingDelivered, store.OutgoingRelayed, store.OutgoingCaptured,
		store.OutgoingDeferred, store.OutgoingBounced, store.OutgoingComplained, store.OutgoingSuppressed, store.OutgoingCancelled, store.OutgoingRejected,
	}
	at := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	put := func(account string, n int, status string) {
		servicetest.Update(t, s, func(tx *store.Tx) error {
			return store.Outgoings.Put(tx, &store.Outgoing{ID: recordid.First("msg", at.Add(time.Duration(n)*time.Second)), AccountID: account, Recipient: fmt.Sprint(n), Status: status, QueuedAt: at.Add(time.Duration(n) * time.Second)})
		})
	}
	want := map[string][]string{}
	for n := range 3 * len(statuses) {
		status := statuses[n%len(statuses)]
		put(who.AccountID, n, store.OutgoingQueued)
		put(who.AccountID, n, status) // as it changes, so does its place
		want[status] = append([]string{fmt.Sprint(n)}, want[status]...)
	}
	put("acc_other", 100, store.OutgoingBounced)
	for _, status := range statuses {
		for _, limit := range []int{1, 2, 50} {
			in := outbound.ListMessagesIn{Query: page.Query{Limit: &limit}, Status: status}
			if got := recipients(t, s, who, in); !slices.Equal(got, want[status]) {
				t.Errorf("%s: %v, want %v", status, got, want[status])
			}
			in.Sort = "queued_at"
			up := slices.Clone(want[status])
			slices.Reverse(up)
			if got := recipients(t, s, who, in); !slices.Equal(got, up) {
				t.Errorf("%s, oldest first: %v, want %v", status, got, up)
			}
		}
	}
	for from := range 5 {
		servicetest.Update(t, s, func(tx *store.Tx) error {
			for n := range 1000 {
				id := recordid.First("msg", at.Add(time.Hour+time.Duration(1000*from+n)*time.Second))
				if err := store.Outgoings.Put(tx, &store.Outgoing{ID: id, AccountID: who.AccountID, Status: store.OutgoingDelivered, QueuedAt: at.Add(time.Hour)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	one, err := s.Outbound.ListMessages(t.Context(), who, outbound.ListMessagesIn{Status: store.OutgoingBounced})
	if err != nil || len(one.Data) != 3 || one.Pagination.HasMore {
		t.Errorf("the rows that bounced, behind many others: %+v, %v", one, err)
	}
}

// TestGivenUpJobClosesItsRow: a bug stops every attempt.
func TestGivenUpJobClosesItsRow(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	j := i.DeliveryJob()
	i.Update(func(tx *store.Tx) error {
		return i.Svc.Outbound.DeliveryFailed(tx, j, jobs.Permanent(context.DeadlineExceeded))
	})
	if o := i.Row("x@far.test"); o.Status != store.OutgoingBounced || !strings.Contains(o.LastResponse, "given up") || len(i.Events(events.EventEmailBounced)) != 1 {
		t.Errorf("row %+v", o)
	}
}

// BenchmarkSubmissionToRelay measures messages of 2 KiB from Submit, by eight clients, to the
// relay's 250.
func BenchmarkSubmissionToRelay(b *testing.B) {
	var got atomic.Int64
	all := make(chan struct{})
	h := (&servicetest.Host{Answer: func(n int, _ servicetest.Taken) string {
		if got.Add(1) == int64(b.N) {
			close(all)
		}
		return fmt.Sprintf("250 Ok id-%d", n)
	}}).Start(b)
	i := servicetest.Install(b, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
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
			_, err := i.Svc.Submit.Submit(context.Background(), user, submit.Submission{From: ann.Email, Body: sp, To: []outbound.Rcpt{{Address: "x@far.test"}}})
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

// TestFiveDaysOfRetries: a host stays unreachable.
func TestFiveDaysOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := servicetest.Install(t, core.Config{})
		i.Q.Rand = func() float64 { return 0.5 } // no jitter
		i.DNS.MX["far.test"] = "mx.far.test"
		var tries []time.Duration
		start := i.St.Now()
		i.Svc.Outbound.Direct().Dialer = func(context.Context, string, string) (net.Conn, error) {
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
		if r.Action != "delayed" || !r.WillRetryUntil.Equal(start.Add(outbound.GiveUpAfter).Truncate(time.Second)) || !strings.HasPrefix(r.Status, "4.") {
			t.Errorf("notice: %+v, want %s", r, start.Add(outbound.GiveUpAfter))
		}
		o := i.Row("x@far.test")
		if o.Status != store.OutgoingDeferred || !o.NextAt.Equal(start.Add(minutes(1+5+15+30+60+120+240))) {
			t.Errorf("row after the notice: %+v", o)
		}

		time.Sleep(5 * 24 * time.Hour)
		synctest.Wait()
		i.Stop()
		checkTries(t, tries)
		if o := i.Row("x@far.test"); o.Status != store.OutgoingBounced || len(o.Log) != min(len(tries), outbound.KeptAttempts) || o.Attempts != len(tries) {
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

// checkTries checks the waits between attempts, and that the last attempt is at the date in the
// delay notice.
func checkTries(t *testing.T, tries []time.Duration) {
	t.Helper()
	at := time.Duration(0)
	for n, got := range tries {
		if d := got - at; d < 0 || d > time.Second {
			t.Errorf("try %d came after %s, want %s", n+1, got, at)
		}
		at = min(at+outbound.RetryWait(n+1, 0.5), outbound.GiveUpAfter)
	}
	if last := tries[len(tries)-1]; last < outbound.GiveUpAfter || last > outbound.GiveUpAfter+time.Second {
		t.Errorf("the last try came after %s", last)
	}
}

// TestNoticeIsForThoseWhoAsk: NOTIFY=FAILURE requests no delay notice (RFC 3461 section 4.1).
func TestNoticeIsForThoseWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := servicetest.Install(t, core.Config{})
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.SendingMode = "relay" }), "ann", nil)
		in := submit.Submission{From: ann.Email, Body: i.Spool(servicetest.PlainMessage), To: []outbound.Rcpt{{Address: "x@far.test", Notify: "FAILURE"}}}
		if _, err := i.Svc.Submit.Submit(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in); err != nil {
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

// TestDamagedMessageIsNotSent: the row says why, and after five days the sender gets a report.
func TestDamagedMessageIsNotSent(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"x@far.test, y@far.test"}, Subject: "hello", Text: "a text to damage"})
	i.Update(func(tx *store.Tx) error {
		for row := range store.Outgoings.All(tx) {
			if row.Recipient == "y@far.test" {
				row.QueuedAt = row.QueuedAt.AddDate(0, 0, -6)
				return store.Outgoings.Put(tx, row)
			}
		}
		return nil
	})
	turn := func(from, to string) {
		name := filepath.Join(i.St.Dir(), "segments", "00000001.seg")
		data, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(data, []byte(from)) {
			t.Fatalf("%q is not in the segment, %v", from, err)
		}
		if err := os.WriteFile(name, bytes.Replace(data, []byte(from), []byte(to), 1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	turn("a text to damage", "A text to damage")
	i.Run()
	if row := i.Becomes("x@far.test", store.OutgoingDeferred); !strings.Contains(row.LastResponse, "damaged on this server's disk") || row.NextAt.IsZero() {
		t.Errorf("the row: %+v", row)
	}
	i.Becomes("y@far.test", store.OutgoingBounced)
	if told := i.Folder(ann, "INBOX"); len(told) != 1 || !strings.Contains(strings.ReplaceAll(string(told[0].Raw), "\r\n", " "), "message is damaged on") {
		t.Errorf("the sender is told %v", told)
	}
	if n := len(h.Mails()); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
	turn("A text to damage", "a text to damage")
}

// TestParkedDeliveryIsNotLost: a delivery during which the server has died three times is parked.
// Its row says so, its sender cannot retry it, and the operator can unpark it.
func TestParkedDeliveryIsNotLost(t *testing.T) {
	t.Run("resumed", func(t *testing.T) { parksADelivery(t, false) })
	t.Run("cancelled", func(t *testing.T) { parksADelivery(t, true) })
}

func parksADelivery(t *testing.T, cancels bool) {
	var harmless atomic.Bool
	taken, goOn := make(chan struct{}), make(chan struct{})
	h := (&servicetest.Host{Answer: func(int, servicetest.Taken) string {
		if !harmless.Load() {
			taken <- struct{}{}
			<-goOn
		}
		return "250 Ok"
	}}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	who := servicetest.Actor(i.Account)
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "hello", Text: "hello"})
	for range 3 {
		i.Update(func(tx *store.Tx) error { return i.Q.Wake(tx, i.Row("x@far.test").JobID, time.Time{}) }) // a suspect waits a little
		i.Run()
		select {
		case <-taken:
		case <-time.After(20 * time.Second):
			t.Fatalf("it does not run: %+v", i.Row("x@far.test"))
		}
		release := i.Stall()
		i.Crash(func() {
			release()
			goOn <- struct{}{}
		})
	}
	i.Run()
	row := i.Row("x@far.test")
	for end := time.Now().Add(10 * time.Second); !strings.Contains(row.LastResponse, "parked") && time.Now().Before(end); row = i.Row("x@far.test") {
		time.Sleep(5 * time.Millisecond)
	}
	shown, err := i.Svc.Outbound.GetSentMessage(t.Context(), who, outbound.SentMessageIn{ID: row.ID})
	if err != nil || shown.Status != store.OutgoingQueued || !shown.NextAttemptAt.IsZero() || shown.LastResponse == nil || !strings.Contains(*shown.LastResponse, "ended 3 times in a row") {
		t.Fatalf("%+v, %v", shown, err)
	}
	if _, err := i.Svc.Outbound.RetryMessage(t.Context(), who, outbound.SentMessageIn{ID: row.ID}); core.Explain(err).Code != "not_queued" {
		t.Errorf("retry: %v", err)
	}
	harmless.Store(true)
	before := len(h.Mails()) // the host took it each time, and nobody heard that
	if cancels {             // it is taken back at once, and leaves no job behind that could deliver it
		gone, err := i.Svc.Submit.CancelMessage(t.Context(), who, outbound.SentMessageIn{ID: row.ID})
		if err != nil || gone.Status != store.OutgoingCancelled {
			t.Fatalf("%+v, %v", gone, err)
		}
		if left, err := i.Svc.Health.ListParkedJobs(t.Context(), struct{}{}); err != nil || left.Count != 0 {
			t.Errorf("parked still: %+v, %v", left, err)
		}
		if _, err := i.Svc.Health.ResumeJobs(t.Context(), health.ResumeJobsIn{Job: row.JobID}); err == nil {
			t.Error("a cancelled delivery was resumed")
		}
		i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"y@far.test"}, Subject: "hello", Text: "hello"})
		i.Becomes("y@far.test", store.OutgoingRelayed)
		if n := len(h.Mails()) - before; n != 1 {
			t.Errorf("%d messages were delivered", n)
		}
		return
	}
	if out, err := i.Svc.Health.ResumeJobs(t.Context(), health.ResumeJobsIn{Job: row.JobID}); err != nil || len(out.Jobs) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	i.Becomes("x@far.test", store.OutgoingRelayed)
}
