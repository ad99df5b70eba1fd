package handlers

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/internal/limit"
)

// maxRequestsPerClient is how many requests through proxies may run at once for one client: an IPv4
// address or an IPv6 /64.
const maxRequestsPerClient = 256

// Proxies are the trusted reverse proxies. From their addresses, X-Forwarded-For says which address
// the client has, and X-Forwarded-Proto whether it used HTTPS. From other addresses these headers
// are ignored. X-Forwarded-Host is always ignored. Make Proxies with NewProxies; a nil *Proxies
// trusts no address.
type Proxies struct {
	trusted []netip.Prefix
	clients *connlimit.Limiter // limits running requests by client
}

// NewProxies returns Proxies that trust the addresses in the networks.
func NewProxies(trusted []netip.Prefix, log *slog.Logger) *Proxies {
	return &Proxies{trusted, connlimit.New("http through proxies", connlimit.Limits{PerAddress: maxRequestsPerClient}, log)}
}

// A requestClient is the client of a request: the peer of the connection, or the client of that
// peer if it is a trusted proxy.
type requestClient struct {
	addr   string // IP address; "" for a local socket
	secure bool   // the client used TLS
}

// requestClientKey is the context key of a requestClient.
type requestClientKey struct{}

// clientOf returns the client of a request.
func clientOf(r *http.Request) requestClient {
	if a, ok := r.Context().Value(requestClientKey{}).(requestClient); ok {
		return a
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return requestClient{"", r.TLS != nil}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = normalizeIP(ip).String()
	}
	return requestClient{host, r.TLS != nil}
}

// remoteAddr returns the client's IP address, "" for a local socket.
func remoteAddr(r *http.Request) string { return clientOf(r).addr }

// isSecure reports whether the client used TLS, to this server or to a trusted proxy.
func isSecure(r *http.Request) bool { return clientOf(r).secure }

// normalizeIP returns an IPv4-mapped IPv6 address as IPv4, and any address without its zone.
func normalizeIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// admit stores the client of a request that came through a proxy in the request's context. The
// caller must call leave when the request has been answered. ok is false if the client has too many
// requests at once. Direct connections are not limited here.
func (p *Proxies) admit(r *http.Request) (out *http.Request, leave func(), ok bool) {
	if p == nil {
		return r, func() {}, true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !p.trusts(peer.Addr()) {
		return r, func() {}, true
	}
	client := p.clientAddr(normalizeIP(peer.Addr()), r.Header.Values("X-Forwarded-For"))
	a := requestClient{client.String(), p.usedHTTPS(r)}
	slot := p.clients.Acquire(net.TCPAddrFromAddrPort(netip.AddrPortFrom(client, 0)), func() {})
	if slot == nil {
		return r, nil, false
	}
	return r.WithContext(context.WithValue(r.Context(), requestClientKey{}, a)), slot.Release, true
}

func (p *Proxies) trusts(ip netip.Addr) bool { return limit.Within(p.trusted, ip) }

// clientAddr returns the address of the client. It reads the addresses that proxies have added to
// X-Forwarded-For, from the last back to the first, until one is not trusted. If a trusted proxy
// added an invalid address, it returns the address of that proxy.
func (p *Proxies) clientAddr(peer netip.Addr, forwarded []string) netip.Addr {
	at := peer
	for _, line := range slices.Backward(forwarded) {
		for {
			rest, hop, more := cutLastItem(line)
			if hop != "" {
				ip, ok := parseHop(hop)
				if !ok {
					return at
				}
				at = ip
				if !p.trusts(ip) {
					return at
				}
			}
			if !more {
				break
			}
			line = rest
		}
	}
	return at
}

// cutLastItem cuts the last item off a comma-separated list. more is false if there was only one
// item.
func cutLastItem(line string) (rest, last string, more bool) {
	i := strings.LastIndexByte(line, ',')
	if i < 0 {
		return "", strings.TrimSpace(line), false
	}
	return line[:i], strings.TrimSpace(line[i+1:]), true
}

// parseHop parses an item of X-Forwarded-For: an IP address, perhaps with a port.
func parseHop(text string) (addr netip.Addr, ok bool) {
	bare := text
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		bare = strings.TrimSuffix(inner, "]")
	}
	if ip, err := netip.ParseAddr(bare); err == nil {
		return normalizeIP(ip), true
	}
	both, err := netip.ParseAddrPort(text)
	return normalizeIP(both.Addr()), err == nil
}

// usedHTTPS reports whether the client used HTTPS. The last value of X-Forwarded-Proto decides, or
// the connection itself if there is none.
func (p *Proxies) usedHTTPS(r *http.Request) bool {
	lines := r.Header.Values("X-Forwarded-Proto")
	if len(lines) == 0 {
		return r.TLS != nil
	}
	_, last, _ := cutLastItem(lines[len(lines)-1])
	return strings.EqualFold(last, "https")
}
