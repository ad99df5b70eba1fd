package submit_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// capturing is an installation that captures outgoing mail, with one mailbox.
func capturing(t *testing.T, change func(*store.Mailbox)) (*servicetest.Installation, *store.Mailbox) {
	t.Helper()
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
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
		in := submit.Submission{From: c.envelope, Body: i.Spool(c.message), To: []outbound.Rcpt{{Address: "x@far.test"}}}
		_, err := i.Svc.Submit.Submit(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in)
		var e *core.SMTPError
		errors.As(err, &e)
		if c.code == 0 && err != nil || c.code != 0 && (e == nil || e.Code != c.code || e.Enhanced != c.enhanced) {
			t.Errorf("%s, %.60q: %v, want %d %s", c.envelope, c.message, err, c.code, c.enhanced)
		}
	}
}

func TestSubmissionIsCompleted(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	in := submit.Submission{
		From: ann.Email, Body: i.Spool("From: ann@example.test\nBCC: a@far.test,\n b@far.test\nSubject: Grüße\n\nbare\rlines\n.dot\nend"),
		Trace: []byte("Received: from client\r\n\tby us; now\r\n"),
		To:    []outbound.Rcpt{{Address: "x@far.test"}, {Address: "X@FAR.test"}},
	}
	out, err := i.Svc.Submit.Submit(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in)
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
	if _, err := i.Send(ann, submit.SendEmailIn{To: submit.Texts{"c@far.test", "d@far.test"}, Subject: "s"}); !servicetest.HasCode(err, "daily_send_limit_reached") {
		t.Errorf("past the limit by API: %v", err)
	}
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"c@far.test"}, Subject: "s"})
	i.Update(func(tx *store.Tx) error { // another day
		return store.SendDays.Delete(tx, store.SendDayID(ann.AccountID, time.Now().UTC().Format(time.DateOnly), ann.ID))
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
		if _, err := i.Send(c.mb, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "s"}); !servicetest.HasCode(err, c.code) {
			t.Errorf("%s by API: %v, want %s", c.mb.Email, err, c.code)
		}
		if _, err := i.Submit(c.mb, strings.ReplaceAll(servicetest.PlainMessage, "ann@example.test", c.mb.Email), "x@far.test"); !servicetest.HasCode(err, c.code) {
			t.Errorf("%s by SMTP: %v, want %s", c.mb.Email, err, c.code)
		}
	}
	other := i.AddAccount("other@elsewhere.test")
	in := submit.SendEmailIn{UserID: i.AddMailbox(d, "ann", nil).ID, To: submit.Texts{"x@far.test"}, Subject: "s"}
	if _, err := i.Svc.Submit.SendEmail(context.Background(), servicetest.Actor(other), in); !servicetest.HasCode(err, "not_found") {
		t.Errorf("as another account's mailbox: %v", err)
	}
}

// TestOtherAccountsGetMailOnlyByAddress: mail between accounts arrives like mail from anybody, and
// the receiver sees nothing of it but the message.
func TestOtherAccountsGetMailOnlyByAddress(t *testing.T) {
	i, ann := capturing(t, nil)
	other := i.AddAccount("other@elsewhere.test")
	eve := i.AddMailbox(i.AddDomain(other, "other.test", nil), "eve", nil)
	i.Run()
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"eve@other.test"}, Bcc: submit.Texts{"x@far.test"}, Subject: "hello"})
	i.Becomes("eve@other.test", store.OutgoingDelivered)
	if got := i.Folder(eve, "INBOX"); len(got) != 1 || strings.Contains(string(got[0].Raw), "x@far.test") {
		t.Errorf("inbox: %+v", got)
	}
	for a, want := range map[*accounts.AccountCreated]int{i.Account: 2, other: 0} {
		page, err := i.Svc.Outbound.ListMessages(context.Background(), servicetest.Actor(a), outbound.ListMessagesIn{})
		if err != nil || len(page.Data) != want {
			t.Errorf("sending log of %s: %d rows, %v", a.OwnerEmail, len(page.Data), err)
		}
	}
}

func TestSendWritesTheWholeMessage(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("postmark")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", func(m *store.Mailbox) { m.Name, m.Footer = "Ann Ä.", "Example Ltd" })
	i.Run()
	var in submit.SendEmailIn
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
	many := make(submit.Texts, 51)
	for n := range many {
		many[n] = fmt.Sprintf("r%d@far.test", n)
	}
	to, text := submit.Texts{"x@far.test"}, func(s string) *string { return &s }
	big := base64.StdEncoding.EncodeToString(make([]byte, core.MaxContent+1))
	for name, c := range map[string]struct {
		in   submit.SendEmailIn
		code string
	}{
		"nobody":                   {submit.SendEmailIn{To: submit.Texts{}}, "validation_error"},
		"no address":               {submit.SendEmailIn{To: submit.Texts{"far.test"}}, "validation_error"},
		"51 recipients":            {submit.SendEmailIn{To: many}, "too_many_items"},
		"line break in subject":    {submit.SendEmailIn{To: to, Subject: "a\r\nBcc: y@far.test"}, "validation_error"},
		"line break in address":    {submit.SendEmailIn{To: submit.Texts{"x@far.test\r\nBcc: y@far.test"}}, "validation_error"},
		"line break in a header":   {submit.SendEmailIn{To: to, Headers: map[string]string{"X-A": "b\r\nBcc: y@far.test"}}, "validation_error"},
		"line break in its name":   {submit.SendEmailIn{To: to, Headers: map[string]string{"X-A\r\nBcc": "y@far.test"}}, "validation_error"},
		"structural header":        {submit.SendEmailIn{To: to, Headers: map[string]string{"sender": "y@far.test"}}, "validation_error"},
		"DKIM header":              {submit.SendEmailIn{To: to, Headers: map[string]string{"DKIM-Signature": "v=1"}}, "validation_error"},
		"line break in file name":  {submit.SendEmailIn{To: to, Attachments: []submit.SendAttachment{{Filename: "a\r\nb", Content: text("")}}}, "validation_error"},
		"line break in its type":   {submit.SendEmailIn{To: to, Attachments: []submit.SendAttachment{{Filename: "a", ContentType: "a/b\r\nX: y", Content: text("")}}}, "validation_error"},
		"attachment not in base64": {submit.SendEmailIn{To: to, Attachments: []submit.SendAttachment{{Filename: "a", Content: text("%%%")}}}, "validation_error"},
		"attachment without name":  {submit.SendEmailIn{To: to, Attachments: []submit.SendAttachment{{Content: text("")}}}, "validation_error"},
		"Message-ID with space":    {submit.SendEmailIn{To: to, MessageID: "<a b@c>"}, "validation_error"},
		"Message-ID without @":     {submit.SendEmailIn{To: to, MessageID: "abc"}, "validation_error"},
		"two Message-IDs":          {submit.SendEmailIn{To: to, MessageID: "<a@b><c@d>"}, "validation_error"},
		"bad reference":            {submit.SendEmailIn{To: to, References: submit.Texts{"<a@b> c"}}, "validation_error"},
		"body beside text":         {submit.SendEmailIn{To: to, Body: "a", Text: "b"}, "validation_error"},
		"more than 25 MiB":         {submit.SendEmailIn{To: to, Attachments: []submit.SendAttachment{{Filename: "a", Content: &big}}}, "payload_too_large"},
	} {
		if _, err := i.Send(ann, c.in); !servicetest.HasCode(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if subs, js := i.Left(); subs+js != 0 || len(i.Folder(ann, "INBOX")) != 0 {
		t.Errorf("%d submissions and %d jobs of what was refused", subs, js)
	}
}

// TestSubmissionNamesItsAuthors: a message with somebody else as author is refused, in any form
// that some program would read so.
func TestSubmissionNamesItsAuthors(t *testing.T) {
	i, ann := capturing(t, nil)
	many := "To: " + strings.Repeat("x@far.test,", 998) + "x@far.test\r\n"
	const own, ceo = "ann@example.test", "ceo@example.test"
	for _, c := range []struct {
		header   string
		enhanced string // "" if the message is accepted
	}{
		{"From: " + own + "\r\n", ""},
		{"From: \"Ann, of Example\" <" + own + ">\r\nSender: " + own + "\r\n", ""},
		{"From: ann+a@example.test, Ann <ann+b@Example.Test>\r\nSender: " + own + "\r\n", ""},
		{"Resent-From: " + own + "\r\nResent-Sender: ann+x@example.test\r\nFrom: " + own + "\r\n", ""},
		{many + "From: " + own + "\r\nCc: c@far.test\r\n", ""},

		{many + "From: " + own + ", " + ceo + "\r\nSender: " + own + "\r\n", "5.7.1"},
		{many + "From: " + own + "\r\nSender: " + ceo + "\r\n", "5.7.1"},
		{many + "From: " + ceo + "\r\n", "5.7.1"},
		{"From: " + own + ", ann+b@example.test\r\n", "5.6.0"}, // without a Sender
		{"From: " + own + "\r\nSender: " + own + "\r\nSender: " + ceo + "\r\n", "5.6.0"},
		{"From: " + own + "\r\nSender:\r\n", "5.6.0"},
		{"From: " + own + "\r\nSender: " + own + ", " + own + "\r\n", "5.6.0"},
		{"From: " + own + "\r\nfrom : " + ceo + "\r\n", "5.6.0"},
		{"From: " + own + "\r\nFROM: " + own + "\r\n", "5.6.0"},
		{"From: " + ceo + " " + own + "\r\n", "5.6.0"},
		{"From: " + ceo + ": " + own + ";\r\n", "5.6.0"},
		{"From: Team: " + own + ";\r\n", "5.6.0"},
		{"From: <" + own + "> <" + ceo + ">\r\n", "5.6.0"},
		{"From: \"CEO\" <" + own + "> \"CEO\" <" + ceo + ">\r\n", "5.6.0"},
		{"From: " + ceo + " <" + own + ">\r\n", "5.6.0"},
		{"From: <@far.test:" + own + ">\r\n", "5.6.0"},
		{"From: \"" + ceo + ",\" " + own + "\r\n", "5.6.0"},
		{"From: =?utf-8?q?ceo=40example.test?= " + own + "\r\n", "5.6.0"},
		{"From: =?utf-8?q?ceo=40example.test?=\r\n", "5.6.0"},
		{"From: ann@example.test\x00\r\nX: y\x00\rFrom: " + ceo + "\r\n", "5.6.0"},
		{"From: " + own + ",\r\n \r\n " + own + "\r\nSender: " + own + "\r\n", "5.6.0"},
		{"From:\r\n", "5.6.0"},
		{"Subject: s\r\n", "5.6.0"},
		{"Resent-From: " + own + "\r\nFrom: " + ceo + "\r\n", "5.7.1"},
		{"Resent-From: " + own + "\r\nResent-From: " + ceo + "\r\nFrom: " + own + "\r\n", "5.7.1"},
		{"Resent-From: " + own + "\r\nResent-Sender: " + ceo + "\r\nFrom: " + own + "\r\n", "5.7.1"},
		{"Resent-From: " + ceo + " " + own + "\r\nFrom: " + own + "\r\n", "5.6.0"},
		{"Resent-Sender : " + ceo + "\r\nFrom: " + own + "\r\n", "5.6.0"},
		{strings.Repeat("X: y\r\n", 3000) + "From: " + own + "\r\nFrom: " + ceo + "\r\n", "5.6.0"},
		{"From: " + own + "\r\nno field\r\nFrom: " + ceo + "\r\n", "5.6.0"},
		{"From: " + own + "\r\n" + strings.Repeat("X: y\r\n", 3000) + "Sender: " + ceo + "\r\n", "5.7.1"},
	} {
		_, err := i.Submit(ann, c.header+"Date: Mon, 01 Jan 2024 00:00:00 +0000\r\n\r\nhello\r\n", "x@far.test")
		var e *core.SMTPError
		errors.As(err, &e)
		if c.enhanced == "" && err != nil || c.enhanced != "" && (e == nil || e.Code != 550 || e.Enhanced != c.enhanced) {
			t.Errorf("%.200q: %v, want 550 %s", strings.TrimPrefix(c.header, many), err, c.enhanced)
		}
	}
	// Text after a line that is no header field is sent as body text, after an empty line, unless
	// readers would take it for a field.
	i.MustSubmit(ann, "From: "+own+"\r\nno field\r\nNor this.\r\n\r\nhello\r\n", "text@far.test")
}

// TestLocalMailPassesForItsAuthorOnly: local mail passes DMARC only if its author is its sender.
// The test queues mail as older releases did, which did not check authors strictly.
func TestLocalMailPassesForItsAuthorOnly(t *testing.T) {
	for name, c := range map[string]struct{ from, dmarc string }{
		"own":             {"From: Ann <ann@example.test>\r\n", "pass"},
		"own with tag":    {"From: Ann <ann+tag@example.test>\r\n", "pass"},
		"a colleague":     {"From: ceo@example.test\r\n", "fail"},
		"two, one hidden": {"From: ann@example.test\r\nFROM : ceo@example.test\r\n", "permerror"},
		"a group":         {"From: ceo@example.test: ann@example.test;\r\n", "permerror"},
	} {
		i, ann := capturing(t, nil)
		d := i.AddDomain(i.AddAccount("other@elsewhere.test"), "other.test", nil)
		bob := i.AddMailbox(d, "bob", nil)
		blob, err := i.St.Append([]byte("{}"), i.Spool(c.from+"Message-ID: <1@example.test>\r\nSubject: s\r\n\r\nhello\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		i.Update(func(tx *store.Tx) error {
			from, err := store.Domains.Get(tx, ann.DomainID)
			if err != nil {
				return err
			}
			_, err = i.Svc.Outbound.Enqueue(tx, &store.Submission{
				AccountID: ann.AccountID, MailboxID: ann.ID, DomainID: ann.DomainID, MessageID: "<1@example.test>", Sender: ann.Email, Blob: blob,
			}, from, []outbound.Rcpt{{Address: bob.Email}})
			return err
		})
		i.Run()
		i.Becomes(bob.Email, store.OutgoingDelivered)
		if got := i.Folder(bob, "INBOX"); len(got) != 1 || got[0].Meta.DMARC != c.dmarc {
			t.Errorf("%s: %+v, want dmarc=%s", name, got, c.dmarc)
		}
	}
}

// TestForwardReportsGoToGenuineSendersOnly replays signed mail with a stranger's envelope sender.
func TestForwardReportsGoToGenuineSendersOnly(t *testing.T) {
	for name, c := range map[string]struct {
		path, client string
		told         bool
	}{
		"SPF of the path passes":             {"bounces@path.test", "192.0.2.7", true},
		"a path that DMARC's domain aligns":  {"bounces@mail.signed.test", "198.51.100.9", true},
		"a stranger's path, replayed":        {"victim@victim.test", "198.51.100.9", false},
		"a path whose SPF passes HELO alone": {"", "192.0.2.7", false},
	} {
		i := servicetest.Install(t, core.Config{})
		i.DNS.Txt["path.test"], i.DNS.Txt["victim.test"], i.DNS.Txt["client.far.test"] = "v=spf1 ip4:192.0.2.0/24 -all", "v=spf1 ip4:203.0.113.1 -all", "v=spf1 ip4:192.0.2.0/24 -all"
		i.DNS.Txt["_dmarc.signed.test"] = "v=DMARC1; p=reject"
		pem, _ := servicetest.DKIMKeys()
		key, err := auth.ParseKey(pem)
		if err != nil {
			t.Fatal(err)
		}
		i.DNS.Txt["s._domainkey.signed.test"] = auth.KeyRecord(key)
		text := "From: pat@signed.test\r\nTo: list@far.test\r\nSubject: s\r\n\r\nhello\r\n"
		signature, err := auth.Sign(strings.NewReader(text), auth.SignOptions{Keys: []auth.Key{{Domain: "signed.test", Selector: "s", Signer: key}}})
		if err != nil {
			t.Fatal(err)
		}
		i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.Forward = "all@gone.test" })
		if err := i.ComeIn(netip.MustParseAddr(c.client), c.path, "any@example.test", string(signature)+text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var to string
		i.Update(func(tx *store.Tx) error {
			for sub := range store.Submissions.All(tx) {
				to = sub.ReportTo
			}
			return nil
		})
		if want := map[bool]string{true: c.path}[c.told]; to != want {
			t.Errorf("%s: failures are told to %q, want %q", name, to, want)
		}
	}
}

const (
	germanText   = "From: Ann <ann@example.test>\r\nTo: x@far.test\r\nSubject: hello\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\nGrüße an alle, die das lesen.\r\n"
	germanSigned = "From: Ann <ann@example.test>\r\nTo: x@far.test\r\nSubject: hello\r\nMIME-Version: 1.0\r\nContent-Type: multipart/signed; boundary=b; protocol=\"application/pgp-signature\"\r\n\r\n" +
		"--b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nGrüße\r\n--b\r\nContent-Type: application/pgp-signature\r\n\r\nsig\r\n--b--\r\n"
)

func bodyOf(t *testing.T, data string) string {
	t.Helper()
	r := strings.NewReader(data)
	root, err := msg.Scan(r)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, msg.Open(r, root)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestWhatWeSignIsASCII: signed mail arrives intact even through a host without 8BITMIME.
func TestWhatWeSignIsASCII(t *testing.T) {
	h := (&servicetest.Host{No8Bit: true}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.Run()
	i.MustSubmit(ann, germanText, "x@far.test")
	i.Becomes("x@far.test", store.OutgoingRelayed)
	i.MustSubmit(ann, strings.Replace(germanText, "Grüße", strings.Repeat("a", 2000), 1), "y@far.test")
	i.Becomes("y@far.test", store.OutgoingRelayed)
	for n, want := range []string{"Grüße an", strings.Repeat("a", 2000) + " an"} {
		data := h.Mails()[n].Data
		high, err := msg.HasHighBytes(strings.NewReader(data))
		if high || err != nil || !strings.HasPrefix(bodyOf(t, data), want) {
			t.Errorf("it goes out as\n%s", data)
		}
		for line := range strings.SplitSeq(data, "\r\n") {
			if len(line) > 998 {
				t.Errorf("a line of %d bytes", len(line))
			}
		}
		if v := i.Verify([]byte(data)); v.DKIM != auth.Pass {
			t.Errorf("DKIM is %s", v.DKIM)
		}
	}
}

// TestWhatOthersSignedStaysOrBounces: a message that must not be changed is not sent to a host
// without 8BITMIME (RFC 6152 section 3).
func TestWhatOthersSignedStaysOrBounces(t *testing.T) {
	for _, no8Bit := range []bool{false, true} {
		h := (&servicetest.Host{No8Bit: no8Bit}).Start(t)
		i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
		d := i.AddDomain(i.Account, "example.test", nil)
		ann := i.AddMailbox(d, "ann", nil)
		i.AddMailbox(d, "fwd", func(mb *store.Mailbox) { mb.ForwardTo = "away@far.test" })
		i.AddMailbox(d, "plain", func(mb *store.Mailbox) { mb.ForwardTo = "ascii@far.test" })
		i.Run()
		status := map[bool]string{false: store.OutgoingRelayed, true: store.OutgoingBounced}[no8Bit]
		i.MustSubmit(ann, germanSigned, "x@far.test")
		i.MustArrive("pat@sender.test", "fwd@example.test", strings.ReplaceAll(germanText, "ann@example.test", "pat@sender.test"))
		i.MustArrive("pat@sender.test", "plain@example.test", servicetest.LetterFrom("pat@sender.test"))
		i.Becomes("ascii@far.test", store.OutgoingRelayed)
		for _, to := range []string{"x@far.test", "away@far.test"} {
			row := i.Becomes(to, status)
			if no8Bit && (!strings.Contains(row.LastResponse, "8BITMIME") || row.Log[0].Enhanced != "5.6.3") {
				t.Errorf("%s: %+v", to, row)
			}
		}
		if e := i.Events(events.EventEmailBounced); no8Bit && (len(e) != 2 || e[0]["status"] != "5.6.3" || e[0]["suppressed"] != false) {
			t.Errorf("events %v", e)
		}
		for _, m := range h.Mails() {
			if strings.Contains(m.Data, "multipart/signed") && !strings.HasSuffix(m.Data, germanSigned[strings.Index(germanSigned, "--b\r\n"):]) {
				t.Errorf("it was changed:\n%s", m.Data)
			}
		}
	}
}

// TestRecipientIsWhomTheEnvelopeNamed: with its tag, or the address that the catch-all accepted; in
// the event and in the inbox.
func TestRecipientIsWhomTheEnvelopeNamed(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	d := i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.CatchAll = "ann@example.test" })
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	i.Run()
	want := []string{"ann@example.test", "ann+news@example.test", "anybody@example.test", "ann+here@example.test", "else@example.test"}
	for n, to := range want {
		if n < 3 {
			i.MustArrive("pat@sender.test", to, servicetest.LetterFrom("pat@sender.test"))
			continue
		}
		i.MustSubmit(bob, strings.ReplaceAll(servicetest.PlainMessage, "ann@example.test", "bob@example.test"), to)
		i.Becomes(to, store.OutgoingDelivered)
	}
	servicetest.Keep(i, ann, "INBOX", servicetest.LetterFrom("pat@sender.test")) // without an envelope
	page, err := i.Svc.Inbox.ListEmailUserInbox(context.Background(), servicetest.ActorNum(i.Account, ann.AccountNum), inbox.ListEmailUserInboxIn{UserID: ann.ID})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, m := range page.Data {
		if got[m.Recipient]++; m.Mailbox != ann.Email {
			t.Errorf("mailbox %s", m.Mailbox)
		}
	}
	told := map[string]int{}
	for _, e := range i.Events(events.EventEmailReceived) {
		told[fmt.Sprint(e["recipient"])]++
		if e["mailbox"] != ann.Email {
			t.Errorf("event %v", e)
		}
	}
	for n, to := range want {
		if count := map[bool]int{true: 2, false: 1}[n == 0]; got[to] != count || told[to] != count {
			t.Errorf("%s: %d in the list, %d events, of %v and %v", to, got[to], told[to], got, told)
		}
	}
}

// TestSubmissionKnowsOurRecipients: unknown addresses here are refused at RCPT.
func TestSubmissionKnowsOurRecipients(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "direct"}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.AddMailbox(d, "sue", func(mb *store.Mailbox) { mb.Status = "suspended" })
	i.AddDomain(i.Account, "catch.test", func(d *store.Domain) { d.CatchAll = "ann@example.test" })
	away := i.AddMailbox(i.AddDomain(i.Account, "away.test", func(d *store.Domain) { d.DNSProvider = store.DomainProviderExternal }), "me", func(mb *store.Mailbox) {
		mb.External = &store.External{IMAP: store.Server{Host: "127.0.0.1", Port: 1, Security: "none"}}
	})
	for to, want := range map[string]string{
		"ann@example.test": "", "ann+tag@example.test": "", "x@far.test": "", "any@catch.test": "", "sue@example.test": "", "postmaster@example.test": "",
		"nobody@example.test": "550 5.1.1", "no.body+ann@example.test": "550 5.1.1", "nobody@away.test": "",
		i.Svc.Recipients.SRSForward("x@far.test", "example.test"): "550 5.7.1", "no address": "553 5.1.3",
	} {
		got := ""
		if err := i.Svc.Submit.MaySendTo(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, new(reputation.Envelope), to); err != nil {
			got = fmt.Sprint(core.AsSMTPError(err).Code, " ", core.AsSMTPError(err).Enhanced)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", to, got, want)
		}
	}
	// An external mailbox sends through its own server, which checks its recipients.
	if err := i.Svc.Submit.MaySendTo(context.Background(), core.MailboxUser{AccountID: away.AccountID, MailboxID: away.ID, Email: away.Email}, new(reputation.Envelope), "nobody@example.test"); err != nil {
		t.Errorf("from an external mailbox: %v", err)
	}
}

// TestRepliesToOurOwnID: a relay that keeps Message-IDs leaves no mapping, and replies name our ID.
func TestRepliesToOurOwnID(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("mailgun")}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.AddMailbox(d, "fwd", func(mb *store.Mailbox) { mb.ForwardTo = "away@far.test" })
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	i.Becomes("x@far.test", store.OutgoingRelayed)
	i.MustArrive("pat@sender.test", "fwd@example.test", "Message-ID: <theirs@sender.test>\r\n"+servicetest.LetterFrom("pat@sender.test"))
	i.Becomes("away@far.test", store.OutgoingRelayed)
	many := ""
	for n := range 30 {
		many += fmt.Sprintf(" <r%d@far.test>\r\n", n)
	}
	for fields, want := range map[string]any{
		"In-Reply-To: <own@example.test>\r\n":                                                "<own@example.test>",
		"References: <a@far.test> <own@example.test>\r\n":                                    "<own@example.test>",
		"References:" + many + "In-Reply-To: <own@example.test>\r\n":                         "<own@example.test>",
		"In-Reply-To: <other@example.test>\r\nReferences: <own@example.test> <z@z.test>\r\n": "<own@example.test>",
		"In-Reply-To: <theirs@sender.test>\r\n":                                              nil, // which we only forwarded
		"X-No: reply\r\n":                                                                    nil,
	} {
		i.MustArrive("pat@sender.test", "ann@example.test", fields+servicetest.LetterFrom("pat@sender.test"))
		e := i.Events(events.EventEmailReceived)
		if got := e[len(e)-1]["original_message_id"]; got != want {
			t.Errorf("%.80q: %v, want %v", fields, got, want)
		}
	}
}
