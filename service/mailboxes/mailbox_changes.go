package mailboxes

import (
	"context"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// UpdateEmailUserIn is the body of update_email_user. Null takes a footer, a limit, a forward, a
// relay or a quota away.
type UpdateEmailUserIn struct {
	UserID         string           `path:"user_id"`
	Name           *string          `json:"name" max:"200"`
	Password       *string          `json:"password"`
	Footer         core.Opt[string] `json:"footer" max:"10000"`
	DailySendLimit core.Opt[int]    `json:"daily_send_limit" min:"0" max:"10000000"`
	ForwardTo      core.Opt[string] `json:"forward_to"`
	Relay          core.Opt[string] `json:"relay" max:"100"`
	QuotaBytes     core.Opt[int64]  `json:"quota_bytes" min:"0" max:"1000000000000000"`
	Status         *string          `json:"status" enum:"active|suspended"`
}

func (in *UpdateEmailUserIn) empty() bool {
	return in.Name == nil && in.Password == nil && in.Status == nil && !in.Footer.Set && !in.DailySendLimit.Set &&
		!in.ForwardTo.Set && !in.Relay.Set && !in.QuotaBytes.Set
}

// check looks at the fields on their own, and brings forward_to into the form in which it is kept.
func (in *UpdateEmailUserIn) check() error {
	if in.empty() {
		return core.Errorf("nothing_to_update", "Give at least one of name, password, footer, daily_send_limit, forward_to, relay, quota_bytes and status.")
	}
	if in.Name != nil {
		if err := checkName(*in.Name); err != nil {
			return err
		}
	}
	if in.ForwardTo.Value == "" {
		return nil
	}
	var err error
	in.ForwardTo.Value, err = core.NormalizeEmail("forward_to", in.ForwardTo.Value)
	return err
}

// UpdateEmailUser changes a mailbox. After a new password or a suspension nobody logs in with what
// was known before.
func (s *Service) UpdateEmailUser(_ context.Context, who core.Actor, in UpdateEmailUserIn) (*EmailUser, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if err := s.CheckRelay(in.Relay.Value); err != nil {
		return nil, err
	}
	setPassword, err := s.draftPassword(who, in)
	if err != nil {
		return nil, err
	}
	var out EmailUser
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.MailboxOf(tx, who, in.UserID)
		if err != nil {
			return err
		}
		if mb.Status == "deleting" {
			return core.Errorf("not_found", "%s is being deleted, so it cannot be changed.", mb.Email)
		}
		if err := in.apply(mb); err != nil {
			return err
		}
		setPassword(mb)
		mb.UpdatedAt = tx.Now()
		if mb.External != nil && (in.Password != nil || in.Status != nil) {
			if err := s.inbox.ResumeExternal(tx, mb); err != nil {
				return err
			}
		}
		if err := store.Mailboxes.Put(tx, mb); err != nil {
			return err
		}
		if in.Status != nil && mb.Status == "active" {
			if err := core.Lift(tx, mb.AccountID, mb.Email); err != nil {
				return err
			}
		}
		tx.After(func() { s.Hub.Changed(mb.Num) }) // so that sessions look whether they may go on
		out, err = s.mailboxOut(tx, mb)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// draftPassword checks and hashes the new password, if there is one, and gives what puts it into
// the record.
func (s *Service) draftPassword(who core.Actor, in UpdateEmailUserIn) (func(*store.Mailbox), error) {
	var external bool
	err := s.Store.View(func(tx *store.Tx) error {
		mb, err := core.MailboxOf(tx, who, in.UserID)
		external = err == nil && mb.External != nil
		return err
	})
	if err != nil || in.Password == nil {
		return func(*store.Mailbox) {}, err
	}
	password := *in.Password
	if external {
		if !credential(password) {
			return nil, core.Invalid("password", "invalid", "must have 1 to 1024 characters and no control characters")
		}
		return func(mb *store.Mailbox) { s.replacePassword(mb, password) }, nil
	}
	if err := checkPassword(password); err != nil {
		return nil, err
	}
	hash, sealed := s.Logins.Hash(password), s.Keys.Seal("mailbox "+in.UserID, []byte(password))
	return func(mb *store.Mailbox) { mb.PasswordHash, mb.PasswordSealed = hash, sealed }, nil
}

func (in *UpdateEmailUserIn) apply(mb *store.Mailbox) error {
	_, domain, _ := msg.SplitEmail(mb.Email)
	if err := checkForward(in.ForwardTo.Value, domain); err != nil {
		return err
	}
	if in.Name != nil {
		mb.Name = *in.Name
	}
	if in.Footer.Set {
		mb.Footer = in.Footer.Value
	}
	if in.ForwardTo.Set {
		mb.ForwardTo = in.ForwardTo.Value
	}
	if in.Relay.Set {
		mb.Relay = in.Relay.Value
	}
	if in.DailySendLimit.Set {
		mb.DailySendLimit = in.DailySendLimit.OrNil()
	}
	if in.QuotaBytes.Set {
		mb.QuotaBytes = in.QuotaBytes.OrNil()
	}
	if in.Status != nil {
		return setStatus(mb, *in.Status)
	}
	return nil
}

// setStatus suspends a mailbox or takes it back. One whose domain is not complete goes back to
// pending.
func setStatus(mb *store.Mailbox, status string) error {
	switch {
	case status == "suspended":
		mb.Status = "suspended"
	case mb.Ready:
		mb.Status = "active"
		mb.ErrorCode, mb.ErrorText = "", ""
	case mb.Status == "suspended":
		mb.Status = "pending"
	default:
		return core.Errorf("domain_not_ready", "%s becomes active by itself as soon as its domain is complete.", mb.Email)
	}
	return nil
}
