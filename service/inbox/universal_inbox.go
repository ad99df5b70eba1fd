package inbox

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// UniversalInboxIn is the body of set_universal_inbox; without `enabled` it toggles.
type UniversalInboxIn struct {
	Enabled *bool `json:"enabled"`
}

// UniversalInboxOut says whether the universal inbox is on.
type UniversalInboxOut struct {
	Enabled bool   `json:"universal_inbox_enabled"`
	Message string `json:"message" words:"ours"`
}

// SetUniversalInbox switches the background sync of external mailboxes on or off. It stays on while
// an enabled endpoint wants email.received.
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
			if err := inboxNeeded(tx, who.AccountID); err != nil {
				return err
			}
		}
		return s.SwitchInbox(tx, who, a, out.Enabled)
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

// SwitchInbox begins or ends the background sync of the account's external mailboxes.
func (s *Service) SwitchInbox(tx *store.Tx, who core.Actor, a *store.Account, on bool) error {
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

// inboxNeeded names the enabled endpoints that want email.received.
func inboxNeeded(tx *store.Tx, accountID string) error {
	e := core.Errorf("universal_inbox_required", "Enabled webhook endpoints subscribe to email.received. Disable them or change their events first.")
	for _, w := range store.WebhooksByAccount.Asc(tx, accountID, "") {
		if w.Status == "enabled" && events.Wants(w, events.EventEmailReceived) {
			e = e.With(w.ID, "universal_inbox_required", w.URL)
		}
	}
	if len(e.Details) == 0 {
		return nil
	}
	return e
}
