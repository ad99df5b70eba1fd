package inbox_test

import (
	"testing"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestNobodyIdlesUnwanted: a session that waits for mail ends with the universal inbox and with the
// suspension of its account, and one whose look began before does not wait at all.
func TestNobodyIdlesUnwanted(t *testing.T) {
	o := servicetest.NewOutpost(t, &servicetest.Host{})
	ctx := t.Context()
	o.Svc.Externals().Idle.Open(ctx)
	inbox := func(on bool) {
		t.Helper()
		if _, err := o.Svc.SetUniversalInbox(ctx, servicetest.Actor(o.Account), inbox.UniversalInboxIn{Enabled: &on}); err != nil {
			t.Fatal(err)
		}
	}
	status := func(to string) {
		t.Helper()
		if _, err := o.Svc.SetAccountStatus(ctx, accounts.AccountIn{Account: o.Account.AccountID, Status: to}); err != nil {
			t.Fatal(err)
		}
	}
	var mb *store.Mailbox
	o.Update(func(tx *store.Tx) (err error) { mb, err = store.Mailboxes.Get(tx, o.Mailbox.ID); return err })
	idles := func() bool {
		t.Helper()
		session, err := o.Svc.Connect(ctx, mb)
		if err != nil {
			t.Fatal(err)
		}
		kept := o.Svc.IdleOn(mb, &store.RemoteBox{MailboxID: mb.ID}, session)
		if !kept {
			session.Close()
		}
		return kept
	}
	for _, end := range []struct{ off, on func() }{
		{func() { inbox(false) }, func() { inbox(true) }},
		{func() { status("suspended") }, func() { status("active") }},
	} {
		end.on()
		if !idles() {
			t.Fatal("the session does not wait for mail")
		}
		end.off()
		o.Until("the session has ended", func() bool { return !o.Svc.Externals().Idle.Has(mb.ID) })
		if idles() || o.Svc.Externals().Idle.Has(mb.ID) {
			t.Error("a session waits for mail that nobody wants")
		}
		end.on()
	}
}
