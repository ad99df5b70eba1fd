package signin

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

const (
	recoveryLinkLife = time.Hour      // lifetime of a link that sets the password of a mailbox
	confirmLinkLife  = 72 * time.Hour // lifetime of a link that confirms a recovery address
	kindRecovery     = "recovery_mail"
)

// RecoverMailbox sends a link that sets a new password to the confirmed recovery address of a
// mailbox, if it has one. The answer and its time are the same for every address: a job looks the
// mailbox up later.
func (s *Service) RecoverMailbox(_ context.Context, v Visitor, in ForgotIn) (*Message, error) {
	out := &Message{"If this mailbox has a confirmed recovery address, a link is on its way there. The link works once, within an hour. Otherwise ask the person who manages the mailbox for a link."}
	email, err := core.NormalizeEmail("email", in.Email)
	if err != nil || !s.mayRequestLink("recover "+core.Network(v.IP), maxLinksPerNetwork) {
		return out, nil
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		_, err := s.Queue.Add(tx, jobs.New{Kind: kindRecovery, Lane: kindForgot, Key: email, Args: forgotArgs{email, v.IP}})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// sendRecovery is the job that mails a link that sets the password of a mailbox, at most three a
// day.
func (s *Service) sendRecovery(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[forgotArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var mb *store.Mailbox
	err = s.Store.View(func(tx *store.Tx) (err error) {
		mb, err = store.MailboxByEmail.Read(tx, args.Email)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && (mb.Recovery == nil || !mb.Recovery.Confirmed || !mb.MayLogIn()) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	token := core.RandomText(43, core.Base62)
	to := mb.Recovery.Email
	return nil, s.mailLink(ctx, mb.ID, alert.HostMail{About: mb.AccountID, To: to, Subject: "Choose a new password for " + mb.Email, Text: fmt.Sprintf(
		"Someone at %s requested a new password for the mailbox %s on %s.\n\n"+
			"If it was you, choose a new password here within an hour:\n\n%s\n\n"+
			"If it was not you, ignore this email: the password stays the same.\n",
		args.IP, mb.Email, s.Hostname(), s.Config.BaseURL+"/reset?token="+url.QueryEscape(token))},
		func(tx *store.Tx, mb *store.Mailbox) (bool, error) {
			if mb.Recovery == nil || !mb.Recovery.Confirmed || mb.Recovery.Email != to || !mailboxes.MayMailRecovery(mb.Recovery, tx.Now()) {
				return false, nil
			}
			person, err := core.UserOfMailbox(tx, mb)
			if err != nil {
				return false, err
			}
			person.Forgot = &store.ForgotLink{Hash: core.TokenHash(token), Expires: tx.Now().Add(recoveryLinkLife)}
			return true, store.Users.Put(tx, person)
		})
}

// sendConfirmation is the job that mails the link that confirms the recovery address of a mailbox.
func (s *Service) sendConfirmation(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[mailboxes.RecoveryMail](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var mb *store.Mailbox
	err = s.Store.View(func(tx *store.Tx) (err error) {
		mb, err = core.LiveMailbox(tx, args.UserID)
		return err
	})
	if err != nil || mb == nil || mb.Recovery == nil || mb.Recovery.Confirmed {
		return nil, err
	}
	token := core.RandomText(43, core.Base62)
	to := mb.Recovery.Email
	return nil, s.mailLink(ctx, mb.ID, alert.HostMail{About: mb.AccountID, To: to, Subject: "Confirm your recovery address", Text: fmt.Sprintf(
		"%s on %s names this address for the case that its password is forgotten.\n\n"+
			"If that is right, confirm it here within three days:\n\n%s\n\n"+
			"If you do not know this mailbox, ignore this email.\n",
		mb.Email, s.Hostname(), s.Config.BaseURL+"/recovery?token="+url.QueryEscape(token))},
		func(tx *store.Tx, mb *store.Mailbox) (bool, error) {
			if mb.Recovery == nil || mb.Recovery.Confirmed || mb.Recovery.Email != to {
				return false, nil
			}
			mb.Recovery.Hash, mb.Recovery.Expires = core.TokenHash(token), tx.Now().Add(confirmLinkLife)
			return true, nil
		})
}

// mailLink sends a message with a link to the person of a mailbox. put stores the hash of the link
// in the mailbox, in the transaction that queues the message; if put returns false, nothing is
// sent. Each attempt makes a new link: links are stored only as hashes, so that an old one cannot
// be sent again.
func (s *Service) mailLink(ctx context.Context, userID string, message alert.HostMail, put func(*store.Tx, *store.Mailbox) (bool, error)) error {
	sent, err := s.outbound.SendHostMail(message, func(tx *store.Tx) (bool, error) {
		mb, err := core.LiveMailbox(tx, userID)
		if err != nil || mb == nil {
			return false, err
		}
		send, err := put(tx, mb)
		if err != nil || !send {
			return false, err
		}
		return true, store.Mailboxes.Put(tx, mb)
	})
	if sent {
		s.LogOf(ctx).Info("recovery link sent", "mailbox", userID)
	}
	return err
}

// RecoveryIn is the token of a link that confirms a recovery address.
type RecoveryIn struct {
	Token string `json:"token" required:"true" max:"100"`
}

// RecoveryConfirmed is the answer when a recovery address was confirmed.
type RecoveryConfirmed struct {
	Message       string `json:"message"`
	Email         string `json:"email"`
	RecoveryEmail string `json:"recovery_email"`
}

// CheckRecovery returns the mailbox and the recovery address that a link confirms. It does not use
// the link up. The error for an invalid or used link is 404.
func (s *Service) CheckRecovery(_ context.Context, token string) (*RecoveryConfirmed, error) {
	var out *RecoveryConfirmed
	err := s.Store.View(func(tx *store.Tx) error {
		mb, err := mailboxByRecoveryToken(tx, token)
		if err == nil {
			out = &RecoveryConfirmed{Email: mb.Email, RecoveryEmail: mb.Recovery.Email}
		}
		return err
	})
	return out, err
}

// ConfirmRecovery confirms the recovery address that the link was sent to, and uses the link up.
func (s *Service) ConfirmRecovery(_ context.Context, in RecoveryIn) (*RecoveryConfirmed, error) {
	var out *RecoveryConfirmed
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := mailboxByRecoveryToken(tx, in.Token)
		if err != nil {
			return err
		}
		mb.Recovery.Confirmed, mb.Recovery.Hash, mb.Recovery.Expires = true, "", time.Time{}
		out = &RecoveryConfirmed{mb.Recovery.Email + " is now the recovery address of " + mb.Email + ".", mb.Email, mb.Recovery.Email}
		return store.Mailboxes.Put(tx, mb)
	})
	return out, err
}

func mailboxByRecoveryToken(tx *store.Tx, token string) (*store.Mailbox, error) {
	mb, err := store.MailboxByRecovery.Get(tx, core.TokenHash(token))
	if errors.Is(err, store.ErrNotFound) || err == nil && (mb.Gone() || !tx.Now().Before(mb.Recovery.Expires)) {
		return nil, core.Errorf("not_found", "This link was used already or has expired. Set the recovery address again to get another.")
	}
	return mb, err
}

// RecoveryLink is a link that sets the password of a mailbox. It is shown once.
type RecoveryLink struct {
	URL       string    `json:"url" words:"ours"`
	ExpiresAt core.Time `json:"expires_at"`
}

// CreateRecoveryLink makes a link with which the holder of a mailbox can choose a new password,
// once, within 72 hours. An earlier link becomes invalid.
func (s *Service) CreateRecoveryLink(ctx context.Context, who core.Actor, in core.EmailUserIn) (*RecoveryLink, error) {
	out := &RecoveryLink{}
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.MailboxOf(tx, who, in.UserID)
		if err != nil {
			return err
		}
		switch {
		case mb.Gone():
			return core.Errorf("not_found", "%s is being deleted, so it cannot be changed.", mb.Email)
		case mb.External != nil:
			return core.Invalid("user_id", "not_allowed", "is a mailbox on another server, where its password is set")
		}
		person, err := core.UserOfMailbox(tx, mb)
		if err != nil {
			return err
		}
		out.URL = s.accounts.NewResetLink(person)
		out.ExpiresAt = core.Time{Time: person.ResetExpires}
		return errors.Join(store.Users.Put(tx, person), core.Audit(tx, who, core.MailboxTarget(mb)), once.KeepAnswer(ctx, s.Core, tx, out))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// preparePassword checks and hashes a password that the holder of a link chose. It returns a
// function that sets the password of a team user or of the person of a mailbox, and ends the
// sessions and links of the old password. The caller writes the record of the user.
func (s *Service) preparePassword(u *store.User, password string) (set func(*store.Tx, *store.User) error, err error) {
	if u.MailboxID == "" {
		if err := core.CheckPassword("password", password, core.LeastPassword); err != nil {
			return nil, err
		}
		hash := s.Logins.Hash(password)
		return func(tx *store.Tx, now *store.User) error { return accounts.SetTeamPassword(tx, now, hash, "") }, nil
	}
	var before store.Mailbox
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := core.LiveMailbox(tx, u.MailboxID)
		if err == nil && mb == nil {
			err = core.NotFound("email user")
		}
		if err == nil {
			before = *mb
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	put, err := s.mailboxes.HashChosenPassword(before, password)
	if err != nil {
		return nil, err
	}
	return func(tx *store.Tx, now *store.User) error {
		mb, err := core.LiveMailbox(tx, now.MailboxID)
		if err == nil && mb == nil {
			err = core.NotFound("email user")
		}
		if err != nil {
			return err
		}
		put(mb)
		mb.PasswordAt, mb.UpdatedAt = tx.Now(), tx.Now()
		now.UpdatedAt = tx.Now()
		accounts.DropResetLinks(now)
		if _, err := s.mailboxes.EndSessions(tx, mb.ID, ""); err != nil {
			return err
		}
		tx.After(func() { s.RecheckLogins(mb.Num) })
		return store.Mailboxes.Put(tx, mb)
	}, nil
}
