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

const (
	kindAccountDelete = "account_delete"
	minDeleteRetry    = time.Second // first interval at which the job checks whether domains are gone and attempts have ended
	maxDeleteRetry    = 30 * time.Second
	rowsPerTx         = 200  // rows deleted in one transaction
	rowsExamined      = 5000 // rows examined in one view
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
// request returns the same job.
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
		first, err := core.FindAccount(tx, "")
		if err != nil {
			return err
		}
		if a.ID == first.ID {
			return core.Invalid("account", "not_allowed", "the first account is the operator's and cannot be deleted")
		}
		tx.MayUseReserve() // the job frees space
		out.AccountID = a.ID
		if a.Gone() && a.DeleteJob != "" {
			out.JobID = a.DeleteJob
			return nil
		}
		j, err := s.Queue.Add(tx, jobs.New{Kind: kindAccountDelete, Key: a.ID, Args: deleteArgs{a.ID}})
		if err != nil {
			return err
		}
		out.JobID = j.ID
		a.Status, a.DeleteJob, a.UpdatedAt = store.AccountDeleting, j.ID, tx.Now()
		tx.After(func() { s.servers.StopIdling(a.ID) })
		if err := store.Accounts.Put(tx, a); err != nil {
			return err
		}
		return core.AuditCommand(tx, "account delete", a.ID, core.AccountTarget(a))
	})
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("account is being deleted", "account", out.AccountID, "job_id", out.JobID)
	s.StopAttempts(out.AccountID)
	return out, s.recheckSessions(out.AccountID)
}

func (s *Service) deleteKind() jobs.Kind {
	return jobs.Kind{Name: kindAccountDelete, Work: s.eraseAccount, Timeout: time.Hour}
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
	var account *store.Account
	err = s.Store.View(func(tx *store.Tx) error {
		account, err = store.Accounts.Find(tx, args.AccountID)
		return err
	})
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
				case j.Kind == kindAccountDelete || j.AccountID != accountID && !bytes.Contains(j.Args, []byte(accountID)):
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
