package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// PublicIPs returns the addresses in the settings, or else the public addresses of this host.
func (s *Settings) PublicIPs() ([]netip.Addr, error) {
	if len(s.PublicIP) > 0 {
		return s.PublicIP, nil
	}
	if s.Sandbox() {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("find this host's addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if ip := prefix.Addr().Unmap(); err == nil && ip.IsGlobalUnicast() && !ip.IsPrivate() {
			out = append(out, ip)
		}
	}
	if len(out) == 0 {
		return nil, Mistake(errors.New("this host has no public address of its own: give --public-ip"))
	}
	return out, nil
}
