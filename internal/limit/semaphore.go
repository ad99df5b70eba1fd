// Package limit keeps one client, account or network from taking what others need: it limits how
// much runs at a time (Semaphore, KeyedMutex) and how often something happens (Counter), by keys,
// and it says which addresses are one client (Prefix). It does not know what it limits. Keys that
// nobody uses take no memory.
package limit

import (
	"context"
	"errors"
	"sync"
)

// ErrBusy is returned by Semaphore.Acquire when too many wait for slots of the key.
var ErrBusy = errors.New("too many wait")

// A Semaphore limits how many hold a slot at a time: in all, and of each key, so that one key
// leaves slots for the others. Make it with NewSemaphore.
type Semaphore[K comparable] struct {
	// MaxWaiting is how many may wait for each key; 0 is any number. It is set before the first
	// Acquire.
	MaxWaiting int

	each int
	all  chan struct{} // holds a value for each slot that is taken

	mu   sync.Mutex
	keys map[K]*keySlots // of those with users
}

// keySlots are the slots of one key.
type keySlots struct {
	taken chan struct{} // holds a value for each slot that is taken
	users int           // who hold a slot or wait for one; guarded by Semaphore.mu
}

// NewSemaphore returns a semaphore of so many slots in all, and so many for each key.
func NewSemaphore[K comparable](all, each int) *Semaphore[K] {
	return &Semaphore[K]{each: each, all: make(chan struct{}, all), keys: map[K]*keySlots{}}
}

// Acquire waits for a slot, which release gives back; release is called once. It waits for a slot
// of the key first, so that who waits for the own key takes nothing from others. The error is that
// of ctx, or ErrBusy.
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

// TryAcquire takes a slot, which release gives back, if there is one at once.
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

// Held is how many slots are held now.
func (s *Semaphore[K]) Held() int { return len(s.all) }

// Users is how many hold a slot of the key or wait for one.
func (s *Semaphore[K]) Users(key K) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.keys[key]; own != nil {
		return own.users
	}
	return 0
}

// join counts one user of a key more.
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

// leave forgets a key with its last user.
func (s *Semaphore[K]) leave(key K, own *keySlots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(s.keys, key)
	}
}

// A KeyedMutex is a mutex for each key. The zero value has none locked.
type KeyedMutex[K comparable] struct {
	mu     sync.Mutex
	locked map[K]chan struct{} // closed when the key is unlocked
}

// Lock waits until it has locked the key; unlock is called once. The error is that of ctx. Who
// waits longest does not always come first.
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

// TryLock locks the key if it is not locked; unlock is called once.
func (m *KeyedMutex[K]) TryLock(key K) (unlock func(), ok bool) {
	unlock, other := m.try(key)
	return unlock, other == nil
}

// try locks the key, or returns what is closed when whoever has locked it unlocks it.
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
