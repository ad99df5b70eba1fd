package inbox

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/store"
)

const (
	idleMost   = 100 // sessions that wait for news
	idleAtOnce = 8   // of them that fetch at a time
	idleRound  = 20 * time.Minute
	idleGap    = 300 * time.Millisecond // between two looks, at the least
	idlePause  = 15 * time.Second       // before a mailbox whose session has ended is looked at again
)

// idlers are the sessions that wait for news: as many as a small host can hold, of the mailboxes
// that had mail last.
type idlers struct {
	mu      sync.Mutex
	base    context.Context // of all of them; nil: nobody may idle
	seats   map[string]*seat
	ended   sync.WaitGroup
	fetches chan struct{} // one place for each that fetches
}

// A seat is one of the sessions.
type seat struct {
	mailbox, account string
	active           time.Time // when the mailbox had new mail last
	cancel           context.CancelFunc
}

func newIdlers() idlers {
	return idlers{seats: map[string]*seat{}, fetches: make(chan struct{}, idleAtOnce)}
}

// open lets sessions wait until ctx ends.
func (i *idlers) Open(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.base = ctx
}

// close waits for the sessions, whose ctx has ended.
func (i *idlers) close() {
	i.mu.Lock()
	i.base = nil
	i.mu.Unlock()
	i.ended.Wait()
}

func (i *idlers) Has(mailbox string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.seats[mailbox] != nil
}

// take gives a mailbox a seat, that of the one whose mail is oldest if there is no other and this
// one's is newer. The context is nil if there is none.
func (i *idlers) take(mailbox, account string, active time.Time) (context.Context, *seat) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.base == nil || i.base.Err() != nil || i.seats[mailbox] != nil {
		return nil, nil
	}
	if len(i.seats) >= idleMost {
		var oldest *seat
		for _, s := range i.seats {
			if oldest == nil || s.active.Before(oldest.active) {
				oldest = s
			}
		}
		if !oldest.active.Before(active) {
			return nil, nil
		}
		oldest.cancel()
		delete(i.seats, oldest.mailbox)
	}
	ctx, cancel := context.WithCancel(i.base)
	mine := &seat{mailbox: mailbox, account: account, active: active, cancel: cancel}
	i.seats[mailbox] = mine
	i.ended.Add(1)
	return ctx, mine
}

// leave gives a seat back.
func (i *idlers) leave(s *seat) {
	i.mu.Lock()
	if i.seats[s.mailbox] == s {
		delete(i.seats, s.mailbox)
	}
	i.mu.Unlock()
	s.cancel()
	i.ended.Done()
}

// touch notes that a mailbox has had mail.
func (i *idlers) touch(s *seat, active time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s.active = active
}

// endIdle ends the session that waits for changes of an external mailbox, if there is one.
func (s *Service) EndIdle(mailboxID string) { s.externals.Idle.drop(mailboxID) }

// drop ends the session of a mailbox.
func (i *idlers) drop(mailbox string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.seats[mailbox]; s != nil {
		s.cancel()
	}
}

// stopIdling ends the sessions that wait for mail of an account's external mailboxes.
func (s *Service) StopIdling(account string) { s.externals.Idle.dropAccount(account) }

// dropAccount ends the sessions of an account.
func (i *idlers) dropAccount(account string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range i.seats {
		if s.account == account {
			s.cancel()
		}
	}
}

// idleOn keeps a session that has just looked at the mailbox, to be told of news; false if the
// server or the number of sessions does not allow it.
func (s *Service) idleOn(mb *store.Mailbox, box *store.RemoteBox, session *pull.Session) bool {
	if !session.CanIdle() {
		return false
	}
	ctx, mine := s.externals.Idle.take(mb.ID, mb.AccountID, box.ActiveAt)
	if ctx == nil {
		return false
	}
	// What ends the wish for it later finds the seat; what ended it during the look did not.
	if still, _, err := s.wanted(mb.ID); still == nil || err != nil {
		s.externals.Idle.leave(mine)
		return false
	}
	go func() {
		defer s.externals.Idle.leave(mine)
		defer session.Close()
		s.Log.Debug("a session waits for mail", "mailbox", mb.ID)
		began := s.Now()
		err := s.idle(ctx, mine, session)
		s.Log.Debug("a session that waited for mail has ended", "mailbox", mb.ID, "err", err)
		wait := idlePause
		if s.Now().Sub(began) < pollSoonest && ctx.Err() == nil { // a server that ends sessions at once
			wait = 20 * idlePause
		}
		s.pollAfter(mb.ID, jobs.Jitter(wait, s.Rand()))
	}()
	return true
}

// idle waits for news and fetches them until the session or the wish for it ends.
func (s *Service) idle(ctx context.Context, mine *seat, session *pull.Session) error {
	pause := time.NewTicker(idleGap)
	defer pause.Stop()
	for {
		if err := session.Idle(ctx, idleRound); err != nil {
			return err
		}
		select { // so that a server which always has news does not keep us busy
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		box, err := s.lookAgain(ctx, mine.mailbox, session)
		if err != nil || box == nil {
			return err
		}
		s.externals.Idle.touch(mine, box.ActiveAt)
	}
}

// lookAgain is a look over a session that is open. A nil state ends it.
func (s *Service) lookAgain(ctx context.Context, id string, session *pull.Session) (*store.RemoteBox, error) {
	select {
	case s.externals.Idle.fetches <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.externals.Idle.fetches }()
	done, err := s.externals.looks.Take(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	v, err := s.visit(id, true)
	if v == nil || err != nil {
		return nil, err
	}
	v.session = session
	failure := v.run(ctx)
	box, err := s.keepVisit(ctx, v, failure)
	if failure != nil {
		return nil, failure
	}
	return box, err
}

// pollAfter has a mailbox whose session has ended looked at again.
func (s *Service) pollAfter(id string, wait time.Duration) {
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := inBackground(tx, id)
		if mb == nil || err != nil {
			return err
		}
		return s.addPoll(tx, mb, tx.Now().Add(wait))
	})
	if err != nil {
		s.Log.Error("plan the next look at a mailbox", "mailbox", id, "err", err)
	}
}
