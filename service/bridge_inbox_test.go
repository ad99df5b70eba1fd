package service

// Indexer is one that works when a test wants it to.
func (s *Service) Indexer() *indexer { return &indexer{s: s} }
