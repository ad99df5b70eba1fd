package imapd

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
)

// idle answers IDLE (RFC 9051 section 6.3.13). It reports changes as they happen, until the client
// sends DONE.
func (ss *session) idle(p *wire.Command) error {
	if err := p.End(); err != nil {
		return err
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	ss.conn.WriteLine("+ idling")
	go func() {
		defer func() {
			if v := recover(); v != nil {
				ss.server.Log.Error("panic in an IMAP command", "mailbox", ss.user.Email, "command", "IDLE", "panic", v, "stack", string(debug.Stack()))
				ended <- ss.closeWithError(fmt.Errorf("panic in the IMAP command IDLE: %v", v))
			}
		}()
		ended <- ss.reportUntil(stop)
	}()
	line, err := ss.conn.NextLine()
	close(stop)
	failed := <-ended
	switch {
	case failed != nil:
		return errAnswered // the client got a BYE
	case err != nil:
		return err
	case !strings.EqualFold(line, "DONE"): // RFC 5234 section 2.3
		return wire.Bad("IDLE ends with DONE")
	}
	return nil
}

// reportUntil reports changes as they happen, until stop is closed.
func (ss *session) reportUntil(stop <-chan struct{}) error {
	changes, end := ss.server.Service.Inbox.Watch(ss.ctx, ss.user.Mailbox)
	defer end()
	for {
		if ss.selected == nil {
			if err := ss.server.Service.Accounts.CheckMailboxOpen(ss.ctx, ss.user); err != nil {
				return ss.closeWithError(err)
			}
		}
		if err := ss.reportChanges(true); err != nil {
			return err
		}
		select {
		case <-changes:
		case <-stop:
			return nil
		}
	}
}
