package lookup

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
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
