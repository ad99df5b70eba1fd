package external

import (
	"context"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/store"
)

// Internals that external tests use.

const (
	ExternalsAtATime = syncsPerWrite
	KindExternals    = kindExternals
	KindInboxPoll    = kindInboxPoll
	KindInboxSync    = kindInboxSync
)

func (s *Service) AddSync(tx *store.Tx, mb *store.Mailbox, by string) error {
	return s.addSync(tx, mb, by)
}

func (s *Service) OpenIdles(ctx context.Context) { s.idles.open(ctx) }

// Idles reports whether the mailbox has an IDLE session.
func (s *Service) Idles(mailbox string) bool { return s.idles.hasSession(mailbox) }

func (s *Service) IdleOn(mb *store.Mailbox, box *store.RemoteBox, session *pull.Session) bool {
	return s.keepIdle(mb, box, session)
}

func (s *Service) PlanRemainingSyncs(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	return s.planRemainingSyncs(ctx, j)
}
