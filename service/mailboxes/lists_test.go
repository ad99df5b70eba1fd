package mailboxes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestMailboxesAreListedInOrder: by creation and by address, both ways, of all domains and of one,
// on pages of every size.
func TestMailboxesAreListedInOrder(t *testing.T) {
	s, who := servicetest.NewBare(t)
	servicetest.Update(t, s, func(tx *store.Tx) error {
		for n, email := range []string{"carl@b.test", "anna@b.test", "carl@a.test", "bob@a.test", "carla@a.test", "anna@a.test"} {
			domain := email[strings.IndexByte(email, '@')+1:]
			d := &store.Domain{ID: "dom_" + domain, AccountID: who.AccountID, Name: domain, Status: store.DomainComplete}
			mb := &store.Mailbox{ID: fmt.Sprintf("eu_%d", n), Num: uint32(n + 1), AccountID: who.AccountID, DomainID: d.ID, Email: email, Status: store.MailboxActive, Type: store.MailboxTypeHosted}
			if email == "bob@a.test" {
				mb.Status = store.MailboxDeleting
			}
			if err := store.Domains.Put(tx, d); err != nil {
				return err
			}
			if err := tx.CreateFolder(&store.Folder{Mailbox: mb.Num, Name: "INBOX"}); err != nil {
				return err
			}
			if err := store.Mailboxes.Put(tx, mb); err != nil {
				return err
			}
		}
		return store.Mailboxes.Put(tx, &store.Mailbox{ID: "eu_9", Num: 9, AccountID: "acc_other", DomainID: "dom_c.test", Email: "aa@c.test"})
	})
	for _, c := range []struct {
		in   mailboxes.ListEmailUsersIn
		want string
	}{
		{mailboxes.ListEmailUsersIn{}, "anna@a carla@a bob@a carl@a anna@b carl@b"},
		{mailboxes.ListEmailUsersIn{Sort: "-created_at"}, "anna@a carla@a bob@a carl@a anna@b carl@b"},
		{mailboxes.ListEmailUsersIn{Sort: "created_at"}, "carl@b anna@b carl@a bob@a carla@a anna@a"},
		{mailboxes.ListEmailUsersIn{Sort: "email"}, "anna@a anna@b bob@a carl@a carl@b carla@a"},
		{mailboxes.ListEmailUsersIn{Sort: "-email"}, "carla@a carl@b carl@a bob@a anna@b anna@a"},
		{mailboxes.ListEmailUsersIn{Sort: "email", Status: store.MailboxDeleting}, "bob@a"},
		{mailboxes.ListEmailUsersIn{Sort: "email", Q: "carl"}, "carl@a carl@b carla@a"},
		{mailboxes.ListEmailUsersIn{Sort: "email", Domain: "a.test"}, "anna@a carl@a carla@a"},
		{mailboxes.ListEmailUsersIn{Sort: "-email", Domain: "a.test"}, "carla@a carl@a anna@a"},
		{mailboxes.ListEmailUsersIn{Sort: "created_at", Domain: "a.test"}, "carl@a bob@a carla@a anna@a"},
		{mailboxes.ListEmailUsersIn{Sort: "email", Domain: "c.test"}, ""},
	} {
		for _, limit := range []int{1, 2, 100} {
			var got []string
			for in := c.in; ; {
				in.Limit = &limit
				p, err := s.Mailboxes.ListEmailUsers(t.Context(), who, in)
				if err != nil {
					t.Fatal(err)
				}
				for _, mb := range p.Data {
					got = append(got, strings.TrimSuffix(mb.Email, ".test"))
				}
				if !p.Pagination.HasMore {
					break
				}
				in.Cursor = *p.Pagination.Cursor
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%+v by %d: %v, want %s", c.in, limit, got, c.want)
			}
		}
	}
	first, err := s.Mailboxes.ListEmailUsers(t.Context(), who, mailboxes.ListEmailUsersIn{Query: page.Query{Limit: new(1)}, Sort: "email"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mailboxes.ListEmailUsers(t.Context(), who, mailboxes.ListEmailUsersIn{Query: page.Query{Cursor: *first.Pagination.Cursor}}); !servicetest.HasCode(err, "invalid_cursor") {
		t.Errorf("the cursor of another order: %v", err)
	}
}
