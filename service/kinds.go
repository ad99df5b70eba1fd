package service

import "github.com/mailstead/mailstead/jobs"

// kinds lists every kind of job that the service knows how to do.
func (s *Service) kinds() []jobs.Kind {
	return []jobs.Kind{
		s.tellKind(),
		s.eraseKind("email_user_delete"),
		s.eraseKind("email_users_bulk_delete"),
	}
}
