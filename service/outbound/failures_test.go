package outbound_test

import (
	"context"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/feedback"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestOurOwnRefusalSuppressesNobody: a refusal here does not suppress the address, so that a
// mailbox that is created or restored later gets mail.
func TestOurOwnRefusalSuppressesNobody(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", func(mb *store.Mailbox) { mb.Ready = true })
	i.Run()
	suppressed := func(email string) (yes bool) {
		i.T.Helper()
		if err := i.St.View(func(tx *store.Tx) (err error) {
			yes, err = core.IsSuppressed(tx, i.Account.AccountID, email)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	i.MustSubmit(ann, servicetest.PlainMessage, "new@example.test")
	i.Becomes("new@example.test", store.OutgoingBounced)
	if e := i.Events(events.EventEmailBounced); suppressed("new@example.test") || len(e) != 1 || e[0]["suppressed"] != false || e[0]["status"] != "5.1.1" {
		t.Errorf("events %v", e)
	}
	// A report from elsewhere about an address of ours suppresses it neither.
	i.Update(func(tx *store.Tx) error {
		row := i.Row("new@example.test")
		return i.Svc.Outbound.EmitBounce(tx, row, outbound.Failure{Status: "5.1.1", Address: true})
	})
	if suppressed("new@example.test") {
		t.Error("a report suppresses it")
	}
	for _, email := range []string{"new@example.test", "ann@example.test", "bob@example.test"} {
		if _, err := i.Svc.Feedback.CreateSuppression(context.Background(), servicetest.Actor(i.Account), feedback.CreateSuppressionIn{Email: email}); err != nil {
			t.Fatal(err)
		}
	}
	pw := "correct horse battery"
	if _, err := i.Svc.Mailboxes.CreateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{Email: "new@example.test", Password: &pw}); err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{"suspended", "active"} {
		if suppressed("ann@example.test") != true {
			t.Errorf("before %s", status)
		}
		if _, err := i.Svc.Mailboxes.UpdateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.UpdateEmailUserIn{UserID: ann.ID, Status: &status}); err != nil {
			t.Fatal(err)
		}
	}
	if suppressed("new@example.test") || suppressed("ann@example.test") || !suppressed("bob@example.test") {
		t.Errorf("new %v, ann %v, bob %v", suppressed("new@example.test"), suppressed("ann@example.test"), suppressed("bob@example.test"))
	}
}
