package pull

import (
	"context"
	"fmt"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
)

// idleBytes is the maximum number of bytes that a server may send during IDLE.
const idleBytes = 1 << 20

// Idle waits until the server reports a change, but at most most (RFC 2177; servers end sessions
// after 30 minutes of silence). If a change was reported during the last command, Idle returns at
// once.
func (s *Session) Idle(ctx context.Context, most time.Duration) error {
	var cmd *imapclient.IdleCommand
	err := s.runShort(ctx, func() (err error) {
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
