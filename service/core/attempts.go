package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// SuspendedRecheck is how long a job of a suspended account waits before it checks the account
// again. Resuming the account wakes it earlier.
const SuspendedRecheck = time.Hour

// stopWait is how long StopAttempts waits for messages that are being handed over.
const stopWait = 10 * time.Second

// errAccountStopped is the cause with which an attempt is cancelled if its account was suspended or
// deleted.
var errAccountStopped = errors.New("the account was suspended or deleted")

// An attempt is one run of a job that sends or fetches something for an account.
type attempt struct {
	attempts    *attempts // the attempts that this one is among
	cancel      context.CancelCauseFunc
	stopped     bool          // the account was suspended or deleted since the start
	handingOver bool          // a message is being handed over to a host, so the attempt must not be cancelled
	ended       chan struct{} // closed once the result is written
}

// attempts holds the running attempts by account. An attempt is added here before it reads whether
// its account is active. Whoever suspends or deletes an account writes that before stopping the
// attempts. So each attempt either reads the new state or is stopped.
type attempts struct {
	mu      sync.Mutex
	running map[string]map[*attempt]struct{}
}

func newAttempts() *attempts { return &attempts{running: map[string]map[*attempt]struct{}{}} }

type attemptKey struct{}

// add adds an attempt. Its context is cancelled when the account is stopped.
func (r *attempts) add(ctx context.Context, accountID string) (context.Context, *attempt) {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &attempt{attempts: r, cancel: cancel, ended: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[accountID] == nil {
		r.running[accountID] = map[*attempt]struct{}{}
	}
	r.running[accountID][a] = struct{}{}
	return context.WithValue(ctx, attemptKey{}, a), a
}

func (r *attempts) remove(accountID string, a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running[accountID], a)
	if len(r.running[accountID]) == 0 {
		delete(r.running, accountID)
	}
	a.cancel(nil)
	close(a.ended)
}

// stop cancels the attempts of an account, except those that hand over a message, and returns all
// of them.
func (r *attempts) stop(accountID string) (all []*attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.running[accountID] {
		all = append(all, a)
		a.stopped = true
		if !a.handingOver {
			a.cancel(errAccountStopped)
		}
	}
	return all
}

func (a *attempt) isStopped() bool {
	a.attempts.mu.Lock()
	defer a.attempts.mu.Unlock()
	return a.stopped
}

// HandOver is called before a message is handed over to a host. It returns an error if the account
// of the attempt in ctx was suspended or deleted. The attempt is not cancelled until done is
// called: if the host has accepted the message, it would get it twice.
func HandOver(ctx context.Context) (done func(), err error) {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	if a == nil {
		return func() {}, nil
	}
	a.attempts.mu.Lock()
	defer a.attempts.mu.Unlock()
	if a.stopped {
		return nil, errAccountStopped
	}
	a.handingOver = true
	return func() {
		a.attempts.mu.Lock()
		defer a.attempts.mu.Unlock()
		a.handingOver = false
		if a.stopped {
			a.cancel(errAccountStopped) // no other host is tried
		}
	}, nil
}

// StopAttempts cancels everything that is being sent or fetched for an account. Before the call,
// the store must say that the account is suspended or deleted; then nothing new begins.
// StopAttempts waits at most stopWait for messages that are being handed over to a host. They may
// be delivered after it has returned.
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

// WhileActive wraps a job kind so that its jobs run only for active accounts. Jobs of a suspended
// account wait. Their attempts are not counted, even those that began and were cancelled by the
// suspension. Jobs of a deleted account end.
func (s *Core) WhileActive(k jobs.Kind) jobs.Kind {
	return s.onlyActive(k, func() error { return jobs.Snooze(s.Now().Add(SuspendedRecheck)) })
}

// EndIfInactive wraps a job kind so that jobs of a suspended account end without doing anything.
// Resuming the account queues them again.
func (s *Core) EndIfInactive(k jobs.Kind) jobs.Kind {
	return s.onlyActive(k, func() error { return nil })
}

// onlyActive wraps a job kind so that its jobs run only for active accounts. If the account is
// suspended, the job ends with the result of ifSuspended; if the account was deleted, it ends
// without an error.
func (s *Core) onlyActive(k jobs.Kind, ifSuspended func() error) jobs.Kind {
	work := k.Work
	k.Work = func(ctx context.Context, j *store.Job) (jobs.Writes, error) {
		ctx, a := s.attempts.add(ctx, j.AccountID)
		end := func() { s.attempts.remove(j.AccountID, a) }
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
		case account == nil && j.AccountID != "": // "": a job of the installation itself
			return nil, nil
		case account != nil && !account.MayAct():
			return nil, ifSuspended()
		}
		writes, err := work(ctx, j)
		if err != nil && a.isStopped() {
			return nil, ifSuspended()
		}
		return writes, err
	}
	return k
}
