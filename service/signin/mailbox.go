package signin

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// startMailboxSession begins a session for the person of a mailbox, after the right password.
func (s *Service) startMailboxSession(login *mailboxes.PasswordLogin, v Visitor, code string) (out *SignedIn, err error) {
	if err := login.CompleteSignIn(); err != nil {
		return nil, err
	}
	person, err := s.findOrCreateMailboxUser(login.Mailbox)
	if err != nil {
		return nil, err
	}
	return s.startSession(person, v, code, func(tx *store.Tx, _ *store.User) error { return checkPasswordUnchanged(tx, login.Mailbox) })
}

// checkPasswordUnchanged returns an error if the password of mb, which was verified outside the
// transaction, has been changed since.
func checkPasswordUnchanged(tx *store.Tx, mb *store.Mailbox) error {
	now, err := store.Mailboxes.Read(tx, mb.ID)
	if err == nil && !now.PasswordAt.Equal(mb.PasswordAt) {
		err = core.Errorf("invalid_credentials", "The password was changed a moment ago. Use the new one.")
	}
	return err
}

// findOrCreateMailboxUser returns the user record of the person of a mailbox. It is created at the
// first sign-in.
func (s *Service) findOrCreateMailboxUser(mb *store.Mailbox) (u *store.User, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		u, err = store.UserByMailbox.Find(tx, mb.ID)
		return err
	})
	if u != nil || err != nil {
		return u, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		u, err = core.UserOfMailbox(tx, mb)
		return err
	})
	return u, err
}

// ChangeMyPasswordIn is the body of change_my_password.
type ChangeMyPasswordIn struct {
	CurrentPassword string `json:"current_password" required:"true" max:"1024"`
	NewPassword     string `json:"new_password" required:"true" max:"1024"`
}

// PasswordChanged reports that a password was changed, and how many other sessions ended with it.
type PasswordChanged struct {
	Message       string `json:"message" words:"ours" example:"Your password is changed."` // For people; the text may change.
	SessionsEnded int    `json:"sessions_ended" example:"1"`                               // How many other browsers were signed out.
}

// ChangeMyPassword sets the password of the signed-in person's mailbox. Nobody can read the new
// password again. Other sessions, and connections that were made with the old password, end. The
// error for a wrong current password is 403 wrong_password.
func (s *Service) ChangeMyPassword(ctx context.Context, who core.Actor, in ChangeMyPasswordIn) (*PasswordChanged, error) {
	if _, err := s.accounts.ProvePassword(ctx, who, in.CurrentPassword); err != nil {
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
	put, err := s.mailboxes.HashChosenPassword(before, in.NewPassword)
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
		if err := checkPasswordUnchanged(tx, &before); err != nil {
			return err
		}
		put(mb)
		mb.PasswordAt, mb.UpdatedAt = tx.Now(), tx.Now()
		out.SessionsEnded, err = s.mailboxes.EndSessions(tx, mb.ID, who.TokenID)
		if err != nil {
			return err
		}
		tx.After(func() { s.RecheckLogins(mb.Num) })
		return errors.Join(store.Mailboxes.Put(tx, mb), core.Audit(tx, who, core.MailboxTarget(mb)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// endMailClientLogins ends the connections of mail clients that logged in with the mailbox's own
// password. It is called when the person turns a second factor on.
func (s *Service) endMailClientLogins(tx *store.Tx, u *store.User) error {
	if u.MailboxID == "" {
		return nil
	}
	mb, err := store.Mailboxes.Get(tx, u.MailboxID)
	if err != nil {
		return err
	}
	mb.PasswordAt = tx.Now()
	tx.After(func() { s.RecheckLogins(mb.Num) })
	return store.Mailboxes.Put(tx, mb)
}
