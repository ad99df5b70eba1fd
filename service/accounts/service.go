// Package accounts has accounts, the people of their teams, and the tokens that act for these. It
// decides whom a token or a session stands for, what a team user may change of others, and what
// ends with a password. It does not know how people sign in: sessions, second factors and links
// that set a password are service/signin, which is above it. Nor does it know the domains and
// mailboxes of an account. The mail that it sends, such as invitations, goes to outbound.
//
// Where things stand:
//   - accounts.go: an account, its use of limits, its suspension.
//   - delete.go: the deletion of an account ([Service.DeleteAccount]).
//   - tokens.go: API tokens. actor.go: whom a token or a session stands for, and how long
//     ([Service.Authenticate]).
//   - team.go: the team; who may change whom (UpdateTeamUserIn.permit) and remove whom
//     ([Service.DeleteTeamUser]). limited.go: members who see some mailboxes alone; invitations.
//   - passwords.go: the password of a team user: where one is compared ([Service.OpenDoor]), the
//     links that set one, what ends with it.
//   - users.go: what the operator does for a team user, and the name and address of one.
//   - me.go: who asks.
//   - audit.go: the audit log as the API shows it, and failed log-ins in it.
package accounts

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// Domains are those of accounts.
type Domains interface {
	// DeleteDomains has all domains of an account deleted, and says how many are still there.
	DeleteDomains(ctx context.Context, who core.Actor) (left int, err error)
	// MayFinish reports whether a job of an account that is being deleted is to go on to its end.
	MayFinish(j *store.Job) bool
}

// Servers are those of external mailboxes.
type Servers interface {
	// BeginExternals has every external mailbox of an account synced.
	BeginExternals(tx *store.Tx, accountID, by string) error
	// StopIdling ends the sessions that wait for mail of an account's external mailboxes.
	StopIdling(account string)
}

// Inbox has the stored mail of an account.
type Inbox interface {
	// PlanWarmup has stored mail marked again by the account's warm-up phrases.
	PlanWarmup(tx *store.Tx, accountID string) error
	// DropAccountIndex deletes the index of an account's words.
	DropAccountIndex(ctx context.Context, account uint32) error
}

// Mailboxes has the mailboxes of people.
type Mailboxes interface {
	// CheckPassword checks the own password of a mailbox; a wrong one is 401.
	CheckPassword(ctx context.Context, email, password, ip string) error
	GetEmailUser(ctx context.Context, who core.Actor, in core.EmailUserIn) (*mailboxes.EmailUser, error)
	UpdateEmailUser(ctx context.Context, who core.Actor, in mailboxes.UpdateEmailUserIn) (*mailboxes.EmailUser, error)
	// FlushUses writes when credentials were used.
	FlushUses() error
}

// Outbound sends mail.
type Outbound interface {
	// SendLetter sends a letter in the transaction in which put writes what it is about, unless put
	// says otherwise.
	SendLetter(l alert.Letter, put func(*store.Tx) (send bool, err error)) (sent bool, err error)
	// CancelWaiting takes back what waits to be sent for an account, as far as which says so.
	CancelWaiting(ctx context.Context, accountID, why string, which func(*store.Outgoing) bool) error
	// MayFinish reports whether a job of an account that is being deleted is to go on to its end.
	MayFinish(j *store.Job) bool
}

// A Service holds what accounts need.
type Service struct {
	*core.Core
	inbox     Inbox
	servers   Servers
	mailboxes Mailboxes
	outbound  Outbound
	domains   Domains

	tokenUses    core.Uses
	failedLogins *failedLogins
}

// New puts the room together.
func New(c *core.Core, i Inbox, servers Servers, m Mailboxes, o Outbound, d Domains) *Service {
	return &Service{Core: c, inbox: i, servers: servers, mailboxes: m, outbound: o, domains: d, failedLogins: newFailedLogins()}
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{{Name: kindInvitation, Work: s.sendInvitation, Max: 5, Timeout: time.Minute}, s.wakeKind(), s.deleteKind()}
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
