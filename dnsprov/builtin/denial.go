package builtin

import (
	"slices"
	"sort"

	"github.com/miekg/dns"
)

// nsecChain has the names of a zone that have records, in canonical order (RFC 4034 section 6.1).
// It does not have empty nonterminals, which get no NSEC (RFC 4035 section 2.3).
type nsecChain struct {
	keys  []string // the sort key of each name, sorted
	nodes []*node  // the node of each name
}

// maxOrderKey is the maximum length of such a sort key in bytes: two for each byte of a name.
const maxOrderKey = 2 * maxString

// AppendOrderKey appends the sort key of a canonical name to dst. The byte order of keys is the
// canonical order of names. A key has the labels from right to left, each followed by a zero byte,
// so that a name sorts before the names below it.
func AppendOrderKey(dst []byte, name string) []byte {
	var wire [maxString + 1]byte
	end, err := dns.PackDomainName(name, wire[:], 0, nil, false)
	if err != nil {
		return dst // impossible: the name was unpacked from a message, or is in a zone
	}
	var starts [maxString / 2]int
	n := 0
	for at := 0; at < end-1; at += int(wire[at]) + 1 {
		starts[n] = at
		n++
	}
	for _, at := range slices.Backward(starts[:n]) {
		for _, c := range wire[at+1 : at+1+int(wire[at])] {
			if c <= 1 { // escape 0 and 1, because 0 ends a label
				dst = append(dst, 1)
				c++
			}
			dst = append(dst, c)
		}
		dst = append(dst, 0)
	}
	return dst
}

func newNSECChain(nodes map[string]*node) nsecChain {
	var c nsecChain
	byKey := make(map[string]*node, len(nodes))
	for name, n := range nodes {
		if len(n.sets) > 0 {
			key := string(AppendOrderKey(nil, name))
			byKey[key] = n
			c.keys = append(c.keys, key)
		}
	}
	slices.Sort(c.keys)
	for _, key := range c.keys {
		c.nodes = append(c.nodes, byKey[key])
	}
	return c
}

// addNSECs adds to every name of the chain an NSEC record (RFC 4034 section 4) that points to the
// next name. Only zone transfers use these records; answers use those of ownNSEC.
func (c nsecChain) addNSECs(apex string) {
	for i, n := range c.nodes {
		types := []uint16{dns.TypeNSEC, dns.TypeRRSIG}
		for _, set := range n.sets {
			types = append(types, set.typ)
		}
		slices.Sort(types)
		next := apex
		if i+1 < len(c.nodes) {
			next = c.nodes[i+1].name()
		}
		// The TTL of an NSEC is that of a negative answer (RFC 9077 section 3).
		rr := &dns.NSEC{Hdr: header(n.name(), dns.TypeNSEC, negativeTTL), NextDomain: next, TypeBitMap: types}
		n.nsec = &rrset{typ: dns.TypeNSEC, rrs: []dns.RR{rr}}
	}
	for _, n := range c.nodes {
		n.sets = append(n.sets, n.nsec)
	}
}

// nodeBefore returns the node of the last name that sorts before key, or nil if there is none.
func (c nsecChain) nodeBefore(key []byte) *node {
	i := sort.Search(len(c.keys), func(i int) bool { return c.keys[i] >= string(key) })
	if i == 0 {
		return nil
	}
	return c.nodes[i-1]
}

// closestEncloser returns the closest existing name above a name that does not exist (RFC 4592
// section 3.3.1). below is one label longer and also an ancestor of name, or name itself.
func (z *Zone) closestEncloser(name string) (closest, below string) {
	below = name
	for at, end := dns.NextLabel(name, 0); !end; at, end = dns.NextLabel(name, at) {
		if z.nodes[name[at:]] != nil {
			return name[at:], below
		}
		below = name[at:]
	}
	return z.apex, below
}
