package handlers

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/handlers/crowd"
)

// maxPerClient is how many requests of one address, or one IPv6 /64, may be under way through
// proxies.
const maxPerClient = 256

// Proxies are those who may say for whom they ask and how they were asked, by X-Forwarded-For and
// X-Forwarded-Proto. Nobody else's such headers are looked at, and X-Forwarded-Host is nobody's to
// say. Make them with NewProxies; nil are none.
type Proxies struct {
	trusted []netip.Prefix
	clients *crowd.Crowd // who has requests under way
}

// NewProxies trusts whoever connects from one of the networks. The log tells of clients that ask
// for too much at once.
func NewProxies(trusted []netip.Prefix, log *slog.Logger) *Proxies {
	return &Proxies{trusted, crowd.New("http through proxies", crowd.Bounds{PerAddress: maxPerClient}, log)}
}

// An asker is who made a request: the peer of the connection or, where that is a trusted proxy,
// whom it asks for.
type asker struct {
	addr   string // IP address; "" for a local socket
	secure bool   // over TLS
}

type askerKey struct{}

// askerOf tells who made the request.
func askerOf(r *http.Request) asker {
	if a, ok := r.Context().Value(askerKey{}).(asker); ok {
		return a
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return asker{"", r.TLS != nil}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = plainIP(ip).String()
	}
	return asker{host, r.TLS != nil}
}

// remoteAddr is the client's address without port; "" for a local socket.
func remoteAddr(r *http.Request) string { return askerOf(r).addr }

// isSecure tells whether the client speaks TLS, to us or to a trusted proxy.
func isSecure(r *http.Request) bool { return askerOf(r).secure }

func plainIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// admit gives the request with its asker noted, and leave, to be called when it is answered; ok is
// false where one client has too many requests under way. Connections of a proxy are its own to
// bound.
func (p *Proxies) admit(r *http.Request) (out *http.Request, leave func(), ok bool) {
	if p == nil {
		return r, func() {}, true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !p.trusts(peer.Addr()) {
		return r, func() {}, true
	}
	client := p.client(plainIP(peer.Addr()), r.Header.Values("X-Forwarded-For"))
	a := asker{client.String(), p.secure(r)}
	place := p.clients.Enter(net.TCPAddrFromAddrPort(netip.AddrPortFrom(client, 0)), func() {})
	if place == nil {
		return r, nil, false
	}
	return r.WithContext(context.WithValue(r.Context(), askerKey{}, a)), place.Leave, true
}

func (p *Proxies) trusts(ip netip.Addr) bool {
	ip = plainIP(ip)
	return slices.ContainsFunc(p.trusted, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// client follows the hops that proxies have noted, the nearest last, as far as they are trusted: it
// is the first that is not, and where one noted what is no address, that one itself.
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
				if at = ip; !p.trusts(ip) {
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

// cutLast takes the last item off a list with commas.
func cutLast(line string) (rest, last string, more bool) {
	i := strings.LastIndexByte(line, ',')
	if i < 0 {
		return "", strings.TrimSpace(line), false
	}
	return line[:i], strings.TrimSpace(line[i+1:]), true
}

// parseHop reads an address, which may have a port.
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

// secure tells what the nearest proxy says of its own client, and where it says nothing, how it
// came itself.
func (p *Proxies) secure(r *http.Request) bool {
	lines := r.Header.Values("X-Forwarded-Proto")
	if len(lines) == 0 {
		return r.TLS != nil
	}
	_, last, _ := cutLast(lines[len(lines)-1])
	return strings.EqualFold(last, "https")
}

// fromProxy finds out who asks, and answers a client that has too many requests under way; ok is
// false then.
func (s *Server) fromProxy(w http.ResponseWriter, r *http.Request) (out *http.Request, leave func(), ok bool) {
	out, leave, ok = s.Proxies.admit(r)
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many requests from this address at once: wait until some are answered", http.StatusServiceUnavailable)
	}
	return out, leave, ok
}

// byName tells whether the client asked for this host by its own name.
func (s *Server) byName(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.EqualFold(host, s.svc.Config.Hostname)
}
