package inbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	ArrivalsMost = 2 // messages that are filed at a time
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

// externals is what is known in memory of mailboxes that live elsewhere.
type externals struct {
	client      *pull.Client
	plain       *pull.Client             // of servers without TLS
	syncLocks   limit.KeyedMutex[string] // one sync of a mailbox at a time
	changeLocks limit.KeyedMutex[string] // a sync's comparison and a change by the API come one after the other
	hosts       hosts
	Idle        idlePool
	changeSlots *limit.Semaphore[string] // one for each change on a server
}

const (
	changesMost = 64 // changes by the API that are made on servers at a time
	changesEach = 8  // of one account
)

func newExternals(s *Service) *externals {
	return &externals{
		client: &pull.Client{Dial: s.Guard.Dialer(s.Resolver), RootCAs: s.Config.RootCAs}, plain: &pull.Client{Dial: s.PlainGuard().Dialer(s.Resolver)},
		hosts: hosts{down: map[string]outage{}}, Idle: newIdlePool(), changeSlots: limit.NewSemaphore[string](changesMost, changesEach),
	}
}

// pullArgs is the job of looking at one mailbox.
type pullArgs struct {
	UserID string `json:"user_id"`
}

func (s *Service) pullKinds() []jobs.Kind {
	return []jobs.Kind{
		s.WhileActive(jobs.Kind{Name: kindInboxSync, Work: s.syncInbox, Max: 4, Timeout: pullTimeout, Lanes: PullsPerHost, Most: pullsMost, MostEach: pullsEach,
			Backoff: FailureWait, Visible: true}),
		{Name: kindExternals, Work: s.planRemainingSyncs, Timeout: pullTimeout, Most: ArrivalsMost},
		s.EndsInactive(jobs.Kind{Name: kindInboxPoll, Work: s.pollInbox, Timeout: pullTimeout, Lanes: PullsPerHost, Most: pullsMost, MostEach: pullsEach}),
	}
}

// FailureWait is how long a server is left alone after it has failed so many times in a row: 1, 2,
// 4 … 60 min.
func FailureWait(fails int, r float64) time.Duration {
	return jobs.Jitter(min(time.Minute<<min(max(fails, 1)-1, 6), failureLatest), r)
}

// addSync adds a sync that people can see; what waits already comes sooner.
func (s *Service) addSync(tx *store.Tx, mb *store.Mailbox, by string) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: kindInboxSync, Key: mb.ID, Lane: "sync " + mb.External.IMAP.Host, Args: pullArgs{mb.ID}, CreatedBy: by,
		Resource: store.JobResource{Type: "email_user", ID: mb.ID, Name: mb.Email},
	})
	return err
}

// addPoll adds the mailbox's next sync in the background, at the latest when it is due.
func (s *Service) addPoll(tx *store.Tx, mb *store.Mailbox, due time.Time) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: kindInboxPoll, Key: mb.ID, Lane: "poll " + mb.External.IMAP.Host, Args: pullArgs{mb.ID}, Due: due,
	})
	return err
}

// remoteBox gives the state of an external mailbox; one that was never synced has an empty one.
func remoteBox(tx *store.Tx, mb *store.Mailbox) (*store.RemoteBox, error) {
	box, err := store.RemoteBoxes.Find(tx, mb.ID)
	if box == nil && err == nil {
		return &store.RemoteBox{MailboxID: mb.ID, AccountID: mb.AccountID}, nil
	}
	return box, err
}

// begin has a new external mailbox synced, if its account's universal inbox is on.
func (s *Service) BeginExternal(tx *store.Tx, mb *store.Mailbox) error {
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

// BeginExternals has every external mailbox of an account synced, since its universal inbox is
// on now or somebody asked: the first ones in tx, those of an account with many by a job. Calls
// while that waits fold into it.
func (s *Service) BeginExternals(tx *store.Tx, accountID, by string) error {
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
func (s *Service) planSyncs(tx *store.Tx, args externalsArgs) (next string, err error) {
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

// pollIsDue tells whether a sync of a mailbox in the background waits only for its turn.
func pollIsDue(tx *store.Tx, id string) bool {
	j, err := store.JobByKey.Read(tx, store.JobKey(kindInboxPoll, id))
	return err == nil && !j.Due.After(tx.Now())
}

// planRemainingSyncs goes on where beginExternals ended, some mailboxes in each transaction.
func (s *Service) planRemainingSyncs(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[externalsArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for args.After != "" {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		began := time.Now()
		next := ""
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			next, err = s.planSyncs(tx, args)
			return err
		})
		if err != nil {
			return nil, err
		}
		args.After = next
		core.Sleep(ctx, time.Since(began)) // others go first
	}
	return nil, nil
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

// inBackground tells whether a mailbox is to be synced without anybody asking.
func inBackground(tx *store.Tx, id string) (*store.Mailbox, error) {
	mb, err := store.Mailboxes.Find(tx, id)
	if err != nil {
		return nil, err
	}
	if mb == nil || mb.External == nil || mb.Status != store.MailboxActive {
		return nil, nil
	}
	a, err := store.Accounts.Get(tx, mb.AccountID)
	if err != nil || !a.UniversalInbox || !a.MayAct() {
		return nil, err
	}
	return mb, nil
}

// wanted is inBackground in a snapshot of its own, with the mailbox's state.
func (s *Service) wanted(id string) (mb *store.Mailbox, box *store.RemoteBox, err error) {
	err = s.Store.View(func(tx *store.Tx) (err error) {
		mb, err = inBackground(tx, id)
		if mb == nil || err != nil {
			return err
		}
		box, err = remoteBox(tx, mb)
		return err
	})
	return mb, box, err
}

// pollInbox syncs a mailbox in the background, and says when to do so again.
func (s *Service) pollInbox(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[pullArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	mb, _, err := s.wanted(args.UserID)
	if mb == nil || err != nil {
		return nil, err
	}
	if s.externals.Idle.Has(mb.ID) {
		return nil, jobs.Snooze(s.Now().Add(pollWhileIdle))
	}
	if until := s.DownUntil(mb.ID); !until.IsZero() {
		return nil, jobs.Snooze(until)
	}
	session, box, err := s.syncMailbox(ctx, mb.ID, nil)
	kept := err == nil && box != nil && s.idleOn(mb, box, session)
	if session != nil && !kept {
		session.Close()
	}
	switch {
	case errors.Is(err, errUnwanted), box == nil && err == nil:
		return nil, nil
	case err != nil && (ctx.Err() != nil || box == nil):
		return nil, err
	case err != nil:
		return nil, jobs.Snooze(s.Now().Add(FailureWait(box.Fails, s.Rand())))
	case kept:
		return nil, jobs.Snooze(s.Now().Add(pollWhileIdle))
	}
	return nil, jobs.Snooze(s.Now().Add(jobs.Jitter(box.Wait, s.Rand())))
}

// syncInbox is a sync that somebody asked for, or the first.
func (s *Service) syncInbox(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[pullArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	if until := s.DownUntil(args.UserID); !until.IsZero() {
		return nil, jobs.Snooze(until)
	}
	session, box, err := s.syncMailbox(ctx, args.UserID, func(done, total int) {
		jobs.Progress(ctx, done, total, fmt.Sprintf("%d of %d messages compared", done, total))
	})
	if session != nil {
		session.Close()
	}
	if errors.Is(err, errUnwanted) || err == nil && box == nil {
		return nil, nil
	}
	if err != nil {
		return nil, s.syncFailure(ctx, err)
	}
	return func(tx *store.Tx, j *store.Job) error {
		if mb, err := store.Mailboxes.Get(tx, args.UserID); err == nil { // all is compared, whoever did it
			f, err := tx.Folder(mb.Num, store.InboxID)
			if err != nil {
				return err
			}
			j.Completed, j.Total = int(f.Messages), int(f.Messages)
		}
		mb, err := inBackground(tx, args.UserID)
		if mb == nil || err != nil {
			return err
		}
		return s.addPoll(tx, mb, tx.Now())
	}, nil
}

// DownUntil says up to when the server of a mailbox is left alone; zero: it is not.
func (s *Service) DownUntil(id string) time.Time {
	v, err := s.newSyncRun(id, false)
	if v == nil || err != nil {
		return time.Time{} // which the sync itself will find
	}
	until := s.externals.hosts.until(listenerOf(v.mb.External.IMAP), s.Now())
	if until.IsZero() {
		return until
	}
	return until.Add(time.Duration(s.Rand() * float64(10*time.Second)))
}

// syncFailure is the error of a job, for people; trying again does not help where a log-in is
// refused.
func (s *Service) syncFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	var f *pullFailure
	if !errors.As(err, &f) {
		return err
	}
	public := core.Errorf("upstream_error", "%s", f.text)
	if errors.Is(err, pull.ErrLogin) {
		return jobs.Permanent(public)
	}
	return public
}

// wakePolls sees to it at a start that every mailbox is synced soon, spread a little: what idled
// before does no more.
func (s *Service) wakePolls() error {
	var ids []string
	err := s.Store.View(func(tx *store.Tx) error {
		for box := range store.RemoteBoxes.All(tx) {
			ids = append(ids, box.MailboxID)
		}
		return nil
	})
	for i, id := range ids {
		if err != nil {
			return err
		}
		err = s.Store.Update(func(tx *store.Tx) error {
			mb, err := inBackground(tx, id)
			if mb == nil || err != nil {
				return err
			}
			return s.addPoll(tx, mb, tx.Now().Add(time.Duration(min(i, 600))*100*time.Millisecond))
		})
	}
	return err
}

// hosts remembers which servers do not answer, so that the mailboxes on one wait together rather
// than each in turn.
type hosts struct {
	mu   sync.Mutex
	down map[string]outage // by listenerOf
}

// listenerOf is what all mailboxes that fail together have in common: a wrong port or security is
// one's own fault.
func listenerOf(at store.Server) string {
	return fmt.Sprintf("%s:%d %s", at.Host, at.Port, at.Security)
}

type outage struct {
	fails int
	until time.Time
}

// hostLatest is how long mailboxes wait at most for a server that did not answer; one of them then
// tries.
const hostLatest = 10 * time.Minute

const hostsKept = 4096

// until says up to when a server is left alone; zero: it is not. Who is let through keeps the
// others waiting.
func (h *hosts) until(host string, now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.down[host]
	if !ok {
		return time.Time{}
	}
	if now.Before(o.until) {
		return o.until
	}
	o.until = now.Add(time.Minute)
	h.down[host] = o
	return time.Time{}
}

// retry lets a server be tried at once, since somebody asks for it.
func (h *hosts) retry(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, ok := h.down[host]; ok {
		o.until = time.Time{}
		h.down[host] = o
	}
}

// record keeps whether a server answered.
func (h *hosts) record(host string, answered bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if answered {
		delete(h.down, host)
		return
	}
	if len(h.down) >= hostsKept {
		maps.DeleteFunc(h.down, func(_ string, o outage) bool { return o.until.Before(now) })
	}
	o := h.down[host]
	o.fails++
	wait := min(15*time.Second<<min(o.fails, 6), hostLatest)
	o.until = now.Add(jobs.Jitter(wait, rand.Float64()))
	h.down[host] = o
}

const (
	CopiesMost = 8
	CopiesEach = 4 // of one account
)
