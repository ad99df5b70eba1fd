package core

import (
	"context"

	"github.com/mailstead/mailstead/store"
)

// A Quota is how much a mailbox may hold and does.
type Quota struct {
	Used  int64  // bytes of all its messages
	Limit *int64 // bytes; nil: no limit
}

// MailboxQuota gives the quota of whoever is logged in.
func (s *Core) MailboxQuota(_ context.Context, u MailboxUser) (q Quota, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := OpenMailbox(tx, u)
		if err != nil {
			return err
		}
		used, err := tx.MailboxUsage(mb.Num)
		q = Quota{Used: used.Bytes, Limit: mb.QuotaBytes}
		return err
	})
	return q, err
}
