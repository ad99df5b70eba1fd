package zones

import (
	"net/netip"
	"slices"
)

// proxyNetworks are the published networks of Cloudflare's proxy. An address in one of them serves
// a website only while the DNS of its domain is at Cloudflare.
var proxyNetworks = func() (out []netip.Prefix) {
	for _, text := range []string{
		"173.245.48.0/20", "103.21.244.0/22", "103.22.200.0/22", "103.31.4.0/22", "141.101.64.0/18", "108.162.192.0/18", "190.93.240.0/20",
		"188.114.96.0/20", "197.234.240.0/22", "198.41.128.0/17", "162.158.0.0/15", "104.16.0.0/13", "104.24.0.0/14", "172.64.0.0/13", "131.0.72.0/22",
		"2400:cb00::/32", "2606:4700::/32", "2803:f800::/32", "2405:b500::/32", "2405:8100::/32", "2a06:98c0::/29", "2c0f:f248::/32",
	} {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}()

// isProxied reports whether an address is that of a proxy, and will not serve after the DNS has
// moved.
func isProxied(ip netip.Addr) bool {
	return slices.ContainsFunc(proxyNetworks, func(n netip.Prefix) bool { return n.Contains(ip) })
}
