package accounts

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// AccountIn names an account, by id or by its owner's address, and the state that it is to have.
type AccountIn struct {
	Account string `json:"account"`
	Status  string `json:"status"`
}

// AccountStatus is the state of an account.
type AccountStatus struct {
	AccountID string `json:"account_id"`
	Status    string `json:"status"`
}

// SetAccountStatus suspends an account or resumes it. What it was about to send or tell waits
// meanwhile; its open connections end. To do it again changes nothing.
func (s *Service) SetAccountStatus(_ context.Context, in AccountIn) (*AccountStatus, error) {
	if in.Status != core.AccountActive && in.Status != core.AccountSuspended {
		return nil, core.Invalid("status", "not_allowed", "must be active or suspended")
	}
	if in.Account == "" {
		return nil, core.Invalid("account", "required", "name the account, by its id or its owner's address")
	}
	out := &AccountStatus{Status: in.Status}
	err := s.Store.Update(func(tx *store.Tx) error {
		a, err := core.FindAccount(tx, in.Account)
		if err != nil {
			return err
		}
		out.AccountID = a.ID
		if a.Status == in.Status {
			return nil
		}
		a.Status, a.UpdatedAt = in.Status, tx.Now()
		if !core.MayAct(a) {
			tx.After(func() { s.inbox.StopIdling(a.ID) })
		}
		if err := store.Accounts.Put(tx, a); err != nil || !core.MayAct(a) {
			return err
		}
		if err := s.inbox.BeginExternals(tx, a.ID, ""); err != nil { // syncs have ended meanwhile
			return err
		}
		_, err = s.Queue.Add(tx, jobs.New{Kind: kindAccountWake, Key: a.ID, Args: wakeArgs{AccountID: a.ID}})
		return err
	})
	if err != nil {
		return nil, err
	}
	s.Log.Info("account "+map[string]string{core.AccountActive: "resumed", core.AccountSuspended: "suspended"}[in.Status], "account", out.AccountID)
	return out, s.wakeMailboxes(out.AccountID)
}

// wakeMailboxes has the sessions of an account's mailboxes look whether they may go on.
func (s *Service) wakeMailboxes(accountID string) error {
	return s.Store.View(func(tx *store.Tx) error {
		for _, mb := range store.MailboxesByAccount.Asc(tx, accountID, "") {
			s.Hub.Changed(mb.Num)
		}
		return nil
	})
}

// MailboxOpen says why a mailbox that somebody has logged in to may not be used any more, or nil.
func (s *Service) MailboxOpen(_ context.Context, u core.MailboxUser) error {
	return s.Store.View(func(tx *store.Tx) error {
		_, err := core.OpenMailbox(tx, u)
		return err
	})
}

// An AccountRow is an account as its operator sees it.
type AccountRow struct {
	AccountID  string    `json:"account_id"`
	Name       string    `json:"name"`
	OwnerEmail string    `json:"owner_email"`
	Plan       string    `json:"plan"`
	Status     string    `json:"status"`
	Domains    int       `json:"domains"`
	EmailUsers int       `json:"email_users"`
	CreatedAt  core.Time `json:"created_at"`
}

// ListAccounts lists the accounts of the installation, oldest first.
func (s *Service) ListAccounts(context.Context, struct{}) (*core.List[AccountRow], error) {
	var out []AccountRow
	err := s.Store.View(func(tx *store.Tx) error {
		for a := range store.Accounts.All(tx) {
			out = append(out, AccountRow{
				AccountID: a.ID, Name: a.Name, OwnerEmail: a.Email, Plan: a.Plan, Status: a.Status, CreatedAt: core.Time{Time: a.CreatedAt},
				Domains: store.DomainsByAccount.Count(tx, a.ID, 0), EmailUsers: store.MailboxesByAccount.Count(tx, a.ID, 0),
			})
		}
		return nil
	})
	return core.ListOf(out), err
}

const (
	kindAccountWake = "account_wake"
	wakeAtOnce      = 500 // jobs in one transaction
)

// wakeArgs are of the job that wakes what waited while an account was suspended.
type wakeArgs struct {
	AccountID string `json:"account_id"`
	After     string `json:"after"` // the last job that was looked at
}

func (s *Service) wakeKind() jobs.Kind {
	return jobs.Kind{Name: kindAccountWake, Work: s.wakeJobs, Timeout: time.Hour}
}

// wakeJobs walks all jobs by their lanes' order of due, since no index has them by account; a job
// that is woken twice is due all the same.
func (s *Service) wakeJobs(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[wakeArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for ctx.Err() == nil {
		var ids []string
		more := false
		err := s.Store.View(func(tx *store.Tx) error {
			for key, waiting := range store.JobsDue.Asc(tx, "", args.After) {
				if len(ids) == wakeAtOnce {
					more = true
					break
				}
				args.After = key
				if waiting.AccountID == args.AccountID && waiting.State == store.JobQueued && waiting.Due.After(tx.Now()) && waiting.Due.Sub(tx.Now()) <= core.SuspendedFor {
					ids = append(ids, waiting.ID)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		err = s.Store.Update(func(tx *store.Tx) error {
			for _, id := range ids {
				if err := s.Queue.Wake(tx, id, time.Time{}); err != nil && !errors.Is(err, store.ErrNotFound) {
					return err
				}
			}
			return nil
		})
		if err != nil || !more {
			return nil, err
		}
	}
	return nil, ctx.Err()
}
