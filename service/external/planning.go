package external

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Kinds of jobs that sync external mailboxes.
const (
	kindInboxSync = "inbox_sync" // the first sync of a mailbox, or a sync on request
	kindInboxPoll = "inbox_poll" // background syncs of a mailbox, which has one such job
	kindExternals = "externals"  // queues syncs for the mailboxes of an account that has many
)

const (
	PullsPerHost       = 4  // jobs of one kind that use the same server at the same time
	maxSyncs           = 32 // jobs of one kind that run at the same time
	maxSyncsPerAccount = 24 // jobs of one kind and account that run at the same time
	syncTimeout        = 2 * time.Hour
	minPollWait        = time.Minute      // time between two background syncs after new mail
	maxPollWait        = 30 * time.Minute // longest time between two background syncs
	pollWhileIdle      = 25 * time.Minute // while a mailbox has an IDLE session, this is how often its job checks that it is open
	maxFailureWait     = time.Hour
	syncsPerWrite      = 50               // mailboxes whose syncs one transaction queues
	refreshPause       = 10 * time.Second // requests to refresh an account within this time are combined
	maxRefusals        = 3                // after so many refused logins in a row, the refusal counts as definite; earlier if the server says that the password is wrong
)

// FailureWait returns how long jobs of an external mailbox wait after a number of failures in a
// row: 1, 2, 4 … 60 minutes. r is a random number from 0 to 1 for the jitter.
func FailureWait(fails int, r float64) time.Duration {
	return jobs.Jitter(min(time.Minute<<min(max(fails, 1)-1, 6), maxFailureWait), r)
}

// addSync queues a sync that people can see among the jobs, or wakes one that is queued. by is the
// ID of the user who asked for it.
func (s *Servers) addSync(tx *store.Tx, mb *store.Mailbox, by string) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: kindInboxSync, Key: mb.ID, Lane: "sync " + mb.External.IMAP.Host, Args: syncArgs{mb.ID}, CreatedBy: by,
		Resource: store.JobResource{Type: "email_user", ID: mb.ID, Name: mb.Email},
	})
	return err
}

// addPoll schedules the next background sync of a mailbox at the time due. If a later one is
// scheduled already, it is moved to due.
func (s *Servers) addPoll(tx *store.Tx, mb *store.Mailbox, due time.Time) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: kindInboxPoll, Key: mb.ID, Lane: "poll " + mb.External.IMAP.Host, Args: syncArgs{mb.ID}, Due: due,
	})
	return err
}

// BeginExternal queues the first sync of a new external mailbox, if the account's universal inbox
// is on.
func (s *Servers) BeginExternal(tx *store.Tx, mb *store.Mailbox) error {
	if mb.External == nil {
		return nil
	}
	if err := store.RemoteBoxes.Put(tx, &store.RemoteBox{MailboxID: mb.ID, AccountID: mb.AccountID}); err != nil {
		return err
	}
	a, err := store.Accounts.Get(tx, mb.AccountID)
	if err != nil || !a.UniversalInbox {
		return err
	}
	return s.addSync(tx, mb, "")
}

// externalsArgs are the arguments of an externals job, which queues syncs for the external
// mailboxes of an account whose keys come after After.
type externalsArgs struct {
	AccountID string `json:"account_id"`
	By        string `json:"by"`
	After     string `json:"after"`
}

// BeginExternals queues syncs of all external mailboxes of an account, on request or after its
// universal inbox was switched on. It queues some in this transaction, and a job queues the others.
// It does not add a second such job.
func (s *Servers) BeginExternals(tx *store.Tx, accountID, by string) error {
	next, err := s.planSyncs(tx, externalsArgs{AccountID: accountID, By: by})
	if err != nil || next == "" {
		return err
	}
	due := tx.Now()
	if s.refreshes.Count(accountID, due) > 0 { // an earlier request is still being worked on
		due = due.Add(refreshPause)
	}
	tx.After(func() { s.refreshes.Add(accountID, s.Now()) })
	_, err = s.Queue.Add(tx, jobs.New{
		AccountID: accountID, Kind: kindExternals, Key: accountID, Lane: "externals " + accountID, Args: externalsArgs{accountID, by, next}, Due: due,
	})
	return err
}

// planSyncs queues syncs for some external mailboxes of an account. next is the key after which the
// next call must continue; "" if all syncs are queued.
func (s *Servers) planSyncs(tx *store.Tx, args externalsArgs) (next string, err error) {
	seen := 0
	for key, id := range store.RemoteBoxesByAccount.Keys(tx, args.AccountID, args.After) {
		if seen++; seen > syncsPerWrite {
			return next, nil
		}
		next = key
		box, err := store.RemoteBoxes.Read(tx, id)
		if err != nil {
			return "", fmt.Errorf("read the sync state of mailbox %s: %w", id, err)
		}
		mb, err := store.Mailboxes.Read(tx, id)
		if err != nil {
			return "", fmt.Errorf("read mailbox %s: %w", id, err)
		}
		switch {
		case !mb.MayFetch():
		case !box.Done || mb.Status == store.MailboxError:
			err = s.addSync(tx, mb, args.By)
		case !pollIsDue(tx, id):
			err = s.addPoll(tx, mb, tx.Now())
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// pollIsDue reports whether a mailbox has a background sync that is due.
func pollIsDue(tx *store.Tx, id string) bool {
	j, err := store.JobByKey.Read(tx, store.JobKey(kindInboxPoll, id))
	return err == nil && !j.Due.After(tx.Now())
}

// countSyncedMailboxes counts the external mailboxes of an account that are synced.
func countSyncedMailboxes(tx *store.Tx, accountID string) (n int, err error) {
	for _, id := range store.RemoteBoxesByAccount.Keys(tx, accountID, "") {
		mb, err := store.Mailboxes.Read(tx, id)
		if err != nil {
			return 0, fmt.Errorf("read mailbox %s: %w", id, err)
		}
		if mb.MayFetch() {
			n++
		}
	}
	return n, nil
}

const (
	MaxCopies           = 8 // jobs that copy or mark messages on servers at the same time
	MaxCopiesPerAccount = 4 // such jobs of one account
)

// ResumeExternal resets the failures of an external mailbox and queues a sync. It is called after a
// change of the password or the end of a suspension. The caller writes mb.
func (s *Servers) ResumeExternal(tx *store.Tx, mb *store.Mailbox) error {
	tx.After(func() { s.idles.cancel(mb.ID) })
	if mb.Status == store.MailboxSuspended {
		return nil
	}
	if mb.Status == store.MailboxError {
		mb.Status = store.MailboxActive
		mb.ErrorCode, mb.ErrorText = "", ""
	}
	box, err := core.RemoteBox(tx, mb)
	if err != nil {
		return err
	}
	box.Fails, box.Refusals = 0, 0
	if err := store.RemoteBoxes.Put(tx, box); err != nil {
		return err
	}
	a, err := store.Accounts.Get(tx, mb.AccountID)
	if err != nil || !a.UniversalInbox || mb.Status != store.MailboxActive {
		return err
	}
	return s.addSync(tx, mb, "")
}
