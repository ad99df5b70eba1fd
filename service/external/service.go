// Package external syncs mailboxes that live on other servers: it fetches their mail, and changes
// their messages there. It does not know how mail comes to a mailbox here, nor how messages are
// shown.
//
// Two types share the work. [Servers] connects, changes messages and plans syncs; it needs no other
// room, so rooms that a sync uses are made with it. [Service] has the syncs, which file mail.
//
// Where things stand:
//   - servers.go: connects to a server ([Servers.Connect]), what is said of one that fails
//     ([Reason]), and how long one is left alone.
//   - changes.go: changes messages there ([Servers.Mark], [Servers.Delete]).
//   - planning.go: when a mailbox is synced.
//   - universal.go: the universal inbox of an account, and refreshing on request.
//   - jobs.go: the jobs that sync a mailbox, in the background or on request. answers.go: the job
//     that marks messages as answered.
//   - outcome.go: the beginning of a sync, and what it leaves in the mailbox's state.
//   - sync.go: one sync.
//   - idle.go: waits for new mail.
package external

import (
	"context"
	"net/netip"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// Prover keeps proofs of who owns a domain.
type Prover interface {
	// ProveByLogin notes that a log-in to a mailbox elsewhere, at the address, has succeeded.
	ProveByLogin(ctx context.Context, mb *store.Mailbox, at netip.Addr) error
}

// A Service holds what syncs need.
type Service struct {
	*Servers
	inbox  *inbox.Service
	prover Prover

	syncLocks limit.KeyedMutex[string] // one sync of a mailbox at a time
}

// New puts the room together, with the servers that rooms below it have, too.
func New(servers *Servers, i *inbox.Service, p Prover) *Service {
	return &Service{Servers: servers, inbox: i, prover: p}
}

// Run lets sessions wait for mail until ctx ends.
func (s *Service) Run(ctx context.Context) {
	s.idles.open(ctx)
	defer s.idles.close()
	if err := s.wakePolls(); err != nil {
		s.Log.Error("plan looks at external mailboxes", "error", err)
	}
	<-ctx.Done()
}
