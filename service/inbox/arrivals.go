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
	maxWaiters       = 2000             // requests of one account that may wait at the same time
	maxNotes         = 1000             // arrivals of one account that are kept in memory for its waiting requests
	notesRetention   = 10 * time.Minute // how long notes are kept after the last request of the account has stopped waiting
	waiterRetryAfter = 10 * time.Second // the Retry-After of a request that is refused because of maxWaiters
)

// arrivals wakes requests that wait for new mail. It also keeps notes of recent arrivals of
// accounts in which a request has waited recently: a client that polls gets the new messages from
// these notes, without a scan of the mailbox.
type arrivals struct {
	mu       sync.Mutex
	accounts map[uint32]*watchedAccount // by the account's number
	ended    bool                       // no request may wait any more
	texts    []*sharedText              // of the messages that were parsed last for waiting requests, at most maxSharedTexts
}

// maxSharedTexts is how many sharedTexts are kept. When a message wakes several requests, the first
// request parses it for all of them.
const maxSharedTexts = 8

// A sharedText has the codes and links of one message, for all requests that the message wakes. The
// first of these requests parses the message and fills it in.
type sharedText struct {
	blob store.BlobRef
	once sync.Once
	text parsedText
	err  error
}

// sharedTextOf returns the sharedText of a message. It may be empty.
func (a *arrivals) sharedTextOf(blob store.BlobRef) *sharedText {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.IndexFunc(a.texts, func(r *sharedText) bool { return r.blob == blob }); i >= 0 {
		return a.texts[i]
	}
	if len(a.texts) == maxSharedTexts {
		a.texts = slices.Delete(a.texts, 0, 1)
	}
	r := &sharedText{blob: blob}
	a.texts = append(a.texts, r)
	return r
}

// dropText drops a sharedText, so that the next request parses the message again.
func (a *arrivals) dropText(r *sharedText) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.texts = slices.DeleteFunc(a.texts, func(o *sharedText) bool { return o == r })
}

// A watchedAccount is an account in which a request waits or has waited recently.
type watchedAccount struct {
	waiters map[*waiter]struct{}
	notes   []arrivalNote // oldest first

	// If complete is true, notes has every message that arrived after notesSince.
	notesSince time.Time
	complete   bool

	promised time.Time // every message that arrives from now on gets a time after this one
	lastLeft time.Time // when a request last stopped waiting
}

// An arrivalNote records where an arriving message was filed.
type arrivalNote struct {
	at                   int64 // the time of arrival, in Unix milliseconds
	mailbox, folder, uid uint32
}

// A waiter is a request that waits for new mail.
type waiter struct {
	in      *watchedAccount
	mailbox uint32        // the number of the mailbox that it waits for; 0: any mailbox of the account
	wake    chan struct{} // receives a value after a message has arrived, and when the server stops
}

// join registers a request that waits for mail. mailbox is the number of a mailbox, or 0 for all
// mailboxes of the account. The error is rate_limited if maxWaiters requests are waiting already.
func (a *arrivals) join(account, mailbox uint32, now time.Time) (*waiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.accounts[account]
	if in == nil {
		if a.accounts == nil {
			a.accounts = map[uint32]*watchedAccount{}
		}
		for other, w := range a.accounts {
			if len(w.waiters) == 0 && now.Sub(w.lastLeft) > notesRetention {
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

// leave removes a request that no longer waits.
func (a *arrivals) leave(w *waiter, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(w.in.waiters, w)
	w.in.lastLeft = now
}

// endWaits wakes all requests that wait. Requests that join later are woken at once.
func (a *arrivals) endWaits() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for _, in := range a.accounts {
		for w := range in.waiters {
			w.signal()
		}
	}
}

func (a *arrivals) waitsEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

// signal wakes the request, without blocking if it was woken already.
func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// nextArrivalTime returns the time of arrival for the next message of an account. It is later than
// every time that promise was called with.
func (a *arrivals) nextArrivalTime(tx *store.Tx, account uint32) (time.Time, error) {
	var after time.Time
	a.mu.Lock()
	if in := a.accounts[account]; in != nil {
		after = in.promised
	}
	a.mu.Unlock()
	return tx.AssignArrivalTime(account, after)
}

// promise makes sure that every later arrival in the account gets a time after at. A transaction
// that is already running may still use an earlier time.
func (a *arrivals) promise(w *waiter, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at.After(w.in.promised) {
		w.in.promised = at
	}
}

// recordArrival adds a note of a message whose row is on disk, and wakes the requests that wait for
// such a message. The store's committer calls it after a commit.
func (a *arrivals) recordArrival(account uint32, m *store.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.accounts[account]
	if in == nil {
		return
	}
	if len(in.notes) == maxNotes {
		in.notesSince = time.UnixMilli(in.notes[maxNotes/2-1].at)
		in.notes = slices.Delete(in.notes, 0, maxNotes/2)
	}
	in.notes = append(in.notes, arrivalNote{m.Received.UnixMilli(), m.Mailbox, m.Folder, m.UID})
	for w := range in.waiters {
		if w.mailbox == 0 || w.mailbox == m.Mailbox {
			w.signal()
		}
	}
}

// startNotes records that the notes have every message that arrives after the time last, unless
// they were complete before. last is the time of the newest message in a snapshot that was taken
// after the waiter had joined.
func (a *arrivals) startNotes(w *waiter, last time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.in.complete {
		w.in.complete, w.in.notesSince = true, last
	}
}

// notesAfter returns the notes of messages that w waits for and that arrived after the time at.
// complete is false if messages may be missing from the notes.
func (a *arrivals) notesAfter(w *waiter, at time.Time) (notes []arrivalNote, complete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.in.complete || at.Before(w.in.notesSince) {
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

// A parsedText is what waiting requests need from the text of a message: codes, links and the
// reply.
type parsedText struct {
	codes.SignInData
	reply string
}
