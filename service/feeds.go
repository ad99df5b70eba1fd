package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	feedDelay     = 20 * time.Millisecond  // how long changes are collected before the first batch is sent
	feedPause     = 250 * time.Millisecond // between batches
	feedLongPause = time.Second            // after a batch with too many changes, since the listener then reads everything again
	feedBatch     = 500                    // changes per batch
	feedQueue     = 8                      // batches queued for a slow listener

	feedsOfUser    = 10   // open feeds of one user
	feedsOfAccount = 100  // open feeds of one account
	feedsInAll     = 4096 // open feeds of all accounts
)

// feedKinds maps tables to the names that changes of their rows have in the API.
var feedKinds = map[string]string{
	store.Accounts.Name():      "account",
	store.Users.Name():         "user",
	store.Tokens.Name():        "token",
	store.Domains.Name():       "domain",
	store.CustomRecords.Name(): "record",
	store.Mailboxes.Name():     "mailbox",
	store.InboxTable:           "inbox",
	store.Templates.Name():     "template",
	store.Exports.Name():       "export",
	store.Jobs.Name():          "job",
	store.Outgoings.Name():     "message",
	store.Suppressions.Name():  "suppression",
	store.Approvals.Name():     "approval",
	store.Webhooks.Name():      "webhook",
	store.Deliveries.Name():    "delivery",
	store.Events.Name():        "event",
}

// A FeedChange says that an object has changed; the listener reads it to see how. kind is domain,
// mailbox, inbox, job, message, approval, webhook, delivery, suppression, token, user, account,
// template, record, export or event. id is the object's id; for an inbox it is the mailbox's id,
// for a suppression the address.
type FeedChange struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// feeds sends changes to those who listen for changes in their accounts. While nobody listens, the
// store does not report changes.
type feeds struct {
	store     *store.Store
	mu        sync.Mutex
	byAccount map[string]*accountFeeds // by account id
	ofUser    map[string]int           // open feeds, by user id
	count     int                      // open feeds of all accounts
}

func newFeeds(st *store.Store) *feeds {
	return &feeds{store: st, byAccount: map[string]*accountFeeds{}, ofUser: map[string]int{}}
}

// accountFeeds are the feeds of an account and the batch of changes that is being collected for
// them. The timer runs from the first change until no changes have come for a while.
type accountFeeds struct {
	feeds    map[*Feed]struct{}
	changes  []store.Change
	seen     map[store.Change]struct{} // the elements of changes
	overflow bool                      // there were too many changes for a batch
	timer    *time.Timer
	running  bool // the timer is running
}

// A Feed has the changes that one listener has not read yet. It must be closed.
type Feed struct {
	all   *feeds
	who   core.Actor
	wake  chan struct{}
	Queue [][]store.Change // batches, shared with other feeds; a nil batch means that everything may have changed
}

// Listen opens a feed of the changes in the actor's account. Everything that was committed before
// Listen returns can be read in the store; later changes are in the feed. The error is a 429 if
// there are too many listeners.
func (s *Service) Listen(_ context.Context, who core.Actor) (*Feed, error) {
	f, err := s.feeds.Join(who)
	if err != nil {
		return nil, err
	}
	// Transactions that began before the first listener came are not reported, so wait for their
	// end. A store that takes no writes has no such transactions.
	if err := s.Core.Store.Update(func(*store.Tx) error { return nil }); errors.Is(err, store.ErrClosed) {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (fs *feeds) Join(who core.Actor) (*Feed, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	a := fs.byAccount[who.AccountID]
	if fs.count >= feedsInAll || fs.ofUser[who.UserID] >= feedsOfUser || a != nil && len(a.feeds) >= feedsOfAccount {
		e := core.Errorf("rate_limited", "Too many pages listen for changes at the same time: at most %d of one person and %d of an account. Close some of them.", feedsOfUser, feedsOfAccount)
		e.RetryAfter = 30 * time.Second
		return nil, e
	}
	if a == nil {
		a = &accountFeeds{feeds: map[*Feed]struct{}{}, seen: map[store.Change]struct{}{}}
		a.timer = time.AfterFunc(time.Hour, func() { fs.flush(a) })
		a.timer.Stop()
		fs.byAccount[who.AccountID] = a
	}
	f := &Feed{all: fs, who: who, wake: make(chan struct{}, 1)}
	a.feeds[f] = struct{}{}
	fs.ofUser[who.UserID]++
	if fs.count++; fs.count == 1 {
		fs.store.OnCommit(fs.Add)
	}
	return f, nil
}

// Close ends the feed.
func (f *Feed) Close() {
	fs := f.all
	fs.mu.Lock()
	defer fs.mu.Unlock()
	a := fs.byAccount[f.who.AccountID]
	if a == nil {
		return
	}
	if _, open := a.feeds[f]; !open {
		return
	}
	if delete(a.feeds, f); len(a.feeds) == 0 {
		a.timer.Stop()
		delete(fs.byAccount, f.who.AccountID)
	}
	if fs.ofUser[f.who.UserID]--; fs.ofUser[f.who.UserID] == 0 {
		delete(fs.ofUser, f.who.UserID)
	}
	if fs.count--; fs.count == 0 {
		fs.store.OnCommit(nil)
	}
}

// Add receives the changes of a transaction. The committer calls it, so it must not block.
func (fs *feeds) Add(changes []store.Change) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, c := range changes {
		if a := fs.byAccount[c.Account]; a != nil {
			a.add(c)
		}
	}
}

func (a *accountFeeds) add(c store.Change) {
	if !a.running {
		a.running = true
		a.timer.Reset(feedDelay)
	}
	if a.overflow {
		return
	}
	if _, known := a.seen[c]; known {
		return
	}
	if len(a.changes) == feedBatch {
		a.overflow = true
		return
	}
	a.seen[c] = struct{}{}
	a.changes = append(a.changes, c)
}

// flush sends the collected batch to every feed of an account. It runs again after a pause, until
// there are no more changes.
func (fs *feeds) flush(a *accountFeeds) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if len(a.changes) == 0 || len(a.feeds) == 0 {
		a.running = false
		return
	}
	batch, pause := a.changes, feedPause
	if a.overflow {
		batch, pause = nil, feedLongPause
	}
	a.changes, a.overflow = nil, false
	clear(a.seen)
	for f := range a.feeds {
		f.offer(batch)
	}
	a.timer.Reset(pause)
}

// offer queues a batch. If the queue is full, offer replaces it by one entry that says that
// everything may have changed.
func (f *Feed) offer(batch []store.Change) {
	if len(f.Queue) == feedQueue {
		clear(f.Queue)
		f.Queue, batch = f.Queue[:0], nil
	}
	f.Queue = append(f.Queue, batch)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Wake returns a channel that receives a value soon after something has changed.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Take returns the changes since the last call, without duplicates. everything is true if there
// were too many: then everything may have changed.
func (f *Feed) Take() (changes []FeedChange, everything bool) {
	f.all.mu.Lock()
	queue := f.Queue
	f.Queue = nil
	f.all.mu.Unlock()
	seen := map[FeedChange]struct{}{}
	for _, batch := range queue {
		if batch == nil {
			return nil, true
		}
		for _, c := range batch {
			change := FeedChange{feedKinds[c.Table], c.ID}
			if _, known := seen[change]; known || !f.sees(c) {
				continue
			}
			seen[change] = struct{}{}
			changes = append(changes, change)
		}
	}
	if !f.who.SeesAll() {
		changes = f.visible(changes)
	}
	return changes, len(changes) > feedBatch
}

// sees reports whether the listener may know of a change. Members do not see approvals, nor tokens
// and exports of others.
func (f *Feed) sees(c store.Change) bool {
	if c.Table == store.Approvals.Name() && !f.who.Manages() {
		return false
	}
	return c.User == "" || c.User == f.who.UserID || f.who.Manages()
}

// visible removes the changes that a listener with access to some mailboxes must not see. Changes
// of deleted objects are removed too.
func (f *Feed) visible(changes []FeedChange) (left []FeedChange) {
	_ = f.all.store.View(func(tx *store.Tx) error {
		for _, c := range changes {
			seen := false
			switch c.Kind {
			case "mailbox", "inbox":
				seen = f.who.Sees(c.ID)
			case "message":
				o, err := store.Outgoings.Find(tx, c.ID)
				seen = err == nil && o != nil && f.who.Sees(o.MailboxID)
			case "job":
				j, err := store.Jobs.Find(tx, c.ID)
				seen = err == nil && j != nil && maySeeJob(f.who, j)
			case "event", "webhook", "delivery", "suppression", "user", "template", "domain", "record", "account":
				seen = f.who.MailboxID == "" && !f.who.MailboxToken && c.Kind != "event" && c.Kind != "webhook" && c.Kind != "delivery"
			case "token", "export":
				seen = !f.who.MailboxToken // sees has already removed those of others
			}
			if seen {
				left = append(left, c)
			}
		}
		return nil
	})
	return left
}
