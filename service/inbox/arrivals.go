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
	waitersMost = 2000             // of an account
	notesMost   = 1000             // arrivals of an account that are remembered for who waits
	notesKept   = 10 * time.Minute // after the last waiter of an account has left
	waitAgain   = 10 * time.Second // of one too many
)

// arrivals tells those who wait what arrives in their accounts. Of an account in which somebody has
// waited a short time ago it remembers what has arrived since, so that who asks again and again
// reads what is new, and no list.
type arrivals struct {
	mu       sync.Mutex
	accounts map[uint32]*awaited // by number
	ended    bool
	read     []*readOnce // the last messages that were read
}

// readsKept is how many messages' codes and links are kept for the others whom the same message
// has woken.
const readsKept = 8

// A readOnce is the codes and links of a message, for whom it was asked first.
type readOnce struct {
	blob  store.BlobRef
	once  sync.Once
	found waitedText
	err   error
}

// reading gives the place of a message's codes and links.
func (a *arrivals) reading(blob store.BlobRef) *readOnce {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.IndexFunc(a.read, func(r *readOnce) bool { return r.blob == blob }); i >= 0 {
		return a.read[i]
	}
	if len(a.read) == readsKept {
		a.read = slices.Delete(a.read, 0, 1)
	}
	r := &readOnce{blob: blob}
	a.read = append(a.read, r)
	return r
}

// forget drops the place, so that the message is read again.
func (a *arrivals) forget(r *readOnce) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = slices.DeleteFunc(a.read, func(o *readOnce) bool { return o == r })
}

// awaited is an account in which somebody waits, or has.
type awaited struct {
	waiters map[*waiter]struct{}
	notes   []note // in the order of their times

	// Whatever has arrived after complete is in notes; it is not known at first.
	complete time.Time
	known    bool

	promised time.Time // what arrives from now on is later than that
	left     time.Time // when the last waiter left
}

// A note says where a message was filed that has arrived.
type note struct {
	at                   int64 // ms
	mailbox, folder, uid uint32
}

// A waiter is a request that waits.
type waiter struct {
	in      *awaited
	mailbox uint32        // number; 0: any
	wake    chan struct{} // gets a value soon after something has arrived, and when the server stops
}

// join adds a request that waits for mail of a mailbox, by its number, or of the whole account.
func (a *arrivals) join(account, mailbox uint32, now time.Time) (*waiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.accounts[account]
	if in == nil {
		if a.accounts == nil {
			a.accounts = map[uint32]*awaited{}
		}
		for other, w := range a.accounts {
			if len(w.waiters) == 0 && now.Sub(w.left) > notesKept {
				delete(a.accounts, other)
			}
		}
		in = &awaited{waiters: map[*waiter]struct{}{}}
		a.accounts[account] = in
	}
	if len(in.waiters) >= waitersMost {
		e := core.Errorf("rate_limited", "%d requests of this account wait for messages already. End some of them, or wait for several mailboxes with one.", waitersMost)
		e.RetryAfter = waitAgain
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

// end has all who wait, and who come later, get their answers at once.
func (a *arrivals) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for _, in := range a.accounts {
		for w := range in.waiters {
			w.rouse()
		}
	}
}

func (a *arrivals) hasEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

func (w *waiter) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next gives the time of a message that arrives.
func (a *arrivals) next(tx *store.Tx, account uint32) (time.Time, error) {
	var after time.Time
	a.mu.Lock()
	if in := a.accounts[account]; in != nil {
		after = in.promised
	}
	a.mu.Unlock()
	return tx.Arrive(account, after)
}

// promise has what arrives from now on be later than a time. It does not bind a transaction that
// has begun.
func (a *arrivals) promise(w *waiter, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at.After(w.in.promised) {
		w.in.promised = at
	}
}

// told notes a message whose row is on disk, and wakes who waits for it. It runs in the committer.
func (a *arrivals) told(account uint32, m *store.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.accounts[account]
	if in == nil {
		return
	}
	if len(in.notes) == notesMost {
		in.complete = time.UnixMilli(in.notes[notesMost/2-1].at)
		in.notes = slices.Delete(in.notes, 0, notesMost/2)
	}
	in.notes = append(in.notes, note{m.Received.UnixMilli(), m.Mailbox, m.Folder, m.UID})
	for w := range in.waiters {
		if w.mailbox == 0 || w.mailbox == m.Mailbox {
			w.rouse()
		}
	}
}

// saw takes the time of the newest arrival that a snapshot has which was taken after the waiter
// joined: all that is later will be, or is, noted.
func (a *arrivals) saw(w *waiter, last time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.in.known {
		w.in.known, w.in.complete = true, last
	}
}

// after gives what the waiter waits for that has arrived after a time; all is false if there may be
// more than is remembered.
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

// A waitedText is what a request wants of the text of a message.
type waitedText struct {
	codes.Found
	reply string
}
