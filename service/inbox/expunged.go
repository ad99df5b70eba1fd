package inbox

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A UIDRange is a range of UIDs. First and Last belong to it.
type UIDRange = store.UIDRange

// Expunged returns the UIDs of messages that have left a folder since a mod-sequence, in the order
// in which they left. known is false if the store no longer has this list (RFC 7162 section 3.2).
func (s *Service) Expunged(_ context.Context, u core.MailboxUser, folder uint32, since uint64) (gone []UIDRange, known bool, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		f, err := folderByID(tx, u.Mailbox, folder)
		if err != nil {
			return err
		}
		gone, known, err = tx.Expunged(f, since)
		return err
	})
	return gone, known, err
}
