package limit

import (
	"context"
	"sync"
)

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
