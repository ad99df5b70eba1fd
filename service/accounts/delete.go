package accounts

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	kindAccountDelete = "account_delete"
	domainDelete      = "domain_delete"
	deleteWait        = 2 * time.Second // for the deletion of its domains, and for what runs
	rowsAtOnce        = 200             // deleted in one transaction
	rowsLookedAt      = 5000            // in one view
)

// deleteArgs are of the job that deletes an account.
type deleteArgs struct {
	AccountID string `json:"account_id"`
}

// AccountDeleted says which job deletes an account.
type AccountDeleted struct {
	AccountID string `json:"account_id"`
	JobID     string `json:"job_id"`
}

// DeleteAccount takes an account out of use at once: nobody signs in to it, nothing is taken for it,
// and nothing of it leaves any more. A job deletes what it has, and then the account. A second
// request answers the same job.
func (s *Service) DeleteAccount(_ context.Context, in AccountIn) (*AccountDeleted, error) {
	if in.Account == "" {
		return nil, core.Invalid("account", "required", "name the account, by its id or its owner's address")
	}
	out := new(AccountDeleted)
	err := s.Store.Update(func(tx *store.Tx) error {
		a, err := core.FindAccount(tx, in.Account)
		if err != nil {
			return err
		}
		for first := range store.Accounts.All(tx) {
			if first.ID == a.ID {
				return core.Invalid("account", "not_allowed", "the first account is the operator's and cannot be deleted")
			}
			break
		}
		tx.MayUseReserve() // what frees room is the job's
		j, err := s.Queue.Add(tx, jobs.New{Kind: kindAccountDelete, Key: a.ID, Args: deleteArgs{a.ID}})
		if err != nil {
			return err
		}
		out.AccountID, out.JobID = a.ID, j.ID
		if a.Gone() {
			return nil
		}
		a.Status, a.UpdatedAt = store.AccountDeleting, tx.Now()
		tx.After(func() { s.inbox.StopIdling(a.ID) })
		return store.Accounts.Put(tx, a)
	})
	if err != nil {
		return nil, err
	}
	s.Log.Info("account is being deleted", "account", out.AccountID, "job", out.JobID)
	return out, s.wakeMailboxes(out.AccountID)
}

func (s *Service) deleteKind() jobs.Kind {
	return jobs.Kind{Name: kindAccountDelete, Work: s.eraseAccount, Timeout: time.Hour}
}

// eraseAccount is the work of account_delete. Begun again after a crash it goes on where it was,
// since what it has deleted is not there any more.
func (s *Service) eraseAccount(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[deleteArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var account *store.Account
	err = s.Store.View(func(tx *store.Tx) error {
		account, err = store.Accounts.Find(tx, args.AccountID)
		return err
	})
	if account == nil || err != nil {
		return nil, err
	}

	// What waits to be sent or told goes first; then domains with their mailboxes, each by the job
	// that deletes it. These may still write what is the account's, so all of it is looked through
	// again once they are gone.
	if err := s.dropRows(ctx, account.ID); err != nil {
		return nil, err
	}
	left, err := s.Hooks.DeleteDomains(ctx, core.Actor{AccountID: account.ID, AccountNum: account.Num})
	if err != nil {
		return nil, err
	}
	if left > 0 {
		return nil, jobs.Snooze(s.Now().Add(deleteWait))
	}
	if err := s.dropRows(ctx, account.ID); err != nil {
		return nil, err
	}
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			done, err = tx.DropAccountIndex(account.Num, rowsAtOnce)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return func(tx *store.Tx, _ *store.Job) error { return store.Accounts.Delete(tx, account.ID) }, nil
}

// dropRows deletes the account's rows of all tables but those of domains and mailboxes. The jobs of
// its domains' deletion stay.
func (s *Service) dropRows(ctx context.Context, accountID string) error {
	var from []byte
	for more := true; more; more = from != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		var rows []store.AccountRow
		var next []byte
		err := s.Store.View(func(tx *store.Tx) error {
			rows, next = tx.AccountRows(accountID, from, rowsAtOnce, rowsLookedAt)
			return nil
		})
		if err == nil && len(rows) > 0 {
			err = s.Store.Update(func(tx *store.Tx) error {
				for _, row := range rows {
					if row.Table == store.Jobs.Name() {
						j, err := store.Jobs.Find(tx, row.ID)
						if err == nil && j != nil && j.Kind == domainDelete && !j.Ended() {
							continue
						}
					}
					if err := tx.DropAccountRow(accountID, row); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}
