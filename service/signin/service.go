// Package signin begins sessions: it decides who may start a session of the dashboard, what proof
// is needed besides a password, and whether a client may act for a person at /mcp, by OAuth. It
// counts wrong codes and requests for links; core counts wrong passwords. It does not know what a
// session or a token may do once it exists, nor how accounts and teams are managed: that is
// service/accounts, below it.
//
// The files:
//   - session.go: sessions, and signing in with a password ([Service.SignIn]). mailbox.go: the same
//     for the person of a mailbox.
//   - second_factor.go: codes of authenticator apps, and recovery codes. passkeys.go: passkeys.
//   - profile.go: the user's own name, address and password.
//   - password_reset.go: links with which people choose a password. recovery.go: such links for
//     mailboxes, and the recovery addresses that they are sent to.
//   - oauth_clients.go, oauth.go, oauth_tokens.go: OAuth clients that sign in to /mcp, a person's
//     consent, and the clients' tokens.
package signin

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// Accounts is what this package needs of service/accounts: team users, and the actors behind
// tokens.
type Accounts interface {
	// ActorOf returns the actor that a token or session acts as, and records this use from ip.
	ActorOf(tx *store.Tx, t *store.Token, ip string) (core.Actor, error)
	// ActorWithoutUse is like ActorOf, but records no use.
	ActorWithoutUse(tx *store.Tx, t *store.Token) (core.Actor, error)
	// FindPasswordLogin finds the team user of an address, for the comparison of a password.
	FindPasswordLogin(email, ip string) (*accounts.PasswordLogin, error)
	// ProvePassword verifies the password of the signed-in user. The caller runs checkUnchanged in
	// its later transaction, to make sure that the password was not changed in between.
	ProvePassword(ctx context.Context, who core.Actor, password string) (checkUnchanged func(*store.Tx, *store.User) error, err error)
	// NewResetLink gives a user a new link that sets a password. The caller stores the user.
	NewResetLink(u *store.User) (link string)
	// RevokeMost revokes matching tokens of a user until so few are left that one transaction can
	// revoke them.
	RevokeMost(userID string, match func(*store.Token) bool) error
	// RecordFailedLogin records a wrong password or code in the audit log.
	RecordFailedLogin(at store.AuditActor, accountID, ip, requestID string)
}

// Mailboxes is what this package needs of service/mailboxes: the passwords of mailboxes.
type Mailboxes interface {
	// FindPasswordLogin finds the mailbox of an address, for the comparison of a password.
	FindPasswordLogin(email, ip string) (*mailboxes.PasswordLogin, error)
	// HashChosenPassword checks a new password of a mailbox, and returns the function that sets it.
	HashChosenPassword(mb store.Mailbox, password string) (func(*store.Mailbox), error)
	// EndSessions ends all sessions of a mailbox's person except exceptID, and returns how many.
	EndSessions(tx *store.Tx, mailboxID, exceptID string) (ended int, err error)
}

// Outbound sends mail.
type Outbound interface {
	// SendHostMail queues a message in the transaction in which put writes the related records.
	// Nothing is sent if put returns send = false.
	SendHostMail(l alert.HostMail, put func(*store.Tx) (send bool, err error)) (sent bool, err error)
}

// A Service signs people and OAuth clients in.
type Service struct {
	*core.Core
	accounts  Accounts
	mailboxes Mailboxes
	outbound  Outbound

	wrongCodes     *limit.Counter[string] // wrong codes of the second factor, by user
	usedChallenges *limit.Counter[string] // challenges that passkeys have answered
	forgotRequests *limit.Counter[string] // requests for a password link, by address and network
	clientFetches  chan struct{}          // one slot for each client document that is being fetched
}

// New returns a Service over the given rooms.
func New(c *core.Core, a Accounts, m Mailboxes, o Outbound) *Service {
	return &Service{
		Core: c, accounts: a, mailboxes: m, outbound: o,
		wrongCodes: limit.NewSlidingCounter[string](codeWindow, core.MaxAttemptKeys), usedChallenges: limit.NewSlidingCounter[string](2*challengeLife, core.MaxAttemptKeys),
		forgotRequests: limit.NewSlidingCounter[string](forgotWindow, core.MaxAttemptKeys), clientFetches: make(chan struct{}, maxClientFetches),
	}
}

// Kinds lists the kinds of jobs that this package runs.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{
		{Name: kindForgot, Work: s.sendPasswordLink, Max: 5, Timeout: time.Minute},
		{Name: kindRecovery, Work: s.sendRecovery, Max: 5, Timeout: time.Minute},
		{Name: mailboxes.KindRecoveryConfirm, Work: s.sendConfirmation, Max: 5, Timeout: time.Minute},
	}
}
