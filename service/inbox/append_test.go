package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
)

// manyAppends are messages that each have many references and eight recipients.
func manyAppends(i *servicetest.Installation, n, references int) (list []inbox.Append) {
	for m := range n {
		var refs, to []string
		for r := range references {
			refs = append(refs, fmt.Sprintf("<%d.%d@far.test>", m, r))
		}
		for p := range 8 {
			to = append(to, fmt.Sprintf("p%d@far.test", p))
		}
		list = append(list, inbox.Append{Body: i.Spool(fmt.Sprintf("From: a@far.test\r\nTo: %s\r\nSubject: letter %d\r\nMessage-ID: <%d@far.test>\r\nReferences: %s\r\n\r\nx\r\n",
			strings.Join(to, ", "), m, m, strings.Join(refs, "\r\n ")))})
	}
	return list
}

// TestAppendsWithinTheBounds: any number of messages can be appended, in transactions within the
// store's bounds.
func TestAppendsWithinTheBounds(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	u, ctx := userOf(ann), context.Background()
	if _, err := i.Svc.Inbox.CreateFolder(ctx, u, "Archive", ""); err != nil {
		t.Fatal(err)
	}
	_, uids, err := i.Svc.Inbox.AppendMessages(ctx, u, "Archive", manyAppends(i, 100, 5)...)
	if err != nil || len(uids) != 100 || uids[0] != 1 || uids[99] != 100 {
		t.Fatalf("UIDs %v, %v", uids, err)
	}
	_, uids, err = i.Svc.Inbox.AppendMessages(ctx, u, "Archive", manyAppends(i, 400, 20)...)
	if err != nil || len(uids) != 400 || uids[0] != 101 || uids[399] != 500 {
		t.Errorf("four hundred messages with twenty references each: UIDs %v, %v", uids, err)
	}
	f, err := i.Svc.Inbox.FolderByName(ctx, u, "Archive")
	if err != nil || f.Messages != 500 || f.UIDNext != 501 {
		t.Errorf("the folder is %+v, %v", f, err)
	}
	if n := i.St.LeaseCount(); n != 0 {
		t.Errorf("%d messages are held that nothing refers to", n)
	}
}

// TestAppendsAreAllOrNone appends two readable messages followed by one whose bytes cannot be read.
func TestAppendsAreAllOrNone(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	u, ctx := userOf(ann), context.Background()
	list := manyAppends(i, 2, 0)
	if _, _, err := i.Svc.Inbox.AppendMessages(ctx, u, "INBOX", append(list, inbox.Append{Body: unreadable{}})...); !errors.Is(err, errUnreadable) {
		t.Errorf("stored with %v", err)
	}
	if _, _, err := i.Svc.Inbox.AppendMessages(ctx, u, "INBOX", append(list, inbox.Append{Keywords: []string{""}, Body: list[0].Body})...); err == nil {
		t.Error("an empty keyword is stored")
	}
	if f, err := i.Svc.Inbox.FolderByName(ctx, u, "INBOX"); err != nil || f.Messages != 0 {
		t.Errorf("the folder is %+v, %v", f, err)
	}
	if n := i.St.LeaseCount(); n != 0 {
		t.Errorf("%d messages are held that nothing refers to", n)
	}
}

// TestAppendsOfManyPagesAreAllOrNone: the messages that a command appended before it failed are
// deleted.
func TestAppendsOfManyPagesAreAllOrNone(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	u, ctx := userOf(ann), context.Background()
	list := manyAppends(i, 250, 0)
	if _, _, err := i.Svc.Inbox.AppendMessages(ctx, u, "INBOX", append(list, inbox.Append{Body: unreadable{}})...); !errors.Is(err, errUnreadable) {
		t.Errorf("stored with %v", err)
	}
	a := i.Svc.Inbox.BeginAppend(u, "INBOX")
	if err := a.Put(false, list...); err != nil || len(a.UIDs) != 250 {
		t.Fatal(len(a.UIDs), err)
	}
	if err := a.Undo(); err != nil {
		t.Fatal(err)
	}
	if f, err := i.Svc.Inbox.FolderByName(ctx, u, "INBOX"); err != nil || f.Messages != 0 {
		t.Errorf("the folder is %+v, %v", f, err)
	}
	if n := i.St.LeaseCount(); n != 0 {
		t.Errorf("%d messages are held that nothing refers to", n)
	}
}

var errUnreadable = errors.New("the bytes cannot be read")

type unreadable struct{}

func (unreadable) Size() int64                       { return 10 }
func (unreadable) ReadAt([]byte, int64) (int, error) { return 0, errUnreadable }
