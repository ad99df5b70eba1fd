package mta

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Greylisting (RFC 6647): how long a sender has to wait, and how long is remembered that it has,
// and that it has not.
const (
	greyWait   = 5 * time.Minute
	greyWithin = 48 * time.Hour
	greyKept   = 36 * 24 * time.Hour
	knownKept  = 180 * 24 * time.Hour
	touchEvery = 24 * time.Hour // a row's time is not written more often

	maxGreyTuples   = 100_000
	maxKnownSenders = 200_000
)

// greylist tells a sender to come again in some minutes, unless it has.
func (s *Service) greylist(in Incoming) error {
	wait := time.Duration(0)
	for some := range slices.Chunk(in.Recipients, placesAtATime) {
		longest := time.Duration(0)
		err := s.Store.Update(func(tx *store.Tx) error {
			longest = 0
			for _, r := range some {
				left, err := s.greyWait(tx, greyKey(in.Client.IP, in.From, r.address))
				if err != nil {
					return err
				}
				longest = max(longest, left)
			}
			return nil
		})
		if err != nil {
			return err
		}
		wait = max(wait, longest)
	}
	if wait == 0 {
		return nil
	}
	return core.SMTPErrorf(451, "4.7.1", "Greylisted, try again in %d minutes", int(wait/time.Minute)+1)
}

// greyWait is how long a tuple has still to wait. The first time makes its row.
func (s *Service) greyWait(tx *store.Tx, id string) (time.Duration, error) {
	now := tx.Now()
	g, err := store.GreyTuples.Get(tx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if err := makeRoom(tx, &s.screener.Grey, store.GreyTuples, store.GreyTuplesByTime); err != nil {
			return 0, err
		}
		return greyWait, store.GreyTuples.Put(tx, &store.GreyTuple{ID: id, FirstAt: now, Expires: now.Add(greyWithin)})
	case err != nil:
		return 0, err
	case !g.Expires.After(now): // it begins anew
		g.FirstAt, g.Expires, g.Passed = now, now.Add(greyWithin), false
		return greyWait, store.GreyTuples.Put(tx, g)
	case !g.Passed && now.Sub(g.FirstAt) < greyWait:
		return greyWait - now.Sub(g.FirstAt), nil
	case g.Passed && g.Expires.Sub(now) > greyKept-touchEvery:
		return 0, nil
	}
	g.Passed, g.Expires = true, now.Add(greyKept)
	return 0, store.GreyTuples.Put(tx, g)
}

// greyKey names network, sender and recipient. Large senders come from many addresses of a network.
func greyKey(ip netip.Addr, from, to string) string {
	bits := 64
	if ip.Is4() {
		bits = 24
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		network = netip.Prefix{} // no address at all
	}
	return core.TextHash(network.String() + "\x00" + from + "\x00" + to)[:32]
}

// knowsSender tells whether all accounts that get a message have had authentic mail from its
// author's domain before. A message that is not authentic itself is from nobody whom they know.
func (s *Service) knowsSender(in Incoming, v *auth.Verdict) (bool, error) {
	if !v.Authentic() {
		return false, nil
	}
	known := true
	err := s.Store.View(func(tx *store.Tx) error {
		for _, r := range in.Recipients {
			to, err := s.receiver(tx, r.address)
			if err != nil {
				return err
			}
			k, err := store.KnownSenders.Get(tx, to.domain.AccountID+v.FromDomain)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			known = known && err == nil && k.Expires.After(tx.Now())
		}
		return nil
	})
	return known, err
}

// noteSender remembers whom an account has authentic mail from. It is in the transaction that files
// the mail.
func (s *Service) noteSender(tx *store.Tx, accountID string, a *store.Arrival) error {
	c := s.Config.Spam
	if !c.Greylisting && c.FirstDelay <= 0 || a.Junk || !a.Authentic {
		return nil
	}
	k, err := store.KnownSenders.Get(tx, accountID+a.From)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if err := makeRoom(tx, &s.screener.known, store.KnownSenders, store.KnownSendersByTime); err != nil {
			return err
		}
		k = &store.KnownSender{AccountID: accountID, Domain: a.From}
	case err != nil:
		return err
	case k.Expires.Sub(tx.Now()) > knownKept-touchEvery:
		return nil
	}
	k.Expires = tx.Now().Add(knownKept)
	return store.KnownSenders.Put(tx, k)
}

// A crowd counts the rows of a table that is bounded.
type crowd struct {
	Most  int
	mu    sync.Mutex
	begun bool
	rows  int
}

// makeRoom counts a row that will be added, and deletes the one that would be forgotten first where
// there are too many.
func makeRoom[T any](tx *store.Tx, c *crowd, table *store.Table[T], byTime *store.Index[T]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun {
		c.begun, c.rows = true, byTime.Count(tx, "", 0)
	}
	if c.rows < c.Most {
		tx.After(func() { c.add(1) })
		return nil
	}
	for _, id := range byTime.Keys(tx, "", "") {
		return table.Delete(tx, id)
	}
	return nil
}

// countRows counts in a snapshot what is there at a start: there may be more rows than a
// transaction may walk over.
func countRows[T any](st *store.Store, c *crowd, byTime *store.Index[T]) error {
	return st.View(func(tx *store.Tx) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.begun {
			c.begun, c.rows = true, byTime.Count(tx, "", 0)
		}
		return nil
	})
}

func (c *crowd) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows += n
}

// pruneScreened deletes the tuples and senders that are forgotten.
func (s *Service) PruneScreened(tx *store.Tx) (int, error) {
	grey, err := pruneExpired(tx, &s.screener.Grey, store.GreyTuples, store.GreyTuplesByTime)
	if err != nil {
		return 0, err
	}
	known, err := pruneExpired(tx, &s.screener.known, store.KnownSenders, store.KnownSendersByTime)
	return max(grey, known), err
}

// pruneExpired deletes the records whose time in the index is over.
func pruneExpired[T any](tx *store.Tx, c *crowd, table *store.Table[T], byTime *store.Index[T]) (int, error) {
	var ids []string
	for key, id := range byTime.Keys(tx, "", "") {
		if len(ids) == core.PruneAtATime || store.KeyTime(key).After(tx.Now()) {
			break
		}
		ids = append(ids, id)
	}
	tx.After(func() { c.add(-len(ids)) })
	return len(ids), core.DeleteAll(tx, table, ids)
}
