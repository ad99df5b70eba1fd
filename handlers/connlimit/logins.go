package connlimit

import (
	"fmt"
	"sync"
)

const (
	reservedShare = 10  // a server keeps one of so many places for accounts with few connections
	fewShare      = 100 // an account with less than one of so many places has few connections
)

// Logins counts the connections that are logged in, over all servers: for each account, and for
// each mailbox and protocol. Make it with NewLogins.
type Logins struct {
	perAccount func() int // returns the limit now; 0: no limit

	mu        sync.Mutex // a Limiter locks its own mutex before this one
	mailboxes map[mailboxKey]int
	accounts  map[string]int
}

type mailboxKey struct{ protocol, mailbox string }

// NewLogins returns a Logins without connections. perAccount is how many connections of one account
// may be logged in at once; 0 means no limit.
func NewLogins(perAccount int) *Logins {
	return NewChangingLogins(func() int { return perAccount })
}

// NewChangingLogins is like NewLogins, for a limit that may change while connections are open.
func NewChangingLogins(perAccount func() int) *Logins {
	return &Logins{perAccount: perAccount, mailboxes: map[mailboxKey]int{}, accounts: map[string]int{}}
}

// A Login says whose connection it is.
type Login struct {
	Protocol string // mailboxes have a limit for each protocol
	Mailbox  string // an ID
	Account  string // an ID
}

// LogIn counts the connection for its mailbox and account from now on, and no longer for its
// address and network. It cannot be evicted any more. If there are too many connections, nothing
// changes, and refusal is a sentence for the client that says of what; otherwise refusal is "". The
// limits are Limits.PerMailbox, the one of the account, and those of isReserved. A second log-in
// replaces the first.
func (s *Slot) LogIn(logins *Logins, who Login) (refusal string) {
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.released {
		return "Idle connection closed for others, try again later"
	}
	if s.logins != nil {
		l.uncountLogin(s)
		l.countClient(s)
		s.logins = nil
	}
	_, perMailbox := l.limits.changing()
	refusal = logins.count(who, perMailbox, l.isReserved(who.Account))
	if refusal != "" {
		l.countEvent(&l.refusedLogins)
		return refusal
	}
	l.uncountClient(s)
	s.logins, s.login = logins, who
	l.loggedIn++
	l.accounts[who.Account]++
	return ""
}

// isReserved reports whether the places that are left for connections after log-in are reserved for
// accounts with few connections to this server, and the account has more. l.mu is held.
func (l *Limiter) isReserved(account string) bool {
	free := l.limits.All - l.loggedIn
	return l.limits.All > 0 && free <= l.limits.All/reservedShare && l.accounts[account] >= max(1, l.limits.All/fewShare)
}

// uncountLogin takes back what LogIn counted. l.mu is held.
func (l *Limiter) uncountLogin(s *Slot) {
	l.loggedIn--
	if l.accounts[s.login.Account]--; l.accounts[s.login.Account] == 0 {
		delete(l.accounts, s.login.Account)
	}
	s.logins.uncount(s.login)
}

// count counts a connection unless there are too many. reserved says that the server has no place
// for the account. refusal is that of LogIn.
func (g *Logins) count(who Login, perMailbox int, reserved bool) (refusal string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mailbox := mailboxKey{who.Protocol, who.Mailbox}
	switch {
	case isFull(g.mailboxes[mailbox], perMailbox):
		return fmt.Sprintf("This mailbox has %d connections already", g.mailboxes[mailbox])
	case isFull(g.accounts[who.Account], g.perAccount()):
		return fmt.Sprintf("This account has %d connections already", g.accounts[who.Account])
	case reserved:
		return "The server is nearly full, and this account has many connections already"
	}
	g.mailboxes[mailbox]++
	g.accounts[who.Account]++
	return ""
}

// uncount takes back what count counted.
func (g *Logins) uncount(who Login) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mailbox := mailboxKey{who.Protocol, who.Mailbox}
	if g.mailboxes[mailbox]--; g.mailboxes[mailbox] == 0 {
		delete(g.mailboxes, mailbox)
	}
	if g.accounts[who.Account]--; g.accounts[who.Account] == 0 {
		delete(g.accounts, who.Account)
	}
}
