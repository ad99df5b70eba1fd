package spam

import (
	"sync"

	"github.com/mailstead/mailstead/mail/classify"
	"github.com/mailstead/mailstead/store"
)

const (
	maxModelBytes = 16 << 20 // of all models in memory; a full one has about 4 MiB
	maxModels     = 10_000   // accounts with an entry in memory
)

// models caches the models of accounts in memory. A cached model is never changed: learning
// replaces it.
type models struct {
	store *store.Store

	mu        sync.Mutex
	byAccount map[string]*model // by account id
	bytes     int
	uses      uint64 // number of uses of all models so far
}

// A model is the entry of one account. Its Model is nil if the account has learned nothing.
type model struct {
	ready chan struct{} // closed when the model is loaded
	known bool          // Model is loaded
	*classify.Model
	lastUse uint64 // value of models.uses at its last use
}

func newModels(st *store.Store) *models { return &models{store: st, byAccount: map[string]*model{}} }

// get returns the model of an account, which must not be changed; nil if it has learned nothing.
func (c *models) get(accountID string) (*classify.Model, error) {
	c.mu.Lock()
	c.uses++
	if m := c.byAccount[accountID]; m != nil {
		m.lastUse = c.uses
		c.mu.Unlock()
		<-m.ready
		return m.Model, nil
	}
	m := &model{ready: make(chan struct{}), lastUse: c.uses}
	c.byAccount[accountID] = m
	c.mu.Unlock()

	loaded, err := c.load(accountID)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !m.known { // otherwise put has stored a newer model in the meantime
		m.Model, m.known = loaded, true
		close(m.ready)
		if err != nil {
			delete(c.byAccount, accountID)
			return nil, err
		}
		c.bytes += modelSize(loaded)
		c.evictModels()
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

// put stores the model of an account after learning.
func (c *models) put(accountID string, learned *classify.Model) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.byAccount[accountID]
	if m == nil {
		m = &model{ready: make(chan struct{})}
		c.byAccount[accountID] = m
	}
	c.uses++
	if m.known {
		c.bytes -= modelSize(m.Model)
		next := &model{ready: m.ready, known: true, Model: learned, lastUse: c.uses} // a new entry, since other goroutines may be reading m
		c.byAccount[accountID] = next
	} else {
		m.Model, m.known, m.lastUse = learned, true, c.uses
		close(m.ready)
	}
	c.bytes += modelSize(learned)
	c.evictModels()
}

// evictModels evicts the least recently used models until the limits are kept.
func (c *models) evictModels() {
	for (c.bytes > maxModelBytes || len(c.byAccount) > maxModels) && len(c.byAccount) > 1 {
		oldest := ""
		var found *model
		for accountID, m := range c.byAccount {
			if m.known && (found == nil || m.lastUse < found.lastUse) {
				oldest, found = accountID, m
			}
		}
		if found == nil {
			return
		}
		c.bytes -= modelSize(found.Model)
		delete(c.byAccount, oldest)
	}
}

func modelSize(m *classify.Model) int {
	if m == nil {
		return 0
	}
	return m.Bytes()
}
