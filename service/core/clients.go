package core

import (
	"net/netip"
	"sync"
)

// Clients finds out whether all connections from other mail servers have the same private address.
// Then a proxy hides the real addresses, and all limits, SPF checks and block lists see only one
// client.
type Clients struct {
	mu   sync.Mutex
	only netip.Addr // the one private address so far; invalid: none yet, or many
	n    int        // connections from the address in only
	many bool       // connections came from a public address, or from several private ones
}

// Record counts a connection.
func (c *Clients) Record(ip netip.Addr) {
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

// OnlyAddress returns the private address that all n connections came from. ok is false if there is
// none.
func (c *Clients) OnlyAddress() (ip netip.Addr, n int, ok bool) {
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

// MailServers returns two servers on a host: at port, with the given security, and at starttlsPort,
// with STARTTLS. It leaves out a server whose port is 0.
func MailServers(host string, port, starttlsPort int, security string) []MailServer {
	var out []MailServer
	if port != 0 {
		out = append(out, MailServer{host, port, security})
	}
	if starttlsPort != 0 {
		out = append(out, MailServer{host, starttlsPort, "starttls"})
	}
	return out
}
