package recipients

// What tests outside of the package look at.

func (s *Service) SRSFresh(day string) bool { return s.srsFresh(day) }
