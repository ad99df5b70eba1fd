package outbound_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestRelayOfTheMailboxThenOfTheDomain sets and removes the relay of the mailbox and of the domain.
func TestRelayOfTheMailboxThenOfTheDomain(t *testing.T) {
	first, second, third := (&servicetest.Host{}).Start(t), (&servicetest.Host{}).Start(t), (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{first.RelayNamed("r1", "ses"), second.RelayNamed("r2", "mailgun"), third.RelayNamed("r3", "sendgrid")}}})
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
		i.ChooseRelays(t, d, step.domain, ann, step.mailbox)
		to := string(rune('a'+n)) + "@far.test"
		i.MustSubmit(ann, servicetest.PlainMessage, to)
		if o := i.Becomes(to, store.OutgoingRelayed); o.Provider != step.want {
			t.Errorf("step %d went by %s, want %s", n, o.Provider, step.want)
		}
	}
}

func TestUnknownRelaysAreRefused(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	bad := core.Opt[string]{Set: true, Value: "r9"}
	if _, err := i.Svc.Domains.UpdateDomain(context.Background(), servicetest.Actor(i.Account), domains.UpdateDomainIn{DomainID: d.ID, Relay: bad}); !servicetest.HasCode(err, "validation_error") || !strings.Contains(err.Error(), "r1") {
		t.Errorf("domain: %v", err)
	}
	if _, err := i.Svc.Mailboxes.UpdateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.UpdateEmailUserIn{UserID: ann.ID, Relay: bad}); !servicetest.HasCode(err, "validation_error") {
		t.Errorf("mailbox: %v", err)
	}
}

// TestMailWaitsForTheRelayThatWasChosen: mail does not take another route because the operator
// removed its relay.
func TestMailWaitsForTheRelayThatWasChosen(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.Relay = "gone" }), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	if o := i.Becomes("x@far.test", store.OutgoingDeferred); !strings.Contains(o.LastResponse, "gone") || len(h.Mails()) != 0 {
		t.Errorf("row %+v", o)
	}
}

// TestDirectWinsOverTheDomainsRelay: the sending mode decides whether a relay is used, the relay
// setting only which.
func TestDirectWinsOverTheDomainsRelay(t *testing.T) {
	mx, relay := (&servicetest.Host{}).Start(t), (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: mx.Port, Settings: core.Settings{Relays: []core.Relay{relay.Relay("ses")}}})
	i.DNS.MX["far.test"] = "mx.far.test"
	d := i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.Relay, d.SendingMode = "r1", core.ViaDirect })
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", func(mb *store.Mailbox) { mb.Relay = "r1" })
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	i.Becomes("x@far.test", store.OutgoingSent)
	i.MustSubmit(bob, strings.ReplaceAll(servicetest.PlainMessage, "ann@", "bob@"), "y@far.test")
	i.Becomes("y@far.test", store.OutgoingRelayed)
}

// TestWhatEachRelayGets sends the same message through every kind of relay and checks the added
// fields, the signature, and the new Message-ID.
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
			i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{r}}})
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

// TestSenderHearsOfSuccessWhereItAsked (RFC 3461 sections 5.2.2 and 6.2.7): the sender gets a
// report for a delivery here, and for a host without DSN support.
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
			i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
			d := i.AddDomain(i.Account, "example.test", nil)
			ann := i.AddMailbox(d, "ann", nil)
			i.AddMailbox(d, "bob", nil)
			i.Run()
			i.SendWithDSN(ann, tc.to, tc.notify, "FULL")
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

// TestFailureReturnsWhatWasAskedFor: RET=FULL returns the whole message, anything else its header.
func TestFailureReturnsWhatWasAskedFor(t *testing.T) {
	for _, ret := range []string{"FULL", "HDRS", ""} {
		h := (&servicetest.Host{Rcpt: func(string) string { return "550 5.1.1 no such user" }}).Start(t)
		i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
		i.Run()
		i.SendWithDSN(ann, "x@far.test", "FAILURE", ret)
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

// TestExternalMailboxSendsThroughItsOwnServer: it sends to strangers and to mailboxes here through
// its own server, with its own login, unsigned.
func TestExternalMailboxSendsThroughItsOwnServer(t *testing.T) {
	own, relay := (&servicetest.Host{}).Start(t), (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "relay", Relays: []core.Relay{relay.Relay("ses")}}})
	i.AddMailbox(i.AddDomain(i.Account, "here.test", nil), "bob", nil)
	i.AddDomain(i.Account, "away.test", func(d *store.Domain) { d.DNSProvider = store.DomainProviderExternal })
	server := func(port int) *mailboxes.MailServerLogin {
		return &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: port, Security: "none", Username: "me", Password: "s3cret"}
	}
	made, err := i.Svc.Mailboxes.CreateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{
		Email: "me@away.test", Type: "external", IMAP: server(1), SMTP: server(own.Port),
	})
	if err != nil {
		t.Fatal(err)
	}
	mute, err := i.Svc.Mailboxes.CreateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{Email: "mute@away.test", Type: "external", IMAP: server(1)})
	if err != nil {
		t.Fatal(err)
	}
	i.Run()
	i.MustSend(&store.Mailbox{ID: made.ID, AccountID: i.Account.AccountID}, submit.SendEmailIn{To: submit.Texts{"x@far.test", "bob@here.test"}, Subject: "s"})
	for _, to := range []string{"x@far.test", "bob@here.test"} {
		if row := i.Becomes(to, store.OutgoingRelayed); row.Provider != "127.0.0.1" || row.Transport != core.ViaRelay {
			t.Errorf("%+v", row)
		}
	}
	mails := own.Mails()
	if len(mails) != 2 || len(relay.Mails()) != 0 || mails[0].From != "me@away.test" || strings.Contains(mails[0].Data, "DKIM-Signature") {
		t.Errorf("%d there, %d at the relay: %+v", len(mails), len(relay.Mails()), mails)
	}
	own.Mu.Lock()
	defer own.Mu.Unlock()
	if want := base64.StdEncoding.EncodeToString([]byte("\x00me\x00s3cret")); own.Login != want {
		t.Errorf("log-in %q, want %q", own.Login, want)
	}
	if _, err := i.Send(&store.Mailbox{ID: mute.ID, AccountID: i.Account.AccountID}, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "s"}); !servicetest.HasCode(err, "validation_error") {
		t.Errorf("without smtp: %v", err)
	}
}

// commands are header fields that some relay obeys, in forms that a user may write.
var commands = []string{
	"X-SMTPAPI: {\"to\": [\"more@far.test\"], \"filters\": {\"bypass_list_management\": {\"settings\": {\"enable\": 1}}}}\r\n",
	"x-smtpapi \t: {\r\n \"to\": [\"more@far.test\"]}\r\n", "X-SES-CONFIGURATION-SET: theirs\r\n", "x-ses-message-tags: a=b\r\n", "X-SES-SOURCE-ARN: arn\r\n",
	"X-Mailgun-Variables: {}\r\n", "X-Mailgun-Drop-Message:\r\n yes\r\n", "X-PM-Message-Stream: broadcast\r\n", "X-PM-KeepID: false\r\n",
	"X-PM-Metadata-mailstead-id: forged\r\n", "X-MC-BccAddress: more@far.test\r\n", "X-SG-EID: 1\r\n",
}

// holdsCommand returns the first command in the header of a message.
func holdsCommand(data string) string {
	head, _, _ := strings.Cut(strings.ToLower(data), "\r\n\r\n")
	for _, name := range []string{"x-smtpapi", "x-ses-", "x-mailgun-", "x-pm-", "x-mc-", "x-sg-", "more@"} {
		if strings.Contains(head, name) {
			return name
		}
	}
	return ""
}

// TestRelayCommandsOfUsersAreDropped: submission removes the commands of every kind of relay,
// whatever the route.
func TestRelayCommandsOfUsersAreDropped(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	r := h.Relay("custom")
	r.ControlHeaders = []string{"X-MC-"}
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{r}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	i.Run()
	text := "X-Mine: kept\r\n" + strings.Join(commands, "") + "X-SM: kept\r\n" + servicetest.PlainMessage
	i.MustSubmit(ann, text, "x@far.test", "bob@example.test")
	i.Becomes("x@far.test", store.OutgoingRelayed)
	i.Becomes("bob@example.test", store.OutgoingDelivered)
	for _, data := range []string{h.Mails()[0].Data, string(i.Folder(bob, "INBOX")[0].Raw)} {
		if found := holdsCommand(data); found != "" || !strings.Contains(data, "X-Mine: kept\r\n") || !strings.Contains(data, "X-SM: kept\r\n") {
			t.Errorf("%q is in\n%s", found, data)
		}
		if v := i.Verify([]byte(data)); v.DKIM != auth.Pass {
			t.Errorf("DKIM is %s", v.DKIM)
		}
	}
	for _, field := range commands {
		name, _, _ := strings.Cut(field, ":")
		in := submit.SendEmailIn{To: submit.Texts{"y@far.test"}, Subject: "s", Text: "t", Headers: map[string]string{name: "v"}}
		if _, err := i.Send(ann, in); !servicetest.HasCode(err, "validation_error") || !strings.Contains(err.Error(), "provider") {
			t.Errorf("%q over the API: %v", name, err)
		}
	}
}

// TestRelayCommandsOfStrangersAreDropped: a forward loses the commands of the relay that it goes
// through, even if a signature covers them. Our own commands are added afterwards.
func TestRelayCommandsOfStrangersAreDropped(t *testing.T) {
	for kind, own := range map[string][]string{
		"ses": {"x-ses-", "return-path:"}, "postmark": {"x-pm-message", "keepid: false", "forged"}, "mailgun": {"x-mailgun-"}, "sendgrid": {"x-smtpapi", "x-sg-"}, "custom": {"x-mc-"},
	} {
		t.Run(kind, func(t *testing.T) {
			h := (&servicetest.Host{}).Start(t)
			r := h.Relay(kind)
			if kind == "custom" {
				r.ControlHeaders = []string{"X-MC-"}
			}
			i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{r}}})
			d := i.AddDomain(i.Account, "example.test", nil)
			i.AddMailbox(d, "ann", func(mb *store.Mailbox) { mb.ForwardTo = "away@far.test" })
			i.Run()
			long := "X-Long: " + strings.Repeat("a ", 200<<10) + "\r\n" // commands behind a header that is long
			i.MustArrive("pat@sender.test", "ann@example.test", long+"Return-Path: <victim@far.test>\r\n"+strings.Join(commands, "")+servicetest.LetterFrom("pat@sender.test"))
			i.Becomes("away@far.test", store.OutgoingRelayed)
			data := h.Mails()[0].Data
			head, body, _ := strings.Cut(data, "\r\n\r\n")
			for _, name := range own {
				if strings.Contains(strings.ToLower(head), "\r\n"+name) || strings.Contains(head, name) {
					t.Errorf("%s is in\n%.3000s", name, head)
				}
			}
			if n := strings.Count(head, "X-PM-KeepID: true"); (n == 1) != (kind == "postmark") || strings.Contains(head, feedbackTag) != (kind == "postmark") {
				t.Errorf("our own fields are missing:\n%.3000s", head)
			}
			if body != "hello\r\n" || !strings.HasSuffix(head, "\r\nSubject: hello") {
				t.Errorf("the body is %.300q, %d", body, len(head))
			}
			other := "X-Mailgun-Variables"
			if kind == "mailgun" {
				other = "X-SMTPAPI"
			}
			if !strings.Contains(head, other) {
				t.Errorf("%s is no command to %s and was dropped", other, kind)
			}
		})
	}
}

const feedbackTag = "X-PM-Metadata-mailstead-id: 0"
