package jobs

import "sync"

// Watchers notifies the watchers of a key that something about it has changed. The notification
// does not say what: a watcher reads the store again. The zero value is ready to use.
type Watchers[K comparable] struct {
	mu sync.Mutex
	by map[K]map[chan struct{}]struct{}
}

// Watch returns a channel that receives a value after each change, and a function that ends the
// watch. Changes while a value is unread are merged into it.
func (w *Watchers[K]) Watch(key K) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[K]map[chan struct{}]struct{}{}
	}
	if w.by[key] == nil {
		w.by[key] = map[chan struct{}]struct{}{}
	}
	w.by[key][ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.by[key], ch)
		if len(w.by[key]) == 0 {
			delete(w.by, key)
		}
	}
}

// Changed notifies the watchers of the key. It never blocks.
func (w *Watchers[K]) Changed(key K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.by[key] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
