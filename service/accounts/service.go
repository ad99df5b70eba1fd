// Package accounts has accounts, the people of their teams, and how these sign in: tokens,
// sessions, second factors and passkeys. It does not know the domains and mailboxes of an account.
// The mail that it sends, such as password links, goes to outbound.
//
// Where things stand:
//   - accounts.go: an account, its use of limits, its suspension.
//   - delete.go: the deletion of an account ([Service.DeleteAccount]).
//   - tokens.go: API tokens, and whom a token stands for ([Service.Authenticate]).
//   - team.go: the team; who may change whom (UpdateTeamUserIn.permit) and remove whom
//     ([Service.DeleteTeamUser]).
//   - users.go: one person's own profile and password.
//   - session.go: signing in to the dashboard.
//   - second_factor.go, passkeys.go: the second factor.
//   - password_reset.go, recovery.go: links to choose a password.
//   - mailbox_session.go: the person of a mailbox. limited.go: members who see some mailboxes
//     alone.
//   - oauth_clients.go, oauth.go, oauth_tokens.go: clients that sign in to /mcp by OAuth: who they
//     are, what a person lets them do, and their tokens.
//   - audit.go: the audit log as the API shows it, and failed log-ins in it.
package accounts

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/store"
)

// Domains are those of accounts.
type Domains interface {
	// DeleteDomains has all domains of an account deleted, and says how many are still there.
	DeleteDomains(ctx context.Context, who core.Actor) (left int, err error)
	// LetEnd tells whether a job of an account that is being deleted is to go on to its end.
	LetEnd(j *store.Job) bool
}

// Servers are those of external mailboxes.
type Servers interface {
	// BeginExternals has every external mailbox of an account synced.
	BeginExternals(tx *store.Tx, accountID, by string) error
	// StopIdling ends the sessions that wait for mail of an account's external mailboxes.
	StopIdling(account string)
}

// A Service holds what accounts need.
type Service struct {
	*core.Core
	inbox     *inbox.Service
	servers   Servers
	mailboxes *mailboxes.Service
	outbound  *outbound.Service
	domains   Domains

	wrongCodes     *limit.Counter[string] // wrong codes of the second factor, by user
	usedChallenges *limit.Counter[string] // challenges that passkeys have answered
	forgotRequests *limit.Counter[string] // questions for a new password, by address and network
	tokenUses      core.Uses
	failedLogins   *failedLogins
	clientFetches  chan struct{} // one for each document of a client that is being fetched
}

// New puts the room together.
func New(c *core.Core, i *inbox.Service, servers Servers, m *mailboxes.Service, o *outbound.Service, d Domains) *Service {
	return &Service{
		Core: c, inbox: i, servers: servers, mailboxes: m, outbound: o, domains: d,
		wrongCodes: limit.NewSlidingCounter[string](codeWindow, core.AttemptKeys), usedChallenges: limit.NewSlidingCounter[string](2*challengeFor, core.AttemptKeys),
		forgotRequests: limit.NewSlidingCounter[string](forgotWindow, core.AttemptKeys), failedLogins: newFailedLogins(),
		clientFetches: make(chan struct{}, clientFetches),
	}
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return append(s.recoveryKinds(), jobs.Kind{Name: kindInvitation, Work: s.sendInvitation, Max: 5, Timeout: time.Minute}, s.wakeKind(), s.deleteKind(), s.forgotKind())
}

// Run does what the room does by the clock, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	t := time.NewTicker(30 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			s.flushFailedLogins()
			return s.flushTokenUses()
		case <-s.failedLogins.wake:
			s.flushFailedLogins()
		case <-t.C:
			if err := s.flushTokenUses(); err != nil {
				s.Log.Error("note the last use of tokens", "error", err)
			}
		}
	}
}
