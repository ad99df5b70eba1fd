package main

import (
	"io"
	"net"
	"testing"
)

// fromAnywhere is a listener whose connections come from the addresses that the test names.
type fromAnywhere struct {
	net.Listener
	conns chan net.Conn
}

func (f *fromAnywhere) Accept() (net.Conn, error) {
	c, ok := <-f.conns
	if !ok {
		return nil, io.EOF
	}
	return c, nil
}

type farConn struct {
	net.Conn
	addr   net.Addr
	closed bool
}

func (f *farConn) RemoteAddr() net.Addr { return f.addr }
func (f *farConn) Close() error         { f.closed = true; return nil }

func TestOneAddressCannotTakeEveryConnection(t *testing.T) {
	f := &fromAnywhere{conns: make(chan net.Conn, 100)}
	dial := func(ip string) *farConn {
		c := &farConn{addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
		f.conns <- c
		return c
	}
	c := newCrowd(f, 2)
	accept := func() net.Conn {
		conn, err := c.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	dial("192.0.2.1")
	dial("192.0.2.1")
	first, _ := accept(), accept()
	refused, other := dial("192.0.2.1"), dial("192.0.2.2")
	if got := accept(); got.RemoteAddr() != other.addr || !refused.closed {
		t.Fatalf("past its share the address got %v", got.RemoteAddr())
	}
	first.Close()
	first.Close() // counts once
	again := dial("192.0.2.1")
	if got := accept(); got.RemoteAddr() != again.addr {
		t.Fatalf("a place that was left went to %v", got.RemoteAddr())
	}
	dial("2001:db8::1")
	dial("2001:db8::2")
	accept()
	accept()
	same, loop := dial("2001:db8::3"), dial("127.0.0.1")
	if got := accept(); got.RemoteAddr() != loop.addr || !same.closed {
		t.Errorf("a /64 past its share got %v", got.RemoteAddr())
	}
	for range 5 {
		dial("127.0.0.1")
		accept()
	}
	close(f.conns)
	if _, err := c.Accept(); err != io.EOF {
		t.Errorf("the listener's error became %v", err)
	}
}
