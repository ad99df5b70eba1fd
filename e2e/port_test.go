package e2e

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// freePort is a port of 127.0.0.1 for a program that is not told of a listener but of a number.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := strconv.Atoi(freePortOn(t, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// freePortOn is a port that nobody has, for TCP and UDP. It is below the ports that the kernel
// gives to whoever names none, so that nobody takes it before the program that it is for.
func freePortOn(t *testing.T, ip string) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(10000 + rand.IntN(20000))
		addr := net.JoinHostPort(ip, port)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
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

var givenPorts sync.Map // so that no two tests get the same
