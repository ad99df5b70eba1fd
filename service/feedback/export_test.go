package feedback

import (
	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/service/outbound"
)

// What tests outside of the package look at.

const NoticesAtOnce = noticesAtOnce

func (s *Service) NewReader(r *outbound.Relay) (feedback.Reader, error) { return s.newReader(r) }

func (s *Service) ReadTag(tag string) string { return s.readTag(tag) }

// SetReader has the notices of a relay read by a reader.
func (s *Service) SetReader(relay string, notices feedback.Reader) { s.readers.Store(relay, notices) }

// StartRoom starts this room alone.
func (s *Service) StartRoom() error { return s.Start() }
