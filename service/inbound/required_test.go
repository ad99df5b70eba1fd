package inbound_test

import (
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestPostmasterAndAbuseAreAlwaysTaken: mail to them is forwarded to the owner's address, even if
// that is suppressed; other mail is not.
func TestPostmasterAndAbuseAreAlwaysTaken(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["elsewhere.test"] = "mx.elsewhere.test"
	i.AddDomain(i.Account, "example.test", nil)
	i.Run()
	i.Update(func(tx *store.Tx) error {
		return core.Suppress(tx, i.Account.AccountID, "owner@elsewhere.test", "complaint", "")
	})
	for n, to := range []string{"postmaster@example.test", "abuse@example.test", "postmaster@mail.mailstead.test"} {
		i.MustArrive("stranger@far.test", to, "Subject: x\r\n\r\nhello\r\n")
		servicetest.Eventually(t, to+" is passed on", func() bool { return len(h.Mails()) == n+1 })
	}
}

// TestOwnMailSuppressesNobody: neither a refused alert or letter nor a complaint about one
// suppresses an address.
func TestOwnMailSuppressesNobody(t *testing.T) {
	h := (&servicetest.Host{Rcpt: func(string) string { return "550 5.1.1 no such user" }}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["elsewhere.test"] = "mx.elsewhere.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.Update(func(tx *store.Tx) error {
		return alert.Plan(i.Svc.Core, tx, alert.HostMail{To: "owner@elsewhere.test", Subject: "s", Text: "t"})
	})
	servicetest.Eventually(t, "the letter bounces", func() bool { return servicetest.Statuses(i)["bounced"] == 1 })
	if e := i.Events(events.EventEmailBounced)[0]; e["suppressed"] != false {
		t.Errorf("the event says suppressed: %v", e["suppressed"])
	}
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"owner@elsewhere.test"}, Subject: "s", Text: "t"})
	servicetest.Eventually(t, "the account's own mail bounces", func() bool { return servicetest.Statuses(i)["bounced"] == 2 })
	if e := i.Events(events.EventEmailBounced); e[len(e)-1]["suppressed"] != true && e[0]["suppressed"] != true {
		t.Errorf("an address that does not exist is not suppressed: %v", e)
	}
}
