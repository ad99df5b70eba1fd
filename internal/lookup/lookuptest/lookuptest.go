// Package lookuptest helps tests that answer DNS queries themselves.
package lookuptest

import (
	"net"
	"testing"
)

// SamePort listens on one port of 127.0.0.1 for both UDP and TCP. A port that the kernel chooses
// for UDP may be taken for TCP by another connection, so it tries several.
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
