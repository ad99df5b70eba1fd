package jobs

import "context"

type placeWantedKey struct{}

// PlaceWanted reports, within Work, whether another job waits for this job's place in a quota. A
// long job that can continue later should then return Snooze, to let the other job begin. Outside
// of Work it returns false.
func PlaceWanted(ctx context.Context) bool {
	wanted, _ := ctx.Value(placeWantedKey{}).(func() bool)
	return wanted != nil && wanted()
}

func (s *scheduler) isPlaceWanted(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isQuotaWanted(c)
}
