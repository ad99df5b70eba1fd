package external

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// UniversalInboxIn is the request of set_universal_inbox. Without `enabled`, the request switches
// the universal inbox from on to off, or from off to on.
type UniversalInboxIn struct {
	Enabled *bool `json:"enabled" log:"true"`
}

// UniversalInboxOut says whether the universal inbox is on.
type UniversalInboxOut struct {
	Enabled bool   `json:"universal_inbox_enabled"`
	Message string `json:"message" words:"ours" example:"The universal inbox is on."` // For people; the text may change.
}

// SetUniversalInbox switches the background sync of external mailboxes on or off. The error is
// universal_inbox_required if it would be switched off while an enabled webhook endpoint subscribes
// to email.received.
func (s *Service) SetUniversalInbox(_ context.Context, who core.Actor, in UniversalInboxIn) (*UniversalInboxOut, error) {
	out := &UniversalInboxOut{}
	err := s.Store.Update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, who.AccountID)
		if err != nil {
			return err
		}
		out.Enabled = !a.UniversalInbox
		if in.Enabled != nil {
			out.Enabled = *in.Enabled
		}
		if !out.Enabled {
			if err := universalInboxRequired(tx, who.AccountID); err != nil {
				return err
			}
		}
		if a.UniversalInbox == out.Enabled {
			return nil
		}
		return errors.Join(s.SwitchInbox(tx, who, a, out.Enabled), core.Audit(tx, who, core.AccountTarget(a)))
	})
	if err != nil {
		return nil, err
	}
	out.Message = "The universal inbox is off: external mailboxes are no longer synced in the background."
	if out.Enabled {
		out.Message = "The universal inbox is on."
	}
	return out, nil
}

// SwitchInbox starts or stops the background sync of an account's external mailboxes. The caller
// has checked that this is allowed.
func (s *Servers) SwitchInbox(tx *store.Tx, who core.Actor, a *store.Account, on bool) error {
	was := a.UniversalInbox
	a.UniversalInbox, a.UpdatedAt = on, tx.Now()
	if err := store.Accounts.Put(tx, a); err != nil {
		return err
	}
	if !on {
		tx.After(func() { s.StopIdling(a.ID) })
		return nil
	}
	if was {
		return nil
	}
	return s.BeginExternals(tx, a.ID, who.UserID)
}

// universalInboxRequired returns an error that names the enabled webhook endpoints that subscribe
// to email.received. It returns nil if there are none.
func universalInboxRequired(tx *store.Tx, accountID string) error {
	e := core.Errorf("universal_inbox_required", "Enabled webhook endpoints subscribe to email.received. Disable them or change their events first.")
	for _, w := range store.WebhooksByAccount.Asc(tx, accountID, "") {
		if w.Status == store.WebhookEnabled && w.SubscribesTo(events.EventEmailReceived) {
			e = e.With(w.ID, "universal_inbox_required", w.URL)
		}
	}
	if len(e.Details) == 0 {
		return nil
	}
	return e
}

// InboxRefreshed says that a mailbox is up to date, or that its mail is being fetched.
type InboxRefreshed struct {
	Message string `json:"message" words:"ours" example:"New mail is being fetched."` // For people; the text may change.
	Email   string `json:"email" words:"ours"`
}

// RefreshEmailUserInbox fetches new mail of a mailbox. For an external mailbox, a job of type
// inbox_sync fetches it, even if the universal inbox is off. A hosted mailbox is always up to date,
// because its mail is stored when it arrives.
func (s *Service) RefreshEmailUserInbox(_ context.Context, who core.Actor, in core.EmailUserIn) (*InboxRefreshed, error) {
	out := &InboxRefreshed{}
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.MailboxOf(tx, who, in.UserID)
		if err != nil {
			return err
		}
		out.Email = mb.Email
		if mb.External != nil {
			out.Message = "New mail is being fetched; see the job of type inbox_sync for its progress."
			return s.refreshExternal(tx, who, mb)
		}
		out.Message = "The inbox is up to date: mail of this mailbox appears as it arrives."
		mb.LastSyncAt = tx.Now()
		return store.Mailboxes.Put(tx, mb)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// InboxesRefreshed is an answer that has only a message.
type InboxesRefreshed struct {
	Message string `json:"message" words:"ours" example:"The job was started."` // For people; the text may change.
}

// RefreshInbox fetches new mail of all mailboxes of the account. The error is
// universal_inbox_disabled if its universal inbox is off.
func (s *Service) RefreshInbox(_ context.Context, who core.Actor) (*InboxesRefreshed, error) {
	out := &InboxesRefreshed{"The inbox is up to date: mail of hosted mailboxes appears as it arrives."}
	count := 0
	err := s.Store.View(func(tx *store.Tx) (err error) {
		count, err = countSyncedMailboxes(tx, who.AccountID)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, who.AccountID)
		if err != nil {
			return err
		}
		if !a.UniversalInbox {
			return core.Errorf("universal_inbox_disabled", "The universal inbox is off. Turn it on with POST /v1/account/universal-inbox, or refresh one mailbox.")
		}
		if count > 0 {
			return s.BeginExternals(tx, who.AccountID, who.UserID)
		}
		a.SyncedAt = tx.Now()
		return store.Accounts.Put(tx, a)
	})
	if err != nil {
		return nil, err
	}
	if count > 0 {
		out.Message = fmt.Sprintf("New mail of %d external mailboxes is being fetched; mail of hosted mailboxes appears as it arrives.", count)
	}
	return out, nil
}

// refreshExternal queues a sync of an external mailbox that starts now, even after earlier
// failures.
func (s *Servers) refreshExternal(tx *store.Tx, who core.Actor, mb *store.Mailbox) error {
	if !mb.MayFetch() {
		return core.Invalid("user_id", mb.Status, "the mailbox %s is %s, so its mail is not fetched", mb.Email, mb.Status)
	}
	tx.After(func() { s.outages.allowRetry(serverKey(mb.External.IMAP)) })
	return s.addSync(tx, mb, who.UserID)
}
