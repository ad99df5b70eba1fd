package service

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/store"
)

const plainMessage = "From: Ann <ann@example.test>\r\nTo: somebody\r\nSubject: hello\r\nMessage-ID: <own@example.test>\r\nDate: Fri, 20 Nov 2026 10:00:00 +0000\r\n\r\nhello\r\n"

func TestRelayMintsOneIDForEachRecipient(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("ses")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	sent := i.mustSend(ann, SendEmailIn{To: Texts{"x@far.test, y@far.test"}, Subject: "hello", Text: "hello"})
	x, y := i.becomes("x@far.test", store.OutgoingRelayed), i.becomes("y@far.test", store.OutgoingRelayed)
	if sent.Transport != viaRelay || x.Provider != "r1" || x.ProviderMessageID == y.ProviderMessageID || x.Attempts != 1 {
		t.Errorf("sent by %s; rows %+v %+v", sent.Transport, x, y)
	}
	told := i.events(EventMessageRelayed)
	if len(told) != 2 {
		t.Fatalf("%d message.relayed, want 2", len(told))
	}
	for _, e := range told {
		id := i.row(e["recipient"].(string)).ProviderMessageID
		want := map[string]any{
			"original_message_id": sent.MessageID, "provider_message_id": id, "provider": "r1", "sender": "ann@example.test",
			"sending_domain": "example.test", "user_id": ann.ID, "recipient": e["recipient"], "relayed_at": e["relayed_at"],
		}
		if fmt.Sprint(e) != fmt.Sprint(want) || !strings.HasSuffix(id, "@email.amazonses.com>") || e["relayed_at"] == nil {
			t.Errorf("event %v, want %v", e, want)
		}
	}
	for _, m := range h.mails() {
		v := i.verify([]byte(m.data))
		if v.DKIM != auth.Pass || len(v.Signatures) != 2 {
			t.Errorf("DKIM is %s: %+v\n%s", v.DKIM, v.Signatures, m.data)
		}
		replaced := strings.Replace(m.data, sent.MessageID, "<minted@email.amazonses.com>", 1)
		if v := i.verify([]byte(replaced)); v.DKIM != auth.Pass {
			t.Errorf("with the Message-ID replaced DKIM is %s", v.DKIM)
		}
	}
	if subs, js := i.left(); subs+js != 0 {
		t.Errorf("%d submissions and %d jobs are left", subs, js)
	}
}

func TestLookupGoesBothWaysAndStaysInTheAccount(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("ses")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	sent := i.mustSend(ann, SendEmailIn{To: Texts{"x@far.test", "y@far.test"}, Subject: "hello"})
	i.becomes("y@far.test", store.OutgoingRelayed)
	minted := i.becomes("x@far.test", store.OutgoingRelayed).ProviderMessageID
	ctx := context.Background()
	by, err := i.svc.LookupMessage(ctx, actor(i.account), LookupIn{Original: strings.Trim(sent.MessageID, "<>")})
	if err != nil || by.Count != 2 || len(by.ProviderMessageIDs) != 2 || *by.OriginalMessageID != sent.MessageID {
		t.Errorf("by the original: %+v, %v", by, err)
	}
	by, err = i.svc.LookupMessage(ctx, actor(i.account), LookupIn{Provider: minted})
	if err != nil || by.Count != 1 || *by.OriginalMessageID != sent.MessageID || by.Data[0].Recipient != "x@far.test" {
		t.Errorf("by the provider's: %+v, %v", by, err)
	}
	other := i.addAccount("other@elsewhere.test")
	by, err = i.svc.LookupMessage(ctx, actor(other), LookupIn{Provider: minted})
	if err != nil || by.Count != 0 || by.OriginalMessageID != nil || by.ProviderMessageIDs == nil || by.Data == nil {
		t.Errorf("of another account: %+v, %v", by, err)
	}
	for _, in := range []LookupIn{{}, {Provider: "a", Original: "b"}} {
		if _, err := i.svc.LookupMessage(ctx, actor(i.account), in); !hasCode(err, "exactly_one_parameter") {
			t.Errorf("%+v: %v", in, err)
		}
	}
}

func hasCode(err error, code string) bool {
	e, ok := AsError(err)
	return ok && e.Code == code
}

func TestReplyToRelayedMailNamesTheOriginal(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("ses")}})
	d := i.addDomain(i.account, "example.test", nil)
	ann, bob := i.addMailbox(d, "ann", nil), i.addMailbox(d, "bob", nil)
	i.run()
	sent := i.mustSend(ann, SendEmailIn{To: Texts{"x@far.test"}, Subject: "hello"})
	minted := i.becomes("x@far.test", store.OutgoingRelayed).ProviderMessageID
	i.mustSend(bob, SendEmailIn{To: Texts{"ann@example.test"}, Subject: "Re: hello", InReplyTo: minted})
	i.becomes("ann@example.test", store.OutgoingDelivered)
	if got := i.folder(ann, "INBOX"); len(got) != 1 || got[0].meta.OriginalMessageID != sent.MessageID {
		t.Errorf("inbox %+v, want a reply to %s", got, sent.MessageID)
	}
}

func TestCustomRelayWithoutPatternKeepsTheID(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("custom")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	i.mustSubmit(ann, plainMessage, "x@far.test")
	if o := i.becomes("x@far.test", store.OutgoingRelayed); o.ProviderMessageID != "" || len(i.events(EventMessageRelayed)) != 0 {
		t.Errorf("row %+v", o)
	}
	replaced := strings.Replace(h.mails()[0].data, "<own@example.test>", "<other@example.test>", 1)
	if v := i.verify([]byte(replaced)); v.DKIM == auth.Pass {
		t.Error("the Message-ID is not signed")
	}
}

func TestDirectMailGoesToTheMX(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{MXPort: h.port})
	i.dns.mx["far.test"] = "mx.far.test"
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	i.mustSubmit(ann, "Bcc: secret@far.test\n"+strings.ReplaceAll(plainMessage, "\r\n", "\n"), "x@far.test")
	o := i.becomes("x@far.test", store.OutgoingSent)
	if o.Transport != viaDirect || len(o.Log) != 1 || o.Log[0].Host != "mx.far.test" || !strings.HasPrefix(o.LastResponse, "250 ") {
		t.Errorf("row %+v", o)
	}
	got := h.mails()[0]
	if !strings.HasSuffix(got.from, "@example.test") || i.svc.bouncedRow(got.from) != o.ID || strings.Contains(got.data, "secret") || !strings.HasSuffix(got.data, "\r\n\r\nhello\r\n") {
		t.Errorf("the host took %+v", got)
	}
	if v := i.verify([]byte(got.data)); v.DKIM != auth.Pass || len(v.Signatures) != 2 {
		t.Errorf("DKIM is %s: %+v", v.DKIM, v.Signatures)
	}
	if len(i.events(EventMessageRelayed)) != 0 {
		t.Error("mail sent directly fired message.relayed")
	}
}

func TestSendingModeOfTheDomainCounts(t *testing.T) {
	mx, relay := (&host{}).start(t), (&host{}).start(t)
	i := install(t, Config{MXPort: mx.port, Relays: []Relay{relay.relay("custom")}})
	i.dns.mx["far.test"] = "mx.far.test"
	ann := i.addMailbox(i.addDomain(i.account, "example.test", func(d *store.Domain) { d.SendingMode = "direct" }), "ann", nil)
	i.run()
	i.mustSubmit(ann, plainMessage, "x@far.test")
	i.becomes("x@far.test", store.OutgoingSent)
	if len(mx.mails()) != 1 || len(relay.mails()) != 0 {
		t.Errorf("MX has %d, relay %d", len(mx.mails()), len(relay.mails()))
	}
}

func TestCaptureWinsOverEverythingButLocal(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Outbound: "capture", Relays: []Relay{h.relay("ses")}})
	d := i.addDomain(i.account, "example.test", func(d *store.Domain) { d.SendingMode = "relay" })
	ann, bob := i.addMailbox(d, "ann", nil), i.addMailbox(d, "bob", nil)
	i.run()
	out := i.mustSend(ann, SendEmailIn{To: Texts{"x@far.test"}, Cc: Texts{"bob@example.test"}, Subject: "hello", Text: "hi"})
	if out.Transport != "mixed" {
		t.Errorf("transport %s", out.Transport)
	}
	i.becomes("x@far.test", store.OutgoingCaptured)
	i.becomes("bob@example.test", store.OutgoingDelivered)
	if len(h.mails()) != 0 {
		t.Error("something was sent")
	}
	if got := i.folder(bob, "INBOX"); len(got) != 1 || got[0].meta.DMARC != "pass" || i.verify(got[0].raw).DKIM != auth.Pass {
		t.Errorf("inbox %+v", got)
	}
	if got := i.folder(ann, "Sent"); len(got) != 1 || got[0].Flags != store.FlagSeen || strings.Contains(string(got[0].raw), "DKIM") {
		t.Errorf("Sent: %+v", got)
	}
	if got := i.events(EventEmailReceived); len(got) != 1 || got[0]["mailbox"] != "bob@example.test" {
		t.Errorf("email.received: %v", got)
	}
}

// TestLocalMailIsFiledOnceOverACrash does the work of a delivery twice without its writes, as if
// the process had died in between, and then starts again.
func TestLocalMailIsFiledOnceOverACrash(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	d := i.addDomain(i.account, "example.test", nil)
	ann, bob := i.addMailbox(d, "ann", nil), i.addMailbox(d, "bob", nil)
	i.mustSubmit(ann, plainMessage, "bob@example.test")
	for range 2 {
		j := i.deliveryJob()
		if w, err := i.svc.handOn(context.Background(), j); w == nil || err != nil {
			t.Fatalf("work: %v", err)
		}
	}
	i.cut = true
	i.reopen()
	i.run()
	i.becomes("bob@example.test", store.OutgoingDelivered)
	i.stop()
	if got := i.folder(bob, "INBOX"); len(got) != 1 || len(i.events(EventEmailReceived)) != 1 {
		t.Errorf("%d messages, %d events", len(got), len(i.events(EventEmailReceived)))
	}
}

func (i *installation) deliveryJob() *store.Job {
	i.t.Helper()
	var found *store.Job
	err := i.st.View(func(tx *store.Tx) error {
		for j := range store.Jobs.All(tx) {
			if j.Kind == kindDeliver || j.Kind == kindDirect || j.Kind == kindRelay {
				found = j
			}
		}
		return nil
	})
	if err != nil || found == nil {
		i.t.Fatalf("no delivery job: %v", err)
	}
	return found
}

func TestRelayThatDropsTheConnectionIsTriedAgain(t *testing.T) {
	h := &host{}
	drops := make(chan bool, 2)
	drops <- true
	drops <- false
	h.during = func(net.Conn) bool { return !<-drops }
	h.start(t)
	i := install(t, Config{Relays: []Relay{h.relay("ses")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	i.mustSubmit(ann, plainMessage, "x@far.test")
	o := i.becomes("x@far.test", store.OutgoingDeferred)
	if o.Attempts != 1 || o.NextAt.Before(time.Now().Add(50*time.Second)) || o.LastResponse == "" {
		t.Errorf("row %+v", o)
	}
	if _, err := i.svc.RetryMessage(context.Background(), actor(i.account), SentMessageIn{ID: o.ID}); err != nil {
		t.Fatal(err)
	}
	i.becomes("x@far.test", store.OutgoingRelayed)
	if n := len(h.mails()); n != 1 {
		t.Errorf("the relay took %d messages", n)
	}
}

// TestStalledRelayHoldsNobodyElseUp has a relay that says nothing after DATA, and stops the queue
// meanwhile.
func TestStalledRelayHoldsNobodyElseUp(t *testing.T) {
	h := &host{}
	stalled := make(chan struct{})
	h.during = func(c net.Conn) bool {
		close(stalled)
		_, _ = c.Read(make([]byte, 1<<20))
		_, _ = c.Read(make([]byte, 1))
		return false
	}
	h.start(t)
	i := install(t, Config{Relays: []Relay{h.relay("ses")}})
	i.q.Grace = 50 * time.Millisecond
	d := i.addDomain(i.account, "example.test", nil)
	ann := i.addMailbox(d, "ann", nil)
	i.addMailbox(d, "bob", nil)
	i.run()
	i.mustSubmit(ann, plainMessage, "x@far.test")
	<-stalled
	i.mustSubmit(ann, plainMessage, "bob@example.test")
	i.becomes("bob@example.test", store.OutgoingDelivered)
	i.stop()
	if o := i.row("x@far.test"); o.Status != store.OutgoingQueued || o.Attempts != 0 {
		t.Errorf("our own stop counts as the relay's failure: %+v", o)
	}
}

func TestCancelTakesAWaitingMessageBack(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.mustSubmit(ann, plainMessage, "x@far.test", "y@far.test")
	ctx, id := context.Background(), i.row("x@far.test").ID
	if _, err := i.svc.CancelMessage(ctx, actor(i.addAccount("other@elsewhere.test")), SentMessageIn{ID: id}); !hasCode(err, "not_found") {
		t.Errorf("by another account: %v", err)
	}
	out, err := i.svc.CancelMessage(ctx, actor(i.account), SentMessageIn{ID: id})
	if err != nil || out.Status != store.OutgoingCancelled {
		t.Fatalf("%+v, %v", out, err)
	}
	if _, err := i.svc.RetryMessage(ctx, actor(i.account), SentMessageIn{ID: id}); !hasCode(err, "validation_error") {
		t.Errorf("retry of a cancelled message: %v", err)
	}
	i.run()
	i.becomes("y@far.test", store.OutgoingCaptured)
	if o := i.row("x@far.test"); o.Status != store.OutgoingCancelled {
		t.Errorf("row %+v", o)
	}
	if subs, js := i.left(); subs+js != 0 {
		t.Errorf("%d submissions and %d jobs are left", subs, js)
	}
}

func TestSendingLogFilters(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	d := i.addDomain(i.account, "example.test", nil)
	ann, bob := i.addMailbox(d, "ann", nil), i.addMailbox(d, "bob", nil)
	other := i.addAccount("other@elsewhere.test")
	eve := i.addMailbox(i.addDomain(other, "other.test", nil), "eve", nil)
	i.mustSend(ann, SendEmailIn{To: Texts{"x@far.test", "y@far.test"}, Subject: "one"})
	i.mustSend(bob, SendEmailIn{To: Texts{"z@far.test"}, Subject: "two"})
	i.mustSend(eve, SendEmailIn{To: Texts{"w@far.test"}, Subject: "three"})
	today := time.Now().UTC().Format(time.DateOnly)
	for _, c := range []struct {
		in   ListMessagesIn
		want string
	}{
		{ListMessagesIn{}, "z y x"},
		{ListMessagesIn{Mailbox: "ann@example.test"}, "y x"},
		{ListMessagesIn{Recipient: "X@far.test"}, "x"},
		{ListMessagesIn{Domain: "example.test", Status: "queued", DateFrom: today, DateTo: today}, "z y x"},
		{ListMessagesIn{Domain: "other.test"}, ""},
		{ListMessagesIn{Status: "sent"}, ""},
		{ListMessagesIn{DateTo: "2020-01-01"}, ""},
	} {
		page, err := i.svc.ListMessages(context.Background(), actor(i.account), c.in)
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
	if _, err := i.svc.ListMessages(context.Background(), actor(i.account), ListMessagesIn{DateFrom: "yesterday"}); !hasCode(err, "validation_error") {
		t.Errorf("a bad date: %v", err)
	}
}

// TestGivenUpJobClosesItsRow is what a bug that stops every attempt comes to.
func TestGivenUpJobClosesItsRow(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.mustSubmit(ann, plainMessage, "x@far.test")
	j := i.deliveryJob()
	i.update(func(tx *store.Tx) error { return i.svc.deliveryFailed(tx, j, jobs.Permanent(context.DeadlineExceeded)) })
	if o := i.row("x@far.test"); o.Status != store.OutgoingBounced || !strings.Contains(o.LastResponse, "given up") || len(i.events(EventEmailBounced)) != 1 {
		t.Errorf("row %+v", o)
	}
}
