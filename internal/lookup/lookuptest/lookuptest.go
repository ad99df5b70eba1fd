// Package lookuptest helps tests that run their own DNS server.
package lookuptest

import (
	"net"
	"testing"
)

// SamePort listens on the same port of 127.0.0.1 for UDP and TCP. It tries several ports, because a
// port that is free for UDP may be in use for TCP.
func SamePort(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if stream, err := net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, stream
		}
		packets.Close()
	}
	t.Fatal("no port is free for UDP and TCP alike")
	return nil, nil
}
