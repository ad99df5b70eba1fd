package pull

import (
	"context"
	"fmt"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
)

// idleBytes is the maximum number of bytes that a server may send during IDLE.
const idleBytes = 1 << 20

// Idle waits until the server reports a change (RFC 2177), but not longer than most. most should be
// under 30 minutes, since servers then end silent sessions. Idle returns at once if a change was
// reported during the last command.
func (s *Session) Idle(ctx context.Context, most time.Duration) error {
	var cmd *imapclient.IdleCommand
	err := s.runShort(ctx, func() (err error) {
		cmd, err = s.client.Idle()
		return err
	})
	if err != nil {
		return fmt.Errorf("start IDLE: %w", err)
	}
	s.conn.startCommand(bounds{bytes: idleBytes})
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-s.changed:
	case <-t.C:
	case <-s.client.Closed():
	case <-ctx.Done():
	}
	err = s.runCommand(ctx, bounds{bytes: idleBytes, time: s.timeouts.Command}, func() error {
		if err := cmd.Close(); err != nil {
			return err
		}
		return cmd.Wait()
	})
	if err != nil {
		return fmt.Errorf("end IDLE: %w", err)
	}
	return nil
}
