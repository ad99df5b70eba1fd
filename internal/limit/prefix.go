package limit

import "net/netip"

// Prefix returns the network of an address, of so many bits for IPv4 or IPv6: what counts as one
// client. An IPv4 address in IPv6 form counts as IPv4, and a zone does not count. It is the zero
// Prefix for the zero address.
func Prefix(ip netip.Addr, bits4, bits6 int) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := bits6
	if ip.Is4() {
		bits = bits4
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// Host returns the network that one host has to itself: an IPv4 address, or an IPv6 /64.
func Host(ip netip.Addr) netip.Prefix { return Prefix(ip, 32, 64) }

// Site returns the network that one site or a small provider has: an IPv4 /24, or an IPv6 /48.
func Site(ip netip.Addr) netip.Prefix { return Prefix(ip, 24, 48) }
