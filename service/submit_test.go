package service

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
	"github.com/mailstead/mailstead/store"
)

// capturing is an installation that sends nothing, with one mailbox.
func capturing(t *testing.T, change func(*store.Mailbox)) (*installation, *store.Mailbox) {
	t.Helper()
	i := install(t, Config{Outbound: "capture"})
	return i, i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", change)
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
		in := Submission{From: c.envelope, Body: i.spool(c.message), To: []Rcpt{{Address: "x@far.test"}}}
		_, err := i.svc.Submit(context.Background(), MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in)
		var e *SMTPError
		errors.As(err, &e)
		if c.code == 0 && err != nil || c.code != 0 && (e == nil || e.Code != c.code || e.Enhanced != c.enhanced) {
			t.Errorf("%s, %.60q: %v, want %d %s", c.envelope, c.message, err, c.code, c.enhanced)
		}
	}
}

func TestSubmissionIsCompleted(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("custom")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	in := Submission{
		From: ann.Email, Body: i.spool("From: ann@example.test\nBCC: a@far.test,\n b@far.test\nSubject: Grüße\n\nbare\rlines\n.dot\nend"),
		Trace: []byte("Received: from client\r\n\tby us; now\r\n"),
		To:    []Rcpt{{Address: "x@far.test"}, {Address: "X@FAR.test"}},
	}
	out, err := i.svc.Submit(context.Background(), MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in)
	if err != nil || len(out.Recipients) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	i.becomes("x@far.test", store.OutgoingRelayed)
	got := h.mails()[0].data
	_, after, _ := strings.Cut(got, "Received: from client\r\n\tby us; now\r\n")
	for _, want := range []string{"Message-ID: " + out.MessageID + "\r\n", "\r\nDate: ", "\r\n\r\nbare\r\nlines\r\n.dot\r\nend\r\n"} {
		if !strings.Contains(after, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(strings.ToLower(got), "\nbcc:") || strings.Contains(got, "b@far.test") {
		t.Errorf("the blind copy shows:\n%s", got)
	}
	if v := i.verify([]byte(got)); v.DKIM != auth.Pass {
		t.Errorf("DKIM is %s: %+v", v.DKIM, v.Signatures)
	}
}

func TestDailyLimitCountsRecipients(t *testing.T) {
	limit := 3
	i, ann := capturing(t, func(m *store.Mailbox) { m.DailySendLimit = &limit })
	i.mustSubmit(ann, plainMessage, "a@far.test", "b@far.test")
	_, err := i.submit(ann, plainMessage, "c@far.test", "d@far.test")
	var e *SMTPError
	if !errors.As(err, &e) || e.Code != 452 || !hasCode(err, "daily_send_limit_reached") {
		t.Errorf("past the limit: %v", err)
	}
	if _, err := i.send(ann, SendEmailIn{To: Texts{"c@far.test", "d@far.test"}, Subject: "s"}); !hasCode(err, "daily_send_limit_reached") {
		t.Errorf("past the limit by API: %v", err)
	}
	i.mustSend(ann, SendEmailIn{To: Texts{"c@far.test"}, Subject: "s"})
	i.update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, ann.ID)
		if err != nil {
			return err
		}
		mb.SentDay = "2020-01-01"
		return store.Mailboxes.Put(tx, mb)
	})
	i.mustSubmit(ann, plainMessage, "d@far.test")
	st := store.DayStat{}
	i.update(func(tx *store.Tx) error {
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
	half := i.addDomain(i.account, "half.test", func(d *store.Domain) { d.Status = "in_progress" })
	d := i.addDomain(i.account, "whole.test", nil)
	for _, c := range []struct {
		mb   *store.Mailbox
		code string
	}{
		{i.addMailbox(half, "ann", nil), "domain_not_ready"},
		{i.addMailbox(d, "pending", func(m *store.Mailbox) { m.Status = "pending" }), "domain_not_ready"},
		{i.addMailbox(d, "sue", func(m *store.Mailbox) { m.Status = "suspended" }), "validation_error"},
		{i.addMailbox(d, "ext", func(m *store.Mailbox) { m.Type = "external" }), "validation_error"},
	} {
		if _, err := i.send(c.mb, SendEmailIn{To: Texts{"x@far.test"}, Subject: "s"}); !hasCode(err, c.code) {
			t.Errorf("%s by API: %v, want %s", c.mb.Email, err, c.code)
		}
		if _, err := i.submit(c.mb, strings.ReplaceAll(plainMessage, "ann@example.test", c.mb.Email), "x@far.test"); !hasCode(err, c.code) {
			t.Errorf("%s by SMTP: %v, want %s", c.mb.Email, err, c.code)
		}
	}
	other := i.addAccount("other@elsewhere.test")
	in := SendEmailIn{UserID: i.addMailbox(d, "ann", nil).ID, To: Texts{"x@far.test"}, Subject: "s"}
	if _, err := i.svc.SendEmail(context.Background(), actor(other), in); !hasCode(err, "not_found") {
		t.Errorf("as another account's mailbox: %v", err)
	}
}

// TestOtherAccountsGetMailOnlyByAddress: what one account sends to another's mailbox arrives there
// as anybody's mail would, and nothing of it is the receiver's to see but the message.
func TestOtherAccountsGetMailOnlyByAddress(t *testing.T) {
	i, ann := capturing(t, nil)
	other := i.addAccount("other@elsewhere.test")
	eve := i.addMailbox(i.addDomain(other, "other.test", nil), "eve", nil)
	i.run()
	i.mustSend(ann, SendEmailIn{To: Texts{"eve@other.test"}, Bcc: Texts{"x@far.test"}, Subject: "hello"})
	i.becomes("eve@other.test", store.OutgoingDelivered)
	if got := i.folder(eve, "INBOX"); len(got) != 1 || strings.Contains(string(got[0].raw), "x@far.test") {
		t.Errorf("inbox: %+v", got)
	}
	for a, want := range map[*AccountCreated]int{i.account: 2, other: 0} {
		page, err := i.svc.ListMessages(context.Background(), actor(a), ListMessagesIn{})
		if err != nil || len(page.Data) != want {
			t.Errorf("sending log of %s: %d rows, %v", a.OwnerEmail, len(page.Data), err)
		}
	}
}

func TestSendWritesTheWholeMessage(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("postmark")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", func(m *store.Mailbox) { m.Name, m.Footer = "Ann Ä.", "Example Ltd" })
	i.run()
	var in SendEmailIn
	err := json.Unmarshal([]byte(`{"to": "x@far.test", "cc": ["Y <y@far.test>"], "bcc": "z@far.test", "reply_to": "desk@example.test", "subject": "Grüße",
		"body": "<p>hello</p>", "html": true, "in_reply_to": "a@b", "headers": {"X-Campaign": "c1"}, "message_id": "mine@example.test",
		"attachments": [{"filename": "a.txt", "content": "`+base64.StdEncoding.EncodeToString([]byte("attached"))+`"}]}`), &in)
	if err != nil {
		t.Fatal(err)
	}
	out := i.mustSend(ann, in)
	if out.MessageID != "<mine@example.test>" || !out.Success || out.Status != "queued" || out.From != "ann@example.test" || len(out.Recipients) != 3 || out.QueuedAt.IsZero() {
		t.Errorf("answer %+v", out)
	}
	for _, to := range []string{"x", "y", "z"} {
		i.becomes(to+"@far.test", store.OutgoingRelayed)
	}
	got := h.mails()[0].data
	for _, want := range []string{
		"X-PM-KeepID: true\r\n", "\r\nMessage-ID: <mine@example.test>\r\n", "\r\nIn-Reply-To: <a@b>\r\n", "\r\nReferences: <a@b>\r\n", "\r\nX-Campaign: c1\r\n",
		"\r\nReply-To: desk@example.test\r\n", "<p>hello</p>", "Example Ltd", "filename=a.txt", base64.StdEncoding.EncodeToString([]byte("attached")), "\r\nFrom: =?utf-8?",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "z@far.test") || i.verify([]byte(got)).DKIM != auth.Pass {
		t.Errorf("the blind copy shows, or DKIM fails:\n%s", got)
	}
	if sent := i.folder(ann, "Sent"); len(sent) != 1 || sent[0].Flags != store.FlagSeen || sent[0].Bits&store.BitAttachments == 0 {
		t.Errorf("Sent: %+v", sent)
	}
}

func TestSendRefuses(t *testing.T) {
	i, ann := capturing(t, nil)
	many := make(Texts, 51)
	for n := range many {
		many[n] = fmt.Sprintf("r%d@far.test", n)
	}
	to, text := Texts{"x@far.test"}, func(s string) *string { return &s }
	big := base64.StdEncoding.EncodeToString(make([]byte, maxContent+1))
	for name, c := range map[string]struct {
		in   SendEmailIn
		code string
	}{
		"nobody":                   {SendEmailIn{To: Texts{}}, "validation_error"},
		"no address":               {SendEmailIn{To: Texts{"far.test"}}, "validation_error"},
		"51 recipients":            {SendEmailIn{To: many}, "too_many_items"},
		"line break in subject":    {SendEmailIn{To: to, Subject: "a\r\nBcc: y@far.test"}, "validation_error"},
		"line break in address":    {SendEmailIn{To: Texts{"x@far.test\r\nBcc: y@far.test"}}, "validation_error"},
		"line break in a header":   {SendEmailIn{To: to, Headers: map[string]string{"X-A": "b\r\nBcc: y@far.test"}}, "validation_error"},
		"line break in its name":   {SendEmailIn{To: to, Headers: map[string]string{"X-A\r\nBcc": "y@far.test"}}, "validation_error"},
		"structural header":        {SendEmailIn{To: to, Headers: map[string]string{"sender": "y@far.test"}}, "validation_error"},
		"DKIM header":              {SendEmailIn{To: to, Headers: map[string]string{"DKIM-Signature": "v=1"}}, "validation_error"},
		"line break in file name":  {SendEmailIn{To: to, Attachments: []SendAttachment{{Filename: "a\r\nb", Content: text("")}}}, "validation_error"},
		"line break in its type":   {SendEmailIn{To: to, Attachments: []SendAttachment{{Filename: "a", ContentType: "a/b\r\nX: y", Content: text("")}}}, "validation_error"},
		"attachment not in base64": {SendEmailIn{To: to, Attachments: []SendAttachment{{Filename: "a", Content: text("%%%")}}}, "validation_error"},
		"attachment without name":  {SendEmailIn{To: to, Attachments: []SendAttachment{{Content: text("")}}}, "validation_error"},
		"Message-ID with space":    {SendEmailIn{To: to, MessageID: "<a b@c>"}, "validation_error"},
		"Message-ID without @":     {SendEmailIn{To: to, MessageID: "abc"}, "validation_error"},
		"two Message-IDs":          {SendEmailIn{To: to, MessageID: "<a@b><c@d>"}, "validation_error"},
		"bad reference":            {SendEmailIn{To: to, References: Texts{"<a@b> c"}}, "validation_error"},
		"body beside text":         {SendEmailIn{To: to, Body: "a", Text: "b"}, "validation_error"},
		"more than 25 MiB":         {SendEmailIn{To: to, Attachments: []SendAttachment{{Filename: "a", Content: &big}}}, "payload_too_large"},
	} {
		if _, err := i.send(ann, c.in); !hasCode(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if subs, js := i.left(); subs+js != 0 || len(i.folder(ann, "INBOX")) != 0 {
		t.Errorf("%d submissions and %d jobs of what was refused", subs, js)
	}
}

func TestSendFieldsOfTwoForms(t *testing.T) {
	for _, bad := range []string{`{"to": 1}`, `{"to": ["a", 1]}`, `{"html": 1}`, `{"html": ["a"]}`} {
		if err := json.Unmarshal([]byte(bad), &SendEmailIn{}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	var in SendEmailIn
	if err := json.Unmarshal([]byte(`{"to": ["a@b", "c@d"], "html": "<p>"}`), &in); err != nil || len(in.To) != 2 || in.HTML.Text != "<p>" || in.HTML.OfBody {
		t.Errorf("%+v, %v", in, err)
	}
}
