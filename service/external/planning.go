package external

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Kinds of jobs that fetch mail from elsewhere.
const (
	kindInboxSync = "inbox_sync" // that somebody asked for, and the first one
	kindInboxPoll = "inbox_poll" // in the background; one waits for each mailbox
	kindExternals = "externals"  // adds either for the mailboxes of an account that has many
)

const (
	PullsPerHost     = 4  // of a kind
	pullsMost        = 32 // of a kind
	pullsEach        = 24 // of one account
	pullTimeout      = 2 * time.Hour
	pollSoonest      = time.Minute
	pollLatest       = 30 * time.Minute
	pollWhileIdle    = 25 * time.Minute // a check whether the session that idles is still there
	failureLatest    = time.Hour
	externalsAtATime = 50               // mailboxes whose syncs one transaction plans
	refreshPause     = 10 * time.Second // in which those who ask for all mailboxes of an account are served together
	refusalsAllowed  = 3                // in a row, where the server does not say that the password is wrong
)

// FailureWait is how long a server is left alone after it has failed so many times in a row: 1, 2,
// 4 … 60 min.
func FailureWait(fails int, r float64) time.Duration {
	return jobs.Jitter(min(time.Minute<<min(max(fails, 1)-1, 6), failureLatest), r)
}

// addSync adds a sync that people can see; what waits already comes sooner.
func (s *Servers) addSync(tx *store.Tx, mb *store.Mailbox, by string) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: kindInboxSync, Key: mb.ID, Lane: "sync " + mb.External.IMAP.Host, Args: pullArgs{mb.ID}, CreatedBy: by,
		Resource: store.JobResource{Type: "email_user", ID: mb.ID, Name: mb.Email},
	})
	return err
}

// addPoll adds the mailbox's next sync in the background, at the latest when it is due.
func (s *Servers) addPoll(tx *store.Tx, mb *store.Mailbox, due time.Time) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: kindInboxPoll, Key: mb.ID, Lane: "poll " + mb.External.IMAP.Host, Args: pullArgs{mb.ID}, Due: due,
	})
	return err
}

// BeginExternal has a new external mailbox synced, if its account's universal inbox is on.
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

// externalsArgs is the job of having the external mailboxes of an account synced, from the one
// behind After on.
type externalsArgs struct {
	AccountID string `json:"account_id"`
	By        string `json:"by"`
	After     string `json:"after"`
}

// BeginExternals plans a sync of every external mailbox of an account, when its universal inbox is
// turned on or somebody asks: the first ones in this transaction, the rest by a job. A call while
// that job waits adds no other.
func (s *Servers) BeginExternals(tx *store.Tx, accountID, by string) error {
	next, err := s.planSyncs(tx, externalsArgs{AccountID: accountID, By: by})
	if err != nil || next == "" {
		return err
	}
	due := tx.Now()
	if s.refreshes.Count(accountID, due) > 0 { // others that asked are being served
		due = due.Add(refreshPause)
	}
	tx.After(func() { s.refreshes.Add(accountID, s.Now()) })
	_, err = s.Queue.Add(tx, jobs.New{
		AccountID: accountID, Kind: kindExternals, Key: accountID, Lane: "externals " + accountID, Args: externalsArgs{accountID, by, next}, Due: due,
	})
	return err
}

// planSyncs has the next external mailboxes of an account synced, and says where to go on; ""
// at the end.
func (s *Servers) planSyncs(tx *store.Tx, args externalsArgs) (next string, err error) {
	seen := 0
	for key, id := range store.RemoteBoxesByAccount.Keys(tx, args.AccountID, args.After) {
		if seen++; seen > externalsAtATime {
			return next, nil
		}
		next = key
		box, err := store.RemoteBoxes.Read(tx, id)
		if err != nil {
			return "", fmt.Errorf("state of mailbox %s: %w", id, err)
		}
		mb, err := store.Mailboxes.Read(tx, id)
		if err != nil {
			return "", fmt.Errorf("mailbox %s: %w", id, err)
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

// pollIsDue reports whether a sync of a mailbox in the background waits only for its turn.
func pollIsDue(tx *store.Tx, id string) bool {
	j, err := store.JobByKey.Read(tx, store.JobKey(kindInboxPoll, id))
	return err == nil && !j.Due.After(tx.Now())
}

// countExternals says how many external mailboxes of an account are synced.
func countExternals(tx *store.Tx, accountID string) (n int, err error) {
	for _, id := range store.RemoteBoxesByAccount.Keys(tx, accountID, "") {
		mb, err := store.Mailboxes.Read(tx, id)
		if err != nil {
			return 0, fmt.Errorf("mailbox %s: %w", id, err)
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

// ResumeExternal has an external mailbox looked at again after a new password or the end of a
// suspension, with what was refused before forgotten. The caller writes mb.
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
