package feedback

import (
	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/service/outbound"
)

// Internals that external tests use.

const NoticesAtOnce = noticesAtOnce

func (s *Service) NewReader(r *outbound.Relay) (feedback.Reader, error) { return s.newReader(r) }

func (s *Service) ReadTag(tag string) string { return s.readTag(tag) }

// SetReader sets the reader of a relay's notices.
func (s *Service) SetReader(relay string, notices feedback.Reader) { s.readers.Store(relay, notices) }

// StartRoom starts this service only.
func (s *Service) StartRoom() error { return s.Start() }
