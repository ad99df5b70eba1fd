package inbox

import (
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/mail/codes"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	maxWaiters       = 2000             // requests of one account that wait at a time
	maxNotes         = 1000             // arrivals that are remembered for the waiters of an account
	notesRetention   = 10 * time.Minute // for how long the notes outlive the last waiter of the account
	waiterRetryAfter = 10 * time.Second // Retry-After for a request above maxWaiters
)

// arrivals wakes the requests that wait for new mail of their accounts. If a request of an account
// has waited recently, arrivals also remembers what has arrived since, so that a client that polls
// reads the new messages without listing the mailbox.
type arrivals struct {
	mu       sync.Mutex
	accounts map[uint32]*watchedAccount // by number
	ended    bool
	read     []*sharedRead // the newest messages that were parsed for waiters, at most maxReads
}

// maxReads is how many messages' codes and links are kept for other requests that the same message
// woke.
const maxReads = 8

// A sharedRead holds the codes and links of a message; the first request that needs them parses it.
type sharedRead struct {
	blob  store.BlobRef
	once  sync.Once
	found waitedText
	err   error
}

// readFor returns the sharedRead of a message, which may still be empty.
func (a *arrivals) readFor(blob store.BlobRef) *sharedRead {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.IndexFunc(a.read, func(r *sharedRead) bool { return r.blob == blob }); i >= 0 {
		return a.read[i]
	}
	if len(a.read) == maxReads {
		a.read = slices.Delete(a.read, 0, 1)
	}
	r := &sharedRead{blob: blob}
	a.read = append(a.read, r)
	return r
}

// forget drops a sharedRead, so that the next request parses the message again.
func (a *arrivals) forget(r *sharedRead) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = slices.DeleteFunc(a.read, func(o *sharedRead) bool { return o == r })
}

// A watchedAccount is an account in which a request waits or has waited recently.
type watchedAccount struct {
	waiters map[*waiter]struct{}
	notes   []note // in the order of their times

	// notes has every arrival after complete, if known is true.
	complete time.Time
	known    bool

	promised time.Time // messages that arrive from now on have a later time
	left     time.Time // when the last waiter left
}

// A note records where an arrived message was filed.
type note struct {
	at                   int64 // ms
	mailbox, folder, uid uint32
}

// A waiter is a request that waits for new mail.
type waiter struct {
	in      *watchedAccount
	mailbox uint32        // number; 0: any
	wake    chan struct{} // gets a value soon after a message has arrived, and when the server stops
}

// join adds a request that waits for mail in a mailbox, given by its number, or in the whole
// account (0).
func (a *arrivals) join(account, mailbox uint32, now time.Time) (*waiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.accounts[account]
	if in == nil {
		if a.accounts == nil {
			a.accounts = map[uint32]*watchedAccount{}
		}
		for other, w := range a.accounts {
			if len(w.waiters) == 0 && now.Sub(w.left) > notesRetention {
				delete(a.accounts, other)
			}
		}
		in = &watchedAccount{waiters: map[*waiter]struct{}{}}
		a.accounts[account] = in
	}
	if len(in.waiters) >= maxWaiters {
		e := core.Errorf("rate_limited", "%d requests of this account wait for messages already. End some of them, or wait for several mailboxes with one.", maxWaiters)
		e.RetryAfter = waiterRetryAfter
		return nil, e
	}
	w := &waiter{in: in, mailbox: mailbox, wake: make(chan struct{}, 1)}
	in.waiters[w] = struct{}{}
	if a.ended {
		w.wake <- struct{}{}
	}
	return w, nil
}

func (a *arrivals) leave(w *waiter, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(w.in.waiters, w)
	w.in.left = now
}

// end wakes all current and future waiters, so that they answer at once.
func (a *arrivals) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for _, in := range a.accounts {
		for w := range in.waiters {
			w.signal()
		}
	}
}

func (a *arrivals) hasEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// nextTime returns the time that an arriving message gets.
func (a *arrivals) nextTime(tx *store.Tx, account uint32) (time.Time, error) {
	var after time.Time
	a.mu.Lock()
	if in := a.accounts[account]; in != nil {
		after = in.promised
	}
	a.mu.Unlock()
	return tx.Arrive(account, after)
}

// promise makes every message that arrives from now on have a time after at. It does not affect a
// transaction that has begun already.
func (a *arrivals) promise(w *waiter, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at.After(w.in.promised) {
		w.in.promised = at
	}
}

// record adds a note of a message whose row is on disk, and wakes the requests that wait for it. It
// runs in the committer.
func (a *arrivals) record(account uint32, m *store.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.accounts[account]
	if in == nil {
		return
	}
	if len(in.notes) == maxNotes {
		in.complete = time.UnixMilli(in.notes[maxNotes/2-1].at)
		in.notes = slices.Delete(in.notes, 0, maxNotes/2)
	}
	in.notes = append(in.notes, note{m.Received.UnixMilli(), m.Mailbox, m.Folder, m.UID})
	for w := range in.waiters {
		if w.mailbox == 0 || w.mailbox == m.Mailbox {
			w.signal()
		}
	}
}

// setComplete takes the time of the newest arrival in a snapshot that was taken after the waiter
// joined: notes has, or will have, every later arrival.
func (a *arrivals) setComplete(w *waiter, last time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.in.known {
		w.in.known, w.in.complete = true, last
	}
}

// after returns the notes of messages that arrived after a time and that the waiter waits for; all
// is false if there may be more than the notes record.
func (a *arrivals) after(w *waiter, at time.Time) (notes []note, all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.in.known || at.Before(w.in.complete) {
		return nil, false
	}
	ms := at.UnixMilli()
	i := len(w.in.notes)
	for i > 0 && w.in.notes[i-1].at > ms {
		i--
	}
	for _, n := range w.in.notes[i:] {
		if w.mailbox == 0 || w.mailbox == n.mailbox {
			notes = append(notes, n)
		}
	}
	return notes, true
}

// A waitedText is what a waiting request may need of a message's text.
type waitedText struct {
	codes.Found
	reply string
}
