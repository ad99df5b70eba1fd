package service

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

// Bounds on wrong passwords within guessWindow. A pair is one mailbox seen from one network; those
// that have logged in from there lately are not held up by what others do to the mailbox or from
// the network.
const (
	guessWindow   = 30 * time.Minute
	pairSlowed    = 5   // wrong ones of a pair after which each attempt waits
	pairRefused   = 20  // of a pair
	netRefused    = 100 // from one network, over all mailboxes; twice as many from an IPv6 /56, four times from a /48
	boxRefused    = 200 // at one mailbox, from everywhere
	slowestAnswer = 8 * time.Second
	guessKeys     = 50_000
)

// guesses remembers wrong passwords, and from where mailboxes were logged in to. Attempts of one
// pair take turns, so that many at once are held up like one after the other.
type guesses struct {
	wrong *throttle // of pairs and their networks
	wide  *throttle // of mailboxes, and of wider networks: many pairs do not push these out
	turns turns
}

// An origin is where an attempt comes from.
type origin struct {
	network string // see network
	known   bool   // whoever it is has logged in from there lately
}

// party is who takes turns with others for a slot. Of those who are known an IPv4 address is one of
// its own; a /48 is not, or one tenant who is known in each of its /64s would fill the queue.
func (o origin) party() string {
	if o.known && wider(o.network) == nil {
		return o.network
	}
	return party(o.network)
}

func newGuesses() *guesses {
	return &guesses{
		wrong: newThrottle(guessWindow, guessKeys), wide: newThrottle(guessWindow, guessKeys),
		turns: turns{held: map[string]chan struct{}{}},
	}
}

// delay says how long an attempt waits before it is looked at; refused says that it is not looked
// at.
func (g *guesses) delay(email string, from origin, now time.Time) (wait time.Duration, refused bool) {
	bounds := g.bounds(email, from.network)
	n := bounds[0].seen(now)
	if n >= pairRefused {
		return 0, true
	}
	if !from.known && slices.ContainsFunc(bounds[1:], func(b guessBound) bool { return b.seen(now) >= b.most }) {
		return 0, true
	}
	if n < pairSlowed {
		return 0, false
	}
	return min(time.Second<<min(n-pairSlowed, 3), slowestAnswer), false
}

// A guessBound is one of the counts of an attempt, and what it may come to.
type guessBound struct {
	*throttle
	key, name string
	most      int
}

func (b guessBound) seen(now time.Time) int { return b.throttle.seen(b.key, now) }

// bounds are those of an attempt, the pair's first.
func (g *guesses) bounds(email, network string) []guessBound {
	out := []guessBound{
		{g.wrong, pairKey(email, network), "pair", pairRefused},
		{g.wrong, "net " + network, "network", netRefused},
		{g.wide, "box " + email, "mailbox", boxRefused},
	}
	for i, w := range wider(network) {
		out = append(out, guessBound{g.wide, "net " + w, w, netRefused << (i + 1)})
	}
	return out
}

func pairKey(email, network string) string { return "pair " + network + " " + email }

// wrongAt counts a wrong password. shut says what it was too many for: the pair, the network, a
// wider one or the mailbox, once each.
func (g *guesses) wrongAt(email, network string, now time.Time) (shut string) {
	for _, b := range g.bounds(email, network) {
		b.count(b.key, now)
		if b.seen(now) == b.most {
			shut = b.name
		}
	}
	return shut
}

func (g *guesses) rightAt(email, network string) { g.wrong.forget(pairKey(email, network)) }

// enter waits for the turn and the time of an attempt at what the key names, a mailbox or a team
// user; done ends it. The error is an *Error, 429, where the attempt is not looked at.
func (g *guesses) enter(ctx context.Context, key string, from origin, now func() time.Time) (done func(), err error) {
	if done, err = g.turns.take(ctx, from.network+" "+key); err != nil {
		return nil, err
	}
	wait, refused := g.delay(key, from, now())
	if refused {
		err = tooManyGuesses()
	} else {
		err = pause(ctx, wait)
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

func tooManyGuesses() *Error {
	e := Errorf(429, "rate_limited", "Too many wrong passwords. Wait half an hour, then try again.")
	e.RetryAfter = guessWindow
	return e
}

// turns lets one goroutine at a time work under a key.
type turns struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the turn ends
}

// take waits for the turn; done ends it.
func (t *turns) take(ctx context.Context, key string) (done func(), err error) {
	for {
		t.mu.Lock()
		other := t.held[key]
		if other == nil {
			mine := make(chan struct{})
			t.held[key] = mine
			t.mu.Unlock()
			return func() { t.end(key, mine) }, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *turns) end(key string, mine chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.held, key)
	close(mine)
}

// LoginMailbox checks the log-in of a mail client from the address ip. The error is an *Error: 401
// for a wrong address or password, which take the same time, 403 for a mailbox that may not be
// used, 429 after too many wrong ones, 503 busy where too many wait.
func (s *Service) LoginMailbox(ctx context.Context, email, password, ip string) (MailboxUser, error) {
	address, err := normalizeEmail("username", email)
	if err != nil {
		address = email[:min(len(email), 254)] // nobody's, but it is counted and takes its time like any other
	}
	mb, _, err := s.loginRecords(address)
	if err != nil {
		return MailboxUser{}, err
	}
	from := origin{network: network(ip)}
	from.known = isKnown(mb.Seen, from.network, s.now())
	done, err := s.guesses.enter(ctx, address, from, s.now)
	if err != nil {
		return MailboxUser{}, err
	}
	defer done()
	mb, account, err := s.loginRecords(address) // as they are after the wait
	if err != nil {
		return MailboxUser{}, err
	}
	right, err := s.logins.verify(ctx, mb.PasswordHash, password, from, s.now())
	if err != nil {
		return MailboxUser{}, err
	}
	if !right {
		s.wrongPassword(address, from.network)
		return MailboxUser{}, Errorf(401, "unauthorized", "The address or the password is wrong.")
	}
	if mb.Status != "active" || !mayAct(account) {
		return MailboxUser{}, Errorf(403, "mailbox_unavailable", "%s may not be used now: it is %s.", mb.Email, unusable(mb, account))
	}
	s.guesses.rightAt(address, from.network)
	s.noteLogin(mb, from.network)
	return MailboxUser{AccountID: mb.AccountID, AccountNum: mb.AccountNum, MailboxID: mb.ID, Mailbox: mb.Num, Email: mb.Email, IP: ip}, nil
}

// wrongPassword counts a wrong password for whom it was and where it came from, and tells the log
// when it was one too many.
func (s *Service) wrongPassword(whose, from string) {
	if shut := s.guesses.wrongAt(whose, from, s.now()); shut != "" {
		s.Log.Warn("too many wrong passwords: log-ins are refused for half an hour", "of", shut, "who", whose, "network", from)
	}
}

func unusable(mb *store.Mailbox, a *store.Account) string {
	if mb.Status == "active" {
		return a.Status
	}
	return mb.Status
}

// loginRecords gives empty records for an address that is nobody's, whose password is then never
// right.
func (s *Service) loginRecords(email string) (mb *store.Mailbox, a *store.Account, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		if mb, err = store.MailboxByEmail.Get(tx, email); errors.Is(err, store.ErrNotFound) {
			mb, err = unprovenMailbox(tx, email)
		}
		if err != nil {
			return err
		}
		a, err = store.Accounts.Get(tx, mb.AccountID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return &store.Mailbox{}, &store.Account{}, nil
	}
	return mb, a, err
}

// unprovenMailbox gives the mailbox of an address whose domain nobody has proven to hold, if there
// is just one.
func unprovenMailbox(tx *store.Tx, email string) (mb *store.Mailbox, err error) {
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(domainOfAddress(email)), "") {
		if claimEnded(d) {
			continue
		}
		of, err := store.MailboxByAddress.Get(tx, store.AddressKey(d.ID, email))
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil || mb != nil {
			return nil, errors.Join(err, store.ErrNotFound)
		}
		mb = of
	}
	if mb == nil {
		return nil, store.ErrNotFound
	}
	return mb, nil
}

// noteLogin keeps the time of a log-in, once a minute, and where it came from, once a day. A store
// that takes no writes is no reason to turn a reader away.
func (s *Service) noteLogin(mb *store.Mailbox, network string) {
	if _, fresh := noteNetwork(mb.Seen, network, s.now()); !fresh && s.now().Sub(mb.LastLoginAt) < time.Minute {
		return
	}
	err := s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Mailboxes.Get(tx, mb.ID)
		if err != nil {
			return err
		}
		now.Seen, _ = noteNetwork(now.Seen, network, tx.Now())
		if tx.Now().Sub(now.LastLoginAt) >= time.Minute {
			now.LastLoginAt = tx.Now()
		}
		return store.Mailboxes.Put(tx, now)
	})
	if err != nil {
		s.Log.Warn("note the time of a log-in", "mailbox", mb.Email, "error", err)
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
