package inbox

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/store"
)

const (
	mailboxesPerView  = 200 // mailboxes that one read transaction examines
	deletionsPerWrite = 200 // messages that one write transaction deletes
)

// EmptyOld deletes old messages from the Trash and Junk folders of all mailboxes: those that have
// been there for longer than core.Settings.Retention.
func (s *Service) EmptyOld(ctx context.Context) error {
	keep := s.Settings().Retention
	maxAges := map[string]time.Duration{roleTrash: keep.Trash, roleJunk: keep.Junk}
	if maxAges[roleTrash]+maxAges[roleJunk] == 0 {
		return nil
	}
	after := ""
	for more := true; more; {
		var old []*Folder // folders that have old messages
		err := s.Store.View(func(tx *store.Tx) error {
			old, more = nil, false
			looked := 0
			for mb := range store.Mailboxes.After(tx, after) {
				if looked++; looked > mailboxesPerView {
					more = true
					break
				}
				after = mb.ID
				folders, err := tx.Folders(mb.Num)
				if err != nil {
					return err
				}
				for _, f := range folders {
					if roleOf(f) != roleTrash && roleOf(f) != roleJunk {
						continue
					}
					for m := range tx.Messages(mb.Num, f.ID, 1, maxUID) {
						if age := maxAges[roleOf(f)]; age > 0 && tx.Now().Sub(m.Saved) > age {
							old = append(old, f)
						}
						break // UIDs are assigned in the order of time, so the first message is the oldest
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, f := range old {
			if err := s.deleteOldIn(ctx, f, maxAges[roleOf(f)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteOldIn deletes the messages that have been in a folder for longer than age.
func (s *Service) deleteOldIn(ctx context.Context, f *Folder, age time.Duration) error {
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Store.Update(func(tx *store.Tx) error {
			done = true
			n := 0
			for m := range tx.Messages(f.Mailbox, f.ID, 1, maxUID) {
				if tx.Now().Sub(m.Saved) <= age {
					break
				}
				if n++; n > deletionsPerWrite {
					done = false
					break
				}
				if err := tx.DeleteMessage(m.Mailbox, m.Folder, m.UID); err != nil {
					return err
				}
			}
			if n > 0 {
				s.notifyWatchers(tx, f.Mailbox)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
