package jobs

import "context"

type wantedKey struct{}

// Wanted tells a running work whether another job waits for its place in a quota of its kind. One
// that takes long, and can go on later, then ends its turn by Snooze, so that the next one begins.
// Outside of Work it is false.
func Wanted(ctx context.Context) bool {
	wanted, _ := ctx.Value(wantedKey{}).(func() bool)
	return wanted != nil && wanted()
}

func (s *scheduler) wanted(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quotaWanted(c)
}
