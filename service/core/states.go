package core

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// TakesMail tells whether the mail of a domain is here: mail from outside and from other domains
// here goes into its mailboxes, and what they send goes out in its name.
func TakesMail(d *store.Domain) bool {
	return d.Claim == store.ClaimProven && d.Status == DomainComplete && d.DNSProvider != ProviderExternal
}

// ClaimEnded tells whether a domain's claim was lost or has expired.
func ClaimEnded(d *store.Domain) bool {
	return d.Claim == store.ClaimLost || d.Claim == store.ClaimExpired
}

// Who serves a domain's DNS, beside dnsprov.Builtin.
const (
	ProviderEdge     = dnsprov.Cloudflare
	ProviderManual   = dnsprov.Manual
	ProviderExternal = dnsprov.External
)

// Status of a domain.
const (
	DomainPending    = "pending"    // a job waits
	DomainPendingNS  = "pending_ns" // its owner must change the nameservers
	DomainPendingDNS = "pending_dns_records"
	DomainInProgress = "in_progress" // a job runs
	DomainComplete   = "complete"
	DomainError      = "error"
	DomainDeleting   = "deleting"
)

// How a message gets to a recipient.
const (
	ViaLocal   = "local"   // into a mailbox of this server
	ViaCapture = "capture" // nowhere
	ViaRelay   = "relay"
	ViaDirect  = "direct" // to the MX hosts of the recipient's domain
)

const (
	SessionKind = "session"
)

// NotSuspended refuses users whose account is suspended.
func NotSuspended(tx *store.Tx, u *store.User) error {
	a, err := store.Accounts.Get(tx, u.AccountID)
	if err == nil && !MayAct(a) {
		return ErrSuspended()
	}
	return err
}

// States of an account.
const (
	AccountActive    = "active"
	AccountSuspended = "suspended"
)

// MayAct tells whether an account may do anything: ask, read, send and take mail, tell and report.
// Its zones are served in any case.
func MayAct(a *store.Account) bool { return a.Status != AccountSuspended }

func ErrSuspended() *Error {
	return Errorf("account_suspended", "This account is suspended. Ask whoever runs this server.")
}

// SuspendedFor is how long a job of a suspended account waits before it is looked at again; resume
// wakes it sooner.
const SuspendedFor = time.Hour

// WhileActive has the jobs of a kind wait for as long as their account is suspended. That is no
// attempt.
func (s *Core) WhileActive(k jobs.Kind) jobs.Kind {
	work := k.Work
	k.Work = func(ctx context.Context, j *store.Job) (jobs.Writes, error) {
		waits := false
		err := s.Store.View(func(tx *store.Tx) error {
			a, err := store.Accounts.FindShared(tx, j.AccountID)
			waits = a != nil && !MayAct(a) // nil: the installation's own
			return err
		})
		if err != nil {
			return nil, err
		}
		if waits {
			return nil, jobs.Snooze(s.Now().Add(SuspendedFor))
		}
		return work(ctx, j)
	}
	return k
}
