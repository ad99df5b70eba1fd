package pull

import (
	"context"
	"fmt"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
)

// idleBytes is what a server may say by itself before we look.
const idleBytes = 1 << 20

// Idle waits until the server says that something has changed, or most is over (RFC 2177; servers
// end sessions that are silent for 30 minutes). News that came during the last command ends it at
// once.
func (s *Session) Idle(ctx context.Context, most time.Duration) error {
	var cmd *imapclient.IdleCommand
	err := s.short(ctx, func() (err error) {
		cmd, err = s.client.Idle()
		return err
	})
	if err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	s.wire.begin(bounds{bytes: idleBytes})
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-s.news:
	case <-t.C:
	case <-s.client.Closed():
	case <-ctx.Done():
	}
	err = s.do(ctx, bounds{bytes: idleBytes, time: s.timeouts.Command}, func() error {
		if err := cmd.Close(); err != nil {
			return err
		}
		return cmd.Wait()
	})
	if err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	return nil
}
