package transfer_test

import (
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/transfer"
)

// TestImportKeepsToTheStorage: of messages that are imported, those fail that the storage of the
// account has no room for.
func TestImportKeepsToTheStorage(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	limit := int64(100)
	i.ChangeAccount(ann.AccountID, func(a *servicetest.Account) { a.Limits.StorageBytes = &limit })
	var in []transfer.ImportMessage
	for _, key := range []string{"1", "2", "3"} {
		m := transfer.ImportMessage{Body: i.Spool("Subject: one\r\n\r\nhello hello hello\r\n")} // 37 bytes
		m.Key = key
		in = append(in, m)
	}
	u := core.MailboxUser{AccountID: ann.AccountID, AccountNum: ann.AccountNum, MailboxID: ann.ID, Mailbox: ann.Num, Email: ann.Email}
	results, err := i.Svc.Transfer.ImportMessages(t.Context(), u, "INBOX", in)
	if err != nil || len(results) != 3 {
		t.Fatal(results, err)
	}
	for n, want := range []string{transfer.ImportDone, transfer.ImportDone, ""} {
		if results[n].Status != want || (results[n].Error == "") != (want != "") {
			t.Errorf("message %d: %+v, want %q", n, results[n], want)
		}
	}
	if got := len(i.Folder(ann, "INBOX")); got != 2 {
		t.Errorf("%d messages are stored", got)
	}
}
