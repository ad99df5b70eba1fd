// Package accounts manages accounts, the users of their teams, and tokens. It decides who a token
// or a session acts for, what a team user may change about other users, and which tokens and
// sessions end when a password changes. It does not know how people sign in: sessions, second
// factors and links that set a password are in service/signin, which is above it. It does not know
// the domains and mailboxes of an account either. The mail that it sends, such as invitations, goes
// to outbound.
//
// The files:
//   - accounts.go: an account, its use of limits, its suspension.
//   - delete.go: the deletion of an account ([Service.DeleteAccount]).
//   - hosted.go: what the operator does to accounts by the API. usage.go: what accounts used, day
//     by day.
//   - tokens.go: API tokens. actor.go: who a token or a session acts for, and how long it is valid
//     ([Service.Authenticate]).
//   - team.go: the team; who may change whom (UpdateTeamUserIn.permit) and remove whom
//     ([Service.DeleteTeamUser]). limited.go: members who see only some mailboxes; invitations.
//   - passwords.go: the password of a team user: its comparison
//     ([Service.FindPasswordLogin]), the links that set one, what ends with it.
//   - users.go: what the operator does for a team user, and the name and address of a user.
//   - me.go: the caller.
//   - audit.go: the audit log as the API shows it, and its rows of failed log-ins.
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

// Domains is what this package needs of the domains of accounts.
type Domains interface {
	// DeleteDomains starts the deletion of all domains of an account, and returns how many still
	// exist.
	DeleteDomains(ctx context.Context, who core.Actor) (left int, err error)
	// MayFinish reports whether a job of an account that is being deleted must run to its end.
	MayFinish(j *store.Job) bool
}

// Servers is what this package needs of external mailboxes.
type Servers interface {
	// BeginExternals starts a sync of every external mailbox of an account.
	BeginExternals(tx *store.Tx, accountID, by string) error
	// StopIdling ends the IDLE sessions of an account's external mailboxes.
	StopIdling(account string)
}

// Inbox is what this package needs of stored mail.
type Inbox interface {
	// PlanWarmup plans to mark stored mail again, by the account's current warm-up phrases and
	// header fields.
	PlanWarmup(tx *store.Tx, accountID string) error
	// CleanWarmupFolder returns the canonical form of the name of a folder for warm-up mail.
	CleanWarmupFolder(name string) (string, error)
	// DropAccountIndex deletes the search index of an account.
	DropAccountIndex(ctx context.Context, account uint32) error
}

// Mailboxes is what this package needs of mailboxes.
type Mailboxes interface {
	// CheckPassword verifies the mailbox's own password; a wrong one is 401.
	CheckPassword(ctx context.Context, email, password, ip string) error
	GetEmailUser(ctx context.Context, who core.Actor, in core.EmailUserIn) (*mailboxes.EmailUser, error)
	UpdateEmailUser(ctx context.Context, who core.Actor, in mailboxes.UpdateEmailUserIn) (*mailboxes.EmailUser, error)
	// FlushUses writes when credentials were last used.
	FlushUses() error
}

// Outbound sends mail.
type Outbound interface {
	// SendHostMail queues a message in the transaction in which put writes the related records.
	// Nothing is sent if put returns send = false.
	SendHostMail(l alert.HostMail, put func(*store.Tx) (send bool, err error)) (sent bool, err error)
	// CancelWaiting cancels the queued mail of an account for which match returns true.
	CancelWaiting(ctx context.Context, accountID, why string, match func(*store.Outgoing) bool) error
	// MayFinish reports whether a job of an account that is being deleted must run to its end.
	MayFinish(j *store.Job) bool
}

// Requests is what this package needs of the request log.
type Requests interface {
	// DropAccount deletes the log of an account.
	DropAccount(accountID string) error
}

// A Service manages accounts, their teams and their tokens.
type Service struct {
	*core.Core
	inbox     Inbox
	servers   Servers
	mailboxes Mailboxes
	outbound  Outbound
	domains   Domains
	requests  Requests

	tokenUses    core.Uses
	failedLogins *failedLogins
}

// New returns a Service over the given rooms.
func New(c *core.Core, i Inbox, servers Servers, m Mailboxes, o Outbound, d Domains, r Requests) *Service {
	return &Service{Core: c, inbox: i, servers: servers, mailboxes: m, outbound: o, domains: d, requests: r, failedLogins: newFailedLogins()}
}

// Kinds lists the kinds of jobs that this package runs.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{{Name: kindInvitation, Work: s.sendInvitation, Max: 5, Timeout: time.Minute}, s.wakeKind(), s.deleteKind(), s.usageKind()}
}

// Run saves from time to time when tokens were last used, and how many log-ins failed, until ctx
// ends.
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
				s.Log.Error("write the last use of tokens", "error", err)
			}
		}
	}
}
