package service

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

// Bounds on wrong passwords within guessWindow. A pair is one mailbox seen from one network; those that have logged in
// from there lately are not held up by what others do to the mailbox or from the network.
const (
	guessWindow   = 30 * time.Minute
	knownFor      = 48 * time.Hour
	pairSlowed    = 5   // wrong ones of a pair after which each attempt waits
	pairRefused   = 20  // of a pair
	netRefused    = 100 // from one network, over all mailboxes
	boxRefused    = 200 // at one mailbox, from everywhere
	slowestAnswer = 8 * time.Second
	guessKeys     = 50_000
)

// guesses remembers wrong passwords, and from where mailboxes were logged in to. Attempts of one pair take turns, so that
// many at once are held up like one after the other.
type guesses struct {
	wrong *throttle
	known *throttle
	turns turns
}

func newGuesses() *guesses {
	return &guesses{
		wrong: newThrottle(guessWindow, guessKeys), known: newThrottle(knownFor, guessKeys),
		turns: turns{held: map[string]chan struct{}{}},
	}
}

// delay says how long an attempt waits before it is looked at; refused says that it is not looked at.
func (g *guesses) delay(email, network string, now time.Time) (wait time.Duration, refused bool) {
	pair := pairKey(email, network)
	n := g.wrong.seen(pair, now)
	if n >= pairRefused {
		return 0, true
	}
	if g.known.seen(pair, now) == 0 && (g.wrong.seen("net "+network, now) >= netRefused || g.wrong.seen("box "+email, now) >= boxRefused) {
		return 0, true
	}
	if n < pairSlowed {
		return 0, false
	}
	return min(time.Second<<min(n-pairSlowed, 3), slowestAnswer), false
}

func pairKey(email, network string) string { return "pair " + network + " " + email }

// wrongAt counts a wrong password. shut says what it was too many for: the pair, the network or the mailbox, once each.
func (g *guesses) wrongAt(email, network string, now time.Time) (shut string) {
	for _, k := range []struct {
		key, name string
		most      int
	}{
		{pairKey(email, network), "pair", pairRefused}, {"net " + network, "network", netRefused}, {"box " + email, "mailbox", boxRefused},
	} {
		g.wrong.count(k.key, now)
		if g.wrong.seen(k.key, now) == k.most {
			shut = k.name
		}
	}
	return shut
}

func (g *guesses) rightAt(email, network string, now time.Time) {
	pair := pairKey(email, network)
	g.wrong.forget(pair)
	g.known.count(pair, now)
}

// enter waits for the turn and the time of an attempt at what the key names, a mailbox or a team user; done ends it. The
// error is an *Error, 429, where the attempt is not looked at.
func (g *guesses) enter(ctx context.Context, key, network string, now func() time.Time) (done func(), err error) {
	if done, err = g.turns.take(ctx, network+" "+key); err != nil {
		return nil, err
	}
	wait, refused := g.delay(key, network, now())
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

// network is the part of an address that one party has to itself: an IPv4 address, an IPv6 /64.
func network(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, err := a.Prefix(64)
	if err != nil {
		return ip
	}
	return p.String()
}

// LoginMailbox checks the log-in of a mail client from the address ip. The error is an *Error: 401 for a wrong address
// or password, which take the same time, 403 for a mailbox that may not be used, 429 after too many wrong ones.
func (s *Service) LoginMailbox(ctx context.Context, email, password, ip string) (MailboxUser, error) {
	address, err := normalizeEmail("username", email)
	if err != nil {
		address = email[:min(len(email), 254)] // nobody's, but it is counted and takes its time like any other
	}
	from := network(ip)
	done, err := s.guesses.enter(ctx, address, from, s.now)
	if err != nil {
		return MailboxUser{}, err
	}
	defer done()
	mb, account, err := s.loginRecords(address)
	if err != nil {
		return MailboxUser{}, err
	}
	if !s.logins.verify(mb.PasswordHash, password, s.now()) {
		s.wrongPassword(address, from)
		return MailboxUser{}, Errorf(401, "unauthorized", "The address or the password is wrong.")
	}
	if mb.Status != "active" || account.Status != "active" {
		return MailboxUser{}, Errorf(403, "mailbox_unavailable", "%s may not be used now: it is %s.", mb.Email, unusable(mb, account))
	}
	s.guesses.rightAt(address, from, s.now())
	s.noteLogin(mb)
	return MailboxUser{AccountID: mb.AccountID, AccountNum: mb.AccountNum, MailboxID: mb.ID, Mailbox: mb.Num, Email: mb.Email, IP: ip}, nil
}

// wrongPassword counts a wrong password for whom it was and where it came from, and tells the log when it was one too many.
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

// loginRecords gives empty records for an address that is nobody's, whose password is then never right.
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

// unprovenMailbox gives the mailbox of an address whose domain nobody has proven to hold, if there is just one.
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

// noteLogin keeps the time of a log-in, once an hour. A store that takes no writes is no reason to turn a reader away.
func (s *Service) noteLogin(mb *store.Mailbox) {
	if s.now().Sub(mb.LastLoginAt) < time.Hour {
		return
	}
	err := s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Mailboxes.Get(tx, mb.ID)
		if err != nil {
			return err
		}
		now.LastLoginAt = tx.Now()
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
