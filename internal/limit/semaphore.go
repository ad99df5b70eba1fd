// Package limit prevents one client, account or network from using resources that others need. By
// key, it limits what runs at the same time (Semaphore, KeyedMutex) and counts how often something
// happens (Counter). It also decides which addresses count as one client (Prefix). It does not know
// what it limits. Unused keys take no memory.
package limit

import (
	"context"
	"errors"
	"sync"
)

// ErrBusy is returned by Semaphore.Acquire if too many callers already wait for slots of the key.
var ErrBusy = errors.New("too many callers wait for a slot")

// A Semaphore limits how many slots are taken at the same time, in total and for each key. Use
// NewSemaphore to make one.
type Semaphore[K comparable] struct {
	// MaxWaiting is the maximum number of callers that may wait for each key; 0 means no limit. Set
	// it before the first Acquire.
	MaxWaiting int

	each int           // number of slots for one key
	all  chan struct{} // has an element for each taken slot

	mu   sync.Mutex
	keys map[K]*keySlots // has only keys with users
}

// keySlots has the slots of one key.
type keySlots struct {
	taken chan struct{} // has an element for each taken slot
	users int           // number of callers that have a slot or wait; protected by Semaphore.mu
}

// NewSemaphore returns a Semaphore. all is the total number of slots, and each the number for one
// key.
func NewSemaphore[K comparable](all, each int) *Semaphore[K] {
	return &Semaphore[K]{each: each, all: make(chan struct{}, all), keys: map[K]*keySlots{}}
}

// Acquire waits for a slot and takes it; the caller must call release once. It returns the error of
// ctx if that ends first, and ErrBusy if too many callers wait. It waits for a slot of the key
// before it waits for one of all slots, so that callers of a busy key do not delay others.
func (s *Semaphore[K]) Acquire(ctx context.Context, key K) (release func(), err error) {
	own, err := s.addUser(key)
	if err != nil {
		return nil, err
	}
	select {
	case own.taken <- struct{}{}:
	case <-ctx.Done():
		s.removeUser(key, own)
		return nil, ctx.Err()
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		<-own.taken
		s.removeUser(key, own)
		return nil, ctx.Err()
	}
	return func() { s.release(key, own) }, nil
}

// TryAcquire takes a slot and returns true, or returns false if no slot is free. If it returns
// true, the caller must call release once.
func (s *Semaphore[K]) TryAcquire(key K) (release func(), ok bool) {
	own, err := s.addUser(key)
	if err != nil {
		return nil, false
	}
	select {
	case own.taken <- struct{}{}:
	default:
		s.removeUser(key, own)
		return nil, false
	}
	select {
	case s.all <- struct{}{}:
	default:
		<-own.taken
		s.removeUser(key, own)
		return nil, false
	}
	return func() { s.release(key, own) }, true
}

// release frees a slot of a key.
func (s *Semaphore[K]) release(key K, own *keySlots) {
	<-s.all
	<-own.taken
	s.removeUser(key, own)
}

// Held returns how many slots are taken now.
func (s *Semaphore[K]) Held() int { return len(s.all) }

// Users returns how many callers have a slot of the key or wait for one.
func (s *Semaphore[K]) Users(key K) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.keys[key]; own != nil {
		return own.users
	}
	return 0
}

// addUser counts a caller as a user of a key. It returns ErrBusy if there are too many.
func (s *Semaphore[K]) addUser(key K) (*keySlots, error) {
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

// removeUser reduces the number of users of a key by one, and removes the key after its last user.
func (s *Semaphore[K]) removeUser(key K, own *keySlots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(s.keys, key)
	}
}

// A KeyedMutex has a mutex for each key. In the zero value, all keys are unlocked.
type KeyedMutex[K comparable] struct {
	mu     sync.Mutex
	locked map[K]chan struct{} // closed when the key is unlocked
}

// Lock waits until the key is unlocked, and locks it; the caller must call unlock once. It returns
// the error of ctx if that ends first. Waiting callers get the lock in no particular order.
func (m *KeyedMutex[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	for {
		unlock, unlocked := m.try(key)
		if unlocked == nil {
			return unlock, nil
		}
		select {
		case <-unlocked:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TryLock locks the key and returns true, or returns false if the key is locked. If it returns
// true, the caller must call unlock once.
func (m *KeyedMutex[K]) TryLock(key K) (unlock func(), ok bool) {
	unlock, unlocked := m.try(key)
	return unlock, unlocked == nil
}

// try locks the key. If it is already locked, try returns a channel that is closed when it is
// unlocked.
func (m *KeyedMutex[K]) try(key K) (unlock func(), unlocked <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other := m.locked[key]; other != nil {
		return nil, other
	}
	if m.locked == nil {
		m.locked = map[K]chan struct{}{}
	}
	done := make(chan struct{})
	m.locked[key] = done
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locked, key)
		close(done)
	}, nil
}
