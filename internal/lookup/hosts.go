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

// A hostsFile has the addresses that the system's administrator gave to names. It is read again
// when it has changed.
type hostsFile struct {
	path string

	mu      sync.Mutex
	checked time.Time
	changed time.Time
	size    int64
	byName  map[string][]netip.Addr
}

const (
	hostsCheck = 5 * time.Second
	hostsMost  = 1 << 20 // bytes that are read
)

// addresses gives those of a name; none where the file has no such line or cannot be read.
func (h *hostsFile) addresses(name string) []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Sub(h.checked) > hostsCheck {
		h.checked = now
		if info, err := os.Stat(h.path); err != nil {
			h.byName, h.changed = nil, time.Time{}
		} else if !info.ModTime().Equal(h.changed) || info.Size() != h.size {
			if text, err := os.ReadFile(h.path); err == nil {
				h.changed, h.size, h.byName = info.ModTime(), info.Size(), parseHosts(string(text[:min(len(text), hostsMost)]))
			}
		}
	}
	return slices.Clone(h.byName[strings.ToLower(strings.TrimSuffix(name, "."))])
}

// A resolvFile names the resolvers of the system. It is read again when it has changed.
type resolvFile struct {
	path string

	mu      sync.Mutex
	checked time.Time
	changed time.Time
	size    int64
	servers []string // host:port
}

// noResolvers are asked where the file cannot be read or names none: a resolver on this machine.
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
