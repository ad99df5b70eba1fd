package external

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/store"
)

const (
	maxIdle         = 100                    // sessions that wait for changes with IDLE
	maxIdleFetches  = 8                      // how many of these sessions fetch mail at the same time
	idleTimeout     = 20 * time.Minute       // how long one IDLE command lasts
	minIdleInterval = 300 * time.Millisecond // minimum interval between two syncs of a session
	idleRetryDelay  = 15 * time.Second       // delay before a mailbox is synced again after its IDLE session has ended
)

// An idlePool has the sessions that wait for changes with IDLE. There are at most maxIdle, for the
// mailboxes that received mail most recently.
type idlePool struct {
	mu      sync.Mutex
	base    context.Context      // context of all sessions; nil: no session may start
	slots   map[string]*idleSlot // by mailbox ID
	ended   sync.WaitGroup       // waits until all sessions have ended
	fetches chan struct{}        // contains a value for each session that is fetching mail
}

// An idleSlot is the place of one session in an idlePool.
type idleSlot struct {
	mailbox, account string
	active           time.Time // when the mailbox last had new mail
	cancel           context.CancelFunc
}

func newIdlePool() idlePool {
	return idlePool{slots: map[string]*idleSlot{}, fetches: make(chan struct{}, maxIdleFetches)}
}

// open allows sessions to start until ctx ends.
func (i *idlePool) open(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.base = ctx
}

// close waits until all sessions have ended. Their context must have ended before.
func (i *idlePool) close() {
	i.mu.Lock()
	i.base = nil
	i.mu.Unlock()
	i.ended.Wait()
}

// hasSession reports whether a mailbox has a session in the pool.
func (i *idlePool) hasSession(mailbox string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.slots[mailbox] != nil
}

// acquire returns a slot for a mailbox, and a context for its session. active is when the mailbox
// last received mail. If all slots are taken, acquire ends the session of the mailbox that has
// received no mail for the longest time, but only if its last mail came before active. If there is
// no slot for the mailbox, or if it has a session already, both results are nil.
func (i *idlePool) acquire(mailbox, account string, active time.Time) (context.Context, *idleSlot) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.base == nil || i.base.Err() != nil || i.slots[mailbox] != nil {
		return nil, nil
	}
	if len(i.slots) >= maxIdle {
		var oldest *idleSlot
		for _, s := range i.slots {
			if oldest == nil || s.active.Before(oldest.active) {
				oldest = s
			}
		}
		if !oldest.active.Before(active) {
			return nil, nil
		}
		oldest.cancel()
		delete(i.slots, oldest.mailbox)
	}
	ctx, cancel := context.WithCancel(i.base)
	mine := &idleSlot{mailbox: mailbox, account: account, active: active, cancel: cancel}
	i.slots[mailbox] = mine
	i.ended.Add(1)
	return ctx, mine
}

// release frees a slot whose session has ended.
func (i *idlePool) release(s *idleSlot) {
	i.mu.Lock()
	if i.slots[s.mailbox] == s {
		delete(i.slots, s.mailbox)
	}
	i.mu.Unlock()
	s.cancel()
	i.ended.Done()
}

// recordMail records when the mailbox of a slot last received mail.
func (i *idlePool) recordMail(s *idleSlot, active time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s.active = active
}

// EndIdle ends the IDLE session of an external mailbox, if there is one.
func (s *Servers) EndIdle(mailboxID string) { s.idles.cancel(mailboxID) }

// cancel ends the session of a mailbox, if there is one.
func (i *idlePool) cancel(mailbox string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.slots[mailbox]; s != nil {
		s.cancel()
	}
}

// StopIdling ends the IDLE sessions of an account.
func (s *Servers) StopIdling(account string) { s.idles.cancelAccount(account) }

// cancelAccount ends the sessions of an account.
func (i *idlePool) cancelAccount(account string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range i.slots {
		if s.account == account {
			s.cancel()
		}
	}
}

// keepIdle keeps a session open with IDLE after it has synced the mailbox. It returns false if the
// server does not support IDLE, or if there are too many sessions.
func (s *Service) keepIdle(mb *store.Mailbox, box *store.RemoteBox, session *pull.Session) (kept bool) {
	if !session.CanIdle() {
		return false
	}
	ctx, mine := s.idles.acquire(mb.ID, mb.AccountID, box.ActiveAt)
	if ctx == nil {
		return false
	}
	// From now on, whoever ends the background syncs of the mailbox also cancels the slot. Check
	// whether the syncs were ended before.
	if still, _, err := s.backgroundMailbox(mb.ID); still == nil || err != nil {
		s.idles.release(mine)
		return false
	}
	go func() {
		defer s.idles.release(mine)
		defer session.Close()
		s.Log.Debug("a session waits for mail", "mailbox", mb.ID)
		began := s.Now()
		err := s.idle(ctx, mine, session)
		s.Log.Debug("a session that waited for mail has ended", "mailbox", mb.ID, "error", err)
		wait := idleRetryDelay
		if s.Now().Sub(began) < minPollWait && ctx.Err() == nil { // the server ends IDLE sessions immediately
			wait = 20 * idleRetryDelay
		}
		s.pollAfter(mb.ID, jobs.Jitter(wait, s.Rand()))
	}()
	return true
}

// idle waits for changes and fetches them, until the session or ctx ends.
func (s *Service) idle(ctx context.Context, mine *idleSlot, session *pull.Session) error {
	pause := time.NewTicker(minIdleInterval)
	defer pause.Stop()
	for {
		if err := session.Idle(ctx, idleTimeout); err != nil {
			return err
		}
		select { // wait between syncs, because some servers report changes all the time
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		box, err := s.resync(ctx, mine.mailbox, session)
		if err != nil || box == nil {
			return err
		}
		s.idles.recordMail(mine, box.ActiveAt)
	}
}

// resync syncs a mailbox over an open session, and returns its new sync state; nil if the mailbox
// must not be synced any more.
func (s *Service) resync(ctx context.Context, id string, session *pull.Session) (*store.RemoteBox, error) {
	select {
	case s.idles.fetches <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.idles.fetches }()
	done, err := s.syncLocks.Lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	v, err := s.newSyncRun(id, true)
	if v == nil || err != nil {
		return nil, err
	}
	v.session = session
	failure := v.run(ctx)
	box, err := s.saveSync(ctx, v, failure)
	if failure != nil {
		return nil, failure
	}
	return box, err
}

// pollAfter schedules the next background sync of a mailbox after the time wait.
func (s *Service) pollAfter(id string, wait time.Duration) {
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := syncedInBackground(tx, id)
		if mb == nil || err != nil {
			return err
		}
		return s.addPoll(tx, mb, tx.Now().Add(wait))
	})
	if err != nil {
		s.Log.Error("plan the next sync of a mailbox", "mailbox", id, "error", err)
	}
}
