package config

import (
	"net/netip"
	"testing"
)

// TestIsPublic: private addresses, those of carriers and those of one link are not public.
func TestIsPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"203.0.113.5": true, "2001:db8::5": true, "100.63.0.1": true, "100.64.0.1": false, "100.127.255.1": false, "100.128.0.1": true,
		"10.0.0.1": false, "192.168.1.1": false, "fd00::1": false, "127.0.0.1": false, "169.254.1.1": false, "fe80::1": false,
	} {
		if got := IsPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
