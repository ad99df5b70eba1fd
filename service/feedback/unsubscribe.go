package feedback

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

// CheckUnsubscribe verifies the token of an unsubscribe link. The error is not_found for an invalid
// token.
func (s *Service) CheckUnsubscribe(_ context.Context, token string) (*recipients.Unsubscription, error) {
	var out *recipients.Unsubscription
	err := s.Store.View(func(tx *store.Tx) error {
		_, u, err := s.recipients.ReadUnsubscribe(tx, token)
		out = u
		return err
	})
	return out, err
}

// Unsubscribe suppresses the address in the token of an unsubscribe link, for the account that sent
// the link. A repeated call changes nothing.
func (s *Service) Unsubscribe(_ context.Context, token string) (*recipients.Unsubscription, error) {
	var out *recipients.Unsubscription
	err := s.Store.Update(func(tx *store.Tx) error {
		d, u, err := s.recipients.ReadUnsubscribe(tx, token)
		if err != nil {
			return err
		}
		out = u
		return core.Suppress(tx, d.AccountID, u.Email, "manual", "")
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
