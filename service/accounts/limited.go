package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/store"
)

// maxScopeMailboxes is the maximum number of mailboxes of a limited member or token.
const maxScopeMailboxes = 200

// A MailboxScope lists the ids of the mailboxes that somebody may see; nil means all mailboxes.
type MailboxScope []string

// MarshalJSON writes "all" for nil.
func (m MailboxScope) MarshalJSON() ([]byte, error) {
	if m == nil {
		return []byte(`"all"`), nil
	}
	return json.Marshal([]string(m))
}

// UnmarshalJSON accepts "all" or a list of ids.
func (m *MailboxScope) UnmarshalJSON(data []byte) error {
	var word string
	if json.Unmarshal(data, &word) == nil && word == "all" {
		*m = nil
		return nil
	}
	ids := []string{}
	if json.Unmarshal(data, &ids) != nil {
		return errors.New(`must be "all" or a list of mailbox ids`)
	}
	*m = ids
	return nil
}

// Forms lists the JSON forms of the type: the word "all", or a list of ids.
func (MailboxScope) Forms() []any { return []any{"all", []string{}} }

// applyTo sets the scope in a user's record.
func (m MailboxScope) applyTo(u *store.User) error {
	u.Limited, u.Mailboxes = m != nil, nil
	if m == nil {
		return nil
	}
	if u.Role != store.UserRoleMember {
		return core.Invalid("mailboxes", "not_allowed", "only a member can be limited to some mailboxes; an admin sees all")
	}
	for _, id := range m {
		if !slices.Contains(u.Mailboxes, id) {
			u.Mailboxes = append(u.Mailboxes, id)
		}
	}
	if len(u.Mailboxes) > maxScopeMailboxes {
		return core.Errorf("too_many_items", "A member can be limited to at most %d mailboxes, not %d.", maxScopeMailboxes, len(u.Mailboxes)).With("mailboxes", "too_many_items", "has too many entries")
	}
	return nil
}

// checkMailboxesExist makes sure that the mailboxes of a limited member exist.
func checkMailboxesExist(tx *store.Tx, u *store.User) error {
	for _, id := range u.Mailboxes {
		mb, err := core.LiveMailbox(tx, id)
		if err != nil {
			return err
		}
		if mb == nil || mb.AccountID != u.AccountID {
			return core.Invalid("mailboxes", "not_found", "%.80q is not the id of a mailbox of this account", id)
		}
	}
	return nil
}

// userScope returns the scope in a user's record.
func userScope(u *store.User) MailboxScope {
	if !u.Limited {
		return nil
	}
	return append(MailboxScope{}, u.Mailboxes...)
}

// liveScope is userScope without deleted mailboxes.
func liveScope(tx *store.Tx, u *store.User) (MailboxScope, error) {
	scope := userScope(u)
	if scope == nil {
		return nil, nil
	}
	left := MailboxScope{}
	for _, id := range scope {
		mb, err := core.LiveMailbox(tx, id)
		if err != nil {
			return nil, err
		}
		if mb != nil {
			left = append(left, id)
		}
	}
	return left, nil
}

// readableMailText returns a sentence that says which mail a new team user can read.
func readableMailText(tx *store.Tx, u *store.User) (string, error) {
	switch {
	case u.Role != store.UserRoleMember:
		return "They can read and send the mail of every mailbox, and manage the account.", nil
	case !u.Limited:
		return "They can read and send the mail of every mailbox of the account.", nil
	case len(u.Mailboxes) == 0:
		return "They can read no mail.", nil
	}
	const maxNamed = 3
	var emails []string
	for _, id := range u.Mailboxes[:min(len(u.Mailboxes), maxNamed)] {
		mb, err := store.Mailboxes.Read(tx, id)
		if err != nil {
			return "", err
		}
		emails = append(emails, mb.Email)
	}
	if more := len(u.Mailboxes) - len(emails); more > 0 {
		emails = append(emails, fmt.Sprintf("%d more", more))
	}
	last := len(emails) - 1
	list := emails[last]
	if last > 0 {
		list = strings.Join(emails[:last], ", ") + " and " + list
	}
	return "They can read and send the mail of " + list + ", and no other mail.", nil
}

const (
	kindInvitation     = "invitation_mail"
	invitationLinkLife = 72 * time.Hour
)

// invitationArgs are the arguments of the job that mails an invitation to a team user.
type invitationArgs struct {
	UserID string `json:"user_id"`
	By     string `json:"by"`
}

// mayMailLink returns an error if mail to a new team user can be read in their account. Whoever can
// read it would get the link.
func (s *Service) mayMailLink(tx *store.Tx, u *store.User) error {
	readable, err := s.IsReadable(tx, u.AccountID, u.Email)
	if readable {
		err = core.Invalid("send_email", "not_allowed", "is for addresses elsewhere: the mail of %s is read on this server, where others may see the link; leave it out, and give them the link yourself", u.Email)
	}
	return err
}

// sendInvitation makes a link and queues the message with it. Each attempt makes a new link.
func (s *Service) sendInvitation(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[invitationArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var u *store.User
	reads := ""
	err = s.Store.View(func(tx *store.Tx) (err error) {
		u, err = store.Users.Find(tx, args.UserID)
		if err != nil || u == nil {
			return err
		}
		if err := s.mayMailLink(tx, u); err != nil {
			return jobs.Permanent(err) // the address was elsewhere when the user was invited
		}
		reads, err = readableMailText(tx, u)
		return err
	})
	if err != nil || u == nil || u.Status != store.UserInvited {
		return nil, err
	}
	token := core.RandomText(43, core.Base62)
	letter := alert.HostMail{About: u.AccountID, To: u.Email, Subject: "You are invited to " + s.Hostname(), Text: fmt.Sprintf("%s invites you to their team on %s.\n\n"+
		"Choose a password here within 72 hours:\n\n%s\n\n%s\n\n"+
		"If you do not know who that is, ignore this email.\n",
		args.By, s.Hostname(), s.Config.BaseURL+"/reset?token="+url.QueryEscape(token), strings.Replace(reads, "They", "You", 1))}
	sent, err := s.outbound.SendHostMail(letter, func(tx *store.Tx) (bool, error) {
		now, err := store.Users.Find(tx, u.ID)
		if err != nil || now == nil || now.Email != u.Email {
			return false, err
		}
		now.Forgot = &store.ForgotLink{Hash: core.TokenHash(token), Expires: tx.Now().Add(invitationLinkLife)}
		return true, store.Users.Put(tx, now)
	})
	if sent {
		s.LogOf(ctx).Info("invitation sent", "user", u.ID)
	}
	return nil, err
}
