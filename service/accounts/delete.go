package accounts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// KindDelete is the kind of the job that deletes an account. The job belongs to the first account.
const KindDelete = "account_delete"

const (
	minDeleteRetry = time.Second // first interval at which the job checks whether domains are gone and attempts have ended
	maxDeleteRetry = 30 * time.Second
	rowsPerTx      = 200  // rows deleted in one transaction
	rowsExamined   = 5000 // rows examined in one view
)

// deleteArgs are the arguments of the job that deletes an account.
type deleteArgs struct {
	AccountID string `json:"account_id"`
}

// AccountDeleted names the job that deletes an account.
type AccountDeleted struct {
	AccountID string `json:"account_id"`
	JobID     string `json:"job_id"`
}

// DeleteAccount takes an account out of use at once: nobody can sign in to it, no mail is accepted
// for it, and it sends nothing any more. A job deletes its data, and then the account. A second
// request returns the same job. It is for the operator on the server itself.
func (s *Service) DeleteAccount(ctx context.Context, in AccountIn) (*AccountDeleted, error) {
	if in.Account == "" {
		return nil, core.Invalid("account", "required", "name the account, by its id or its owner's address")
	}
	out := new(AccountDeleted)
	err := s.Store.Update(func(tx *store.Tx) error {
		a, err := core.FindAccount(tx, in.Account)
		if err != nil {
			return err
		}
		tx.MayUseReserve() // the job frees space
		out.AccountID = a.ID
		if a.Gone() && a.DeleteJob != "" {
			out.JobID = a.DeleteJob
			return nil
		}
		if err := s.planDeletion(tx, a, tx.Now(), ""); err != nil {
			return err
		}
		out.JobID = a.DeleteJob
		return errors.Join(s.beginDeletion(tx, a), core.AuditCommand(tx, "account delete", a.ID, core.AccountTarget(a)))
	})
	if err != nil {
		return nil, err
	}
	return out, s.endUse(ctx, out.AccountID, out.JobID)
}

// planDeletion queues the job that deletes an account at that time. The job belongs to the first
// account, which cannot be deleted itself. The caller writes the account.
func (s *Service) planDeletion(tx *store.Tx, a *store.Account, at time.Time, by string) error {
	first, err := core.FindAccount(tx, "")
	if err != nil {
		return err
	}
	if a.ID == first.ID {
		return errFirstAccount("cannot be deleted")
	}
	j, err := s.Queue.Add(tx, jobs.New{
		AccountID: first.ID, Kind: KindDelete, Key: a.ID, Args: deleteArgs{a.ID}, Due: at, CreatedBy: by,
		Resource: store.JobResource{Type: "account", ID: a.ID, Name: a.Name},
	})
	if err == nil {
		a.DeleteJob = j.ID
	}
	return err
}

// errFirstAccount says what cannot be done to the first account.
func errFirstAccount(why string) *core.Error {
	return core.Errorf("owner_protected", "The first account is the operator's own, and %s.", why)
}

// beginDeletion takes an account out of use for good.
func (s *Service) beginDeletion(tx *store.Tx, a *store.Account) error {
	a.Status, a.DeleteAt, a.UpdatedAt = store.AccountDeleting, time.Time{}, tx.Now()
	tx.After(func() { s.servers.StopIdling(a.ID) })
	return store.Accounts.Put(tx, a)
}

// endUse ends what runs for an account that is being deleted, and its open sessions.
func (s *Service) endUse(ctx context.Context, accountID, jobID string) error {
	s.LogOf(ctx).Info("account is being deleted", "account", accountID, "job_id", jobID)
	s.StopAttempts(accountID)
	return s.recheckSessions(accountID)
}

func (s *Service) deleteKind() jobs.Kind {
	return jobs.Kind{Name: KindDelete, Work: s.eraseAccount, Timeout: time.Hour, Visible: true}
}

// startErasing takes an account out of use if its deletion is due. It returns the account, or nil
// if there is nothing to delete: the account is gone, or the operator has ended the deletion. If it
// is not due yet, the error delays the job.
func (s *Service) startErasing(ctx context.Context, accountID, jobID string) (account *store.Account, err error) {
	began := false
	err = s.Store.View(func(tx *store.Tx) error {
		account, err = store.Accounts.Find(tx, accountID)
		return err
	})
	if err != nil || account == nil || account.Gone() {
		return account, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		account, began = nil, false
		a, err := store.Accounts.Find(tx, accountID)
		if err != nil || a == nil || a.DeleteJob != jobID {
			return err
		}
		if tx.Now().Before(a.DeleteAt) { // the job was woken early
			return jobs.Snooze(a.DeleteAt)
		}
		tx.MayUseReserve()
		account, began = a, true
		return s.beginDeletion(tx, a)
	})
	if err == nil && began {
		err = s.endUse(ctx, accountID, jobID)
	}
	return account, err
}

// eraseAccount is the job account_delete. After a crash it continues where it stopped, since
// deleted rows are gone. It first cancels queued mail, and then deletes the domains with their
// mailboxes, each by a job of its own. These jobs, and sending attempts that have not ended, may
// still write rows of the account, so all tables are searched after that.
//
// Two things stay: the records of purchased domains, without the account, since the domains stay
// purchased; and the recipient addresses of a message that came for several accounts, until it is
// delivered to all of them.
func (s *Service) eraseAccount(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[deleteArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	account, err := s.startErasing(ctx, args.AccountID, j.ID)
	if account == nil || err != nil {
		return nil, err
	}
	if err := s.dropWebhooks(account.ID); err != nil {
		return nil, err
	}
	all := func(*store.Outgoing) bool { return true }
	if err := s.outbound.CancelWaiting(ctx, account.ID, "its account was deleted before it was sent", all); err != nil {
		return nil, err
	}
	busy, err := s.endJobs(ctx, account.ID)
	if err != nil {
		return nil, err
	}
	left, err := s.domains.DeleteDomains(ctx, core.Actor{AccountID: account.ID, AccountNum: account.Num})
	if err != nil {
		return nil, err
	}
	if busy+left > 0 {
		wait := s.Now().Sub(account.UpdatedAt) / 10
		return nil, jobs.Snooze(s.Now().Add(min(max(wait, minDeleteRetry), maxDeleteRetry)))
	}

	if err := s.logKeptPurchases(account); err != nil {
		return nil, err
	}
	if err := s.deleteRows(ctx, account.ID); err != nil {
		return nil, err
	}
	if err := s.inbox.DropAccountIndex(ctx, account.Num); err != nil {
		return nil, err
	}
	if err := s.requests.DropAccount(account.ID); err != nil {
		s.Log.Warn("delete the request log of a deleted account", "account", account.ID, "error", err) // it is tried again once an hour
	}
	return func(tx *store.Tx, _ *store.Job) error {
		if store.DomainsByAccount.Has(tx, account.ID) || store.MailboxesByAccount.Has(tx, account.ID) {
			return errors.New("delete account: a domain or mailbox was added during the deletion")
		}
		tx.After(func() { s.Log.Info("account deleted", "account", account.ID, "took", s.Now().Sub(account.UpdatedAt)) })
		return store.Accounts.Delete(tx, account.ID)
	}, nil
}

// dropWebhooks deletes an account's webhook endpoints in one transaction, since there are only a
// few. After that, no deliveries are planned.
func (s *Service) dropWebhooks(accountID string) error {
	return s.Store.Update(func(tx *store.Tx) error {
		var ids []string
		for _, id := range store.WebhooksByAccount.Keys(tx, accountID, "") {
			ids = append(ids, id)
		}
		return core.DeleteAll(tx, store.Webhooks, ids)
	})
}

// endJobs cancels the jobs of an account, except those that must run to their end, and returns how
// many jobs are still running. It walks all jobs, since no index has them by account.
func (s *Service) endJobs(ctx context.Context, accountID string) (busy int, err error) {
	for after, more := "", true; more; {
		var ids []string
		err := s.Store.View(func(tx *store.Tx) error {
			looked := 0
			more = false
			for key, id := range store.JobsByLane.Keys(tx, "", after) {
				if looked == rowsExamined || len(ids) == rowsPerTx {
					more = true
					break
				}
				looked++
				after = key
				j, err := store.Jobs.Read(tx, id)
				if err != nil {
					continue // the queue logs that the job cannot be read
				}
				switch {
				case j.Kind == KindDelete || j.AccountID != accountID && !bytes.Contains(j.Args, []byte(accountID)):
				case s.domains.MayFinish(j), s.outbound.MayFinish(j):
					busy++
				default:
					ids = append(ids, id)
					if j.State == store.JobRunning {
						busy++
					}
				}
			}
			return nil
		})
		if err == nil && len(ids) > 0 {
			err = s.Store.Update(func(tx *store.Tx) error {
				tx.MayUseReserve() // the deletion of the account frees space later
				for _, id := range ids {
					if err := s.Queue.Cancel(tx, id); err != nil && !core.IsGone(err) {
						return err
					}
				}
				return nil
			})
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return 0, err
		}
	}
	return busy, nil
}

// logKeptPurchases logs which domain names stay purchased, since the registrar goes on to renew
// them and to charge for them.
func (s *Service) logKeptPurchases(a *store.Account) error {
	return s.Store.View(func(tx *store.Tx) error {
		for p := range store.Purchases.All(tx) {
			if p.AccountID == a.ID && p.OutlivesAccount() {
				s.Log.Warn("a domain that a deleted account bought, or may have bought, stays at its registrar",
					"domain", p.Domain, "registrar", p.Registrar, "order", p.ID, "state", p.State, "expires", p.ExpiresAt, "account", a.ID)
			}
		}
		return nil
	})
}

// deleteRows deletes the account's rows in all tables except those of domains and mailboxes. It
// keeps jobs that are running.
func (s *Service) deleteRows(ctx context.Context, accountID string) error {
	for from, more := []byte(nil), true; more; more = from != nil {
		var rows []store.AccountRow
		var next []byte
		err := s.Store.View(func(tx *store.Tx) error {
			rows, next = tx.AccountRows(accountID, from, rowsPerTx, rowsExamined)
			return nil
		})
		if err == nil && len(rows) > 0 {
			err = s.Store.Update(func(tx *store.Tx) error {
				for _, row := range rows {
					if err := tx.DropAccountRow(accountID, row); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		from = next
	}
	return nil
}
