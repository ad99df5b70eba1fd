package accounts

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// Kinds of whoever is signed in.
const (
	kindTeam    = "team"
	kindMailbox = "mailbox"
)

// startMailboxSession begins a session of the person of a mailbox whose password was right.
func (s *Service) startMailboxSession(door *mailboxes.Door, v Visitor, code string) (out *SignedIn, err error) {
	if err := door.Enter(); err != nil {
		return nil, err
	}
	person, err := s.personOf(door.Mailbox)
	if err != nil {
		return nil, err
	}
	return s.startSession(person, v, code, func(tx *store.Tx, _ *store.User) error { return stillPassword(tx, door.Mailbox) })
}

// stillPassword makes sure that the password that was verified outside the transaction is the
// mailbox's still.
func stillPassword(tx *store.Tx, mb *store.Mailbox) error {
	now, err := store.Mailboxes.Read(tx, mb.ID)
	if err == nil && !now.PasswordAt.Equal(mb.PasswordAt) {
		err = unauthorized("invalid_credentials", "The password was changed a moment ago. Use the new one.")
	}
	return err
}

// personOf gives the record of the person of a mailbox, which is made at the first sign-in.
func (s *Service) personOf(mb *store.Mailbox) (u *store.User, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		u, err = store.UserByMailbox.Find(tx, mb.ID)
		return err
	})
	if u != nil || err != nil {
		return u, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		u, err = core.PersonOf(tx, mb)
		return err
	})
	return u, err
}

// openPerson says why the person of a mailbox may not be signed in; nil for team users.
func openPerson(tx *store.Tx, u *store.User) error {
	if u.MailboxID == "" {
		return nil
	}
	mb, err := store.Mailboxes.FindShared(tx, u.MailboxID)
	if err == nil && (mb == nil || !mb.MayLogIn()) {
		err = signedOut()
	}
	return err
}

// proveMailboxPassword is provePassword for the person of a mailbox.
func (s *Service) proveMailboxPassword(ctx context.Context, who core.Actor, password string) (still func(*store.Tx, *store.User) error, err error) {
	err = s.mailboxes.CheckPassword(ctx, who.Email, password, who.IP)
	if e, ours := core.AsError(err); ours && e.Code == "unauthorized" {
		err = core.Errorf("wrong_password", "This is not your current password.")
	}
	return func(*store.Tx, *store.User) error { return nil }, err
}

// Me is who asks, as programs and the dashboard want it.
type Me struct {
	Kind    string               `json:"kind" enum:"team|mailbox"`
	User    *MeUser              `json:"user"`                // Null for the person of a mailbox.
	Mailbox *mailboxes.EmailUser `json:"mailbox" rare:"true"` // Null for team users.
	// Some of read, write, purchase and admin; each includes those before it.
	Permissions []string     `json:"permissions" enum:"read|write|purchase|admin"`
	Mailboxes   MailboxScope `json:"mailboxes" words:"ours"` // `all`, or the ids of those that the caller may see.
}

// MeUser is the team user for whom is asked.
type MeUser struct {
	ID    string `json:"id" words:"ours" example:"usr_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Email string `json:"email" words:"ours"`
	Role  string `json:"role" enum:"owner|admin|member"`
}

// GetMe says who asks.
func (s *Service) GetMe(ctx context.Context, who core.Actor) (*Me, error) {
	out := &Me{Kind: kindTeam, Permissions: who.Permissions}
	if who.MailboxID == "" {
		out.User = &MeUser{who.UserID, who.Email, who.Role}
		err := s.Store.View(func(tx *store.Tx) (err error) {
			out.Mailboxes, err = scopeOf(tx, &store.User{AccountID: who.AccountID, Limited: who.Limited, Mailboxes: who.Mailboxes})
			return err
		})
		return out, err
	}
	mb, err := s.mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: who.MailboxID})
	out.Kind, out.Mailbox, out.Mailboxes = kindMailbox, mb, MailboxScope{who.MailboxID}
	return out, err
}

// UpdateMeIn is the body of update_me.
type UpdateMeIn struct {
	Name        *string          `json:"name" max:"200"`
	Signature   core.Opt[string] `json:"signature" max:"10000"`                 // A text that the dashboard puts into new messages.
	ForwardTo   core.Opt[string] `json:"forward_to" example:"anna@example.net"` // Incoming mail is also sent here.
	ForwardKeep *bool            `json:"forward_keep_copy"`                     // Whether what is forwarded is kept in the mailbox too.
	Recovery    core.Opt[string] `json:"recovery_email" max:"254"`              // Where a link goes when the password is forgotten.
}

// UpdateMe changes what the person of a mailbox may change of it.
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

// ChangeMyPasswordIn is the body of change_my_password.
type ChangeMyPasswordIn struct {
	CurrentPassword string `json:"current_password" required:"true" max:"1024"`
	NewPassword     string `json:"new_password" required:"true" max:"1024"`
}

// PasswordChanged says that a password is another one now, and how many other sessions that ended.
type PasswordChanged struct {
	Message       string `json:"message" words:"ours" example:"Your password is changed."` // For people; the text may change.
	SessionsEnded int    `json:"sessions_ended" example:"1"`                               // How many other browsers were signed out.
}

// ChangeMyPassword sets the password of the mailbox of whoever is signed in, which nobody can read
// again. Other sessions and connections that were made with the old one end. A wrong current
// password is 403 wrong_password.
func (s *Service) ChangeMyPassword(ctx context.Context, who core.Actor, in ChangeMyPasswordIn) (*PasswordChanged, error) {
	if _, err := s.proveMailboxPassword(ctx, who, in.CurrentPassword); err != nil {
		return nil, err
	}
	var before store.Mailbox
	err := s.Store.View(func(tx *store.Tx) error {
		mb, err := core.ReadMailbox(tx, who, who.MailboxID)
		if err == nil {
			before = *mb
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	put, err := s.mailboxes.HoldPassword(before, in.NewPassword)
	if e, ours := core.AsError(err); ours {
		err = core.Invalid("new_password", e.Details[0].Code, "%s", e.Details[0].Message)
	}
	if err != nil {
		return nil, err
	}
	out := &PasswordChanged{Message: "Your password is changed. Programs that used the old one need the new one; app passwords still work."}
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.MailboxOf(tx, who, who.MailboxID)
		if err != nil {
			return err
		}
		if err := stillPassword(tx, &before); err != nil {
			return err
		}
		put(mb)
		mb.PasswordAt, mb.UpdatedAt = tx.Now(), tx.Now()
		out.SessionsEnded, err = s.mailboxes.EndSessions(tx, mb.ID, who.TokenID)
		if err != nil {
			return err
		}
		tx.After(func() { s.LoginsEnded(mb.Num) })
		return errors.Join(store.Mailboxes.Put(tx, mb), core.Audit(tx, who, core.MailboxTarget(mb)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// endMailLogins ends what mail clients are logged in with by the mailbox's own password, when its
// person turns a second factor on.
func (s *Service) endMailLogins(tx *store.Tx, u *store.User) error {
	if u.MailboxID == "" {
		return nil
	}
	mb, err := store.Mailboxes.Get(tx, u.MailboxID)
	if err != nil {
		return err
	}
	mb.PasswordAt = tx.Now()
	tx.After(func() { s.LoginsEnded(mb.Num) })
	return store.Mailboxes.Put(tx, mb)
}
