package outbound_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/feedback"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

func TestHardBounceTellsTheSenderAndSuppresses(t *testing.T) {
	h := (&servicetest.Host{Rcpt: func(string) string { return "550 5.1.1 no such user here" }}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	sent := i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"nobody@far.test"}, Subject: "hello"})
	i.Becomes("nobody@far.test", store.OutgoingBounced)
	told := i.Events(events.EventEmailBounced)
	if len(told) != 1 {
		t.Fatalf("%d email.bounced, want 1", len(told))
	}
	for field, want := range map[string]any{
		"recipient": "nobody@far.test", "sender": "ann@example.test", "sending_domain": "example.test", "user_id": ann.ID,
		"bounce_type": "hard", "bounce_subtype": "no_such_mailbox", "status": "5.1.1", "diagnostic": "550 5.1.1 no such user here",
		"remote_mta": "mx.far.test", "provider": nil, "original_message_id": sent.MessageID, "provider_message_id": nil, "suppressed": true,
	} {
		if got, ok := told[0][field]; !ok || got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	inbox := i.Folder(ann, "INBOX")
	if len(inbox) != 1 || inbox[0].Bits&store.BitBounce == 0 || inbox[0].Meta.ReturnPath != "" {
		t.Fatalf("inbox: %+v", inbox)
	}
	r := i.Report(inbox[0].Raw)
	if r.OriginalMessageID != sent.MessageID || len(r.Recipients) != 1 || r.Recipients[0].Final != "nobody@far.test" ||
		r.Recipients[0].Action != "failed" || r.Recipients[0].Status != "5.1.1" || r.Recipients[0].RemoteMTA != "mx.far.test" {
		t.Errorf("report: %+v", r)
	}
	again := i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"nobody@far.test"}, Subject: "again"})
	if again.Recipients[0].Status != store.OutgoingSuppressed {
		t.Errorf("second send: %+v", again)
	}
	if subs, js := i.Left(); subs+js != 0 {
		t.Errorf("%d submissions and %d jobs are left", subs, js)
	}
}

func TestPolicyRefusalDoesNotSuppress(t *testing.T) {
	h := (&servicetest.Host{Answer: func(int, servicetest.Taken) string { return "554 5.7.1 we do not like the content" }}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	i.Becomes("x@far.test", store.OutgoingBounced)
	if e := i.Events(events.EventEmailBounced)[0]; e["suppressed"] != false || e["provider"] != "r1" || e["bounce_subtype"] != "policy" {
		t.Errorf("event: %v", e)
	}
}

func TestNotifyNeverGetsNoReport(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	in := submit.Submission{From: ann.Email, Body: i.Spool(servicetest.PlainMessage), To: []outbound.Rcpt{{Address: "nobody@example.test", Notify: "never"}, {Address: "who@example.test", Notify: "SUCCESS,FAILURE"}}}
	if _, err := i.Svc.Submit.Submit(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in); err != nil {
		t.Fatal(err)
	}
	i.Becomes("nobody@example.test", store.OutgoingBounced)
	i.Becomes("who@example.test", store.OutgoingBounced)
	inbox := i.Folder(ann, "INBOX")
	if len(inbox) != 1 || i.Report(inbox[0].Raw).Recipients[0].Final != "who@example.test" {
		t.Errorf("inbox: %+v", inbox)
	}
	if got := i.Events(events.EventEmailBounced); len(got) != 2 {
		t.Errorf("%d email.bounced, want 2", len(got))
	}
}

func TestUnknownLocalUserBounces(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"nobody@example.test"}, Subject: "hello"})
	if o := i.Becomes("nobody@example.test", store.OutgoingBounced); !strings.HasPrefix(o.LastResponse, "550 5.1.1") || o.Transport != core.ViaLocal {
		t.Errorf("row %+v", o)
	}
	if e := i.Events(events.EventEmailBounced)[0]; e["bounce_type"] != "hard" || e["remote_mta"] != nil {
		t.Errorf("event: %v", e)
	}
}

func TestFullMailboxDefersLocalMail(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.AddMailbox(d, "bob", func(m *store.Mailbox) { n := int64(10); m.QuotaBytes = &n })
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "bob@example.test")
	if o := i.Becomes("bob@example.test", store.OutgoingDeferred); !strings.HasPrefix(o.LastResponse, "452 4.2.2") {
		t.Errorf("row %+v", o)
	}
}

func TestSuppressionsAreTheAccountsOwn(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	ctx, other := context.Background(), i.AddAccount("other@elsewhere.test")
	made, err := i.Svc.Feedback.CreateSuppression(ctx, servicetest.Actor(i.Account), feedback.CreateSuppressionIn{Email: "X@Far.test"})
	if err != nil || made.Email != "x@far.test" || made.Reason != "manual" || made.MessageID != nil {
		t.Fatalf("%+v, %v", made, err)
	}
	if again, err := i.Svc.Feedback.CreateSuppression(ctx, servicetest.Actor(i.Account), feedback.CreateSuppressionIn{Email: "x@far.test"}); err != nil || *again != *made {
		t.Errorf("again: %+v, %v", again, err)
	}
	if _, err := i.Svc.Feedback.DeleteSuppression(ctx, servicetest.Actor(other), feedback.DeleteSuppressionIn{Email: "x@far.test"}); !servicetest.HasCode(err, "not_found") {
		t.Errorf("delete by another account: %v", err)
	}
	page, err := i.Svc.Feedback.ListSuppressions(ctx, servicetest.Actor(other), feedback.ListSuppressionsIn{})
	if err != nil || len(page.Data) != 0 {
		t.Errorf("list of another account: %+v, %v", page, err)
	}
	page, err = i.Svc.Feedback.ListSuppressions(ctx, servicetest.Actor(i.Account), feedback.ListSuppressionsIn{Reason: "manual"})
	if err != nil || len(page.Data) != 1 || page.Data[0] != *made {
		t.Errorf("list: %+v, %v", page, err)
	}
	if _, err := i.Svc.Feedback.DeleteSuppression(ctx, servicetest.Actor(i.Account), feedback.DeleteSuppressionIn{Email: "x@far.test"}); err != nil {
		t.Error(err)
	}
	if _, err := i.Svc.Feedback.DeleteSuppression(ctx, servicetest.Actor(i.Account), feedback.DeleteSuppressionIn{Email: "x@far.test"}); !servicetest.HasCode(err, "not_found") {
		t.Errorf("delete again: %v", err)
	}
	if _, err := i.Svc.Feedback.CreateSuppression(ctx, servicetest.Actor(i.Account), feedback.CreateSuppressionIn{Email: "no address"}); !servicetest.HasCode(err, "validation_error") {
		t.Errorf("not an address: %v", err)
	}
}
