package service

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/store"
)

// named is a relay at the host under a name.
func (h *host) named(name, kind string) Relay {
	r := h.relay(kind)
	r.Name = name
	return r
}

// choose sets the relay of a domain and of a mailbox, where that is given.
func (i *installation) choose(t *testing.T, d *store.Domain, domain Opt[string], mb *store.Mailbox, mailbox Opt[string]) {
	t.Helper()
	if domain.Set {
		if _, err := i.svc.UpdateDomain(context.Background(), actor(i.account), UpdateDomainIn{DomainID: d.ID, Relay: domain}); err != nil {
			t.Fatal(err)
		}
	}
	if mailbox.Set {
		if _, err := i.svc.UpdateEmailUser(context.Background(), actor(i.account), UpdateEmailUserIn{UserID: mb.ID, Relay: mailbox}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRelayOfTheMailboxThenOfTheDomain sends the same way as somebody sets, and takes back, both.
func TestRelayOfTheMailboxThenOfTheDomain(t *testing.T) {
	first, second, third := (&host{}).start(t), (&host{}).start(t), (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{first.named("r1", "ses"), second.named("r2", "mailgun"), third.named("r3", "sendgrid")}})
	d := i.addDomain(i.account, "example.test", nil)
	ann := i.addMailbox(d, "ann", nil)
	i.run()
	is := func(name string) Opt[string] { return Opt[string]{Set: true, Value: name} }
	for n, step := range []struct {
		domain, mailbox Opt[string]
		want            string
	}{
		{want: "r1"},
		{domain: is("r2"), want: "r2"},
		{mailbox: is("r3"), want: "r3"},
		{domain: is(""), want: "r3"},
		{mailbox: is(""), want: "r1"},
	} {
		i.choose(t, d, step.domain, ann, step.mailbox)
		to := string(rune('a'+n)) + "@far.test"
		i.mustSubmit(ann, plainMessage, to)
		if o := i.becomes(to, store.OutgoingRelayed); o.Provider != step.want {
			t.Errorf("step %d went by %s, want %s", n, o.Provider, step.want)
		}
	}
}

func TestUnknownRelaysAreRefused(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("ses")}})
	d := i.addDomain(i.account, "example.test", nil)
	ann := i.addMailbox(d, "ann", nil)
	bad := Opt[string]{Set: true, Value: "r9"}
	if _, err := i.svc.UpdateDomain(context.Background(), actor(i.account), UpdateDomainIn{DomainID: d.ID, Relay: bad}); !hasCode(err, "validation_error") || !strings.Contains(err.Error(), "r1") {
		t.Errorf("domain: %v", err)
	}
	if _, err := i.svc.UpdateEmailUser(context.Background(), actor(i.account), UpdateEmailUserIn{UserID: ann.ID, Relay: bad}); !hasCode(err, "validation_error") {
		t.Errorf("mailbox: %v", err)
	}
}

// TestMailWaitsForTheRelayThatWasChosen: one that the operator took away is no reason to go another
// way.
func TestMailWaitsForTheRelayThatWasChosen(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("ses")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", func(d *store.Domain) { d.Relay = "gone" }), "ann", nil)
	i.run()
	i.mustSubmit(ann, plainMessage, "x@far.test")
	if o := i.becomes("x@far.test", store.OutgoingDeferred); !strings.Contains(o.LastResponse, "gone") || len(h.mails()) != 0 {
		t.Errorf("row %+v", o)
	}
}

// TestDirectWinsOverTheDomainsRelay: the sending mode says whether, the relay only which.
func TestDirectWinsOverTheDomainsRelay(t *testing.T) {
	mx, relay := (&host{}).start(t), (&host{}).start(t)
	i := install(t, Config{MXPort: mx.port, Relays: []Relay{relay.relay("ses")}})
	i.dns.mx["far.test"] = "mx.far.test"
	d := i.addDomain(i.account, "example.test", func(d *store.Domain) { d.Relay, d.SendingMode = "r1", viaDirect })
	ann, bob := i.addMailbox(d, "ann", nil), i.addMailbox(d, "bob", func(mb *store.Mailbox) { mb.Relay = "r1" })
	i.run()
	i.mustSubmit(ann, plainMessage, "x@far.test")
	i.becomes("x@far.test", store.OutgoingSent)
	i.mustSubmit(bob, strings.ReplaceAll(plainMessage, "ann@", "bob@"), "y@far.test")
	i.becomes("y@far.test", store.OutgoingRelayed)
}

// TestWhatEachRelayGets sends the same message through every kind: which fields it wants, what is
// signed, what it minted.
func TestWhatEachRelayGets(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(r *Relay)
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
		"custom, minting":      {answer: "250 id=abc", minted: "<abc@relay.test>", change: func(r *Relay) { r.IDPattern, r.IDTemplate = `id=(\w+)`, "<{1}@relay.test>" }},
		"mailgun, signs alone": {answer: "250 ok", unsigned: true, change: func(r *Relay) { r.NoDKIM = true }},
	} {
		t.Run(name, func(t *testing.T) {
			h := (&host{answer: func(int, taken) string { return tc.answer }}).start(t)
			kind, _, _ := strings.Cut(name, ",")
			r := h.relay(kind)
			if tc.change != nil {
				tc.change(&r)
			}
			i := install(t, Config{Relays: []Relay{r}})
			ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
			i.run()
			i.mustSubmit(ann, plainMessage, "x@far.test")
			o := i.becomes("x@far.test", store.OutgoingRelayed)
			data := h.mails()[0].data
			if o.ProviderMessageID != tc.minted || (len(i.events(EventMessageRelayed)) == 1) != (tc.minted != "") || !strings.Contains(data, tc.field) {
				t.Errorf("row %+v of\n%s", o, data)
			}
			replaced := i.verify([]byte(strings.Replace(data, "<own@example.test>", "<other@example.test>", 1)))
			switch v := i.verify([]byte(data)); {
			case tc.unsigned && (len(v.Signatures) != 0 || strings.Contains(data, "DKIM")):
				t.Errorf("it is signed: %+v", v.Signatures)
			case !tc.unsigned && v.DKIM != auth.Pass, !tc.unsigned && (replaced.DKIM == auth.Pass) == tc.keepsID:
				t.Errorf("DKIM is %s, with another Message-ID %s", v.DKIM, replaced.DKIM)
			}
		})
	}
}

// notified sends a message that asks for notices.
func (i *installation) notified(mb *store.Mailbox, to, notify, ret string) {
	i.t.Helper()
	sp := i.spool(plainMessage)
	defer sp.Close()
	user := MailboxUser{AccountID: mb.AccountID, MailboxID: mb.ID, Email: mb.Email}
	in := Submission{From: mb.Email, Body: sp, EnvelopeID: "env-1", Ret: ret, To: []Rcpt{{Address: to, Notify: notify, ORCPT: "rfc822;asked@far.test"}}}
	if _, err := i.svc.Submit(context.Background(), user, in); err != nil {
		i.t.Fatal(err)
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
			h := (&host{noDSN: tc.noDSN}).start(t)
			i := install(t, Config{Relays: []Relay{h.relay("custom")}})
			d := i.addDomain(i.account, "example.test", nil)
			ann := i.addMailbox(d, "ann", nil)
			i.addMailbox(d, "bob", nil)
			i.run()
			i.notified(ann, tc.to, tc.notify, "FULL")
			i.becomes(tc.to, tc.status)
			inbox := i.folder(ann, "INBOX")
			if len(inbox) != map[bool]int{true: 1}[tc.action != ""] {
				t.Fatalf("%d notices", len(inbox))
			}
			if tc.action == "" {
				return
			}
			r := i.report(inbox[0].raw)
			if len(r.Recipients) != 1 || r.Recipients[0].Action != tc.action || r.Recipients[0].Final != tc.to || !strings.HasPrefix(r.Recipients[0].Status, "2.") {
				t.Errorf("report %+v", r)
			}
			raw := string(inbox[0].raw)
			if !strings.Contains(raw, "Original-Envelope-Id: env-1\r\n") || !strings.Contains(raw, "Original-Recipient: rfc822;asked@far.test\r\n") || strings.Contains(raw, "message/rfc822") {
				t.Errorf("the notice is\n%s", raw)
			}
		})
	}
}

// TestFailureReturnsWhatWasAskedFor: RET=FULL brings the message back, anything else its header.
func TestFailureReturnsWhatWasAskedFor(t *testing.T) {
	for _, ret := range []string{"FULL", "HDRS", ""} {
		h := (&host{rcpt: func(string) string { return "550 5.1.1 no such user" }}).start(t)
		i := install(t, Config{Relays: []Relay{h.relay("custom")}})
		ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
		i.run()
		i.notified(ann, "x@far.test", "FAILURE", ret)
		i.becomes("x@far.test", store.OutgoingBounced)
		inbox := i.folder(ann, "INBOX")
		if len(inbox) != 1 {
			t.Fatalf("%d notices", len(inbox))
		}
		raw := string(inbox[0].raw)
		full := strings.Contains(raw, "Content-Type: message/rfc822\r\n") && strings.Contains(raw, "\r\n\r\nhello\r\n")
		if full != (ret == "FULL") || !strings.Contains(raw, "Subject: hello\r\n") || i.report(inbox[0].raw).OriginalMessageID != "<own@example.test>" {
			t.Errorf("RET=%s returned\n%s", ret, raw)
		}
	}
}
