package lookup

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// A hostsFile holds the addresses that the system's hosts file gives to names. It is read again
// after a change.
type hostsFile struct {
	path string

	mu      sync.Mutex
	checked time.Time
	changed time.Time
	size    int64
	byName  map[string][]netip.Addr
}

const (
	hostsCheck    = 5 * time.Second
	maxHostsBytes = 1 << 20 // bytes of the file that are read
)

// addresses returns the addresses of a name; none if the file does not list it or cannot be read.
func (h *hostsFile) addresses(name string) []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Sub(h.checked) > hostsCheck {
		h.checked = now
		if info, err := os.Stat(h.path); err != nil {
			h.byName, h.changed = nil, time.Time{}
		} else if !info.ModTime().Equal(h.changed) || info.Size() != h.size {
			if text, err := os.ReadFile(h.path); err == nil {
				h.changed, h.size, h.byName = info.ModTime(), info.Size(), parseHosts(string(text[:min(len(text), maxHostsBytes)]))
			}
		}
	}
	return slices.Clone(h.byName[strings.ToLower(strings.TrimSuffix(name, "."))])
}

// A resolvFile holds the resolvers of the system's resolv.conf. It is read again after a change.
type resolvFile struct {
	path string

	mu      sync.Mutex
	checked time.Time
	changed time.Time
	size    int64
	servers []string // host:port
}

// noResolvers is used if the file cannot be read or names no resolvers: a resolver on this machine.
var noResolvers = []string{"127.0.0.1:53", "[::1]:53"}

func (f *resolvFile) resolvers() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.checked) < hostsCheck && f.servers != nil {
		return f.servers
	}
	f.checked = now
	info, err := os.Stat(f.path)
	if err == nil && f.servers != nil && info.ModTime().Equal(f.changed) && info.Size() == f.size {
		return f.servers
	}
	f.servers = nil
	if conf, errRead := dns.ClientConfigFromFile(f.path); err == nil && errRead == nil {
		f.changed, f.size = info.ModTime(), info.Size()
		for _, host := range conf.Servers {
			f.servers = append(f.servers, net.JoinHostPort(host, conf.Port))
		}
	}
	if len(f.servers) == 0 {
		f.servers = noResolvers
	}
	return f.servers
}

func parseHosts(text string) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		addr, err := netip.ParseAddr(fields[0])
		if err != nil {
			continue
		}
		for _, name := range fields[1:] {
			name = strings.ToLower(strings.TrimSuffix(name, "."))
			if !slices.Contains(out[name], addr.Unmap()) {
				out[name] = append(out[name], addr.Unmap())
			}
		}
	}
	return out
}
