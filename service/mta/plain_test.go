package mta_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestRewrittenPathsTakeReportsAlone: they come from the null sender; anybody else would get past
// us to a stranger.
func TestRewrittenPathsTakeReportsAlone(t *testing.T) {
	i := servicetest.Install(t, core.Config{Outbound: "capture"})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	path := i.Svc.SRSForward("victim@far.test", "example.test")
	again := i.Svc.SRSForward(i.Svc.SRSForward("victim@far.test", "forwarder.test"), "example.test")
	for _, to := range []string{path, strings.ToLower(path), again} {
		if err := i.Arrive("pat@sender.test", to, servicetest.LetterFrom("pat@sender.test")); servicetest.CodeOf(err) != 550 || core.AsSMTPError(err).Enhanced != "5.7.1" {
			t.Errorf("from a sender to %s: %v", to, err)
		}
	}
	i.MustArrive("", strings.ToLower(path), servicetest.LetterFrom("mailer-daemon@sender.test"))
	i.Becomes("victim@far.test", store.OutgoingCaptured)
	other := i.Svc.SRSForward("second@far.test", "example.test")
	_, err := i.Submit(ann, servicetest.PlainMessage, other)
	if err == nil {
		i.Becomes(strings.ToLower(other), store.OutgoingBounced)
	}
	if row := i.Row("second@far.test"); row.ID != "" {
		t.Errorf("it went on from a mailbox: %+v", row)
	}
	body, err := i.Svc.Spool(strings.NewReader(servicetest.LetterFrom("pat@sender.test")))
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	in := mta.Incoming{From: "pat@sender.test", Recipients: []mta.Recipient{mta.RecipientAt(strings.ToLower(other))}, Body: body}
	if _, err := i.Svc.Receive(context.Background(), in); servicetest.CodeOf(err) != 550 {
		t.Errorf("named for one sender, sent by another: %v", err)
	}
}
