// Package external syncs mailboxes that are hosted on other servers: it fetches their mail, and
// changes their messages there. It does not know how mail reaches a mailbox here, or how messages
// are shown.
//
// There are two types. [Servers] connects to servers, changes messages there and schedules syncs.
// It needs no other room, so that rooms that a sync uses can be created with it. [Service] runs the
// syncs, which file mail.
//
// Where things are:
//   - servers.go: connects to a server ([Servers.Connect]), explains its errors ([Reason]), and
//     remembers which servers do not answer.
//   - changes.go: changes messages there ([Servers.Mark], [Servers.Delete]).
//   - planning.go: when a mailbox is synced.
//   - universal.go: the universal inbox of an account, and refreshing on request.
//   - jobs.go: the jobs that sync a mailbox, in the background or on request. answers.go: the job
//     that marks messages as answered.
//   - outcome.go: the beginning of a sync, and its result in the mailbox's state.
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

// A Prover stores proofs of who owns a domain.
type Prover interface {
	// ProveByLogin records a successful login to an external mailbox. at is the IP address of the
	// server.
	ProveByLogin(ctx context.Context, mb *store.Mailbox, at netip.Addr) error
}

// A Service syncs external mailboxes.
type Service struct {
	*Servers
	inbox  *inbox.Service
	prover Prover

	syncLocks limit.KeyedMutex[string] // by mailbox ID; held during a sync, so that a mailbox has only one at a time
}

// New returns a Service. Other services may share servers with it.
func New(servers *Servers, i *inbox.Service, p Prover) *Service {
	return &Service{Servers: servers, inbox: i, prover: p}
}

// Run allows IDLE sessions until ctx ends. Then it waits for the end of the sessions.
func (s *Service) Run(ctx context.Context) {
	s.idles.open(ctx)
	defer s.idles.close()
	if err := s.planAllPolls(); err != nil {
		s.Log.Error("plan syncs of external mailboxes", "error", err)
	}
	<-ctx.Done()
}
