package accounts_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/requests"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/requestlog"
)

// TestDeleteAccount: when DeleteAccount returns, the account is out of use, whether the queue runs
// or not. A job deletes it and continues after a restart. Nobody can restore the account. Its
// purchases stay.
func TestDeleteAccount(t *testing.T) {
	i := servicetest.Install(t, core.Config{Sandbox: true, Settings: core.Settings{Outbound: "capture"}})
	ctx := t.Context()
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	other := i.AddAccount("other@elsewhere.test")
	bob := i.AddMailbox(i.AddDomain(other, "other.test", nil), "bob", nil)
	i.MustSend(bob, submit.SendEmailIn{To: submit.Texts{"far@far.test", "ann@example.test"}, Subject: "s", Text: "t"})
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"near@far.test", "bob@other.test"}, Subject: "s", Text: "t"})
	i.Update(func(tx *store.Tx) error {
		return errors.Join(
			store.Purchases.Put(tx, &store.Purchase{ID: "pur_1", AccountID: other.AccountID, Domain: "bought.test", State: store.PurchaseBought}),
			store.Purchases.Put(tx, &store.Purchase{ID: "pur_2", AccountID: other.AccountID, Domain: "refused.test", State: store.PurchaseRefused}),
		)
	})
	for in, want := range map[string]string{"": "validation_error", "acc_none": "not_found", i.Account.AccountID: "owner_protected", "owner@elsewhere.test": "owner_protected"} {
		if _, err := i.Svc.Accounts.DeleteAccount(ctx, accounts.AccountIn{Account: in}); !servicetest.HasCode(err, want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
	first, err := i.Svc.Accounts.DeleteAccount(ctx, accounts.AccountIn{Account: "other@elsewhere.test"})
	if err != nil || first.AccountID != other.AccountID || first.JobID == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := i.Svc.Accounts.DeleteAccount(ctx, accounts.AccountIn{Account: other.AccountID}); err != nil || *again != *first {
		t.Errorf("a second request: %+v, %v, want %+v", again, err, first)
	}
	for _, status := range []string{store.AccountActive, store.AccountSuspended} {
		if _, err := i.Svc.Accounts.SetAccountStatus(ctx, accounts.AccountIn{Account: other.AccountID, Status: status}); !servicetest.HasCode(err, "validation_error") {
			t.Errorf("to be %s: %v", status, err)
		}
	}
	if _, err := i.Svc.Accounts.Authenticate(ctx, other.Token, "127.0.0.1"); !servicetest.HasCode(err, "account_suspended") {
		t.Errorf("its token: %v", err)
	}
	smtp := new(core.SMTPError)
	if _, err := i.Svc.Inbound.Accepts(ctx, inbound.RecipientQuery{From: "x@far.test", To: "bob@other.test"}); !errors.As(err, &smtp) || smtp.Code != 550 {
		t.Errorf("mail to it: %v", err)
	}
	list, err := i.Svc.Accounts.ListAccounts(ctx, struct{}{})
	if err != nil || len(list.Data) != 2 || list.Data[1].Status != "deleting" {
		t.Errorf("the list: %+v, %v", list, err)
	}
	i.Reopen()
	for _, a := range []*accounts.AccountCreated{i.Account, other} {
		i.Svc.Requests.Record(a.AccountID, requests.Row{ID: "req_1", At: i.St.Now()})
	}
	i.Run()
	gone := func() (gone bool) {
		err := i.St.View(func(tx *store.Tx) error {
			a, err := store.Accounts.Find(tx, other.AccountID)
			gone = a == nil
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return gone
	}
	for end := time.Now().Add(30 * time.Second); !gone(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the account is still there")
		}
	}
	for id, want := range map[string]bool{i.Account.AccountID: true, other.AccountID: false} {
		if _, err := os.Stat(filepath.Join(i.St.Dir(), requestlog.Dir, id)); (err == nil) != want {
			t.Errorf("the request log of %s: %v", id, err)
		}
	}
	i.Becomes("near@far.test", store.OutgoingCaptured)
	bounced := 1 // reports that bob is gone; none where his domain was gone too, so that the message left
	if i.Becomes("bob@other.test", store.OutgoingBounced, store.OutgoingCaptured).Status == store.OutgoingCaptured {
		bounced = 0
	}
	err = i.St.View(func(tx *store.Tx) error {
		for o := range store.Outgoings.All(tx) {
			if o.AccountID != i.Account.AccountID {
				t.Errorf("a row is left: %+v", o)
			}
		}
		p, err := store.PurchaseOfDomain.Get(tx, "bought.test")
		if err == nil && p.AccountID != "" {
			t.Errorf("what it bought is of %s", p.AccountID)
		}
		if p, _ := store.Purchases.Find(tx, "pur_2"); p != nil {
			t.Errorf("what it did not buy: %+v", p)
		}
		inbox, err2 := tx.Folder(ann.Num, store.InboxID)
		if err2 == nil && int(inbox.Messages) != bounced {
			t.Errorf("%d messages came, want %d", inbox.Messages, bounced)
		}
		return errors.Join(err, err2)
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := i.Svc.Accounts.DeleteAccount(ctx, accounts.AccountIn{Account: other.AccountID}); !servicetest.HasCode(err, "not_found") {
		t.Errorf("once it is gone: %v", err)
	}
	i.AddDomain(i.Account, "other.test", nil)
	i.AddAccount("other@elsewhere.test")
}
