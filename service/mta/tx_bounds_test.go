package mta_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// A relay tells of a thousand recipients of one message at once.
func TestManyNoticesWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	servicetest.PutWebhooks(t, s, who)
	servicetest.PutDomainRow(t, s, who, "big.test", core.DomainComplete)
	const n = 1000
	long := strings.Repeat("x", 60)
	var list reader
	servicetest.PutMany(t, s, store.Outgoings, n, func(i int) *store.Outgoing {
		return &store.Outgoing{
			ID: s.Store.NewID("msg"), AccountID: who.AccountID, MessageID: "<1@big.test>", Sender: "ann@big.test", Domain: "big.test",
			Recipient: fmt.Sprintf("%s%d@far.test", long, i), Status: store.OutgoingRelayed, Transport: core.ViaRelay, Provider: "r1", QueuedAt: s.Now(),
		}
	})
	for i := range n {
		list = append(list, feedback.Notice{
			Kind: feedback.Bounced, Type: feedback.Hard, Status: "5.1.1", MessageID: "<1@big.test>", Sender: "ann@big.test",
			Recipient: fmt.Sprintf("%s%d@far.test", long, i), Diagnostic: strings.Repeat("d", 1000),
		})
	}
	s.AddRelay(core.Relay{Name: "r1", Kind: "sendgrid"}, list)
	if err := s.TakeNotices(t.Context(), "sendgrid", "r1", feedback.Request{}); err != nil {
		t.Fatal(err)
	}
	if events, tells := servicetest.ToldOf(t, s, events.EventEmailBounced); events != n || tells != n*core.WebhookLimit {
		t.Errorf("%d events are told %d times", events, tells)
	}
}
