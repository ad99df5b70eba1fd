package service

import "sync"

// A hub wakes whoever watches a mailbox, such as an idle IMAP session, when something in it has changed. It says only
// that, not what: a watcher reads the store again.
type hub struct {
	mu       sync.Mutex
	watchers map[uint32]map[chan struct{}]struct{}
}

func newHub() *hub { return &hub{watchers: map[uint32]map[chan struct{}]struct{}{}} }

// watch gives a channel that gets a value soon after each change of the mailbox, and a function that ends the watch.
// Changes while a value waits unread are folded into it.
func (h *hub) watch(mailbox uint32) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers[mailbox] == nil {
		h.watchers[mailbox] = map[chan struct{}]struct{}{}
	}
	h.watchers[mailbox][ch] = struct{}{}
	return ch, func() { h.unwatch(mailbox, ch) }
}

func (h *hub) unwatch(mailbox uint32, ch chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers[mailbox], ch)
	if len(h.watchers[mailbox]) == 0 {
		delete(h.watchers, mailbox)
	}
}

// changed wakes the watchers of the mailbox; it never blocks.
func (h *hub) changed(mailbox uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.watchers[mailbox] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
