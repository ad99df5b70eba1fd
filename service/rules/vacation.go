package rules

import (
	"context"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A Vacation is the automatic vacation reply of a mailbox (RFC 3834).
type Vacation struct {
	Enabled  bool      `json:"enabled"`
	Subject  *string   `json:"subject" words:"ours" example:"Away until Monday"` // Null: `Auto: ` and the subject of the message that is answered.
	Text     string    `json:"text" words:"ours" example:"I am away until Monday."`
	From     *string   `json:"from" words:"ours" example:"Anna <anna@example.com>"` // Null: the mailbox's address.
	StartsAt core.Time `json:"starts_at"`
	EndsAt   core.Time `json:"ends_at"`
}

// SetVacationIn is the body of set_vacation.
type SetVacationIn struct {
	UserID   string              `path:"user_id"`
	Enabled  bool                `json:"enabled" required:"true" log:"true"`
	Subject  core.Opt[string]    `json:"subject" max:"200" example:"Away until Monday"` // Null: `Auto: ` and the subject of the message that is answered.
	Text     string              `json:"text" max:"10000" example:"I am away until Monday."`
	From     core.Opt[string]    `json:"from" max:"320" example:"Anna <anna@example.com>"` // Null: the mailbox's address.
	StartsAt core.Opt[core.Time] `json:"starts_at" log:"true"`
	EndsAt   core.Opt[core.Time] `json:"ends_at" log:"true"`
}

// VacationDeleted says that the vacation reply of a mailbox was deleted.
type VacationDeleted struct {
	Message string `json:"message" words:"ours" example:"The mailbox answers nothing by itself any more."` // For people; the text may change.
	UserID  string `json:"user_id" words:"ours"`
}

// GetVacation returns the vacation reply of a mailbox.
func (s *Service) GetVacation(_ context.Context, who core.Actor, in core.EmailUserIn) (*Vacation, error) {
	out := &Vacation{}
	err := s.Store.View(func(tx *store.Tx) error {
		if _, err := core.ReadMailbox(tx, who, in.UserID); err != nil {
			return err
		}
		v, err := store.Vacations.Find(tx, in.UserID)
		if v != nil {
			*out = vacationOut(v)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func vacationOut(v *store.Vacation) Vacation {
	return Vacation{v.Enabled, core.OrNull(v.Subject), v.Text, core.OrNull(v.From), core.Time{Time: v.StartsAt}, core.Time{Time: v.EndsAt}}
}

// SetVacation sets the vacation reply of a mailbox. If its text is new, it is also sent to people
// who have already got the old text.
func (s *Service) SetVacation(_ context.Context, who core.Actor, in SetVacationIn) (*Vacation, error) {
	if err := core.CheckLine("subject", in.Subject.Value); err != nil {
		return nil, err
	}
	if in.Enabled && strings.TrimSpace(in.Text) == "" {
		return nil, core.Invalid("text", "required", "is required where the reply is on")
	}
	v := &store.Vacation{MailboxID: in.UserID, Enabled: in.Enabled, Subject: in.Subject.Value, Text: in.Text, From: in.From.Value, StartsAt: in.StartsAt.Value.Time, EndsAt: in.EndsAt.Value.Time}
	if !v.EndsAt.IsZero() && v.EndsAt.Before(v.StartsAt) {
		return nil, core.Invalid("ends_at", "invalid", "must not be before starts_at")
	}
	var out Vacation
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := undeletedMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		if v.From != "" {
			as, err := core.SendersOf(tx, mb)
			if err != nil {
				return err
			}
			list, err := msg.ParseAddressList(v.From)
			if err != nil || len(list) != 1 || !as.Allows(strings.ToLower(list[0].Email())) {
				return core.Invalid("from", "not_allowed", "must be one of %s", as.Names())
			}
		}
		v.AccountID, v.UpdatedAt = mb.AccountID, tx.Now()
		v.Version = core.TextHash(v.Text)[:16]
		out = vacationOut(v)
		return errors.Join(store.Vacations.Put(tx, v), core.Audit(tx, who, core.MailboxTarget(mb)))
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// DeleteVacation deletes the vacation reply of a mailbox.
func (s *Service) DeleteVacation(_ context.Context, who core.Actor, in core.EmailUserIn) (*VacationDeleted, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := undeletedMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		return errors.Join(store.Vacations.Delete(tx, in.UserID), core.Audit(tx, who, core.MailboxTarget(mb)))
	})
	if err != nil {
		return nil, err
	}
	return &VacationDeleted{"The mailbox answers nothing by itself any more.", in.UserID}, nil
}
