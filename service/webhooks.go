package service

import "github.com/mailstead/mailstead/store"

// announce adds a job for every enabled endpoint of the account that wants to know of the event.
func (s *Service) announce(tx *store.Tx, e *store.Event) error {
	return nil
}
