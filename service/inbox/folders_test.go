package inbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// user returns the login of a mailbox.
func userOf(mb *store.Mailbox) core.MailboxUser {
	return core.MailboxUser{AccountID: mb.AccountID, AccountNum: mb.AccountNum, MailboxID: mb.ID, Mailbox: mb.Num, Email: mb.Email}
}

// TestRenameOfAFullTree renames as many folders as a mailbox may have, each to a subscribed name,
// in transactions within the limits.
func TestRenameOfAFullTree(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	u, ctx := userOf(ann), context.Background()
	const tree = 990
	i.Update(func(tx *store.Tx) error {
		rec := &store.Subscriptions{Mailbox: ann.Num} // as stores of before have it
		for k := range tree {
			rec.Names = append(rec.Names, fmt.Sprintf("new/%0180d", k))
			if err := tx.CreateFolder(&store.Folder{Mailbox: ann.Num, Name: fmt.Sprintf("old/%0180d", k)}); err != nil {
				return err
			}
		}
		rec.Names = append(rec.Names, "elsewhere")
		if err := tx.CreateFolder(&store.Folder{Mailbox: ann.Num, Name: "old"}); err != nil {
			return err
		}
		return store.OldSubscriptions.Put(tx, rec)
	})
	names, err := i.Svc.Inbox.SubscribedNames(ctx, u)
	if err != nil || len(names) != tree+1 {
		t.Fatalf("%d names of a record of before are read, %v", len(names), err)
	}
	if err := i.Svc.Inbox.RenameFolder(ctx, u, "old", "new"); err != nil {
		t.Fatal(err)
	}
	folders, err := i.Svc.Inbox.Folders(ctx, u)
	if err != nil {
		t.Fatal(err)
	}
	subscribed := 0
	for _, f := range folders {
		if f.Name[:3] == "old" {
			t.Fatalf("%s is left", f.Name)
		}
		if f.Name[:3] == "new" && f.Subscribed {
			subscribed++
		}
	}
	names, err = i.Svc.Inbox.SubscribedNames(ctx, u)
	if err != nil || len(names) != 1 || names[0] != "elsewhere" || subscribed != tree {
		t.Errorf("%d folders are subscribed, and the names %v, %v", subscribed, names, err)
	}
	// As many folders as ten commands count: half a minute of such renames is refused.
	for n := 2; ; n++ {
		from, to := "new", "old"
		if n%2 == 1 {
			from, to = to, from
		}
		if err = i.Svc.Inbox.RenameFolder(ctx, u, from, to); err != nil {
			break
		}
		if n > 60 {
			t.Fatalf("a tree of %d folders was renamed %d times in a minute", tree, n)
		}
	}
	if e, ok := core.AsError(err); !ok || e.Code != inbox.CodeFolderRate {
		t.Errorf("the answer is %v, want %s", err, inbox.CodeFolderRate)
	}
}

// TestRefusedRenameOfInboxReadsNoMessages: the cost of a refusal does not grow with INBOX.
func TestRefusedRenameOfInboxReadsNoMessages(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	d, ctx := i.AddDomain(i.Account, "example.test", nil), context.Background()
	few, many := i.AddMailbox(d, "few", nil), i.AddMailbox(d, "many", nil)
	cost := map[uint32]float64{}
	for mb, messages := range map[*store.Mailbox]int{few: 1, many: 500} {
		u := userOf(mb)
		if _, err := i.Svc.Inbox.CreateFolder(ctx, u, "taken", ""); err != nil {
			t.Fatal(err)
		}
		servicetest.KeepIn(i, mb, "INBOX", inbox.Filing{}, "Subject: x\n\nx")
		for n := 1; n < messages; n += 100 {
			i.Update(func(tx *store.Tx) error {
				m, err := tx.Message(mb.Num, store.InboxID, 1)
				if err == nil {
					err = tx.SetFlags(m, 0, []string{"kept"}) // for which each reading allocates
				}
				for range 100 {
					if err == nil {
						_, err = tx.CopyMessage(m, store.InboxID)
					}
				}
				return err
			})
		}
		cost[mb.Num] = testing.AllocsPerRun(50, func() {
			if e, ok := core.AsError(i.Svc.Inbox.RenameFolder(ctx, u, "INBOX", "taken")); !ok || e.Code != inbox.CodeFolderExists {
				t.Fatal(e)
			}
		})
	}
	if one, all := cost[few.Num], cost[many.Num]; all > one+100 {
		t.Errorf("with 1 message it allocates %v times, with 500 %v times", one, all)
	}
}

func TestFolderCommandsAreCounted(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := userOf(i.AddMailbox(d, "ann", nil)), userOf(i.AddMailbox(d, "bob", nil))
	ctx := context.Background()
	for k := range 600 {
		var err error
		switch k % 5 {
		case 0:
			_, err = i.Svc.Inbox.CreateFolder(ctx, ann, "one", "")
		case 1:
			err = i.Svc.Inbox.RenameFolder(ctx, ann, "one", "two")
		case 2:
			err = i.Svc.Inbox.Subscribe(ctx, ann, "two", true)
		case 3:
			err = i.Svc.Inbox.Subscribe(ctx, ann, "two", false)
		case 4:
			err = i.Svc.Inbox.DeleteFolder(ctx, ann, "two")
		}
		if err != nil {
			t.Fatalf("command %d: %v", k+1, err)
		}
	}
	_, err := i.Svc.Inbox.CreateFolder(ctx, ann, "one", "")
	for what, err := range map[string]error{
		"CREATE": err, "DELETE": i.Svc.Inbox.DeleteFolder(ctx, ann, "Trash"),
		"RENAME": i.Svc.Inbox.RenameFolder(ctx, ann, "Trash", "two"), "SUBSCRIBE": i.Svc.Inbox.Subscribe(ctx, ann, "two", true),
	} {
		if e, ok := core.AsError(err); !ok || e.Code != inbox.CodeFolderRate {
			t.Errorf("%s after 600 commands: %v, want %s", what, err, inbox.CodeFolderRate)
		}
	}
	if _, err := i.Svc.Inbox.CreateFolder(ctx, bob, "one", ""); err != nil {
		t.Errorf("another mailbox: %v", err)
	}
	body := i.Spool("Subject: x\r\n\r\nx")
	defer body.Close()
	if _, _, err := i.Svc.Inbox.AppendMessages(ctx, ann, "INBOX", inbox.Append{Body: body}); err != nil {
		t.Errorf("APPEND is limited too: %v", err)
	}
}

// TestCopyOfManyIsAllOrNothing interrupts a COPY of several transactions, once because the mailbox
// has no UIDs left and once by a crash.
func TestCopyOfManyIsAllOrNothing(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	u, ctx := userOf(ann), context.Background()
	var uids []uint32
	for range 3 {
		body := i.Spool("Subject: x\r\n\r\nx")
		_, put, err := i.Svc.Inbox.AppendMessages(ctx, u, "INBOX", inbox.Append{Body: body})
		body.Close()
		if err != nil {
			t.Fatal(err)
		}
		uids = append(uids, put...)
	}
	for len(uids) < 600 { // of these three
		var more []uint32
		i.Update(func(tx *store.Tx) error {
			more = nil
			m, err := tx.Message(ann.Num, store.InboxID, uids[0])
			if err != nil {
				return err
			}
			for range 100 {
				c, err := tx.CopyMessage(m, store.InboxID)
				if err != nil {
					return err
				}
				more = append(more, c.UID)
			}
			return nil
		})
		uids = append(uids, more...)
	}
	if _, err := i.Svc.Inbox.CreateFolder(ctx, u, "Trash", ""); err != nil {
		t.Fatal(err)
	}
	got, err := i.Svc.Inbox.CopyMessages(ctx, u, store.InboxID, uids, "Trash")
	if err != nil || len(got.From) != len(uids) || len(got.To) != len(uids) || got.To[0] != 1 {
		t.Fatalf("copied %+v, %v", got, err)
	}
	trash := func() (n uint32, id uint32) {
		f, err := i.Svc.Inbox.FolderByName(ctx, u, "Trash")
		if err != nil {
			t.Fatal(err)
		}
		return f.Messages, f.ID
	}
	before, folder := trash()
	intents := func() (n int) {
		if err := i.St.View(func(tx *store.Tx) error {
			for range store.CopyIntents.All(tx) {
				n++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := intents(); n != 0 || int(before) != len(uids) {
		t.Fatalf("%d intents and %d copies after a COPY", n, before)
	}
	// A crash after the first transaction of the copy.
	i.Update(func(tx *store.Tx) error {
		var part inbox.Copied
		if err := i.Svc.Inbox.TransferBatch(tx, u, store.InboxID, uids[:inbox.PerTransfer], folder, false, &part); err != nil {
			return err
		}
		_, err := inbox.RecordCopy(tx, "", ann.Num, folder, part.To, false)
		return err
	})
	if n, _ := trash(); n != before+inbox.PerTransfer {
		t.Fatalf("%d messages", n)
	}
	i.Reopen()
	if err := i.Svc.Inbox.UndoCopies(); err != nil {
		t.Fatal(err)
	}
	if n, _ := trash(); n != before || intents() != 0 {
		t.Errorf("after a crash %d of a COPY's messages are left, and %d intents", n-before, intents())
	}
}
