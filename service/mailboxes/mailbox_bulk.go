package mailboxes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// BulkCreateIn is the body of create_email_users_bulk: users, or the id of a template.
type BulkCreateIn struct {
	Domain     string      `json:"domain" alias:"domain_id" required:"true" log:"true"`
	Users      *[]BulkUser `json:"users" min:"1" max:"100" items:"each"`
	TemplateID string      `json:"template_id" log:"true"`
}

// A BulkUser is one mailbox of create_email_users_bulk.
type BulkUser struct {
	Username string  `json:"username" log:"true"`
	Name     string  `json:"name"`
	Password *string `json:"password"`
	Footer   string  `json:"footer"`
}

// BulkCreated has the result for each mailbox: created, or an error.
type BulkCreated struct {
	Domain  string             `json:"domain" words:"ours"`
	Created int                `json:"created"`
	Failed  int                `json:"failed"`
	Users   []EmailUserCreated `json:"users"`
	Errors  []BulkCreateError  `json:"errors"`
	JobID   *string            `json:"job_id" words:"ours"`
}

// A BulkCreateError says why the user at index, from 0, was not created.
type BulkCreateError struct {
	Index    int    `json:"index"`
	Username string `json:"username" words:"ours"`
	Code     string `json:"code" words:"ours" example:"email_user_exists"`
	Message  string `json:"message" words:"ours" example:"anna@example.com exists already. Choose another username."` // For people; the text may change.
}

// CreateEmailUsersBulk creates up to 100 mailboxes on one domain. A mailbox that cannot be created
// does not affect the others.
func (s *Service) CreateEmailUsersBulk(ctx context.Context, who core.Actor, in BulkCreateIn) (*BulkCreated, error) {
	users, domain, err := s.bulkUsers(who, in)
	if err != nil {
		return nil, err
	}
	b := bulkCreate{s: s, who: who, users: users, mailboxes: make([]*NewMailbox, len(users)), errs: make([]error, len(users))}
	b.draftMailboxes(domain.ID)
	err = s.Store.View(func(tx *store.Tx) error { return b.resolve(tx, b.errs) })
	if err != nil {
		return nil, err // checked before the passwords are hashed, which is slow
	}
	b.hashPasswords()
	var out *BulkCreated
	err = s.Store.Update(func(tx *store.Tx) (err error) {
		tx.For(ctx)
		errs := slices.Clone(b.errs) // the transaction may run twice
		if err := b.resolve(tx, errs); err != nil {
			return err
		}
		out, err = b.create(tx, domain, errs)
		if err != nil || out.Created == 0 {
			return err
		}
		if out.Created == 1 {
			made := out.Users[0]
			return core.Audit(tx, who, store.AuditTarget{Type: "email_user", ID: made.ID, Name: made.Email})
		}
		return core.AuditMany(tx, who, core.DomainTarget(domain), out.Created)
	})
	if err != nil {
		return nil, err
	}
	out.Domain = domain.Name
	return out, nil
}

// bulkUsers finds the domain, and the users of the request or of its template.
func (s *Service) bulkUsers(who core.Actor, in BulkCreateIn) (users []BulkUser, d *store.Domain, err error) {
	if (in.Users != nil) == (in.TemplateID != "") {
		return nil, nil, core.Invalid("users", "required", "give users or template_id, and not both")
	}
	err = s.Store.View(func(tx *store.Tx) error {
		d, err = core.FindDomain(tx, who, in.Domain)
		if errors.Is(err, store.ErrNotFound) {
			return core.Invalid("domain", "not_found", "%.80q is not a domain of this account; connect it first", in.Domain)
		}
		if err != nil || in.TemplateID == "" {
			return err
		}
		t, err := store.Templates.Find(tx, in.TemplateID)
		if err != nil {
			return err
		}
		if t == nil || t.AccountID != who.AccountID {
			return core.Invalid("template_id", "not_found", "is not a template of this account")
		}
		for _, name := range t.Usernames {
			users = append(users, BulkUser{Username: name, Name: t.Name})
		}
		return nil
	})
	if in.Users != nil {
		users = *in.Users
	}
	return users, d, err
}

// A bulkCreate holds the new mailboxes of one request. At each index there is a mailbox or an
// error.
type bulkCreate struct {
	s         *Service
	who       core.Actor
	users     []BulkUser
	mailboxes []*NewMailbox
	errs      []error
}

func (b *bulkCreate) draftMailboxes(domainID string) {
	for i, u := range b.users {
		b.mailboxes[i], b.errs[i] = b.s.DraftMailbox(CreateEmailUserIn{
			Username: u.Username, Domain: domainID, Name: u.Name, Password: u.Password, Footer: u.Footer,
		})
		if b.errs[i] == nil && len(u.Footer) > 10_000 {
			b.errs[i] = core.Invalid("footer", "out_of_range", "must have at most 10000 bytes")
		}
	}
}

// resolve checks against the store those new mailboxes that have no error yet. If an address is
// given twice, the first mailbox gets it.
func (b *bulkCreate) resolve(tx *store.Tx, errs []error) error {
	taken := map[string]bool{}
	for i, mailbox := range b.mailboxes {
		if errs[i] != nil {
			continue
		}
		err := mailbox.resolve(tx, b.who)
		if _, ours := core.AsError(err); err != nil && !ours {
			return err
		}
		if err == nil && taken[mailbox.Mb.Email] {
			err = errAddressExists(mailbox.Mb.Email)
		}
		taken[mailbox.Mb.Email] = true
		errs[i] = err
	}
	return nil
}

// hashPasswords hashes the passwords in parallel. core limits how many are hashed at a time.
func (b *bulkCreate) hashPasswords() {
	var wg sync.WaitGroup
	for i, mailbox := range b.mailboxes {
		if b.errs[i] == nil {
			wg.Go(func() { mailbox.HashPassword(b.s) })
		}
	}
	wg.Wait()
}

// create creates the mailboxes that have no error, as far as the limits allow.
func (b *bulkCreate) create(tx *store.Tx, d *store.Domain, errs []error) (*BulkCreated, error) {
	out := &BulkCreated{Users: []EmailUserCreated{}, Errors: []BulkCreateError{}}
	left, full, err := b.s.MailboxesLeft(tx, d)
	if err != nil {
		return nil, err
	}
	for i, mailbox := range b.mailboxes {
		err := errs[i]
		if err == nil && len(out.Users) >= left {
			err = full
		}
		if e, ours := core.AsError(err); ours {
			out.Errors = append(out.Errors, BulkCreateError{i, b.users[i].Username, e.Code, e.Message})
			continue
		}
		if err != nil {
			return nil, err
		}
		mb, err := b.s.CreateMailbox(tx, mailbox)
		if err != nil {
			return nil, err
		}
		shown, err := b.s.mailboxOut(tx, mb)
		if err != nil {
			return nil, err
		}
		out.Users = append(out.Users, EmailUserCreated{shown, mailbox.password, mailbox.generated})
	}
	out.Created, out.Failed = len(out.Users), len(out.Errors)
	return out, nil
}

// BulkDeleteIn is the body of delete_email_users_bulk: ids, or addresses.
type BulkDeleteIn struct {
	UserIDs *[]string `json:"user_ids" min:"1" max:"100" items:"judged" log:"true"`
	Emails  *[]string `json:"emails" min:"1" max:"100" items:"judged" log:"true"`
}

// BulkDeleted says how many mailboxes are being deleted, by which job, and which are not.
type BulkDeleted struct {
	Queued int               `json:"queued"`
	Failed int               `json:"failed"`
	Errors []BulkDeleteError `json:"errors"`
	JobID  *string           `json:"job_id" words:"ours"`
}

// A BulkDeleteError says why a mailbox is not deleted. user_id is null if the request named an
// address.
type BulkDeleteError struct {
	UserID  *string `json:"user_id" words:"ours"`
	Code    string  `json:"code" words:"ours" example:"not_found"`
	Message string  `json:"message" words:"ours" example:"There is no such mailbox in this account. Check the id."` // For people; the text may change.
}

// DeleteEmailUsersBulk marks up to 100 mailboxes as deleted at once; one job deletes them. A
// mailbox that is given twice counts once.
func (s *Service) DeleteEmailUsersBulk(ctx context.Context, who core.Actor, in BulkDeleteIn) (*BulkDeleted, error) {
	if (in.UserIDs != nil) == (in.Emails != nil) {
		return nil, core.Invalid("user_ids", "required", "give user_ids or emails, and not both")
	}
	var out *BulkDeleted
	err := s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		out = &BulkDeleted{Errors: []BulkDeleteError{}}
		found, err := out.findMailboxes(tx, who, in)
		if err != nil {
			return err
		}
		return s.queueErasure(tx, who, found, out)
	})
	if err != nil {
		return nil, err
	}
	out.Failed = len(out.Errors)
	return out, nil
}

// findMailboxes returns the mailboxes of the request, and adds errors for those that do not exist.
func (out *BulkDeleted) findMailboxes(tx *store.Tx, who core.Actor, in BulkDeleteIn) ([]*store.Mailbox, error) {
	names, get := in.UserIDs, mailboxByID
	if names == nil {
		names, get = in.Emails, finderByEmail(who)
	}
	var found []*store.Mailbox
	for i, name := range *names {
		if slices.Contains((*names)[:i], name) {
			continue
		}
		mb, err := get(tx, name)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && mb.AccountID != who.AccountID:
			e := BulkDeleteError{Code: "not_found", Message: fmt.Sprintf("There is no email user %.260q in this account.", name)}
			if in.UserIDs != nil {
				e.UserID = &name
			}
			out.Errors = append(out.Errors, e)
		case err != nil:
			return nil, err
		case !slices.ContainsFunc(found, func(f *store.Mailbox) bool { return f.ID == mb.ID }):
			found = append(found, mb)
		}
	}
	return found, nil
}

// finderByEmail returns core.MailboxByEmail for this actor.
func finderByEmail(who core.Actor) func(*store.Tx, string) (*store.Mailbox, error) {
	return func(tx *store.Tx, email string) (*store.Mailbox, error) { return core.MailboxByEmail(tx, who, email) }
}

// queueErasure marks the mailboxes as deleted and queues the job that deletes them. It sets
// out.JobID to this job or, if all of them are marked already, to the job that was queued for them.
func (s *Service) queueErasure(tx *store.Tx, who core.Actor, found []*store.Mailbox, out *BulkDeleted) error {
	out.Queued = len(found)
	var fresh []*store.Mailbox
	var ids []string
	for _, mb := range found {
		if mb.Gone() {
			out.JobID = &mb.JobID
			continue
		}
		fresh, ids = append(fresh, mb), append(ids, mb.ID)
	}
	if len(fresh) == 0 {
		return nil
	}
	j, err := s.Queue.Add(tx, jobs.New{
		AccountID: who.AccountID, Kind: "email_users_bulk_delete", Lane: "erase " + who.AccountID, CreatedBy: who.UserID,
		Args: eraseArgs{ids}, Total: len(ids),
	})
	if err != nil {
		return err
	}
	out.JobID = &j.ID
	for _, mb := range fresh {
		if err := s.DeleteMailbox(tx, mb, j.ID); err != nil {
			return err
		}
	}
	if len(fresh) == 1 {
		return core.Audit(tx, who, core.MailboxTarget(fresh[0]))
	}
	return core.AuditMany(tx, who, store.AuditTarget{}, len(fresh))
}

func mailboxByID(tx *store.Tx, id string) (*store.Mailbox, error) { return store.Mailboxes.Get(tx, id) }
