package main

import (
	"net"
	"net/netip"
	"sync"
)

// maxConnsPerAddress is how many HTTP connections one address, or one IPv6 /64, may have open.
const maxConnsPerAddress = 256

// A crowd is a listener that keeps one address from taking every connection there is: those past its share are closed
// at once. Loopback has no share, since a proxy may stand there for everybody.
type crowd struct {
	net.Listener
	most int
	mu   sync.Mutex
	open map[netip.Prefix]int
}

func newCrowd(ln net.Listener, most int) *crowd {
	return &crowd{Listener: ln, most: most, open: map[netip.Prefix]int{}}
}

// Accept waits for a connection whose address has room.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, bounded := share(conn.RemoteAddr())
		if !bounded {
			return conn, nil
		}
		if c.enter(from) {
			return &member{Conn: conn, leave: sync.OnceFunc(func() { c.left(from) })}, nil
		}
		conn.Close()
	}
}

// share is the network that an address counts as; false for those that are not counted.
func share(a net.Addr) (netip.Prefix, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, false
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	prefix, err := ip.WithZone("").Prefix(bits)
	return prefix, err == nil && !ip.IsLoopback()
}

func (c *crowd) enter(from netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[from] >= c.most {
		return false
	}
	c.open[from]++
	return true
}

func (c *crowd) left(from netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[from]--; c.open[from] == 0 {
		delete(c.open, from)
	}
}

// A member is a connection that is counted until it is closed.
type member struct {
	net.Conn
	leave func()
}

// Close closes the connection and counts it out.
func (m *member) Close() error {
	m.leave()
	return m.Conn.Close()
}
