package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// carrierNetwork has the addresses that providers share among customers (RFC 6598), which private
// networks such as Tailscale use too.
var carrierNetwork = netip.MustParsePrefix("100.64.0.0/10")

// IsPublic reports whether other hosts can reach an address, as far as its kind tells.
func IsPublic(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && !carrierNetwork.Contains(ip)
}

// PublicIPs returns the public addresses of this host: those in the settings, or else those of its
// network interfaces. It returns a Mistake if there are none. In the sandbox it returns 127.0.0.1.
func (s *Settings) PublicIPs() ([]netip.Addr, error) {
	if len(s.PublicIP) > 0 {
		return s.PublicIP, nil
	}
	if s.Sandbox() {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this host's interfaces: %w", err)
	}
	var out []netip.Addr
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if ip := prefix.Addr().Unmap(); err == nil && IsPublic(ip) {
			out = append(out, ip)
		}
	}
	if len(out) == 0 {
		return nil, Mistake(errors.New("no network interface of this host has a public address: give --public-ip"))
	}
	return out, nil
}

// IsOwn returns a function that reports whether an IP address is this host: a loopback address, one
// of its network interfaces, or one of public. The address must be without the IPv4 mapping. In the
// sandbox it returns nil: there everybody asks from this host.
func (s *Settings) IsOwn(public []netip.Addr) func(netip.Addr) bool {
	if s.Sandbox() {
		return nil
	}
	var own []netip.Addr
	for _, ip := range public {
		own = append(own, ip.Unmap())
	}
	addrs, _ := net.InterfaceAddrs() // none, if they cannot be read
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, prefix.Addr().Unmap())
		}
	}
	return func(ip netip.Addr) bool { return ip.IsLoopback() || slices.Contains(own, ip.WithZone("")) }
}
