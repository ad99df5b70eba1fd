package rig

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// FreePort returns a port of 127.0.0.1 that is free, for a program that is given a number.
func FreePort(t *testing.T) int {
	t.Helper()
	port, err := strconv.Atoi(FreePortOn(t, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// FreePortOn returns a port of ip that is free for TCP and UDP. It is below the ports that the
// kernel picks by itself, so that no other program gets it before the one that it is for.
func FreePortOn(t *testing.T, ip string) string {
	t.Helper()
	first, _ := ownPorts()
	for range portsOfAProcess {
		port := strconv.Itoa(first + int(portsGiven.Add(1))%portsOfAProcess)
		addr := net.JoinHostPort(ip, port)
		stream, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		stream.Close()
		packets, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		packets.Close()
		return port
	}
	t.Fatal("no port is free")
	return ""
}

// ownPorts returns the first port of a range that no other test process uses: go test runs several
// packages at once, and no two tests may get the same port. A process owns a range while it listens
// on the port before it, which is until the process ends.
var ownPorts = sync.OnceValues(func() (first int, held net.Listener) {
	for port := 10000; port < 30000; port += portsOfAProcess + 1 {
		if held, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port + 1, held
		}
	}
	panic("all ranges of ports are taken")
})

const portsOfAProcess = 1999

var portsGiven atomic.Int64 // so that no two tests of a process get the same
