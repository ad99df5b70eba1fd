package mta_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// capturing is an installation that sends nothing, with one mailbox.
func capturing(t *testing.T, change func(*store.Mailbox)) (*servicetest.Installation, *store.Mailbox) {
	t.Helper()
	i := servicetest.Install(t, core.Config{Outbound: "capture"})
	return i, i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", change)
}

func TestOnlyTheMailboxMaySendAsItself(t *testing.T) {
	i, ann := capturing(t, nil)
	body := func(from string) string { return "From: " + from + "\r\nSubject: s\r\n\r\nhello\r\n" }
	for _, c := range []struct {
		envelope, message string
		code              int
		enhanced          string
	}{
		{"ann@example.test", body("Ann <ann@example.test>"), 0, ""},
		{"ANN+tag@Example.test", body("ann+other@example.test"), 0, ""},
		{"bob@example.test", body("ann@example.test"), 550, "5.7.1"},
		{"ann@example.test", body("bob@example.test"), 550, "5.7.1"},
		{"ann@example.test", body("ann@example.test, bob@example.test"), 550, "5.7.1"},
		{"ann@example.test", "Sender: bob@example.test\r\n" + body("ann@example.test"), 550, "5.7.1"},
		{"ann@example.test", "From: bob@example.test\r\n" + body("ann@example.test"), 550, "5.6.0"},
		{"ann@example.test", "Subject: s\r\n\r\nhello\r\n", 550, "5.6.0"},
		{"", body("ann@example.test"), 550, "5.1.7"},
		{"ann@example.test", strings.Repeat("X: y\r\n", 60000) + body("ann@example.test"), 554, "5.6.0"},
	} {
		in := mta.Submission{From: c.envelope, Body: i.Spool(c.message), To: []mta.Rcpt{{Address: "x@far.test"}}}
		_, err := i.Svc.Submit(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in)
		var e *core.SMTPError
		errors.As(err, &e)
		if c.code == 0 && err != nil || c.code != 0 && (e == nil || e.Code != c.code || e.Enhanced != c.enhanced) {
			t.Errorf("%s, %.60q: %v, want %d %s", c.envelope, c.message, err, c.code, c.enhanced)
		}
	}
}

func TestSubmissionIsCompleted(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Relays: []core.Relay{h.Relay("custom")}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	in := mta.Submission{
		From: ann.Email, Body: i.Spool("From: ann@example.test\nBCC: a@far.test,\n b@far.test\nSubject: Grüße\n\nbare\rlines\n.dot\nend"),
		Trace: []byte("Received: from client\r\n\tby us; now\r\n"),
		To:    []mta.Rcpt{{Address: "x@far.test"}, {Address: "X@FAR.test"}},
	}
	out, err := i.Svc.Submit(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in)
	if err != nil || len(out.Recipients) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	i.Becomes("x@far.test", store.OutgoingRelayed)
	got := h.Mails()[0].Data
	_, after, _ := strings.Cut(got, "Received: from client\r\n\tby us; now\r\n")
	for _, want := range []string{"Message-ID: " + out.MessageID + "\r\n", "\r\nDate: ", "\r\n\r\nbare\r\nlines\r\n.dot\r\nend\r\n"} {
		if !strings.Contains(after, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(strings.ToLower(got), "\nbcc:") || strings.Contains(got, "b@far.test") {
		t.Errorf("the blind copy shows:\n%s", got)
	}
	if v := i.Verify([]byte(got)); v.DKIM != auth.Pass {
		t.Errorf("DKIM is %s: %+v", v.DKIM, v.Signatures)
	}
}

func TestDailyLimitCountsRecipients(t *testing.T) {
	limit := 3
	i, ann := capturing(t, func(m *store.Mailbox) { m.DailySendLimit = &limit })
	i.MustSubmit(ann, servicetest.PlainMessage, "a@far.test", "b@far.test")
	_, err := i.Submit(ann, servicetest.PlainMessage, "c@far.test", "d@far.test")
	var e *core.SMTPError
	if !errors.As(err, &e) || e.Code != 452 || !servicetest.HasCode(err, "daily_send_limit_reached") {
		t.Errorf("past the limit: %v", err)
	}
	if _, err := i.Send(ann, mta.SendEmailIn{To: mta.Texts{"c@far.test", "d@far.test"}, Subject: "s"}); !servicetest.HasCode(err, "daily_send_limit_reached") {
		t.Errorf("past the limit by API: %v", err)
	}
	i.MustSend(ann, mta.SendEmailIn{To: mta.Texts{"c@far.test"}, Subject: "s"})
	i.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, ann.ID)
		if err != nil {
			return err
		}
		mb.SentDay = "2020-01-01"
		return store.Mailboxes.Put(tx, mb)
	})
	i.MustSubmit(ann, servicetest.PlainMessage, "d@far.test")
	st := store.DayStat{}
	i.Update(func(tx *store.Tx) error {
		d, err := store.DayStats.Get(tx, ann.AccountID+time.Now().UTC().Format(time.DateOnly))
		if err == nil {
			st = *d
		}
		return err
	})
	if st.Sent != 4 {
		t.Errorf("%d sent today, want 4", st.Sent)
	}
}

func TestWhoMayNotSend(t *testing.T) {
	i, _ := capturing(t, nil)
	half := i.AddDomain(i.Account, "half.test", func(d *store.Domain) { d.Status = "in_progress" })
	d := i.AddDomain(i.Account, "whole.test", nil)
	for _, c := range []struct {
		mb   *store.Mailbox
		code string
	}{
		{i.AddMailbox(half, "ann", nil), "domain_not_ready"},
		{i.AddMailbox(d, "pending", func(m *store.Mailbox) { m.Status = "pending" }), "domain_not_ready"},
		{i.AddMailbox(d, "sue", func(m *store.Mailbox) { m.Status = "suspended" }), "validation_error"},
		{i.AddMailbox(d, "ext", func(m *store.Mailbox) { m.Type = "external" }), "validation_error"},
	} {
		if _, err := i.Send(c.mb, mta.SendEmailIn{To: mta.Texts{"x@far.test"}, Subject: "s"}); !servicetest.HasCode(err, c.code) {
			t.Errorf("%s by API: %v, want %s", c.mb.Email, err, c.code)
		}
		if _, err := i.Submit(c.mb, strings.ReplaceAll(servicetest.PlainMessage, "ann@example.test", c.mb.Email), "x@far.test"); !servicetest.HasCode(err, c.code) {
			t.Errorf("%s by SMTP: %v, want %s", c.mb.Email, err, c.code)
		}
	}
	other := i.AddAccount("other@elsewhere.test")
	in := mta.SendEmailIn{UserID: i.AddMailbox(d, "ann", nil).ID, To: mta.Texts{"x@far.test"}, Subject: "s"}
	if _, err := i.Svc.SendEmail(context.Background(), servicetest.Actor(other), in); !servicetest.HasCode(err, "not_found") {
		t.Errorf("as another account's mailbox: %v", err)
	}
}

// TestOtherAccountsGetMailOnlyByAddress: what one account sends to another's mailbox arrives there
// as anybody's mail would, and nothing of it is the receiver's to see but the message.
func TestOtherAccountsGetMailOnlyByAddress(t *testing.T) {
	i, ann := capturing(t, nil)
	other := i.AddAccount("other@elsewhere.test")
	eve := i.AddMailbox(i.AddDomain(other, "other.test", nil), "eve", nil)
	i.Run()
	i.MustSend(ann, mta.SendEmailIn{To: mta.Texts{"eve@other.test"}, Bcc: mta.Texts{"x@far.test"}, Subject: "hello"})
	i.Becomes("eve@other.test", store.OutgoingDelivered)
	if got := i.Folder(eve, "INBOX"); len(got) != 1 || strings.Contains(string(got[0].Raw), "x@far.test") {
		t.Errorf("inbox: %+v", got)
	}
	for a, want := range map[*accounts.AccountCreated]int{i.Account: 2, other: 0} {
		page, err := i.Svc.ListMessages(context.Background(), servicetest.Actor(a), mta.ListMessagesIn{})
		if err != nil || len(page.Data) != want {
			t.Errorf("sending log of %s: %d rows, %v", a.OwnerEmail, len(page.Data), err)
		}
	}
}

func TestSendWritesTheWholeMessage(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Relays: []core.Relay{h.Relay("postmark")}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", func(m *store.Mailbox) { m.Name, m.Footer = "Ann Ä.", "Example Ltd" })
	i.Run()
	var in mta.SendEmailIn
	err := json.Unmarshal([]byte(`{"to": "x@far.test", "cc": ["Y <y@far.test>"], "bcc": "z@far.test", "reply_to": "desk@example.test", "subject": "Grüße",
		"body": "<p>hello</p>", "html": true, "in_reply_to": "a@b", "headers": {"X-Campaign": "c1"}, "message_id": "mine@example.test",
		"attachments": [{"filename": "a.txt", "content": "`+base64.StdEncoding.EncodeToString([]byte("attached"))+`"}]}`), &in)
	if err != nil {
		t.Fatal(err)
	}
	out := i.MustSend(ann, in)
	if out.MessageID != "<mine@example.test>" || !out.Success || out.Status != "queued" || out.From != "ann@example.test" || len(out.Recipients) != 3 || out.QueuedAt.IsZero() {
		t.Errorf("answer %+v", out)
	}
	for _, to := range []string{"x", "y", "z"} {
		i.Becomes(to+"@far.test", store.OutgoingRelayed)
	}
	got := h.Mails()[0].Data
	for _, want := range []string{
		"X-PM-KeepID: true\r\n", "\r\nMessage-ID: <mine@example.test>\r\n", "\r\nIn-Reply-To: <a@b>\r\n", "\r\nReferences: <a@b>\r\n", "\r\nX-Campaign: c1\r\n",
		"\r\nReply-To: desk@example.test\r\n", "<p>hello</p>", "Example Ltd", "filename=a.txt", base64.StdEncoding.EncodeToString([]byte("attached")), "\r\nFrom: =?utf-8?",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "z@far.test") || i.Verify([]byte(got)).DKIM != auth.Pass {
		t.Errorf("the blind copy shows, or DKIM fails:\n%s", got)
	}
	if sent := i.Folder(ann, "Sent"); len(sent) != 1 || sent[0].Flags != store.FlagSeen || sent[0].Bits&store.BitAttachments == 0 {
		t.Errorf("Sent: %+v", sent)
	}
}

func TestSendRefuses(t *testing.T) {
	i, ann := capturing(t, nil)
	many := make(mta.Texts, 51)
	for n := range many {
		many[n] = fmt.Sprintf("r%d@far.test", n)
	}
	to, text := mta.Texts{"x@far.test"}, func(s string) *string { return &s }
	big := base64.StdEncoding.EncodeToString(make([]byte, mta.MaxContent+1))
	for name, c := range map[string]struct {
		in   mta.SendEmailIn
		code string
	}{
		"nobody":                   {mta.SendEmailIn{To: mta.Texts{}}, "validation_error"},
		"no address":               {mta.SendEmailIn{To: mta.Texts{"far.test"}}, "validation_error"},
		"51 recipients":            {mta.SendEmailIn{To: many}, "too_many_items"},
		"line break in subject":    {mta.SendEmailIn{To: to, Subject: "a\r\nBcc: y@far.test"}, "validation_error"},
		"line break in address":    {mta.SendEmailIn{To: mta.Texts{"x@far.test\r\nBcc: y@far.test"}}, "validation_error"},
		"line break in a header":   {mta.SendEmailIn{To: to, Headers: map[string]string{"X-A": "b\r\nBcc: y@far.test"}}, "validation_error"},
		"line break in its name":   {mta.SendEmailIn{To: to, Headers: map[string]string{"X-A\r\nBcc": "y@far.test"}}, "validation_error"},
		"structural header":        {mta.SendEmailIn{To: to, Headers: map[string]string{"sender": "y@far.test"}}, "validation_error"},
		"DKIM header":              {mta.SendEmailIn{To: to, Headers: map[string]string{"DKIM-Signature": "v=1"}}, "validation_error"},
		"line break in file name":  {mta.SendEmailIn{To: to, Attachments: []mta.SendAttachment{{Filename: "a\r\nb", Content: text("")}}}, "validation_error"},
		"line break in its type":   {mta.SendEmailIn{To: to, Attachments: []mta.SendAttachment{{Filename: "a", ContentType: "a/b\r\nX: y", Content: text("")}}}, "validation_error"},
		"attachment not in base64": {mta.SendEmailIn{To: to, Attachments: []mta.SendAttachment{{Filename: "a", Content: text("%%%")}}}, "validation_error"},
		"attachment without name":  {mta.SendEmailIn{To: to, Attachments: []mta.SendAttachment{{Content: text("")}}}, "validation_error"},
		"Message-ID with space":    {mta.SendEmailIn{To: to, MessageID: "<a b@c>"}, "validation_error"},
		"Message-ID without @":     {mta.SendEmailIn{To: to, MessageID: "abc"}, "validation_error"},
		"two Message-IDs":          {mta.SendEmailIn{To: to, MessageID: "<a@b><c@d>"}, "validation_error"},
		"bad reference":            {mta.SendEmailIn{To: to, References: mta.Texts{"<a@b> c"}}, "validation_error"},
		"body beside text":         {mta.SendEmailIn{To: to, Body: "a", Text: "b"}, "validation_error"},
		"more than 25 MiB":         {mta.SendEmailIn{To: to, Attachments: []mta.SendAttachment{{Filename: "a", Content: &big}}}, "payload_too_large"},
	} {
		if _, err := i.Send(ann, c.in); !servicetest.HasCode(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if subs, js := i.Left(); subs+js != 0 || len(i.Folder(ann, "INBOX")) != 0 {
		t.Errorf("%d submissions and %d jobs of what was refused", subs, js)
	}
}
