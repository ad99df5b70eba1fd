package accounts

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// Kinds of signed-in people.
const (
	KindTeam    = "team"
	KindMailbox = "mailbox"
)

// Me is the caller, as programs and the dashboard need it.
type Me struct {
	Kind    string               `json:"kind" enum:"team|mailbox"`
	User    *MeUser              `json:"user"`                // Null for the person of a mailbox.
	Mailbox *mailboxes.EmailUser `json:"mailbox" rare:"true"` // Null for team users.
	// Some of read, write, purchase and admin; each includes those before it.
	Permissions []string     `json:"permissions" enum:"read|write|purchase|admin"`
	Mailboxes   MailboxScope `json:"mailboxes" words:"ours"` // `all`, or the ids of the mailboxes that the caller may see.
}

// MeUser is the calling team user.
type MeUser struct {
	ID    string `json:"id" words:"ours" example:"usr_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Email string `json:"email" words:"ours"`
	Role  string `json:"role" enum:"owner|admin|member"`
}

// GetMe returns the caller.
func (s *Service) GetMe(ctx context.Context, who core.Actor) (*Me, error) {
	out := &Me{Kind: KindTeam, Permissions: who.Permissions}
	if who.MailboxID == "" {
		out.User = &MeUser{who.UserID, who.Email, who.Role}
		err := s.Store.View(func(tx *store.Tx) (err error) {
			out.Mailboxes, err = liveScope(tx, &store.User{AccountID: who.AccountID, Limited: who.Limited, Mailboxes: who.Mailboxes})
			return err
		})
		return out, err
	}
	mb, err := s.mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: who.MailboxID})
	out.Kind, out.Mailbox, out.Mailboxes = KindMailbox, mb, MailboxScope{who.MailboxID}
	return out, err
}

// UpdateMeIn is the body of update_me.
type UpdateMeIn struct {
	Name        *string          `json:"name" max:"200"`
	Signature   core.Opt[string] `json:"signature" max:"10000"`                 // A text that the dashboard adds to new messages.
	ForwardTo   core.Opt[string] `json:"forward_to" example:"anna@example.net"` // Incoming mail is also sent here.
	ForwardKeep *bool            `json:"forward_keep_copy" log:"true"`          // Whether forwarded mail is kept in the mailbox too.
	Recovery    core.Opt[string] `json:"recovery_email" max:"254"`              // Where a link goes when the password is forgotten.
}

// UpdateMe changes those settings of a mailbox that its person may change.
func (s *Service) UpdateMe(ctx context.Context, who core.Actor, in UpdateMeIn) (*Me, error) {
	_, err := s.mailboxes.UpdateEmailUser(ctx, who, mailboxes.UpdateEmailUserIn{
		UserID: who.MailboxID, Name: in.Name, Signature: in.Signature, ForwardTo: in.ForwardTo, ForwardKeep: in.ForwardKeep,
		RecoveryEmail: in.Recovery,
	})
	if err != nil {
		return nil, err
	}
	return s.GetMe(ctx, who)
}
