package service

import "github.com/mailstead/mailstead/jobs"

// kinds lists every kind of job that the service knows how to do.
func (s *Service) kinds() []jobs.Kind {
	return []jobs.Kind{
		s.tellKind(),
		s.deliverKind(kindDeliver, directLanes),
		s.deliverKind(kindRelay, relayLanes),
		s.pruneSentKind(),
	}
}
