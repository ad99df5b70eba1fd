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

// A hostsFile has the names and addresses of the system's hosts file. It reads the file again after
// a change.
type hostsFile struct {
	path string

	mu      sync.Mutex
	checked time.Time // when the file was last checked for changes
	changed time.Time // modification time of the file when it was last read
	size    int64     // size of the file when it was last read
	byName  map[string][]netip.Addr
}

const (
	hostsCheckInterval = 5 * time.Second // minimum time between two checks for changes
	maxHostsBytes      = 1 << 20         // number of bytes of the hosts file that are used
)

// addresses returns the addresses of a name in the hosts file, or nil if there are none.
func (h *hostsFile) addresses(name string) []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Sub(h.checked) > hostsCheckInterval {
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

// A resolvFile has the resolvers in the system's resolv.conf. It reads the file again after a
// change.
type resolvFile struct {
	path string

	mu      sync.Mutex
	checked time.Time // when the file was last checked for changes
	changed time.Time // modification time of the file when it was last read
	size    int64     // size of the file when it was last read
	servers []string  // as HOST:PORT
}

// localResolvers are the resolvers if resolv.conf has none or cannot be read.
var localResolvers = []string{"127.0.0.1:53", "[::1]:53"}

// resolvers returns the resolvers as HOST:PORT.
func (f *resolvFile) resolvers() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.checked) < hostsCheckInterval && f.servers != nil {
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
		f.servers = localResolvers
	}
	return f.servers
}

// parseHosts parses the text of a hosts file, and returns the addresses by name.
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
