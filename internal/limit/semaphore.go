// Package limit stops one client, account or network from using up what others need: it limits, by
// key, how much runs at the same time (Semaphore, KeyedMutex) and how often something happens
// (Counter), and decides which addresses count as one client (Prefix). It does not know what it
// limits. Unused keys take no memory.
package limit

import (
	"context"
	"errors"
	"sync"
)

// ErrBusy is returned by Semaphore.Acquire when too many callers wait for slots of the key.
var ErrBusy = errors.New("too many wait")

// A Semaphore limits how many slots are held at the same time: in total, and for each key, so that
// one key cannot take all. Make it with NewSemaphore.
type Semaphore[K comparable] struct {
	// MaxWaiting is how many callers may wait for each key; 0: no limit. Set it before the first
	// Acquire.
	MaxWaiting int

	each int
	all  chan struct{} // has an element for each taken slot

	mu   sync.Mutex
	keys map[K]*keySlots // only keys with users
}

// keySlots holds the slots of one key.
type keySlots struct {
	taken chan struct{} // has an element for each taken slot
	users int           // callers that hold a slot or wait for one; guarded by Semaphore.mu
}

// NewSemaphore returns a semaphore with all slots in total, and each slots for one key.
func NewSemaphore[K comparable](all, each int) *Semaphore[K] {
	return &Semaphore[K]{each: each, all: make(chan struct{}, all), keys: map[K]*keySlots{}}
}

// Acquire waits for a slot; call release once to free it. It first waits for a slot of the key, so
// that waiting for a busy key takes no slot from other keys. The error is that of ctx, or ErrBusy.
func (s *Semaphore[K]) Acquire(ctx context.Context, key K) (release func(), err error) {
	own, err := s.join(key)
	if err != nil {
		return nil, err
	}
	select {
	case own.taken <- struct{}{}:
	case <-ctx.Done():
		s.leave(key, own)
		return nil, ctx.Err()
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		<-own.taken
		s.leave(key, own)
		return nil, ctx.Err()
	}
	return func() { s.release(key, own) }, nil
}

// TryAcquire takes a slot if one is free; call release once to free it.
func (s *Semaphore[K]) TryAcquire(key K) (release func(), ok bool) {
	own, err := s.join(key)
	if err != nil {
		return nil, false
	}
	select {
	case own.taken <- struct{}{}:
	default:
		s.leave(key, own)
		return nil, false
	}
	select {
	case s.all <- struct{}{}:
	default:
		<-own.taken
		s.leave(key, own)
		return nil, false
	}
	return func() { s.release(key, own) }, true
}

func (s *Semaphore[K]) release(key K, own *keySlots) {
	<-s.all
	<-own.taken
	s.leave(key, own)
}

// Held returns how many slots are held now.
func (s *Semaphore[K]) Held() int { return len(s.all) }

// Users returns how many callers hold a slot of the key or wait for one.
func (s *Semaphore[K]) Users(key K) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.keys[key]; own != nil {
		return own.users
	}
	return 0
}

// join adds a user of a key.
func (s *Semaphore[K]) join(key K) (*keySlots, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.keys[key]
	if own == nil {
		own = &keySlots{taken: make(chan struct{}, s.each)}
		s.keys[key] = own
	}
	if s.MaxWaiting > 0 && own.users >= s.each+s.MaxWaiting {
		return nil, ErrBusy
	}
	own.users++
	return own, nil
}

// leave removes a user of a key, and the key with its last user.
func (s *Semaphore[K]) leave(key K, own *keySlots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(s.keys, key)
	}
}

// A KeyedMutex has a mutex for each key. In the zero value all are unlocked.
type KeyedMutex[K comparable] struct {
	mu     sync.Mutex
	locked map[K]chan struct{} // closed when the key is unlocked
}

// Lock waits until it has locked the key; call unlock once. The error is that of ctx. The order of
// waiting callers is not guaranteed.
func (m *KeyedMutex[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	for {
		unlock, other := m.try(key)
		if other == nil {
			return unlock, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TryLock locks the key if it is not locked; call unlock once.
func (m *KeyedMutex[K]) TryLock(key K) (unlock func(), ok bool) {
	unlock, other := m.try(key)
	return unlock, other == nil
}

// try locks the key, or returns a channel that is closed when the present lock ends.
func (m *KeyedMutex[K]) try(key K) (unlock func(), other <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other := m.locked[key]; other != nil {
		return nil, other
	}
	if m.locked == nil {
		m.locked = map[K]chan struct{}{}
	}
	unlocked := make(chan struct{})
	m.locked[key] = unlocked
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locked, key)
		close(unlocked)
	}, nil
}
