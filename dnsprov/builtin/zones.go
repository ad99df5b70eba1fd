package builtin

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// Zones holds the zones that a server answers for. A change takes effect with the next answer. The
// zero value is empty.
type Zones struct {
	mu       sync.RWMutex
	byOrigin map[string]*Zone
}

// Put adds a zone. It replaces a zone with the same origin, and keeps that zone's signatures for
// unchanged records.
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

// Remove removes the zone of origin, if there is one.
func (z *Zones) Remove(origin string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.byOrigin, origin)
}

// Origins lists the origins of all zones, in no order.
func (z *Zones) Origins() []string {
	z.mu.RLock()
	defer z.mu.RUnlock()
	return slices.Collect(maps.Keys(z.byOrigin))
}

// Zone returns the zone that encloses name most closely. The name is lower-case, without the
// trailing dot, in the notation of the dns package, which escapes a dot inside a label.
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
