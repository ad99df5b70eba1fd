package builtin

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// Zones is the set of zones that a server serves. The zero value is empty. It is safe for
// concurrent use, and a change takes effect with the next answer.
type Zones struct {
	mu       sync.RWMutex
	byOrigin map[string]*Zone
}

// Put adds a zone, or replaces the zone with the same origin. Unchanged record sets keep the
// signatures of the replaced zone. Its questions are counted on if it has the same owner.
func (z *Zones) Put(zone *Zone) {
	z.mu.RLock()
	before := z.byOrigin[zone.Origin]
	z.mu.RUnlock()
	zone.reuseSignatures(before)
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.byOrigin == nil {
		z.byOrigin = make(map[string]*Zone)
	}
	if before := z.byOrigin[zone.Origin]; before != nil && before.questions != nil && zone.questions != nil && before.questions.owner == zone.questions.owner {
		zone.questions = before.questions
	}
	z.byOrigin[zone.Origin] = zone
}

// Remove removes the zone with this origin, if there is one.
func (z *Zones) Remove(origin string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.byOrigin, origin)
}

// Origins returns the origins of all zones, in no particular order.
func (z *Zones) Origins() []string {
	z.mu.RLock()
	defer z.mu.RUnlock()
	return slices.Collect(maps.Keys(z.byOrigin))
}

// Zone returns the zone that contains name; of several, that with the longest origin. The name must
// be lower-case, in the notation of package dns, which escapes a dot inside a label.
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
