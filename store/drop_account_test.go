package store

import (
	"errors"
	"reflect"
	"testing"

	"github.com/mailstead/mailstead/store/mailrow"
)

// TestEveryTableOfAnAccountIsKnown: a table whose records do not name their account is in this
// list, with what has them deleted.
func TestEveryTableOfAnAccountIsKnown(t *testing.T) {
	others := map[string]string{
		"account": "the deletion of the account", "domain": "the deletion of the domain", "mailbox": "the deletion of the mailbox",
		"idempotency": "time, and it names nobody", "custom_record": "the deletion of the domain", "zone_change": "the deletion of the domain", "zone_scan": "the deletion of the domain", "edge_record": "the deletion of the domain", "pretend_domain": "nothing: it is the sandbox registrar's",
		"zone_base": "nothing: it is the host's", "certificate": "the deletion of the domain", "certificate_account": "nothing: it is the host's",
		"subscribed_names": "the deletion of the mailbox", "copy_intent": "a start", "pending_rcpt": "the deletion of the submission",
		"arrival": "time, since it is several accounts'", "tls_policy": "time, since it is of others' domains", "tls_count": "time, since it is of others' domains",
		"dmarc_count": "time, since it is of others' domains", "dmarc_day": "time", "grey_tuple": "time, and it names nobody", "auto_reply": "time, and it names nobody", "imported": "time, and it names nobody", "oauth_client": "time, and it is nobody's", "alert": "nothing: it is the host's", "backup_drill": "nothing: it is the host's", "master_key": "nothing: it is the host's", "sandbox_clock": "nothing: it is the host's", "setting": "nothing: it is the host's",
	}
	for _, table := range tables {
		_, names := reflect.TypeOf(table.RowForm().New()).Elem().FieldByName("AccountID")
		name := table.Name()
		if _, listed := others[name]; !listed && !names {
			t.Errorf("nothing deletes what the table %s has of a deleted account", name)
		}
		delete(others, name)
	}
	for name := range others {
		t.Errorf("there is no table %s", name)
	}
}

// TestDropAccountRows: the records of an account go, whatever the steps, with the bytes that they
// refer to; those of others stay, and so does what was bought, without its account.
func TestDropAccountRows(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Received: second(1)}, "hello")
	const gone, stays = "acc_gone", "acc_stays"
	for _, account := range []string{gone, stays} {
		for _, n := range []string{"1", "2", "3"} {
			id := func(kind string) string { return kind + "_" + account + n }
			update(t, s, func(tx *Tx) error {
				return errors.Join(
					SubmissionBlobs.Ref(tx, m.Blob, id("sub")), Submissions.Put(tx, &Submission{ID: id("sub"), AccountID: account, Blob: m.Blob}),
					PendingRecipients.Put(tx, &PendingRcpts{SubmissionID: id("sub")}),
					ReportBlobs.Ref(tx, m.Blob, id("rpm")), ReportMails.Put(tx, &ReportMail{ID: id("rpm"), AccountID: account, Blob: m.Blob}),
					CopyBlobs.Ref(tx, m.Blob, id("rcp")), RemoteCopies.Put(tx, &RemoteCopy{ID: id("rcp"), AccountID: account, Blob: m.Blob}),
					ApprovalBlobs.Ref(tx, m.Blob, id("apr")), Approvals.Put(tx, &Approval{ID: id("apr"), AccountID: account, Blob: m.Blob}),
					Users.Put(tx, &User{ID: id("usr"), AccountID: account, Email: id("e")}),
					Tokens.Put(tx, &Token{ID: id("tok"), AccountID: account, Hash: id("h")}),
					Events.Put(tx, &Event{ID: id("evt"), AccountID: account}),
					Outgoings.Put(tx, &Outgoing{ID: id("msg"), AccountID: account, Status: OutgoingQueued}),
					Jobs.Put(tx, &Job{ID: id("job"), AccountID: account, Kind: "k", State: JobQueued}),
					Jobs.Put(tx, &Job{ID: id("run"), AccountID: account, Kind: "k", State: JobRunning}),
					KnownSenders.Put(tx, &KnownSender{AccountID: account, Domain: n}),
					Suppressions.Put(tx, &Suppression{AccountID: account, Email: n}),
					DayStats.Put(tx, &DayStat{AccountID: account, Date: n}),
					Purchases.Put(tx, &Purchase{ID: id("pur"), AccountID: account, Domain: id("d"), State: PurchaseBought}),
					Purchases.Put(tx, &Purchase{ID: id("pux"), AccountID: account, Domain: id("x"), State: PurchaseRefused}),
				)
			})
		}
	}
	rowsOf := func(account string) map[string]int {
		out := map[string]int{}
		view(t, s, func(tx *Tx) error {
			rows, next := tx.AccountRows(account, nil, 1000, 1000)
			if next != nil {
				t.Errorf("there are more rows of %s", account)
			}
			for _, row := range rows {
				out[row.Table]++
			}
			return nil
		})
		return out
	}
	before := rowsOf(stays)
	var from []byte
	for more := true; more; more = from != nil {
		var rows []AccountRow
		view(t, s, func(tx *Tx) error {
			rows, from = tx.AccountRows(gone, from, 2, 5)
			return nil
		})
		update(t, s, func(tx *Tx) error {
			for _, row := range rows {
				if err := tx.DropAccountRow(gone, row); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if left := rowsOf(gone); !reflect.DeepEqual(left, map[string]int{"job": 3}) {
		t.Errorf("of the account are left: %v", left)
	}
	if after := rowsOf(stays); !reflect.DeepEqual(after, before) || after["submission"] != 3 {
		t.Errorf("of the other account there are %v, were %v", after, before)
	}
	view(t, s, func(tx *Tx) error {
		p, err := PurchaseOfDomain.Get(tx, "d_"+gone+"1")
		if err == nil && (p.AccountID != "" || p.State != PurchaseBought) {
			t.Errorf("what it bought: %+v", p)
		}
		if refs := countRefs(tx); refs != 1+3*4 {
			t.Errorf("%d references to the bytes, want 13", refs)
		}
		return err
	})
}

func countRefs(tx *Tx) (n int) {
	for range tx.Ascend(mailrow.BucketRef, nil) {
		n++
	}
	return n
}
