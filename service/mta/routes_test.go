package mta_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestRelayOfTheMailboxThenOfTheDomain sends the same way as somebody sets, and takes back, both.
func TestRelayOfTheMailboxThenOfTheDomain(t *testing.T) {
	first, second, third := (&servicetest.Host{}).Start(t), (&servicetest.Host{}).Start(t), (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Relays: []core.Relay{first.Named("r1", "ses"), second.Named("r2", "mailgun"), third.Named("r3", "sendgrid")}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.Run()
	is := func(name string) core.Opt[string] { return core.Opt[string]{Set: true, Value: name} }
	for n, step := range []struct {
		domain, mailbox core.Opt[string]
		want            string
	}{
		{want: "r1"},
		{domain: is("r2"), want: "r2"},
		{mailbox: is("r3"), want: "r3"},
		{domain: is(""), want: "r3"},
		{mailbox: is(""), want: "r1"},
	} {
		i.Choose(t, d, step.domain, ann, step.mailbox)
		to := string(rune('a'+n)) + "@far.test"
		i.MustSubmit(ann, servicetest.PlainMessage, to)
		if o := i.Becomes(to, store.OutgoingRelayed); o.Provider != step.want {
			t.Errorf("step %d went by %s, want %s", n, o.Provider, step.want)
		}
	}
}

func TestUnknownRelaysAreRefused(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Relays: []core.Relay{h.Relay("ses")}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	bad := core.Opt[string]{Set: true, Value: "r9"}
	if _, err := i.Svc.UpdateDomain(context.Background(), servicetest.Actor(i.Account), domains.UpdateDomainIn{DomainID: d.ID, Relay: bad}); !servicetest.HasCode(err, "validation_error") || !strings.Contains(err.Error(), "r1") {
		t.Errorf("domain: %v", err)
	}
	if _, err := i.Svc.UpdateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.UpdateEmailUserIn{UserID: ann.ID, Relay: bad}); !servicetest.HasCode(err, "validation_error") {
		t.Errorf("mailbox: %v", err)
	}
}

// TestMailWaitsForTheRelayThatWasChosen: one that the operator took away is no reason to go another
// way.
func TestMailWaitsForTheRelayThatWasChosen(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Relays: []core.Relay{h.Relay("ses")}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.Relay = "gone" }), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	if o := i.Becomes("x@far.test", store.OutgoingDeferred); !strings.Contains(o.LastResponse, "gone") || len(h.Mails()) != 0 {
		t.Errorf("row %+v", o)
	}
}

// TestDirectWinsOverTheDomainsRelay: the sending mode says whether, the relay only which.
func TestDirectWinsOverTheDomainsRelay(t *testing.T) {
	mx, relay := (&servicetest.Host{}).Start(t), (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: mx.Port, Relays: []core.Relay{relay.Relay("ses")}})
	i.DNS.MX["far.test"] = "mx.far.test"
	d := i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.Relay, d.SendingMode = "r1", core.ViaDirect })
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", func(mb *store.Mailbox) { mb.Relay = "r1" })
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	i.Becomes("x@far.test", store.OutgoingSent)
	i.MustSubmit(bob, strings.ReplaceAll(servicetest.PlainMessage, "ann@", "bob@"), "y@far.test")
	i.Becomes("y@far.test", store.OutgoingRelayed)
}

// TestWhatEachRelayGets sends the same message through every kind: which fields it wants, what is
// signed, what it minted.
func TestWhatEachRelayGets(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(r *core.Relay)
		answer   string
		minted   string
		keepsID  bool // a signature covers the Message-ID
		unsigned bool
		field    string
	}{
		"ses":                  {answer: "250 Ok 0100018f-abc", minted: "<0100018f-abc@email.amazonses.com>"},
		"postmark":             {answer: "250 2.0.0 Ok: queued as abc", keepsID: true, field: "X-PM-KeepID: true\r\n"},
		"mailgun":              {answer: "250 Great success", keepsID: true},
		"sendgrid":             {answer: "250 Ok: queued as abc", keepsID: true},
		"custom":               {answer: "250 Ok", keepsID: true},
		"custom, minting":      {answer: "250 id=abc", minted: "<abc@relay.test>", change: func(r *core.Relay) { r.IDPattern, r.IDTemplate = `id=(\w+)`, "<{1}@relay.test>" }},
		"mailgun, signs alone": {answer: "250 ok", unsigned: true, change: func(r *core.Relay) { r.NoDKIM = true }},
	} {
		t.Run(name, func(t *testing.T) {
			h := (&servicetest.Host{Answer: func(int, servicetest.Taken) string { return tc.answer }}).Start(t)
			kind, _, _ := strings.Cut(name, ",")
			r := h.Relay(kind)
			if tc.change != nil {
				tc.change(&r)
			}
			i := servicetest.Install(t, core.Config{Relays: []core.Relay{r}})
			ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
			i.Run()
			i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
			o := i.Becomes("x@far.test", store.OutgoingRelayed)
			data := h.Mails()[0].Data
			if o.ProviderMessageID != tc.minted || (len(i.Events(events.EventMessageRelayed)) == 1) != (tc.minted != "") || !strings.Contains(data, tc.field) {
				t.Errorf("row %+v of\n%s", o, data)
			}
			replaced := i.Verify([]byte(strings.Replace(data, "<own@example.test>", "<other@example.test>", 1)))
			switch v := i.Verify([]byte(data)); {
			case tc.unsigned && (len(v.Signatures) != 0 || strings.Contains(data, "DKIM")):
				t.Errorf("it is signed: %+v", v.Signatures)
			case !tc.unsigned && v.DKIM != auth.Pass, !tc.unsigned && (replaced.DKIM == auth.Pass) == tc.keepsID:
				t.Errorf("DKIM is %s, with another Message-ID %s", v.DKIM, replaced.DKIM)
			}
		})
	}
}

// TestSenderHearsOfSuccessWhereItAsked (RFC 3461 sections 5.2.2 and 6.2.7): of a delivery here, and
// of a host that takes no such duty over.
func TestSenderHearsOfSuccessWhereItAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		to, notify, status string
		noDSN              bool
		action             string // "" no notice
	}{
		"local":                   {to: "bob@example.test", notify: "SUCCESS", status: store.OutgoingDelivered, action: "delivered"},
		"local, not asked":        {to: "bob@example.test", notify: "FAILURE", status: store.OutgoingDelivered},
		"local, nothing said":     {to: "bob@example.test", status: store.OutgoingDelivered},
		"relayed to one with DSN": {to: "x@far.test", notify: "SUCCESS,DELAY", status: store.OutgoingRelayed},
		"relayed to one without":  {to: "x@far.test", notify: "SUCCESS,DELAY", noDSN: true, status: store.OutgoingRelayed, action: "relayed"},
		"never":                   {to: "x@far.test", notify: "NEVER", noDSN: true, status: store.OutgoingRelayed},
	} {
		t.Run(name, func(t *testing.T) {
			h := (&servicetest.Host{NoDSN: tc.noDSN}).Start(t)
			i := servicetest.Install(t, core.Config{Relays: []core.Relay{h.Relay("custom")}})
			d := i.AddDomain(i.Account, "example.test", nil)
			ann := i.AddMailbox(d, "ann", nil)
			i.AddMailbox(d, "bob", nil)
			i.Run()
			i.Notified(ann, tc.to, tc.notify, "FULL")
			i.Becomes(tc.to, tc.status)
			inbox := i.Folder(ann, "INBOX")
			if len(inbox) != map[bool]int{true: 1}[tc.action != ""] {
				t.Fatalf("%d notices", len(inbox))
			}
			if tc.action == "" {
				return
			}
			r := i.Report(inbox[0].Raw)
			if len(r.Recipients) != 1 || r.Recipients[0].Action != tc.action || r.Recipients[0].Final != tc.to || !strings.HasPrefix(r.Recipients[0].Status, "2.") {
				t.Errorf("report %+v", r)
			}
			raw := string(inbox[0].Raw)
			if !strings.Contains(raw, "Original-Envelope-Id: env-1\r\n") || !strings.Contains(raw, "Original-Recipient: rfc822;asked@far.test\r\n") || strings.Contains(raw, "message/rfc822") {
				t.Errorf("the notice is\n%s", raw)
			}
		})
	}
}

// TestFailureReturnsWhatWasAskedFor: RET=FULL brings the message back, anything else its header.
func TestFailureReturnsWhatWasAskedFor(t *testing.T) {
	for _, ret := range []string{"FULL", "HDRS", ""} {
		h := (&servicetest.Host{Rcpt: func(string) string { return "550 5.1.1 no such user" }}).Start(t)
		i := servicetest.Install(t, core.Config{Relays: []core.Relay{h.Relay("custom")}})
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
		i.Run()
		i.Notified(ann, "x@far.test", "FAILURE", ret)
		i.Becomes("x@far.test", store.OutgoingBounced)
		inbox := i.Folder(ann, "INBOX")
		if len(inbox) != 1 {
			t.Fatalf("%d notices", len(inbox))
		}
		raw := string(inbox[0].Raw)
		full := strings.Contains(raw, "Content-Type: message/rfc822\r\n") && strings.Contains(raw, "\r\n\r\nhello\r\n")
		if full != (ret == "FULL") || !strings.Contains(raw, "Subject: hello\r\n") || i.Report(inbox[0].Raw).OriginalMessageID != "<own@example.test>" {
			t.Errorf("RET=%s returned\n%s", ret, raw)
		}
	}
}
