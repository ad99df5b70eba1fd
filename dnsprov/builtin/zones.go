package builtin

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// Zones are the zones that one server answers for; a change shows in the next answer. The zero
// value has none.
type Zones struct {
	mu       sync.RWMutex
	byOrigin map[string]*Zone
}

// Put adds a zone, in place of one with the same origin, whose signatures it takes over where the
// records are the same.
func (z *Zones) Put(zone *Zone) {
	z.mu.RLock()
	before := z.byOrigin[zone.Origin]
	z.mu.RUnlock()
	zone.adopt(before)
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.byOrigin == nil {
		z.byOrigin = make(map[string]*Zone)
	}
	z.byOrigin[zone.Origin] = zone
}

// Remove takes the zone of origin out, if there is one.
func (z *Zones) Remove(origin string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.byOrigin, origin)
}

// Origins lists the zones, in no order.
func (z *Zones) Origins() []string {
	z.mu.RLock()
	defer z.mu.RUnlock()
	return slices.Collect(maps.Keys(z.byOrigin))
}

// Zone returns the zone that encloses name most closely. The name is lower-case, without the
// trailing dot, in the notation of the dns package, in which a dot inside a label is escaped.
func (z *Zones) Zone(name string) (*Zone, bool) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	name = strings.TrimSuffix(name, ".")
	for off, end := 0, false; !end; off, end = dns.NextLabel(name, off) {
		if zone, ok := z.byOrigin[name[off:]]; ok {
			return zone, true
		}
	}
	return nil, false
}
