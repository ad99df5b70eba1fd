package transfer_test

import (
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

func TestEndedClaimHidesNoMailbox(t *testing.T) {
	i := servicetest.Install(t, core.Config{Hostname: "mx.here.test"})
	claimed := func(owner, claim string) *store.Mailbox {
		d := i.AddDomain(i.AddAccount(owner), "disputed.test", func(d *store.Domain) { d.Status, d.Claim = store.DomainPending, claim })
		return i.AddMailbox(d, "ann", nil)
	}
	claimed("old@owner.test", store.ClaimExpired)
	want := claimed("new@owner.test", store.ClaimOpen)
	u, err := i.Svc.Transfer.FindMailbox("ann@disputed.test", "")
	if err != nil || u.MailboxID != want.ID {
		t.Errorf("beside a claim that has expired: %+v, %v", u, err)
	}
	claimed("third@owner.test", store.ClaimOpen)
	if _, err := i.Svc.Transfer.FindMailbox("ann@disputed.test", ""); !servicetest.HasCode(err, "not_found") {
		t.Errorf("with two claims that are open: %v", err)
	}
	if _, err := i.Svc.Transfer.FindMailbox("ben@disputed.test", ""); !servicetest.HasCode(err, "not_found") {
		t.Errorf("without a mailbox: %v", err)
	}
}
