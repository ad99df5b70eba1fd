package service_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/templates"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store"
)

// TestPagesAreBoundedInBytes: lists of rows that may be long also end a page by its size, and their
// cursors continue, so that each row is listed once.
func TestPagesAreBoundedInBytes(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, who := i.AddMailbox(d, "ann", nil), servicetest.Actor(i.Account)
	const rows = 30
	for n := range rows {
		i.Update(func(tx *store.Tx) error {
			return store.MessageTemplates.Put(tx, &store.MessageTemplate{ID: tx.NewID("mtl"), AccountID: i.Account.AccountID, Name: fmt.Sprint(n), Text: strings.Repeat("t", 499_000), HTML: strings.Repeat("h", 499_000)})
		})
	}
	for n := range rows {
		i.Update(func(tx *store.Tx) error {
			g := &store.Group{ID: tx.NewID("grp"), AccountID: i.Account.AccountID, DomainID: d.ID, Email: fmt.Sprintf("g%d@example.test", n)}
			for place := range 200 {
				m := &store.GroupMember{GroupID: g.ID, Place: place, AccountID: i.Account.AccountID, Email: strings.Repeat("m", 900) + "@far.test"}
				if err := store.GroupMembers.Put(tx, m); err != nil {
					return err
				}
			}
			return store.Groups.Put(tx, g)
		})
	}
	to := strings.Repeat("long-"+strings.Repeat("x", 200)+"@far.test,\r\n ", 900) + "last@far.test"
	for n := range rows {
		text := []byte(fmt.Sprintf("From: a@far.test\r\nTo: %s\r\nSubject: %d\r\n\r\nhello\r\n", to, n))
		u := core.MailboxUser{AccountID: ann.AccountID, AccountNum: ann.AccountNum, MailboxID: ann.ID, Mailbox: ann.Num, Email: ann.Email}
		in := transfer.ImportMessage{ImportHeader: transfer.ImportHeader{Key: fmt.Sprint(n), Date: time.Unix(int64(1_000_000+n), 0)}, Body: bytes.NewReader(text)}
		if results, err := i.Svc.Transfer.ImportMessages(t.Context(), u, inbox.InboxName, []transfer.ImportMessage{in}); err != nil || results[0].Status != transfer.ImportDone {
			t.Fatal(results, err)
		}
	}
	for name, list := range map[string]func(page.Query) (any, error){
		"message templates": func(in page.Query) (any, error) {
			return i.Svc.Templates.ListMessageTemplates(t.Context(), who, templates.ListMessageTemplatesIn{Query: in})
		},
		"groups": func(in page.Query) (any, error) {
			return i.Svc.Mailboxes.ListGroups(t.Context(), who, mailboxes.ListGroupsIn{Query: in})
		},
		"inbox": func(in page.Query) (any, error) {
			return i.Svc.Inbox.ListEmailUserInbox(t.Context(), who, inbox.ListEmailUserInboxIn{Query: in, UserID: ann.ID})
		},
		"search": func(in page.Query) (any, error) {
			return i.Svc.Inbox.ListInbox(t.Context(), who, inbox.ListInboxIn{Limit: in.Limit, Cursor: in.Cursor, InboxFilter: inbox.InboxFilter{Q: "hello"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []string
			cursor, pages, limit := "", 0, 100
			for pages = 0; pages == 0 || cursor != ""; pages++ {
				out, err := list(page.Query{Limit: &limit, Cursor: cursor})
				if err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(out)
				if err != nil {
					t.Fatal(err)
				}
				if len(text) > 9<<19 {
					t.Errorf("a page has %d bytes", len(text))
				}
				var got struct {
					Data       []struct{ ID string }
					Pagination struct {
						Cursor  *string
						HasMore bool `json:"has_more"`
						Limit   int
					}
				}
				if err := json.Unmarshal(text, &got); err != nil || got.Pagination.Limit != 100 || got.Pagination.HasMore != (got.Pagination.Cursor != nil) {
					t.Fatalf("%v %+v", err, got.Pagination)
				}
				for _, row := range got.Data {
					seen = append(seen, row.ID)
				}
				cursor = ""
				if got.Pagination.Cursor != nil {
					cursor = *got.Pagination.Cursor
				}
			}
			slices.Sort(seen)
			if len(slices.Compact(seen)) != rows || len(seen) != rows || pages < 2 {
				t.Errorf("%d rows on %d pages, want %d, each once", len(seen), pages, rows)
			}
		})
	}
}
