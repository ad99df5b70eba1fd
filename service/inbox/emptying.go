package inbox

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/store"
)

const (
	emptyLook  = 200 // mailboxes that are looked at in one view
	emptyWrite = 200 // messages that one transaction deletes
)

// EmptyOld deletes what has been in Trash and Junk of any mailbox for longer than the settings say.
func (s *Service) EmptyOld(ctx context.Context) error {
	kept := map[string]time.Duration{roleTrash: s.Config.Retention.Trash, roleJunk: s.Config.Retention.Junk}
	if kept[roleTrash]+kept[roleJunk] == 0 {
		return nil
	}
	after := ""
	for more := true; more; {
		var old []*Folder // that have something to delete
		err := s.Store.View(func(tx *store.Tx) error {
			old, more = nil, false
			looked := 0
			for mb := range store.Mailboxes.After(tx, after) {
				if looked++; looked > emptyLook {
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
						if age := kept[roleOf(f)]; age > 0 && tx.Now().Sub(m.Saved) > age {
							old = append(old, f)
						}
						break // UIDs rise with the time
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, f := range old {
			if err := s.emptyOldIn(ctx, f, kept[roleOf(f)]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) emptyOldIn(ctx context.Context, f *Folder, age time.Duration) error {
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
				if n++; n > emptyWrite {
					done = false
					break
				}
				if err := tx.DeleteMessage(m.Mailbox, m.Folder, m.UID); err != nil {
					return err
				}
			}
			if n > 0 {
				s.changed(tx, f.Mailbox)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
