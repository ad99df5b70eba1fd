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

// memberLabel is how many bytes of a hash make the label of a member in a catalog.
const memberLabel = 16

// Catalog is a zone that lists other zones (RFC 9432): secondaries read in it which zones to copy.
// Only they may read it.
type Catalog struct {
	apex string // with the trailing dot
	now  func() time.Time

	mu      sync.Mutex
	members map[string]bool
	newest  *listing // nil: the members have changed since the last listing
	serial  uint32
}

// listing is a version of the catalog that was sent to somebody; it does not change.
type listing struct {
	serial  uint32
	members []string // sorted
}

// NewCatalog returns an empty catalog with the name origin.
func NewCatalog(origin string, now func() time.Time) *Catalog {
	return &Catalog{apex: dns.CanonicalName(origin), now: now, members: map[string]bool{}}
}

// Origin is the catalog's name, lower-case, without the trailing dot.
func (c *Catalog) Origin() string { return c.apex[:len(c.apex)-1] }

// Set adds the zone of origin to the catalog or removes it, and reports whether the catalog
// changed.
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

// listing returns the current version of the catalog. Its serial is the time, so that it also rises
// over restarts. It rises only when a changed version is read, so that it does not run ahead of the
// time.
func (c *Catalog) listing() *listing {
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

// Hidden reports that only secondaries may query the zone (RFC 9432 section 7).
func (c *Catalog) Hidden() bool { return true }

// Answer answers the queries that secondaries send before a transfer: SOA and NS of the catalog.
// Other queries are REFUSED.
func (c *Catalog) Answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	if len(q.Question) != 1 || dns.CanonicalName(q.Question[0].Name) != c.apex {
		m.Rcode = dns.RcodeRefused
		return m
	}
	switch q.Question[0].Qtype {
	case dns.TypeSOA:
		m.Answer = []dns.RR{c.soa(c.listing())}
	case dns.TypeNS:
		m.Answer = []dns.RR{c.ns()}
	default:
		m.Rcode = dns.RcodeRefused
	}
	m.Authoritative = m.Rcode == dns.RcodeSuccess
	return m
}

// Transfer lists the records of the catalog, the SOA first and last.
func (c *Catalog) Transfer() iter.Seq[dns.RR] {
	return func(yield func(dns.RR) bool) {
		l := c.listing()
		soa := c.soa(l)
		version := &dns.TXT{Hdr: header("version."+c.apex, dns.TypeTXT, 0), Txt: []string{"2"}}
		if !yieldAll(yield, []dns.RR{soa, c.ns(), version}) {
			return
		}
		for _, name := range l.members {
			hash := sha256.Sum256([]byte(name))
			owner := hex.EncodeToString(hash[:memberLabel]) + ".zones." + c.apex
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
		Serial: l.serial, Refresh: refresh, Retry: retry, Expire: expire,
	}
}

// ns returns the NS record that every zone must have and that no one uses here (RFC 9432 section
// 4.1).
func (c *Catalog) ns() dns.RR { return &dns.NS{Hdr: header(c.apex, dns.TypeNS, 0), Ns: "invalid."} }
