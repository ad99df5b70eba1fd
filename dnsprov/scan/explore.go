package scan

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/spf"
)

const (
	workersEach = 4    // names that are explored at the same time for each server with the newest zone
	maxWorkers  = 16   // names that are explored at the same time
	maxTargets  = 2000 // names that are not known from a walk
	maxSet      = 200  // records of one name and type that are not from a transfer
)

// A target is a name that is asked for.
type target struct {
	name  string   // canonical
	types []uint16 // that are asked for
	more  []uint16 // that are asked for too if the name has records
	exact bool     // the name has these types and no others, as its NSEC record says
	sure  bool     // it is asked for even if the name above it does not exist
}

// An explorer asks for names, and for those that their records lead to.
type explorer struct {
	*session
	domain   string
	found    *harvest
	progress func(done, total int)

	wildcard map[uint16][]dns.RR // by type, what names right below the domain have that do not exist; nil: nothing
	blind    bool                // the servers say of every name that it exists

	mu       sync.Mutex
	done     int
	total    int
	next     []target        // after those that are being explored
	known    map[string]bool // names that are, or were, targets
	led      map[string]bool // names that records lead to
	likeWild map[string]bool // names that have what the wildcard has, and that no record leads to yet
	cuts     map[string]bool // delegated names
	missed   bool            // a question had no answer

	// Nothing is below a name that does not exist (RFC 8020), so names below it are left out. But
	// some servers deny a name that has no records itself, even if there are names below it.
	absent  map[string]bool   // names that do not exist
	present map[string]bool   // names that have records, and the names above them
	left    map[string]target // targets that were left out, by name
	denies  bool              // the servers deny such names, so nothing is left out
}

func (z *session) explorer(domain string, progress func(done, total int)) *explorer {
	if progress == nil {
		progress = func(int, int) {}
	}
	return &explorer{
		session: z, domain: domain, found: newHarvest(domain), progress: progress,
		known: map[string]bool{}, led: map[string]bool{}, likeWild: map[string]bool{}, cuts: map[string]bool{},
		absent: map[string]bool{}, present: map[string]bool{}, left: map[string]target{},
	}
}

// run explores targets, then what they lead to. It ends with the first error.
func (e *explorer) run(ctx context.Context, targets []target) error {
	for _, t := range targets {
		e.enqueue(t)
	}
	for len(e.next) > 0 {
		now := e.next
		e.next = nil
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(min(workersEach*e.newest, maxWorkers))
		for _, t := range now {
			if ctx.Err() != nil || e.found.isFull() {
				break
			}
			g.Go(func() error {
				if err := e.explore(ctx, t); err != nil {
					return err
				}
				e.mu.Lock()
				defer e.mu.Unlock()
				e.done++
				e.progress(e.done, e.total)
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if e.found.isFull() {
			return errTooLarge
		}
	}
	return nil
}

func (e *explorer) enqueue(t target) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := dns.IsDomainName(t.name); ok && !e.known[t.name] && (t.exact || len(e.known) < maxTargets) {
		e.known[t.name] = true
		e.next = append(e.next, t)
		e.total++
	}
}

// findWildcard asks for a name that nobody has.
func (e *explorer) findWildcard(ctx context.Context) error {
	wild := "*." + e.domain
	name := strings.ToLower(rand.Text()) + "." + e.domain
	if _, ok := dns.IsDomainName(name); !ok {
		return nil
	}
	sets := map[uint16][]dns.RR{}
	for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeMX, dns.TypeTXT, dns.TypeCAA, dns.TypeHTTPS, dns.TypeSRV} {
		r, err := e.ask(ctx, name, typ, false)
		if err == errLame || err == errSilent {
			e.miss()
			continue
		}
		if err != nil {
			return err
		}
		if !r.exists || r.cut != nil {
			return nil
		}
		for _, rr := range e.bounded(r.set) {
			if rr.Header().Name == name { // not a DNAME
				rr.Header().Name = wild
			}
			sets[rr.Header().Rrtype] = append(sets[rr.Header().Rrtype], rr)
		}
		if sets[dns.TypeCNAME] != nil || sets[dns.TypeDNAME] != nil {
			break
		}
	}
	if len(sets) == 0 {
		e.blind = true
		return nil
	}
	e.wildcard = sets
	e.add(sets)
	return nil
}

// explore asks for the types of a target. The errors are ErrNoServer and that of ctx.
func (e *explorer) explore(ctx context.Context, t target) error {
	if e.delegated(t.name) || e.leaveOut(t) {
		return nil
	}
	types := t.types
	if !t.exact {
		for typ := range e.wildcard {
			if !slices.Contains(types, typ) {
				types = append(slices.Clone(types), typ)
			}
		}
	}
	sets := map[uint16][]dns.RR{}
	exists, whole, err := e.sets(ctx, t, types, sets)
	if err != nil || whole {
		return err
	}
	isLed, likeWild := e.place(t, sets)
	if len(sets) > 0 && !likeWild {
		e.notePresent(t.name)
	}
	switch {
	case likeWild && !isLed:
		e.noteAbsent(t.name)
		return nil
	case likeWild: // the wildcard's types are all that it has
	case exists && (len(sets) > 0 || isLed || !e.blind): // it has nothing, or not what the wildcard has, so it is there itself
		more := slices.DeleteFunc(slices.Clone(t.more), func(typ uint16) bool { return slices.Contains(types, typ) })
		_, whole, err = e.sets(ctx, t, more, sets)
		if err != nil || whole {
			return err
		}
	}
	if ns := sets[dns.TypeNS]; ns != nil && t.name != e.domain { // the servers have the zone below, too
		return e.delegate(ctx, &cut{name: t.name, ns: ns[:min(len(ns), maxHosts)]})
	}
	if t.exact {
		for _, set := range sets {
			e.found.add(set...)
		}
		return nil
	}
	e.add(sets)
	return nil
}

// sets asks for types of a target, and adds the sets that there are. whole: nothing more can be
// found at the name, and what was found is added.
func (e *explorer) sets(ctx context.Context, t target, types []uint16, sets map[uint16][]dns.RR) (exists, whole bool, err error) {
	for _, typ := range types {
		if t.name != e.domain && sets[dns.TypeCNAME] != nil {
			return true, false, nil // there are no other types (RFC 2181 section 10.1), but at a domain some servers have them
		}
		r, err := e.ask(ctx, t.name, typ, false)
		if err == errLame || err == errSilent {
			e.miss()
			continue
		}
		if err != nil {
			return false, true, err
		}
		if r.cut != nil {
			return true, true, e.delegate(ctx, r.cut)
		}
		if !r.exists || t.exact && len(r.set) == 0 {
			if t.exact { // the zone has changed, or its NSEC records are not true
				e.miss()
			}
			if !r.exists {
				if len(sets) == 0 {
					e.noteAbsent(t.name)
				}
				return false, false, nil
			}
		}
		exists = true
		for _, rr := range e.bounded(r.set) {
			kind := rr.Header().Rrtype
			if kind == dns.TypeDNAME && rr.Header().Name != t.name {
				e.found.add(rr)
				return true, true, nil
			}
			sets[kind] = append(sets[kind], rr)
		}
	}
	return exists, false, nil
}

// leaveOut reports whether a target is not asked for, because a name above it does not exist.
func (e *explorer) leaveOut(t target) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.sure || t.exact || e.denies || e.led[t.name] {
		return false
	}
	for above := parentOf(t.name); len(above) > len(e.domain); above = parentOf(above) {
		if e.absent[above] {
			e.left[t.name] = t
			return true
		}
	}
	return false
}

// noteAbsent notes that a name does not exist.
func (e *explorer) noteAbsent(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.absent[name] = true
	if e.present[name] {
		e.takeLeft()
	}
}

// notePresent notes that a name has records.
func (e *explorer) notePresent(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ; len(name) > len(e.domain); name = parentOf(name) {
		e.present[name] = true
		if e.absent[name] {
			e.takeLeft()
		}
	}
}

// takeLeft asks for all targets that were left out, and for those that would be. The caller holds
// e.mu.
func (e *explorer) takeLeft() {
	e.denies = true
	for _, name := range slices.Sorted(maps.Keys(e.left)) {
		e.next = append(e.next, e.left[name])
	}
	e.total += len(e.left)
	clear(e.left)
}

// place reports whether records lead to a target, and whether it has what the wildcard has, so that
// most likely it does not exist. Then it remembers the name for the case that a record leads to it.
func (e *explorer) place(t target, sets map[uint16][]dns.RR) (isLed, likeWild bool) {
	likeWild = !t.exact && e.wildcard != nil && maps.EqualFunc(sets, e.wildcard, func(a, b []dns.RR) bool { return maps.Equal(values(a), values(b)) })
	e.mu.Lock()
	defer e.mu.Unlock()
	isLed = e.led[t.name]
	if likeWild && !isLed {
		e.likeWild[t.name] = true
	}
	return isLed, likeWild
}

// values returns records without their names and TTLs.
func values(rrs []dns.RR) map[dnsprov.Record]bool {
	out := map[dnsprov.Record]bool{}
	for _, rr := range rrs {
		r := dnsprov.RecordOf(rr)
		r.Name, r.TTL = "", 0
		out[r] = true
	}
	return out
}

// add adds sets of one name to what was found, and explores the names that they lead to.
func (e *explorer) add(sets map[uint16][]dns.RR) {
	if mx := sets[dns.TypeMX]; mx != nil && mx[0].Header().Name != e.domain && !strings.HasPrefix(mx[0].Header().Name, "*") {
		for name := range strings.FieldsSeq(belowMail) {
			e.enqueue(target{name: name + "." + mx[0].Header().Name, types: textTypes, sure: true})
		}
	}
	for _, set := range sets {
		e.found.add(set...)
		for _, rr := range set {
			for _, name := range leadsTo(rr) {
				e.lead(name)
			}
			if mx, ok := rr.(*dns.MX); ok && dns.IsSubDomain(e.domain, dns.CanonicalName(mx.Mx)) {
				e.enqueue(target{name: "_25._tcp." + dns.CanonicalName(mx.Mx), types: []uint16{dns.TypeTLSA}})
			}
		}
	}
}

// lead explores a name to which a record leads.
func (e *explorer) lead(name string) {
	if !dns.IsSubDomain(e.domain, name) {
		return
	}
	e.mu.Lock()
	e.led[name] = true
	likeWild := e.likeWild[name]
	delete(e.likeWild, name)
	if t, isLeft := e.left[name]; isLeft {
		delete(e.left, name)
		e.next = append(e.next, t)
		e.total++
	}
	e.mu.Unlock()
	if likeWild {
		for _, set := range e.wildcard {
			for _, rr := range set {
				rr = dns.Copy(rr)
				rr.Header().Name = name
				e.found.add(rr)
			}
		}
	}
	e.enqueue(target{name: name, types: hostTypes, more: moreHostTypes})
}

// bounded returns the records of a set that are used.
func (e *explorer) bounded(set []dns.RR) []dns.RR {
	if len(set) > maxSet {
		e.miss()
		return set[:maxSet]
	}
	return set
}

func (e *explorer) miss() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missed = true
}

// delegated reports whether a name is at or below a name that is known to be delegated.
func (e *explorer) delegated(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ; len(name) > len(e.domain); name = parentOf(name) {
		if e.cuts[name] {
			return true
		}
	}
	return false
}

// delegate adds the NS and DS records of a delegated name, and the addresses of its servers.
func (e *explorer) delegate(ctx context.Context, c *cut) error {
	e.mu.Lock()
	isKnown := e.cuts[c.name]
	e.cuts[c.name] = true
	e.mu.Unlock()
	if isKnown || c.name == e.domain || !dns.IsSubDomain(e.domain, c.name) {
		return nil
	}
	e.found.add(c.ns...)
	questions := []dns.Question{{Name: c.name, Qtype: dns.TypeDS}}
	for _, host := range c.hosts() {
		if !dns.IsSubDomain(c.name, host) {
			e.lead(host)
			continue
		}
		hasGlue := false
		for _, rr := range c.glue {
			if rr.Header().Name == host {
				e.found.add(rr)
				hasGlue = true
			}
		}
		if !hasGlue {
			questions = append(questions, dns.Question{Name: host, Qtype: dns.TypeA}, dns.Question{Name: host, Qtype: dns.TypeAAAA})
		}
	}
	for _, q := range questions {
		r, err := e.ask(ctx, q.Name, q.Qtype, false)
		if err == errLame || err == errSilent {
			e.miss()
			continue
		}
		if err != nil {
			return err
		}
		e.found.add(e.bounded(r.set)...)
		if r.cut != nil {
			for _, rr := range r.cut.glue {
				if rr.Header().Name == q.Name {
					e.found.add(rr)
				}
			}
		}
	}
	return nil
}

// leadsTo returns the names to which a record leads (canonical).
func leadsTo(rr dns.RR) []string {
	var out []string
	switch rr := rr.(type) {
	case *dns.CNAME:
		out = []string{rr.Target}
	case *dns.MX:
		out = []string{rr.Mx}
	case *dns.NS:
		out = []string{rr.Ns}
	case *dns.SRV:
		out = []string{rr.Target}
	case *dns.PTR:
		out = []string{rr.Ptr}
	case *dns.SVCB:
		out = []string{rr.Target}
	case *dns.HTTPS:
		out = []string{rr.Target}
	case *dns.TXT, *dns.SPF:
		out = namesInSPF(dnsprov.RecordOf(rr).Value)
	}
	for i, name := range out {
		out[i] = dns.CanonicalName(name)
	}
	return out
}

// namesInSPF returns the names in an SPF record that have no macros (RFC 7208 section 7).
func namesInSPF(text string) []string {
	if !spf.IsRecord(text) {
		return nil
	}
	var out []string
	for _, t := range spf.Parse(text).Terms {
		if _, isName := dns.IsDomainName(t.Value); isName && t.NeedsLookup() && t.Value != "" && !strings.Contains(t.Value, "%") {
			out = append(out, t.Value)
		}
	}
	return out
}
