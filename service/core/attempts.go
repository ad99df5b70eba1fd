package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// SuspendedFor is how long a job of a suspended account waits before it is looked at again; resume
// wakes it sooner.
const SuspendedFor = time.Hour

// stopWait is how long StopAttempts waits for hosts that are being handed a message.
const stopWait = 10 * time.Second

// errAccountStopped is why an attempt ends whose account was suspended or deleted meanwhile.
var errAccountStopped = errors.New("the account was suspended or deleted")

// An attempt is one try of a job that sends or fetches something in the name of an account.
type attempt struct {
	of      *attempts
	cancel  context.CancelCauseFunc
	stopped bool          // the account was suspended or deleted meanwhile
	handing bool          // a host is being handed a message: that is not cut
	ended   chan struct{} // closed once what came of it is written
}

// attempts are those that run, by account. An attempt is in it before it looks whether its account
// may act, and the account is written before it is stopped: so each attempt sees the one or is
// found by the other.
type attempts struct {
	mu      sync.Mutex
	running map[string]map[*attempt]struct{}
}

func newAttempts() *attempts { return &attempts{running: map[string]map[*attempt]struct{}{}} }

type attemptKey struct{}

// begin notes an attempt; its ctx ends when the account is stopped.
func (r *attempts) begin(ctx context.Context, accountID string) (context.Context, *attempt) {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &attempt{of: r, cancel: cancel, ended: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[accountID] == nil {
		r.running[accountID] = map[*attempt]struct{}{}
	}
	r.running[accountID][a] = struct{}{}
	return context.WithValue(ctx, attemptKey{}, a), a
}

func (r *attempts) end(accountID string, a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running[accountID], a)
	if len(r.running[accountID]) == 0 {
		delete(r.running, accountID)
	}
	a.cancel(nil)
	close(a.ended)
}

// stop ends the attempts of an account, but for those that hand a message over, and gives them all.
func (r *attempts) stop(accountID string) (all []*attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.running[accountID] {
		all = append(all, a)
		a.stopped = true
		if !a.handing {
			a.cancel(errAccountStopped)
		}
	}
	return all
}

func (a *attempt) isStopped() bool {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	return a.stopped
}

// HandOver is called before a host is told to take a message. It refuses where the account of the
// attempt that ctx belongs to was suspended or deleted. Until done is called the attempt is not
// cut, since a host that has taken a message would get it again.
func HandOver(ctx context.Context) (done func(), err error) {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	if a == nil {
		return func() {}, nil
	}
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	if a.stopped {
		return nil, errAccountStopped
	}
	a.handing = true
	return func() {
		a.of.mu.Lock()
		defer a.of.mu.Unlock()
		a.handing = false
		if a.stopped {
			a.cancel(errAccountStopped) // no other host is tried
		}
	}, nil
}

// StopAttempts ends what is sent or fetched for an account that may not act any more, which is
// written already. When it returns nothing begins; a host that takes a message at this very moment
// is waited for, and may go on after that.
func (s *Core) StopAttempts(accountID string) {
	limit := time.NewTimer(stopWait)
	defer limit.Stop()
	for _, a := range s.attempts.stop(accountID) {
		select {
		case <-a.ended:
		case <-limit.C:
			s.Log.Warn("a host is still taking a message of an account that was suspended or deleted", "account", accountID)
			return
		}
	}
}

// WhileActive has the jobs of a kind wait for as long as their account is suspended, which is no
// attempt, and ends those of an account that is gone. An attempt that its account's suspension cuts
// counts for nothing.
func (s *Core) WhileActive(k jobs.Kind) jobs.Kind {
	return s.onlyActive(k, func() error { return jobs.Snooze(s.Now().Add(SuspendedFor)) })
}

// EndsInactive ends the jobs of a kind when their account is suspended. What resumes it plans them
// again.
func (s *Core) EndsInactive(k jobs.Kind) jobs.Kind {
	return s.onlyActive(k, func() error { return nil })
}

// onlyActive has attempts of a kind for accounts alone that may act. Others come to what stopped
// gives.
func (s *Core) onlyActive(k jobs.Kind, stopped func() error) jobs.Kind {
	work := k.Work
	k.Work = func(ctx context.Context, j *store.Job) (jobs.Writes, error) {
		ctx, a := s.attempts.begin(ctx, j.AccountID)
		end := func() { s.attempts.end(j.AccountID, a) }
		if !jobs.Finally(ctx, end) {
			defer end()
		}
		var account *store.Account
		err := s.Store.View(func(tx *store.Tx) (err error) {
			account, err = store.Accounts.FindShared(tx, j.AccountID)
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case account == nil && j.AccountID != "": // "": the installation's own
			return nil, nil
		case account != nil && !account.MayAct():
			return nil, stopped()
		}
		writes, err := work(ctx, j)
		if err != nil && a.isStopped() {
			return nil, stopped()
		}
		return writes, err
	}
	return k
}
