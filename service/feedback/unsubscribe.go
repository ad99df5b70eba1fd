package feedback

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

// CheckUnsubscribe reads the token of a link. A wrong one is a 404.
func (s *Service) CheckUnsubscribe(_ context.Context, token string) (*recipients.Unsubscription, error) {
	var out *recipients.Unsubscription
	err := s.Store.View(func(tx *store.Tx) error {
		_, u, err := s.recipients.ReadUnsubscribe(tx, token)
		out = u
		return err
	})
	return out, err
}

// Unsubscribe keeps the account of a link's domain from writing to its recipient again. Again it
// changes nothing.
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
