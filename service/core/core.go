// Package core has what every room of the service needs: the store, the queue, the keys and the
// configuration; who asks, errors that people read, pages of lists, replays of requests; finders of
// records, the states that they go through, and the log-in attempts that are bounded together. It
// does not know any operation of the API, nor which rooms there are.
package core

import (
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// A Core holds what every rule needs. Each room of the service embeds it.
type Core struct {
	Store         *store.Store
	Queue         *jobs.Queue
	Config        Config
	Resolver      Resolver
	Guard         *netguard.Guard // which addresses tenants may make us dial
	Log           *slog.Logger
	Rand          func() float64 // [0,1), for jitter
	Keys          *Keys
	Logins        *logins
	LoginAttempts *loginAttempts
	Hub           *jobs.Watchers[uint32] // of mailboxes; told when something in one has changed

	confirmations *confirmations
}

// New puts a core together.
func New(st *store.Store, q *jobs.Queue, keys *Keys, c Config) *Core {
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Core{
		Store: st, Queue: q, Config: c, Resolver: c.Resolver, Guard: &netguard.Guard{AllowPrivate: c.AllowPrivate}, Log: c.Log,
		Rand: rand.Float64, Keys: keys, Logins: newLogins(), LoginAttempts: newLoginAttempts(), Hub: new(jobs.Watchers[uint32]), confirmations: newConfirmations(),
	}
}

// Now is the store's clock.
func (s *Core) Now() time.Time { return s.Store.Now() }
