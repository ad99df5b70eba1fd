package external

import (
	"context"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package look at.

const (
	ExternalsAtATime = externalsAtATime
	KindExternals    = kindExternals
	KindInboxPoll    = kindInboxPoll
	KindInboxSync    = kindInboxSync
)

func (s *Service) AddSync(tx *store.Tx, mb *store.Mailbox, by string) error {
	return s.addSync(tx, mb, by)
}

func (s *Service) OpenIdles(ctx context.Context) { s.idles.open(ctx) }

// Idles reports whether a session waits for mail of the mailbox.
func (s *Service) Idles(mailbox string) bool { return s.idles.has(mailbox) }

func (s *Service) IdleOn(mb *store.Mailbox, box *store.RemoteBox, session *pull.Session) bool {
	return s.idleOn(mb, box, session)
}

func (s *Service) PlanRemainingSyncs(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	return s.planRemainingSyncs(ctx, j)
}
