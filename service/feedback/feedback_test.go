package feedback_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/feedback"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// A correspondence is one message from ann to x@far.test that an MX host has accepted.
type correspondence struct {
	*servicetest.Installation
	ann  *store.Mailbox
	row  *store.Outgoing
	path string // its return path
	data string
}

func correspond(t *testing.T, c core.Config, relay func(*servicetest.Host) core.Relay) *correspondence {
	t.Helper()
	h := (&servicetest.Host{}).Start(t)
	if relay != nil {
		c.Relays = []core.Relay{relay(h)}
	}
	c.MXPort = h.Port
	i := servicetest.Install(t, c)
	i.DNS.MX["far.test"] = "mx.far.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	status := store.OutgoingSent
	if relay != nil {
		status = store.OutgoingRelayed
	}
	row := i.Becomes("x@far.test", status)
	got := h.Mails()[0]
	return &correspondence{i, ann, row, got.From, got.Data}
}

// head returns the header of the sent message.
func (c *correspondence) head() string {
	head, _, _ := strings.Cut(c.data, "\r\n\r\n")
	return head + "\r\n"
}

// dsn returns a bounce (RFC 3464) with the given part of the original.
func dsn(action, status, rcpt, original string) string {
	text := "From: MAILER-DAEMON@mx.far.test\r\nTo: <>\r\nSubject: Undelivered\r\nMIME-Version: 1.0\r\n" +
		"Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\r\nIt did not work.\r\n" +
		"--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.far.test\r\n\r\nFinal-Recipient: rfc822; " + rcpt +
		"\r\nAction: " + action + "\r\nStatus: " + status + "\r\nRemote-MTA: dns; inner.far.test\r\nDiagnostic-Code: smtp; 550 " + status + " no\r\n\r\n"
	if original != "" {
		text += "--b\r\nContent-Type: text/rfc822-headers\r\n\r\n" + original + "\r\n"
	}
	return text + "--b--\r\n"
}

// arf returns a complaint (RFC 5965).
func arf(kind, fields, original string) string {
	return "From: fbl@far.test\r\nTo: abuse@example.test\r\nSubject: complaint\r\nMIME-Version: 1.0\r\n" +
		"Content-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n--b\r\n\r\nSpam.\r\n" +
		"--b\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: " + kind + "\r\nUser-Agent: FBL/1\r\nVersion: 1\r\n" + fields +
		"\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n" + original + "\r\nbody\r\n--b--\r\n"
}

// heard checks the result for the message: its status, the number of events of both kinds, and
// whether its recipient is suppressed, and why.
func (c *correspondence) heard(status string, bounced, complained int, reason string) {
	c.T.Helper()
	if got := c.Installation.Row("x@far.test"); got.Status != status {
		c.T.Errorf("the row is %s, want %s", got.Status, status)
	}
	if b, k := len(c.Events(events.EventEmailBounced)), len(c.Events(events.EventEmailComplained)); b != bounced || k != complained {
		c.T.Errorf("%d email.bounced and %d email.complained, want %d and %d", b, k, bounced, complained)
	}
	page, err := c.Svc.Feedback.ListSuppressions(context.Background(), servicetest.Actor(c.Account), feedback.ListSuppressionsIn{})
	got := ""
	for _, suppressed := range page.Data { // letters to the owner may bounce too
		if suppressed.Email == "x@far.test" {
			got = suppressed.Reason
		}
	}
	if err != nil || got != reason {
		c.T.Errorf("suppressed for %q, want %q; %v", got, reason, err)
	}
}

func TestBounceIsKnownByItsReturnPathAlone(t *testing.T) {
	c := correspond(t, core.Config{}, nil)
	if local, _, _ := msg.SplitEmail(c.path); len(local) > recipients.MaxLocal || c.path != strings.ToLower(c.path) {
		t.Errorf("return path %s", c.path)
	}
	bounce := dsn("failed", "5.1.1", "x@far.test", "")
	c.MustArrive("", strings.ToUpper(c.path), bounce)
	c.heard(store.OutgoingBounced, 1, 0, "bounce")
	e := c.Events(events.EventEmailBounced)[0]
	for field, want := range map[string]any{
		"recipient": "x@far.test", "sender": "ann@example.test", "bounce_type": "hard", "bounce_subtype": "no_such_mailbox", "status": "5.1.1",
		"diagnostic": "550 5.1.1 no", "remote_mta": "inner.far.test", "original_message_id": "<own@example.test>", "suppressed": true,
	} {
		if e[field] != want {
			t.Errorf("%s is %v, want %v", field, e[field], want)
		}
	}
	if inbox := c.Folder(c.ann, "INBOX"); len(inbox) != 1 || inbox[0].Bits&store.BitBounce == 0 {
		t.Errorf("the sender's inbox: %+v", inbox)
	}
	c.MustArrive("", c.path, bounce)
	c.heard(store.OutgoingBounced, 1, 0, "bounce")
	if _, err := c.Svc.Feedback.DeleteSuppression(context.Background(), servicetest.Actor(c.Account), feedback.DeleteSuppressionIn{Email: "x@far.test"}); err != nil {
		t.Error(err)
	}
	if again := c.MustSend(c.ann, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "again"}); again.Recipients[0].Status != store.OutgoingQueued {
		t.Errorf("after the suppression was lifted: %+v", again)
	}
}

func TestWhatABounceMeans(t *testing.T) {
	for name, tc := range map[string]struct {
		text, status string
		bounced      int
		kind, reason string
	}{
		"soft":               {dsn("failed", "4.4.7", "x@far.test", ""), store.OutgoingBounced, 1, "soft", ""},
		"policy":             {dsn("failed", "5.7.1", "x@far.test", ""), store.OutgoingBounced, 1, "hard", ""},
		"led elsewhere":      {dsn("failed", "5.1.1", "y@elsewhere.test", ""), store.OutgoingBounced, 1, "hard", "bounce"},
		"the sender's fault": {dsn("failed", "5.1.8", "x@far.test", ""), store.OutgoingBounced, 1, "hard", ""},
		"delayed":            {dsn("delayed", "4.4.1", "x@far.test", ""), store.OutgoingSent, 0, "", ""},
		"delivered":          {dsn("delivered", "2.0.0", "x@far.test", ""), store.OutgoingSent, 0, "", ""},
		"text": {"From: MAILER-DAEMON@old.far.test\r\nSubject: failure notice\r\n\r\nHi. I'm afraid I wasn't able to deliver your message to the following addresses.\r\n\r\n<x@far.test>:\r\nThe moon is in the wrong place.\r\n",
			store.OutgoingBounced, 1, "undetermined", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := correspond(t, core.Config{}, nil)
			c.MustArrive("", c.path, tc.text)
			c.heard(tc.status, tc.bounced, 0, tc.reason)
			if tc.bounced == 1 && c.Events(events.EventEmailBounced)[0]["bounce_type"] != tc.kind {
				t.Errorf("event %v", c.Events(events.EventEmailBounced)[0])
			}
			if inbox := c.Folder(c.ann, "INBOX"); len(inbox) != 1 || inbox[0].Bits&store.BitBounce == 0 {
				t.Errorf("the sender's inbox: %+v", inbox)
			}
		})
	}
}

// TestPeopleAnswerToTheReturnPath: an automatic reply to the return path (RFC 3834 section 4) is no
// bounce, and is delivered to the mailbox.
func TestPeopleAnswerToTheReturnPath(t *testing.T) {
	c := correspond(t, core.Config{}, nil)
	c.MustArrive("", c.path, "From: x@far.test\r\nTo: ann@example.test\r\nSubject: away\r\nAuto-Submitted: auto-replied\r\n\r\nI am away. Mail could not be delivered.\r\n\r\n  y@far.test\r\n")
	c.heard(store.OutgoingSent, 0, 0, "")
	if inbox := c.Folder(c.ann, "INBOX"); len(inbox) != 1 || inbox[0].Bits&store.BitBounce != 0 || inbox[0].Bits&store.BitAutoReply == 0 {
		t.Errorf("inbox: %+v", inbox)
	}
	if got := c.Events(events.EventEmailReceived); len(got) != 1 || got[0]["is_auto_reply"] != true {
		t.Errorf("email.received: %v", got)
	}
}

// TestLocalMailToAReturnPathIsRefusedToo: a sender here that writes to the address of a row whose
// mailbox takes no mail any more is refused like senders elsewhere.
func TestLocalMailToAReturnPathIsRefusedToo(t *testing.T) {
	c := correspond(t, core.Config{}, nil)
	bob := c.AddMailbox(&store.Domain{ID: c.ann.DomainID, AccountID: c.ann.AccountID, Name: "example.test"}, "bob", nil)
	c.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, c.ann.ID)
		if err != nil {
			return err
		}
		mb.Status = "suspended"
		return store.Mailboxes.Put(tx, mb)
	})
	c.MustSubmit(bob, strings.ReplaceAll(servicetest.PlainMessage, "ann@", "bob@"), c.path)
	row := c.Becomes(c.path, store.OutgoingBounced)
	if row.LastResponse != "550 5.2.1 Mailbox disabled, not accepting messages" {
		t.Errorf("refused with %q", row.LastResponse)
	}
	if inbox := c.Folder(bob, "INBOX"); len(inbox) != 1 || inbox[0].Bits&store.BitBounce == 0 {
		t.Errorf("the sender has %+v", inbox)
	}
}

func TestForgedReturnPathsAreRefused(t *testing.T) {
	c := correspond(t, core.Config{}, nil)
	c.AddDomain(c.Account, "other.test", nil)
	local, _, _ := msg.SplitEmail(c.path)
	c.Update(func(tx *store.Tx) error {
		d, err := store.DomainByName.Get(tx, "example.test")
		if err != nil {
			return err
		}
		d.CatchAll = c.ann.Email
		return store.Domains.Put(tx, d)
	})
	last := "a"
	if strings.HasSuffix(local, "a") {
		last = "b"
	}
	bounce := dsn("failed", "5.1.1", "x@far.test", "")
	for _, to := range []string{
		local[:len(local)-1] + last + "@example.test", local + "@other.test", "u" + local[1:] + "@example.test",
		"b-" + strings.Repeat("0", recipients.RowIDLen) + local[2+recipients.RowIDLen:] + "@example.test",
	} {
		if err := c.Arrive("", to, bounce); core.AsSMTPError(err).Code != 550 {
			t.Errorf("%s: %v", to, err)
		}
	}
	c.Update(func(tx *store.Tx) error {
		row, err := store.Outgoings.Get(tx, c.row.ID)
		if err != nil {
			return err
		}
		row.QueuedAt = row.QueuedAt.Add(-recipients.BouncesAcceptedFor - time.Hour)
		return store.Outgoings.Put(tx, row)
	})
	if err := c.Arrive("", c.path, bounce); core.AsSMTPError(err).Code != 550 {
		t.Errorf("after its time: %v", err)
	}
	c.heard(store.OutgoingSent, 0, 0, "")
}

// TestBounceOfWaitingMailComesAgain: the host that accepted the first copy bounces it before we
// have recorded that.
func TestBounceOfWaitingMailComesAgain(t *testing.T) {
	c := correspond(t, core.Config{}, nil)
	setStatus := func(status string) {
		c.Update(func(tx *store.Tx) error {
			row, err := store.Outgoings.Get(tx, c.row.ID)
			if err != nil {
				return err
			}
			row.Status = status
			return store.Outgoings.Put(tx, row)
		})
	}
	setStatus(store.OutgoingDeferred)
	if err := c.Arrive("", c.path, dsn("failed", "5.1.1", "x@far.test", "")); core.AsSMTPError(err).Code != 451 {
		t.Errorf("while it waits: %v", err)
	}
	setStatus(store.OutgoingSent)
	c.MustArrive("", c.path, dsn("failed", "5.1.1", "x@far.test", ""))
	c.heard(store.OutgoingBounced, 1, 0, "bounce")
}

func TestComplaintToTheReturnPath(t *testing.T) {
	c := correspond(t, core.Config{}, nil)
	c.MustArrive("fbl@far.test", c.path, arf("abuse", "Arrival-Date: Fri, 20 Nov 2026 10:00:00 +0000\r\n", "From: somebody\r\n"))
	c.heard(store.OutgoingComplained, 0, 1, "complaint")
	e := c.Events(events.EventEmailComplained)[0]
	for field, want := range map[string]any{
		"recipient": "x@far.test", "sender": "ann@example.test", "sending_domain": "example.test", "feedback_type": "abuse", "user_agent": "FBL/1",
		"provider": nil, "original_message_id": "<own@example.test>", "provider_message_id": nil, "arrival_date": "2026-11-20T10:00:00.000Z",
	} {
		if e[field] != want {
			t.Errorf("%s is %v, want %v", field, e[field], want)
		}
	}
	if inbox := c.Folder(c.ann, "INBOX"); len(inbox) != 0 {
		t.Errorf("the complaint was filed: %+v", inbox)
	}
	c.MustArrive("fbl@far.test", c.path, arf("abuse", "", "From: somebody\r\n"))
	c.heard(store.OutgoingComplained, 0, 1, "complaint")
	usage, err := c.Svc.Accounts.GetUsage(context.Background(), servicetest.Actor(c.Account))
	if err != nil || usage.Messages.Complained30d != 1 {
		t.Errorf("usage: %+v, %v", usage.Messages, err)
	}
}

// TestComplaintsMustProveWhatTheySpeakOf: an ARF report counts by our return path in it, or by our
// signature over the returned header, whatever address it was sent to; it is also delivered like
// other mail.
func TestComplaintsMustProveWhatTheySpeakOf(t *testing.T) {
	unsigned := func(c *correspondence) string { return strings.ReplaceAll(c.head(), "DKIM-Signature", "X-Signature") }
	for name, tc := range map[string]struct {
		text  func(c *correspondence) string
		heard bool
	}{
		"return path named": {func(c *correspondence) string {
			return arf("abuse", "Original-Mail-From: <"+c.path+">\r\n", "From: somebody\r\n")
		}, true},
		"return path returned": {func(c *correspondence) string {
			return arf("fraud", "", "Return-Path: <"+c.path+">\r\nFrom: somebody\r\n")
		}, true},
		"signed header":   {func(c *correspondence) string { return arf("abuse", "", c.head()) }, true},
		"not spam":        {func(c *correspondence) string { return arf("not-spam", "", c.head()) }, false},
		"a DMARC failure": {func(c *correspondence) string { return arf("auth-failure", "", c.head()) }, false},
		"id alone":        {func(c *correspondence) string { return arf("abuse", "Original-Rcpt-To: <x@far.test>\r\n", unsigned(c)) }, false},
		"another id": {func(c *correspondence) string {
			return arf("abuse", "", strings.Replace(c.head(), "<own@example.test>", "<other@example.test>", 1))
		}, false},
		"forged path": {func(c *correspondence) string {
			return arf("abuse", "Original-Mail-From: <"+strings.Replace(c.path, "b-", "b-0", 1)+">\r\n", unsigned(c))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := correspond(t, core.Config{}, nil)
			c.Update(func(tx *store.Tx) error {
				d, err := store.DomainByName.Get(tx, "example.test")
				if err != nil {
					return err
				}
				d.CatchAll = c.ann.Email
				return store.Domains.Put(tx, d)
			})
			c.MustArrive("fbl@far.test", "abuse@example.test", tc.text(c))
			if tc.heard {
				c.heard(store.OutgoingComplained, 0, 1, "complaint")
			} else {
				c.heard(store.OutgoingSent, 0, 0, "")
			}
			if inbox := c.Folder(c.ann, "INBOX"); len(inbox) != 1 {
				t.Errorf("%d messages are filed, want 1", len(inbox))
			}
		})
	}
}

// TestFeedbackAddressOfTheHost: it accepts complaints about all domains.
func TestFeedbackAddressOfTheHost(t *testing.T) {
	c := correspond(t, core.Config{Settings: core.Settings{Outbound: "direct"}, Resolver: &servicetest.World{Dead: "all"}}, nil)
	c.MustArrive("fbl@far.test", "feedback@mail.mailstead.test", arf("abuse", "", c.head()))
	c.heard(store.OutgoingComplained, 0, 1, "complaint")
	if err := c.Arrive("fbl@far.test", "other@mail.mailstead.test", "Subject: x\r\n\r\n"); core.AsSMTPError(err).Code != 550 {
		t.Errorf("another address of the host: %v", err)
	}
}

// TestSignatureSpeaksForOneRecipientOnly: each recipient has the signed header, so none can report
// for the others.
func TestSignatureSpeaksForOneRecipientOnly(t *testing.T) {
	c := correspond(t, core.Config{}, nil)
	c.MustSubmit(c.ann, servicetest.PlainMessage, "y@far.test")
	c.Becomes("y@far.test", store.OutgoingSent)
	c.MustArrive("fbl@far.test", c.ann.Email, arf("abuse", "Original-Rcpt-To: <x@far.test>\r\n", c.head()))
	c.heard(store.OutgoingSent, 0, 0, "")
}

// TestBounceToTheSenderItself: through a relay that sets its own return path, a bounce arrives in
// the mailbox, and counts if it returns our signature.
func TestBounceToTheSenderItself(t *testing.T) {
	c := correspond(t, core.Config{}, func(h *servicetest.Host) core.Relay { r := h.Relay("custom"); r.ReturnPath = "sender"; return r })
	if c.path != c.ann.Email {
		t.Fatalf("return path %s", c.path)
	}
	c.MustArrive("", c.ann.Email, dsn("failed", "5.1.1", "x@far.test", "Message-ID: <own@example.test>\r\nFrom: ann@example.test\r\n"))
	c.heard(store.OutgoingRelayed, 0, 0, "")
	c.MustArrive("", c.ann.Email, dsn("failed", "5.1.1", "x@far.test", c.head()))
	c.heard(store.OutgoingBounced, 1, 0, "bounce")
	if e := c.Events(events.EventEmailBounced)[0]; e["provider"] != "r1" {
		t.Errorf("event %v", e)
	}
	if inbox := c.Folder(c.ann, "INBOX"); len(inbox) != 2 {
		t.Errorf("%d messages are filed, want 2", len(inbox))
	}
}

func TestSuppressionStopsWhatWaits(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	in := submit.Submission{From: ann.Email, Body: i.Spool(servicetest.PlainMessage), To: []outbound.Rcpt{{Address: "x@far.test", Notify: "SUCCESS,FAILURE"}}}
	if _, err := i.Svc.Submit.Submit(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Svc.Feedback.CreateSuppression(context.Background(), servicetest.Actor(i.Account), feedback.CreateSuppressionIn{Email: "x@far.test"}); err != nil {
		t.Fatal(err)
	}
	i.Run()
	i.Becomes("x@far.test", store.OutgoingSuppressed)
	if inbox := i.Folder(ann, "INBOX"); len(inbox) != 0 {
		t.Errorf("%d reports tell of a message that nobody got", len(inbox))
	}
	if subs, js := i.Left(); subs+js != 0 || len(h.Mails()) != 0 {
		t.Errorf("%d submissions and %d jobs are left, %d messages were sent", subs, js, len(h.Mails()))
	}
}

func TestRowAddressesOfLongDomains(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	id := i.St.NewID("msg")
	for n, want := range map[int]bool{10: true, 208: true, 209: false} {
		row := &store.Outgoing{ID: id, Domain: strings.Repeat("d", n)}
		address := i.Svc.Recipients.RowAddress(recipients.BounceAddress, row)
		if (address != "") != want || want && i.Svc.Recipients.BouncedRowID(address) != id {
			t.Errorf("%d: %s", n, address)
		}
	}
}

// leaving sends a message to x@far.test from a domain with List-Unsubscribe enabled, and returns
// that field of the sent message.
func leaving(t *testing.T, base, message, to string) (i *servicetest.Installation, field, data string) {
	t.Helper()
	h := (&servicetest.Host{}).Start(t)
	i = servicetest.Install(t, core.Config{BaseURL: base, Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.ListUnsub = true }), "ann", nil)
	i.Run()
	i.MustSubmit(ann, message, to)
	i.Becomes(to, store.OutgoingRelayed)
	data = h.Mails()[0].Data
	if fields := msg.FieldValues([]byte(data), "List-Unsubscribe"); len(fields) > 0 {
		field = fields[0]
	}
	return i, field, data
}

func suppressed(i *servicetest.Installation) []string {
	i.T.Helper()
	page, err := i.Svc.Feedback.ListSuppressions(context.Background(), servicetest.Actor(i.Account), feedback.ListSuppressionsIn{})
	if err != nil {
		i.T.Fatal(err)
	}
	var out []string
	for _, s := range page.Data {
		out = append(out, s.Email+" "+s.Reason)
	}
	return out
}

func TestOneClickUnsubscribe(t *testing.T) {
	i, field, data := leaving(t, "https://mail.mailstead.test", servicetest.PlainMessage, "x@far.test")
	link, way, _ := strings.Cut(strings.Trim(field, "<>"), ">, <")
	token, ok := strings.CutPrefix(link, "https://mail.mailstead.test/unsubscribe/")
	if !ok || !strings.HasPrefix(way, "mailto:u-") || !strings.Contains(data, "\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n") {
		t.Fatalf("fields: %s\n%s", field, data)
	}
	if v := i.Verify([]byte(data)); v.DKIM != auth.Pass {
		t.Errorf("DKIM is %s", v.DKIM)
	}
	for name, changed := range map[string]string{
		"link": strings.Replace(data, "/unsubscribe/", "/unsubscribe/x", 1), "post": strings.Replace(data, "=One-Click", "=Two-Clicks", 1),
	} {
		if v := i.Verify([]byte(changed)); v.DKIM == auth.Pass {
			t.Errorf("the %s is not signed", name)
		}
	}
	ctx := context.Background()
	if u, err := i.Svc.Feedback.CheckUnsubscribe(ctx, token); err != nil || u.Email != "x@far.test" || u.Domain != "example.test" || len(suppressed(i)) != 0 {
		t.Errorf("look: %+v, %v, %v", u, err, suppressed(i))
	}
	text, mac, _ := strings.Cut(token, ".")
	for _, bad := range []string{"", ".", text, text + ".", text + "." + mac[1:], "x" + token, token + "x", strings.Repeat("a", 5000) + token} {
		if _, err := i.Svc.Feedback.Unsubscribe(ctx, bad); !servicetest.HasCode(err, "not_found") {
			t.Errorf("%.80q: %v", bad, err)
		}
	}
	for range 2 {
		if u, err := i.Svc.Feedback.Unsubscribe(ctx, token); err != nil || u.Email != "x@far.test" {
			t.Fatalf("%+v, %v", u, err)
		}
	}
	if got := suppressed(i); len(got) != 1 || got[0] != "x@far.test manual" {
		t.Errorf("suppressed: %v", got)
	}
}

// TestWhatIsOutOutlivesTheMasterKey: links and addresses that were issued under a master key stay
// valid after it is replaced, also after a restart.
func TestWhatIsOutOutlivesTheMasterKey(t *testing.T) {
	i, field, _ := leaving(t, "https://mail.mailstead.test", servicetest.PlainMessage, "x@far.test")
	link, _, _ := strings.Cut(strings.Trim(field, "<>"), ">, <")
	token := strings.TrimPrefix(link, "https://mail.mailstead.test/unsubscribe/")
	const id = "msg_01k9a2b3c4d5e6f7g8h9j0k1m2"
	bounce := i.Svc.Recipients.RowAddress(recipients.BounceAddress, &store.Outgoing{ID: id, Domain: "example.test"})
	tag := strings.TrimPrefix(strings.TrimSuffix(i.Svc.Recipients.RowAddress("t", &store.Outgoing{ID: id, Domain: ""}), "@"), "t-")
	srs, _, _ := strings.Cut(i.Svc.Recipients.SRSForward("victim@far.test", "example.test"), "@")
	holds := func(when string) {
		t.Helper()
		if u, err := i.Svc.Feedback.CheckUnsubscribe(t.Context(), token); err != nil || u.Email != "x@far.test" {
			t.Errorf("%s: the link: %+v, %v", when, u, err)
		}
		if i.Svc.Recipients.BouncedRowID(bounce) != id || i.Svc.Feedback.ReadTag(tag) != id {
			t.Errorf("%s: the return path gives %q, the tag %q", when, i.Svc.Recipients.BouncedRowID(bounce), i.Svc.Feedback.ReadTag(tag))
		}
		if sender, ok := i.Svc.Recipients.SRSReverse(srs, "example.test"); !ok || sender != "victim@far.test" {
			t.Errorf("%s: SRS gives %q", when, sender)
		}
	}
	holds("before")
	for range 2 {
		if _, err := i.Svc.Core.RotateKey(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	holds("after")
	i.Reopen()
	holds("after a start")
	if again := i.Svc.Recipients.RowAddress(recipients.BounceAddress, &store.Outgoing{ID: id, Domain: "example.test"}); again == bounce || i.Svc.Recipients.BouncedRowID(again) != id {
		t.Errorf("a return path of now is %s, and one of before was %s", again, bounce)
	}
}

func TestUnsubscribeByMail(t *testing.T) {
	i, field, data := leaving(t, "http://localhost", servicetest.PlainMessage, "x@far.test")
	address, ok := strings.CutPrefix(strings.TrimSuffix(field, "?subject=unsubscribe>"), "<mailto:")
	if !ok || strings.Contains(data, "List-Unsubscribe-Post") {
		t.Fatalf("field %q\n%s", field, data)
	}
	i.MustArrive("", address, "From: mailer-daemon@far.test\r\nSubject: failed\r\n\r\n")
	if got := suppressed(i); len(got) != 0 {
		t.Errorf("a machine's answer suppressed %v", got)
	}
	i.MustArrive("somebody@far.test", address, "From: somebody@far.test\r\nSubject: unsubscribe\r\n\r\n")
	if got := suppressed(i); len(got) != 1 || got[0] != "x@far.test manual" {
		t.Errorf("suppressed: %v", got)
	}
	if got := i.Events(events.EventEmailReceived); len(got) != 0 {
		t.Errorf("filed: %v", got)
	}
}

func TestWhatOffersNoWayOut(t *testing.T) {
	for name, message := range map[string]string{
		"an answer":          "In-Reply-To: <x@far.test>\r\n" + servicetest.PlainMessage,
		"a thread":           "References: <x@far.test>\r\n" + servicetest.PlainMessage,
		"a machine's answer": "Auto-Submitted: auto-replied\r\n" + servicetest.PlainMessage,
		"one of its own":     "List-Unsubscribe: <mailto:leave@example.test>\r\n" + servicetest.PlainMessage,
	} {
		t.Run(name, func(t *testing.T) {
			if _, field, _ := leaving(t, "https://mail.mailstead.test", message, "x@far.test"); field != "" && name != "one of its own" || strings.Contains(field, "/unsubscribe/") {
				t.Errorf("field %q", field)
			}
		})
	}
}

func TestEachRecipientHasALinkOfItsOwn(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{BaseURL: "https://mail.mailstead.test", Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.ListUnsub = true }), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test", "y@far.test")
	i.Becomes("x@far.test", store.OutgoingRelayed)
	i.Becomes("y@far.test", store.OutgoingRelayed)
	for _, m := range h.Mails() {
		link, _, _ := strings.Cut(msg.FieldValues([]byte(m.Data), "List-Unsubscribe")[0], ">")
		u, err := i.Svc.Feedback.CheckUnsubscribe(context.Background(), strings.TrimPrefix(link, "<https://mail.mailstead.test/unsubscribe/"))
		if err != nil || u.Email != m.To || i.Verify([]byte(m.Data)).DKIM != auth.Pass {
			t.Errorf("%s: %+v, %v", m.To, u, err)
		}
	}
}

// TestLateFeedbackCountsWhereMailWasTaken: a report may name any host, and the recipient's domain
// is not the operator of its MX host. The result of a message counts for the operator that accepted
// it.
func TestLateFeedbackCountsWhereMailWasTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		report func(c *correspondence) string
		counts func(w reputation.Window) int
	}{
		"a late bounce": {func(c *correspondence) string { return dsn("failed", "5.1.1", "x@far.test", "") }, func(w reputation.Window) int { return w.Bounced }},
		"a complaint": {func(c *correspondence) string {
			return arf("abuse", "Original-Mail-From: <"+c.path+">\r\n", c.head())
		}, func(w reputation.Window) int { return w.Complained }},
	} {
		t.Run(name, func(t *testing.T) {
			h := (&servicetest.Host{}).Start(t)
			i := servicetest.Install(t, core.Config{MXPort: h.Port})
			i.DNS.MX["far.test"] = "mx1.operator.test"
			ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
			i.Run()
			i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
			row := i.Becomes("x@far.test", store.OutgoingSent)
			got := h.Mails()[0]
			c := &correspondence{i, ann, row, got.From, got.Data}
			c.MustArrive("", c.path, tc.report(c))
			r, err := i.Svc.Reputation.GetReputation(context.Background(), servicetest.Actor(i.Account), reputation.ReputationIn{})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Destinations) != 1 || r.Destinations[0].Operator != "operator.test" || tc.counts(r.Destinations[0].Windows.Day) != 1 {
				t.Errorf("destinations: %+v", r.Destinations)
			}
		})
	}
}

// TestReportsOfEveryForm reads messages from the null sender to the return path: failures count in
// any format, and suppress only if the address is at fault.
func TestReportsOfEveryForm(t *testing.T) {
	for name, want := range map[string]struct {
		kind       string
		suppressed bool
	}{
		"status-fields-as-text":          {"hard", true},
		"address-and-words-on-one-line":  {"hard", true},
		"dma":                            {"hard", true},
		"unknown-user-line":              {"hard", true},
		"japanese":                       {"hard", true},
		"chinese":                        {"hard", true},
		"report-without-recipient-block": {"hard", true},
		"mailbox-full-inside-510":        {"hard", false},
		"511-too-many-this-hour":         {"hard", false},
		"521-receives-at-a-rate":         {"hard", false},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile("testdata/cases/37-bounce-" + name + ".eml")
			if err != nil {
				t.Fatal(err)
			}
			c := correspond(t, core.Config{}, nil)
			text := strings.NewReplacer("@VERP@", c.path, "@RCPT@", "x@far.test").Replace(string(raw))
			_, text, _ = strings.Cut(text, "\r\n") // the delivering host adds the return path
			c.MustArrive("", c.path, text)
			reason := ""
			if want.suppressed {
				reason = "bounce"
			}
			c.heard(store.OutgoingBounced, 1, 0, reason)
			if e := c.Events(events.EventEmailBounced)[0]; e["bounce_type"] != want.kind || e["suppressed"] != want.suppressed {
				t.Errorf("event %v", e)
			}
			if inbox := c.Folder(c.ann, "INBOX"); len(inbox) != 1 || inbox[0].Bits&store.BitBounce == 0 {
				t.Errorf("the sender's inbox: %+v", inbox)
			}
		})
	}
}
