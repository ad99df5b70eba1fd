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

// maxPerClient is how many requests through proxies one address, or one IPv6 /64, may have running
// at once.
const maxPerClient = 256

// Proxies are the addresses whose X-Forwarded-For and X-Forwarded-Proto headers are trusted: the
// client's address, and whether it used HTTPS. From other addresses they are ignored, and
// X-Forwarded-Host always is. Make them with NewProxies; a nil *Proxies trusts no address.
type Proxies struct {
	trusted []netip.Prefix
	clients *connlimit.Limiter // limits running requests by client
}

// NewProxies trusts the addresses in the networks.
func NewProxies(trusted []netip.Prefix, log *slog.Logger) *Proxies {
	return &Proxies{trusted, connlimit.New("http through proxies", connlimit.Limits{PerAddress: maxPerClient}, log)}
}

// A requestClient is the client of a request: the peer of the connection, or the peer's client if
// the peer is a trusted proxy.
type requestClient struct {
	addr   string // IP address; "" for a local socket
	secure bool   // over TLS
}

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
		host = plainIP(ip).String()
	}
	return requestClient{host, r.TLS != nil}
}

// remoteAddr returns the client's address without port, "" for a local socket.
func remoteAddr(r *http.Request) string { return clientOf(r).addr }

// isSecure reports whether the client used TLS, to this server or to a trusted proxy.
func isSecure(r *http.Request) bool { return clientOf(r).secure }

func plainIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// admit adds the client to the context of a request through a proxy. The caller must call leave
// when the request has been answered. ok is false if the client has too many requests at once. It
// does not limit direct connections.
func (p *Proxies) admit(r *http.Request) (out *http.Request, leave func(), ok bool) {
	if p == nil {
		return r, func() {}, true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !p.trusts(peer.Addr()) {
		return r, func() {}, true
	}
	client := p.client(plainIP(peer.Addr()), r.Header.Values("X-Forwarded-For"))
	a := requestClient{client.String(), p.secure(r)}
	slot := p.clients.Acquire(net.TCPAddrFromAddrPort(netip.AddrPortFrom(client, 0)), func() {})
	if slot == nil {
		return r, nil, false
	}
	return r.WithContext(context.WithValue(r.Context(), requestClientKey{}, a)), slot.Release, true
}

func (p *Proxies) trusts(ip netip.Addr) bool { return limit.Within(p.trusted, ip) }

// client walks the addresses that proxies have added, the nearest first, and returns the first
// untrusted one. If a trusted proxy added an invalid address, it returns that proxy.
func (p *Proxies) client(peer netip.Addr, forwarded []string) netip.Addr {
	at := peer
	for _, line := range slices.Backward(forwarded) {
		for {
			rest, hop, more := cutLast(line)
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

// cutLast cuts the last item off a comma-separated list.
func cutLast(line string) (rest, last string, more bool) {
	i := strings.LastIndexByte(line, ',')
	if i < 0 {
		return "", strings.TrimSpace(line), false
	}
	return line[:i], strings.TrimSpace(line[i+1:]), true
}

// parseHop parses an address that may have a port.
func parseHop(text string) (netip.Addr, bool) {
	bare := text
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		bare = strings.TrimSuffix(inner, "]")
	}
	if ip, err := netip.ParseAddr(bare); err == nil {
		return plainIP(ip), true
	}
	both, err := netip.ParseAddrPort(text)
	return plainIP(both.Addr()), err == nil
}

// secure reports whether the client used HTTPS: as the nearest proxy says, or else by the
// connection itself.
func (p *Proxies) secure(r *http.Request) bool {
	lines := r.Header.Values("X-Forwarded-Proto")
	if len(lines) == 0 {
		return r.TLS != nil
	}
	_, last, _ := cutLast(lines[len(lines)-1])
	return strings.EqualFold(last, "https")
}
