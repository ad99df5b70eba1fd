// Package signin lets people in: it decides who may begin a session of the dashboard, what it takes
// besides a password, and whether a client may act for a person at /mcp, by OAuth. It counts wrong
// codes and requests for links; core counts wrong passwords. It does not know what a session or a
// token may do once it is there, nor how accounts and teams are managed: that is service/accounts,
// below it.
//
// Where things stand:
//   - session.go: sessions, and signing in with a password ([Service.SignIn]). mailbox.go: the
//     same for the person of a mailbox.
//   - second_factor.go: codes of authenticator apps, and recovery codes. passkeys.go: passkeys.
//   - profile.go: one's own name, address and password.
//   - password_reset.go: links by which people choose a password. recovery.go: those of mailboxes,
//     and the addresses that they are sent to.
//   - oauth_clients.go, oauth.go, oauth_tokens.go: clients that sign in to /mcp: who they are, what
//     a person lets them do, and their tokens.
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

// Accounts has the team users, and says whom tokens stand for.
type Accounts interface {
	// ActorOf is whom a token or session stands for; this is noted as its use, from ip.
	ActorOf(tx *store.Tx, t *store.Token, ip string) (core.Actor, error)
	// StandingActor is ActorOf without a use.
	StandingActor(tx *store.Tx, t *store.Token) (core.Actor, error)
	// OpenDoor is where the password of a team user is compared.
	OpenDoor(email, ip string) (*accounts.Door, error)
	// ProvePassword verifies the password of who is signed in; still makes sure, in a transaction
	// that follows, that it is the password by then.
	ProvePassword(ctx context.Context, who core.Actor, password string) (still func(*store.Tx, *store.User) error, err error)
	// NewReset gives a user a new link that sets a password. The caller keeps the user.
	NewReset(u *store.User) (link string)
	// RevokeMost revokes tokens of a user until few are left, which one transaction can revoke.
	RevokeMost(userID string, which func(*store.Token) bool) error
	// RecordFailedLogin has a wrong password or code noted in the audit log.
	RecordFailedLogin(at store.AuditActor, accountID, ip, requestID string)
}

// Mailboxes has the passwords of mailboxes.
type Mailboxes interface {
	// OpenDoor is where the password of a mailbox is compared.
	OpenDoor(email, ip string) (*mailboxes.Door, error)
	// HoldPassword checks a new password of a mailbox, and gives what sets it.
	HoldPassword(mb store.Mailbox, password string) (func(*store.Mailbox), error)
	// EndSessions ends the sessions of the person of a mailbox, but one, and says how many.
	EndSessions(tx *store.Tx, mailboxID, but string) (int, error)
}

// Outbound sends mail.
type Outbound interface {
	// SendLetter sends a letter in the transaction in which put writes what it is about, unless put
	// says otherwise.
	SendLetter(l alert.Letter, put func(*store.Tx) (send bool, err error)) (sent bool, err error)
}

// A Service holds what signing in needs.
type Service struct {
	*core.Core
	accounts  Accounts
	mailboxes Mailboxes
	outbound  Outbound

	wrongCodes     *limit.Counter[string] // wrong codes of the second factor, by user
	usedChallenges *limit.Counter[string] // challenges that passkeys have answered
	forgotRequests *limit.Counter[string] // questions for a new password, by address and network
	clientFetches  chan struct{}          // one for each document of a client that is being fetched
}

// New puts the room together.
func New(c *core.Core, a Accounts, m Mailboxes, o Outbound) *Service {
	return &Service{
		Core: c, accounts: a, mailboxes: m, outbound: o,
		wrongCodes: limit.NewSlidingCounter[string](codeWindow, core.AttemptKeys), usedChallenges: limit.NewSlidingCounter[string](2*challengeFor, core.AttemptKeys),
		forgotRequests: limit.NewSlidingCounter[string](forgotWindow, core.AttemptKeys), clientFetches: make(chan struct{}, clientFetches),
	}
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{
		{Name: kindForgot, Work: s.sendForgot, Max: 5, Timeout: time.Minute},
		{Name: kindRecovery, Work: s.sendRecovery, Max: 5, Timeout: time.Minute},
		{Name: mailboxes.KindRecoveryConfirm, Work: s.sendConfirmation, Max: 5, Timeout: time.Minute},
	}
}
