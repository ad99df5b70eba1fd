package core

import (
	"net/netip"
	"sync"
)

// Clients finds out whether all connections of other mail servers come from one private address.
// Then a proxy hides the real addresses, and every limit, SPF check and block list sees one client.
type Clients struct {
	mu   sync.Mutex
	only netip.Addr // invalid: no connection yet, or several addresses
	n    int
	many bool
}

// Note records a connection.
func (c *Clients) Note(ip netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.many:
	case !ip.IsPrivate() && !ip.IsLoopback() || c.n > 0 && ip != c.only:
		c.many, c.only = true, netip.Addr{}
	default:
		c.only = ip
		c.n++
	}
}

// Only returns the one private address of all n connections. ok is false if there is none.
func (c *Clients) Only() (ip netip.Addr, n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.only, c.n, c.only.IsValid()
}

// A MailServer is a server that mail clients connect to.
type MailServer struct {
	Host     string
	Port     int
	Security string // tls, starttls, none
}

func MailServers(host string, port, beside int, security string) []MailServer {
	var out []MailServer
	if port != 0 {
		out = append(out, MailServer{host, port, security})
	}
	if beside != 0 {
		out = append(out, MailServer{host, beside, "starttls"})
	}
	return out
}
