package inbox_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
)

// A request may mark or delete at most two hundred messages. The largest case: each is in another
// mailbox and has a long subject.
func TestBulkChangesOfMessagesWithinTheBounds(t *testing.T) {
	b := servicetest.New(t, nil)
	who, err := b.Accounts.Operator(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var refs []inbox.MessageRef
	for i := range 2 {
		d := b.Domain(t, who.AccountID, fmt.Sprintf("big%d.test", i), "builtin", "complete")
		var users []mailboxes.BulkUser
		for u := range 100 {
			users = append(users, mailboxes.BulkUser{Username: fmt.Sprintf("u%d", u)})
		}
		out, err := b.Mailboxes.CreateEmailUsersBulk(t.Context(), who, mailboxes.BulkCreateIn{Domain: d.ID, Users: &users})
		if err != nil || out.Created != 100 {
			t.Fatalf("%+v, %v", out, err)
		}
		text := "From: a@far.test\nTo: b@far.test\nSubject: " + strings.Repeat("long ", 150) + "\n\n" + strings.Repeat("words ", 500)
		for _, u := range out.Users {
			refs = append(refs, inbox.MessageRef{UID: strconv.Itoa(int(b.Put(t, u.Email, text, servicetest.Mail{}))), Mailbox: u.Email})
		}
	}
	on := true
	marked, err := b.Inbox.BulkMarkMessages(t.Context(), who, inbox.BulkMarkMessagesIn{Messages: refs, MessageMarks: inbox.MessageMarks{IsRead: &on, IsFlagged: &on}})
	if err != nil || marked.Marked != 200 {
		t.Fatalf("%+v, %v", marked, err)
	}
	deleted, err := b.Inbox.BulkDeleteMessages(t.Context(), who, inbox.BulkDeleteMessagesIn{Messages: refs})
	if err != nil || deleted.Deleted != 200 {
		t.Fatalf("%+v, %v", deleted, err)
	}
}
