package builtin

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// memberLabelBytes is the number of bytes of a member's hash that are used for its label in a
// catalog.
const memberLabelBytes = 16

// Catalog is a catalog zone (RFC 9432). It lists the zones that secondaries should copy. Only
// secondaries may query it.
type Catalog struct {
	apex string // with the trailing dot
	now  func() time.Time

	mu      sync.Mutex
	members map[string]bool
	newest  *listing // the newest version; nil if the members have changed since
	serial  uint32
}

// listing is one version of the catalog. It never changes.
type listing struct {
	serial  uint32
	members []string // sorted
}

// NewCatalog returns an empty catalog. origin is the name of the catalog zone.
func NewCatalog(origin string, now func() time.Time) *Catalog {
	return &Catalog{apex: dns.CanonicalName(origin), now: now, members: map[string]bool{}}
}

// Origin returns the name of the catalog zone, lower-case, without the trailing dot.
func (c *Catalog) Origin() string { return c.apex[:len(c.apex)-1] }

// Set adds the zone named origin to the catalog if member is true, and removes it otherwise. It
// reports whether the catalog changed.
func (c *Catalog) Set(origin string, member bool) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[origin] == member {
		return false
	}
	if member {
		c.members[origin] = true
	} else {
		delete(c.members, origin)
	}
	c.newest = nil
	return true
}

// current returns the current version of the catalog. Its serial is the Unix time, so that it also
// rises across restarts. Many changes between two reads raise the serial only once, so that it does
// not get ahead of the time.
func (c *Catalog) current() *listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest != nil {
		return c.newest
	}
	c.serial = max(c.serial+1, uint32(c.now().Unix()))
	c.newest = &listing{serial: c.serial, members: make([]string, 0, len(c.members))}
	for name := range c.members {
		c.newest.members = append(c.newest.members, name)
	}
	slices.Sort(c.newest.members)
	return c.newest
}

// Hidden returns true: only secondaries may query the catalog (RFC 9432 section 7).
func (c *Catalog) Hidden() bool { return true }

// Answer returns the answer to a query for the SOA or NS of the catalog, which secondaries send
// before a transfer. Other queries get REFUSED.
func (c *Catalog) Answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	if len(q.Question) != 1 || dns.CanonicalName(q.Question[0].Name) != c.apex {
		m.Rcode = dns.RcodeRefused
		return m
	}
	switch q.Question[0].Qtype {
	case dns.TypeSOA:
		m.Answer = []dns.RR{c.soa(c.current())}
	case dns.TypeNS:
		m.Answer = []dns.RR{c.ns()}
	default:
		m.Rcode = dns.RcodeRefused
	}
	m.Authoritative = m.Rcode == dns.RcodeSuccess
	return m
}

// Transfer returns all records of the catalog for a zone transfer. The SOA is the first and the
// last.
func (c *Catalog) Transfer() iter.Seq[dns.RR] {
	return func(yield func(dns.RR) bool) {
		l := c.current()
		soa := c.soa(l)
		version := &dns.TXT{Hdr: header("version."+c.apex, dns.TypeTXT, 0), Txt: []string{"2"}}
		if !yieldAll(yield, []dns.RR{soa, c.ns(), version}) {
			return
		}
		for _, name := range l.members {
			hash := sha256.Sum256([]byte(name))
			owner := hex.EncodeToString(hash[:memberLabelBytes]) + ".zones." + c.apex
			if !yield(&dns.PTR{Hdr: header(owner, dns.TypePTR, 0), Ptr: dns.Fqdn(name)}) {
				return
			}
		}
		yield(soa)
	}
}

func yieldAll(yield func(dns.RR) bool, rrs []dns.RR) bool {
	for _, rr := range rrs {
		if !yield(rr) {
			return false
		}
	}
	return true
}

func (c *Catalog) soa(l *listing) *dns.SOA {
	return &dns.SOA{
		Hdr: header(c.apex, dns.TypeSOA, 0), Ns: "invalid.", Mbox: "invalid.",
		Serial: l.serial, Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire,
	}
}

// ns returns the NS record, which every zone must have. Nobody uses that of a catalog (RFC 9432
// section 4.1).
func (c *Catalog) ns() dns.RR { return &dns.NS{Hdr: header(c.apex, dns.TypeNS, 0), Ns: "invalid."} }
