package spam

import (
	"sync"

	"github.com/mailstead/mailstead/mail/classify"
	"github.com/mailstead/mailstead/store"
)

const (
	modelBytes = 16 << 20 // of all models in memory; a full one has about 4 MiB
	modelMost  = 10_000   // accounts of which is known in memory what they were taught
)

// models are the models of accounts that were used last. What is in them is not changed: learning
// puts a new one in the place.
type models struct {
	store *store.Store

	mu    sync.Mutex
	of    map[string]*model // by the account's id
	bytes int
	used  uint64 // counts the uses
}

// A model is that of one account; nil: it was taught nothing.
type model struct {
	ready chan struct{} // closed when it is known
	known bool
	*classify.Model
	used uint64
}

func newModels(st *store.Store) *models { return &models{store: st, of: map[string]*model{}} }

// get gives the model of an account, which must not be changed; nil for one that was taught
// nothing.
func (c *models) get(accountID string) (*classify.Model, error) {
	c.mu.Lock()
	c.used++
	if m := c.of[accountID]; m != nil {
		m.used = c.used
		c.mu.Unlock()
		<-m.ready
		return m.Model, nil
	}
	m := &model{ready: make(chan struct{}), used: c.used}
	c.of[accountID] = m
	c.mu.Unlock()

	loaded, err := c.load(accountID)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !m.known { // else something was learned meanwhile
		m.Model, m.known = loaded, true
		close(m.ready)
		if err != nil {
			delete(c.of, accountID)
			return nil, err
		}
		c.bytes += size(loaded)
		c.forget()
	}
	return m.Model, nil
}

func (c *models) load(accountID string) (*classify.Model, error) {
	var out *classify.Model
	err := c.store.View(func(tx *store.Tx) error {
		out = nil
		taught, err := store.SpamModels.Find(tx, accountID)
		if taught == nil || err != nil {
			return err
		}
		account, err := store.Accounts.Read(tx, accountID)
		if err != nil {
			return err
		}
		out = classify.NewModel()
		out.Spam, out.Ham = taught.Spam, taught.Ham
		for token, count := range tx.SpamTokens(account.Num) {
			out.Set(classify.Token(token), classify.Count(count))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// put keeps the model of an account after it has learned.
func (c *models) put(accountID string, learned *classify.Model) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.of[accountID]
	if m == nil {
		m = &model{ready: make(chan struct{})}
		c.of[accountID] = m
	}
	c.used++
	if m.known {
		c.bytes -= size(m.Model)
		next := &model{ready: m.ready, known: true, Model: learned, used: c.used} // others may be reading m
		c.of[accountID] = next
	} else {
		m.Model, m.known, m.used = learned, true, c.used
		close(m.ready)
	}
	c.bytes += size(learned)
	c.forget()
}

// forget gives up the models that were not used for longest, until there is room.
func (c *models) forget() {
	for (c.bytes > modelBytes || len(c.of) > modelMost) && len(c.of) > 1 {
		oldest := ""
		var found *model
		for accountID, m := range c.of {
			if m.known && (found == nil || m.used < found.used) {
				oldest, found = accountID, m
			}
		}
		if found == nil {
			return
		}
		c.bytes -= size(found.Model)
		delete(c.of, oldest)
	}
}

func size(m *classify.Model) int {
	if m == nil {
		return 0
	}
	return m.Bytes()
}
