package zones

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	aliasAsked      = time.Hour        // for so long after a query for a name, the addresses of its alias are looked up
	aliasEach       = time.Minute      // least time between two lookups for one name
	aliasEachEdge   = 5 * time.Minute  // the same at another DNS provider, which does not tell us about queries
	aliasChangeEach = 5 * time.Minute  // least time between two changes of a zone because of its alias
	aliasKept       = 24 * time.Hour   // for so long the addresses are kept while lookups fail
	aliasTimeout    = 10 * time.Second // for one lookup
	aliasTick       = 5 * time.Second  // how often it is found out which lookups are due
	aliasesAtOnce   = 16               // lookups that run at the same time
	aliasSeenEach   = time.Hour        // least time between two writes of when the addresses were found, if they stay
)

// aliases are the domains that have the addresses of another host, by name.
type aliases struct {
	count  atomic.Int64 // so that queries need no lock while there is none
	mu     sync.Mutex
	byName map[string]*alias
	wake   chan struct{} // gets a value if a name is asked for that was not asked for lately
}

// An alias is one domain that has the addresses of another host. Times are in Unix nanoseconds, 0
// for never.
type alias struct {
	domainID string
	edge     bool         // its records are at a DNS provider that others run
	asked    atomic.Int64 // when the name was last asked for
	looked   time.Time    // when the last lookup began; used by followAliases alone
	seen     time.Time    // when one was last answered; used by the lookup alone
}

// set says which alias a domain has; "" for none.
func (a *aliases) set(name, domainID, host string, edge bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.byName[name]
	switch {
	case host == "":
		if known != nil && known.domainID == domainID {
			delete(a.byName, name)
		}
	case known == nil || known.domainID != domainID || known.edge != edge:
		if a.byName == nil {
			a.byName = map[string]*alias{}
		}
		a.byName[name] = &alias{domainID: domainID, edge: edge}
	}
	a.count.Store(int64(len(a.byName)))
}

// noteQuery notes that a name was asked for.
func (a *aliases) noteQuery(name string, now func() time.Time) {
	if a.count.Load() == 0 {
		return
	}
	a.mu.Lock()
	one := a.byName[name]
	a.mu.Unlock()
	if one == nil {
		return
	}
	at := now()
	before := one.asked.Swap(at.UnixNano())
	if before == 0 || at.Sub(time.Unix(0, before)) > aliasEach {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// due returns the aliases whose addresses are to be looked up now, and notes that they are.
func (a *aliases) due(now time.Time) []*alias {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*alias
	for _, one := range a.byName {
		each, asked := aliasEach, one.asked.Load()
		if one.edge {
			each = aliasEachEdge
		}
		if (one.edge || asked != 0 && now.Sub(time.Unix(0, asked)) < aliasAsked) && (one.looked.IsZero() || now.Sub(one.looked) >= each) {
			one.looked = now
			out = append(out, one)
		}
	}
	return out
}
