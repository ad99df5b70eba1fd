package health

import "context"

// LookAndTell is what Run does from time to time.
func (s *Service) LookAndTell(ctx context.Context) { s.runAndNotify(ctx) }
