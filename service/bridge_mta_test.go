package service

import "github.com/mailstead/mailstead/mail/feedback"

// AddRelay has the service know a relay whose notices are read by a reader.
func (s *Service) AddRelay(r Relay, notices feedback.Reader) {
	s.relays = append(s.relays, &relay{Relay: r, notices: notices})
}
