package recipients

// Internals that tests outside the package use.

func (s *Service) SRSFresh(day string) bool { return s.isFreshSRSDay(day) }
