package outbound_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestRequireTLSBounces: a message that requires TLS does not go to a host without it: its sender
// gets a report with the header only, and no address is suppressed.
func TestRequireTLSBounces(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"a@far.test"}, Subject: "s", Text: "very secret", RequireTLS: true})
	row := i.Becomes("a@far.test", store.OutgoingBounced)
	told := i.Events(events.EventEmailBounced)
	if len(told) != 1 || told[0]["status"] != "5.7.30" || told[0]["suppressed"] != false || !row.RequireTLS {
		t.Errorf("email.bounced: %v", told)
	}
	if len(h.Mails()) != 0 {
		t.Error("the host got it")
	}
	inbox := i.Folder(ann, "INBOX")
	if len(inbox) != 1 || strings.Contains(string(inbox[0].Raw), "very secret") || !strings.Contains(string(inbox[0].Raw), "Status: 5.7.30") {
		t.Errorf("the report: %s", inbox[0].Raw)
	}
}

// TestTLSPolicyOfADomain: mail of a domain with the policy "required" waits if a host has no valid
// certificate, unless the message says that TLS is optional.
func TestTLSPolicyOfADomain(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	policy := store.TLSRequired
	shown, err := i.Svc.Domains.UpdateDomain(context.Background(), servicetest.Actor(i.Account), domains.UpdateDomainIn{DomainID: d.ID, TLSPolicy: &policy})
	if err != nil || shown.TLSPolicy != "required" {
		t.Fatalf("%+v, %v", shown, err)
	}
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "a@far.test")
	i.MustSubmit(ann, "TLS-Required: No\r\n"+servicetest.PlainMessage, "b@far.test")
	if row := i.Becomes("a@far.test", store.OutgoingDeferred); !strings.Contains(row.LastResponse, "STARTTLS") {
		t.Errorf("it waits since %s", row.LastResponse)
	}
	i.Becomes("b@far.test", store.OutgoingSent)
	policy = "opportunistic"
	shown, err = i.Svc.Domains.UpdateDomain(context.Background(), servicetest.Actor(i.Account), domains.UpdateDomainIn{DomainID: d.ID, TLSPolicy: &policy})
	if err != nil || shown.TLSPolicy != "opportunistic" {
		t.Fatalf("%+v, %v", shown, err)
	}
	if _, err := i.Svc.Outbound.RetryMessage(context.Background(), servicetest.Actor(i.Account), outbound.SentMessageIn{ID: i.Row("a@far.test").ID}); err != nil {
		t.Fatal(err)
	}
	i.Becomes("a@far.test", store.OutgoingSent)
}

// TestForwardKeepsRequireTLS: a message that arrived with REQUIRETLS is forwarded with it.
func TestForwardKeepsRequireTLS(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.AddMailbox(d, "bob", func(mb *store.Mailbox) { mb.ForwardTo = "b@far.test" })
	i.Run()
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"bob@example.test"}, Subject: "s", Text: "t", RequireTLS: true})
	if row := i.Becomes("b@far.test", store.OutgoingBounced); !row.RequireTLS || len(h.Mails()) != 0 {
		t.Errorf("the forward: %+v", row)
	}
}
