package service

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/store"
)

func TestHardBounceTellsTheSenderAndSuppresses(t *testing.T) {
	h := (&host{rcpt: func(string) string { return "550 5.1.1 no such user here" }}).start(t)
	i := install(t, Config{MXPort: h.port})
	i.dns.mx["far.test"] = "mx.far.test"
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	sent := i.mustSend(ann, SendEmailIn{To: Texts{"nobody@far.test"}, Subject: "hello"})
	i.becomes("nobody@far.test", store.OutgoingBounced)
	told := i.events(EventEmailBounced)
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
	inbox := i.folder(ann, "INBOX")
	if len(inbox) != 1 || inbox[0].Bits&store.BitBounce == 0 || inbox[0].meta.ReturnPath != "" {
		t.Fatalf("inbox: %+v", inbox)
	}
	r := i.report(inbox[0].raw)
	if r.OriginalMessageID != sent.MessageID || len(r.Recipients) != 1 || r.Recipients[0].Final != "nobody@far.test" ||
		r.Recipients[0].Action != "failed" || r.Recipients[0].Status != "5.1.1" || r.Recipients[0].RemoteMTA != "mx.far.test" {
		t.Errorf("report: %+v", r)
	}
	again := i.mustSend(ann, SendEmailIn{To: Texts{"nobody@far.test"}, Subject: "again"})
	if again.Recipients[0].Status != store.OutgoingSuppressed {
		t.Errorf("second send: %+v", again)
	}
	if subs, js := i.left(); subs+js != 0 {
		t.Errorf("%d submissions and %d jobs are left", subs, js)
	}
}

func TestPolicyRefusalDoesNotSuppress(t *testing.T) {
	h := (&host{answer: func(int, taken) string { return "554 5.7.1 we do not like the content" }}).start(t)
	i := install(t, Config{Relays: []Relay{h.relay("ses")}})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	i.mustSubmit(ann, plainMessage, "x@far.test")
	i.becomes("x@far.test", store.OutgoingBounced)
	if e := i.events(EventEmailBounced)[0]; e["suppressed"] != false || e["provider"] != "r1" || e["bounce_subtype"] != "policy" {
		t.Errorf("event: %v", e)
	}
}

func TestNotifyNeverGetsNoReport(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	in := Submission{From: ann.Email, Body: i.spool(plainMessage), To: []Rcpt{{Address: "nobody@example.test", Notify: "never"}, {Address: "who@example.test", Notify: "SUCCESS,FAILURE"}}}
	if _, err := i.svc.Submit(context.Background(), MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, in); err != nil {
		t.Fatal(err)
	}
	i.becomes("nobody@example.test", store.OutgoingBounced)
	i.becomes("who@example.test", store.OutgoingBounced)
	inbox := i.folder(ann, "INBOX")
	if len(inbox) != 1 || i.report(inbox[0].raw).Recipients[0].Final != "who@example.test" {
		t.Errorf("inbox: %+v", inbox)
	}
	if got := i.events(EventEmailBounced); len(got) != 2 {
		t.Errorf("%d email.bounced, want 2", len(got))
	}
}

func TestUnknownLocalUserBounces(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	i.mustSend(ann, SendEmailIn{To: Texts{"nobody@example.test"}, Subject: "hello"})
	if o := i.becomes("nobody@example.test", store.OutgoingBounced); !strings.HasPrefix(o.LastResponse, "550 5.1.1") || o.Transport != viaLocal {
		t.Errorf("row %+v", o)
	}
	if e := i.events(EventEmailBounced)[0]; e["bounce_type"] != "hard" || e["remote_mta"] != nil {
		t.Errorf("event: %v", e)
	}
}

func TestFullMailboxDefersLocalMail(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	d := i.addDomain(i.account, "example.test", nil)
	ann := i.addMailbox(d, "ann", nil)
	i.addMailbox(d, "bob", func(m *store.Mailbox) { n := int64(10); m.QuotaBytes = &n })
	i.run()
	i.mustSubmit(ann, plainMessage, "bob@example.test")
	if o := i.becomes("bob@example.test", store.OutgoingDeferred); !strings.HasPrefix(o.LastResponse, "452 4.2.2") {
		t.Errorf("row %+v", o)
	}
}

func TestSuppressionsAreTheAccountsOwn(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	ctx, other := context.Background(), i.addAccount("other@elsewhere.test")
	made, err := i.svc.CreateSuppression(ctx, actor(i.account), CreateSuppressionIn{Email: "X@Far.test"})
	if err != nil || made.Email != "x@far.test" || made.Reason != "manual" || made.MessageID != nil {
		t.Fatalf("%+v, %v", made, err)
	}
	if again, err := i.svc.CreateSuppression(ctx, actor(i.account), CreateSuppressionIn{Email: "x@far.test"}); err != nil || *again != *made {
		t.Errorf("again: %+v, %v", again, err)
	}
	if _, err := i.svc.DeleteSuppression(ctx, actor(other), DeleteSuppressionIn{Email: "x@far.test"}); !hasCode(err, "not_found") {
		t.Errorf("delete by another account: %v", err)
	}
	page, err := i.svc.ListSuppressions(ctx, actor(other), ListSuppressionsIn{})
	if err != nil || len(page.Data) != 0 {
		t.Errorf("list of another account: %+v, %v", page, err)
	}
	page, err = i.svc.ListSuppressions(ctx, actor(i.account), ListSuppressionsIn{Reason: "manual"})
	if err != nil || len(page.Data) != 1 || page.Data[0] != *made {
		t.Errorf("list: %+v, %v", page, err)
	}
	if _, err := i.svc.DeleteSuppression(ctx, actor(i.account), DeleteSuppressionIn{Email: "x@far.test"}); err != nil {
		t.Error(err)
	}
	if _, err := i.svc.DeleteSuppression(ctx, actor(i.account), DeleteSuppressionIn{Email: "x@far.test"}); !hasCode(err, "not_found") {
		t.Errorf("delete again: %v", err)
	}
	if _, err := i.svc.CreateSuppression(ctx, actor(i.account), CreateSuppressionIn{Email: "no address"}); !hasCode(err, "validation_error") {
		t.Errorf("not an address: %v", err)
	}
}
