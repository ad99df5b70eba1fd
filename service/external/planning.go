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
	kindInboxSync = "inbox_sync" // the first sync, or one on request
	kindInboxPoll = "inbox_poll" // in the background; each mailbox has one such job
	kindExternals = "externals"  // plans syncs for the mailboxes of an account that has many
)

const (
	PullsPerHost       = 4  // jobs of a kind
	maxPulls           = 32 // jobs of a kind
	maxPullsPerAccount = 24 // jobs of one account
	pullTimeout        = 2 * time.Hour
	minPollWait        = time.Minute
	maxPollWait        = 30 * time.Minute
	pollWhileIdle      = 25 * time.Minute // interval of the checks whether an IDLE session is still open
	maxFailureWait     = time.Hour
	externalsAtATime   = 50               // mailboxes whose syncs one transaction plans
	refreshPause       = 10 * time.Second // delay in which further requests to refresh an account are combined
	maxRefusals        = 3                // refused logins in a row, unless the server says that the password is wrong
)

// FailureWait returns how long a server is not contacted after that many failures in a row: 1, 2, 4
// … 60 min.
func FailureWait(fails int, r float64) time.Duration {
	return jobs.Jitter(min(time.Minute<<min(max(fails, 1)-1, 6), maxFailureWait), r)
}

// addSync queues a sync that is visible to people, or wakes one that is queued.
func (s *Servers) addSync(tx *store.Tx, mb *store.Mailbox, by string) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: kindInboxSync, Key: mb.ID, Lane: "sync " + mb.External.IMAP.Host, Args: pullArgs{mb.ID}, CreatedBy: by,
		Resource: store.JobResource{Type: "email_user", ID: mb.ID, Name: mb.Email},
	})
	return err
}

// addPoll queues the mailbox's next background sync, or moves a queued one up to due.
func (s *Servers) addPoll(tx *store.Tx, mb *store.Mailbox, due time.Time) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: kindInboxPoll, Key: mb.ID, Lane: "poll " + mb.External.IMAP.Host, Args: pullArgs{mb.ID}, Due: due,
	})
	return err
}

// BeginExternal plans the first sync of a new external mailbox, if its account's universal inbox is
// on.
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

// externalsArgs are the arguments of a job that plans syncs for the external mailboxes of an
// account, from the one after After on.
type externalsArgs struct {
	AccountID string `json:"account_id"`
	By        string `json:"by"`
	After     string `json:"after"`
}

// BeginExternals plans a sync of every external mailbox of an account, on request or when the
// universal inbox is switched on. This transaction plans the first mailboxes, and a job plans the
// others. If that job is queued already, it adds no other.
func (s *Servers) BeginExternals(tx *store.Tx, accountID, by string) error {
	next, err := s.planSyncs(tx, externalsArgs{AccountID: accountID, By: by})
	if err != nil || next == "" {
		return err
	}
	due := tx.Now()
	if s.refreshes.Count(accountID, due) > 0 { // other requests are being served
		due = due.Add(refreshPause)
	}
	tx.After(func() { s.refreshes.Add(accountID, s.Now()) })
	_, err = s.Queue.Add(tx, jobs.New{
		AccountID: accountID, Kind: kindExternals, Key: accountID, Lane: "externals " + accountID, Args: externalsArgs{accountID, by, next}, Due: due,
	})
	return err
}

// planSyncs plans syncs for the next external mailboxes of an account, and returns where to
// continue; "" at the end.
func (s *Servers) planSyncs(tx *store.Tx, args externalsArgs) (next string, err error) {
	seen := 0
	for key, id := range store.RemoteBoxesByAccount.Keys(tx, args.AccountID, args.After) {
		if seen++; seen > externalsAtATime {
			return next, nil
		}
		next = key
		box, err := store.RemoteBoxes.Read(tx, id)
		if err != nil {
			return "", fmt.Errorf("read sync state of mailbox %s: %w", id, err)
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

// countExternals counts the external mailboxes of an account that are synced.
func countExternals(tx *store.Tx, accountID string) (n int, err error) {
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
	CopiesMost = 8
	CopiesEach = 4 // of one account
)

// ResumeExternal plans a sync of an external mailbox after a new password or the end of a
// suspension, and resets its failures. The caller writes mb.
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
