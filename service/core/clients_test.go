package core

import (
	"net/netip"
	"testing"
)

func TestClientsOfOneAddress(t *testing.T) {
	for _, c := range []struct {
		from []string
		want string
	}{
		{nil, ""}, {[]string{"10.0.0.1", "10.0.0.1"}, "10.0.0.1"}, {[]string{"127.0.0.1"}, "127.0.0.1"}, {[]string{"10.0.0.1", "10.0.0.2"}, ""},
		{[]string{"10.0.0.1", "192.0.2.1", "10.0.0.1"}, ""}, {[]string{"192.0.2.1", "192.0.2.1"}, ""}, {[]string{"fd00::1", "fd00::1"}, "fd00::1"},
	} {
		var clients Clients
		for _, ip := range c.from {
			clients.Record(netip.MustParseAddr(ip))
		}
		ip, n, ok := clients.OnlyAddress()
		if got := ip.String(); ok != (c.want != "") || ok && (got != c.want || n != len(c.from)) {
			t.Errorf("%v: %s %d %v", c.from, got, n, ok)
		}
	}
}
