package builtin

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Negative answers have NSEC records that are made for the question (RFC 4470). They name no other
// existing name, so that nobody can list the names of the zone. Only zone transfers have the chain
// of all names.

// Limits of the proofs that names do not exist, for each zone. Each proof needs a signature.
const (
	maxCachedDenials = 16   // number of proofs in the cache
	denialsPerSecond = 1000 // average number of new proofs
	denialBurst      = 2000 // maximum number of new proofs at once
)

// errTooManyDenials is returned by denialCache.get if the limit of new proofs is reached.
var errTooManyDenials = errors.New("too many queries for names that do not exist")

// denialCache caches the NSEC sets of a zone that prove that a name does not exist, and limits how
// many new ones are made.
type denialCache struct {
	mu   sync.Mutex
	sets map[string]*rrset // by name
	left float64           // how many new sets may be made now
	at   time.Time         // when left was last updated
}

// get returns the NSEC set for a name. If the cache does not have it, get calls fn to make it. It
// returns errTooManyDenials if the limit is reached.
func (d *denialCache) get(name string, now time.Time, fn func() *rrset) (*rrset, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if have := d.sets[name]; have != nil {
		return have, nil
	}
	if d.at.IsZero() {
		d.left = denialBurst
	} else {
		d.left = min(d.left+max(now.Sub(d.at).Seconds(), 0)*denialsPerSecond, denialBurst)
	}
	d.at = now
	if d.left < 1 {
		return nil, errTooManyDenials
	}
	d.left--
	if d.sets == nil {
		d.sets = map[string]*rrset{}
	}
	for old := range d.sets {
		if len(d.sets) < maxCachedDenials {
			break
		}
		delete(d.sets, old)
	}
	d.sets[name] = fn()
	return d.sets[name], nil
}

// ownNSEC returns the NSEC of an existing name. It lists the types of the name, and covers no other
// name.
func (z *Zone) ownNSEC(name string, n *node) *rrset {
	if have := n.own.Load(); have != nil {
		return have
	}
	next := splitName(name)
	if freeBytes(next) >= 2 {
		next = append([][]byte{{0}}, next...)
	} else {
		next = z.nameAfter(next)
	}
	n.own.CompareAndSwap(nil, z.newNSEC(name, joinName(next)))
	return n.own.Load()
}

// noWildcardNSEC returns the NSEC that proves that no wildcard is directly below an existing name.
func (z *Zone) noWildcardNSEC(name string, n *node) *rrset {
	if have := n.noWildcard.Load(); have != nil {
		return have
	}
	n.noWildcard.CompareAndSwap(nil, z.newDenial(append([][]byte{{'*'}}, splitName(name)...)))
	return n.noWildcard.Load()
}

// absentNSEC returns the NSEC that proves that nothing exists at or below a name. The name must be
// one label below an existing name.
func (z *Zone) absentNSEC(name string) (*rrset, error) {
	return z.denials.get(name, z.signing.now(), func() *rrset { return z.newDenial(splitName(name)) })
}

// newDenial makes an NSEC whose range starts just before a name and ends just after all names below
// it (RFC 4471 section 3.1).
func (z *Zone) newDenial(name [][]byte) *rrset {
	before := shortPredecessor(name)
	var space [maxOrderKey]byte
	if last := z.chain.nodeBefore(AppendOrderKey(space[:0], joinName(name))); last != nil && bytes.Compare(AppendOrderKey(nil, last.name()), AppendOrderKey(nil, joinName(before))) > 0 {
		before = immediatePredecessor(name)
	}
	return z.newNSEC(joinName(before), joinName(z.nameAfter(name)))
}

// newNSEC makes an NSEC from owner to next. It lists the types of the owner's records in the zone.
func (z *Zone) newNSEC(owner, next string) *rrset {
	types := []uint16{dns.TypeNSEC, dns.TypeRRSIG}
	if n := z.nodes[owner]; n != nil {
		for _, set := range n.sets {
			if set.typ != dns.TypeNSEC {
				types = append(types, set.typ)
			}
		}
	}
	slices.Sort(types)
	rr := &dns.NSEC{Hdr: header(owner, dns.TypeNSEC, negativeTTL), NextDomain: next, TypeBitMap: types}
	return &rrset{typ: dns.TypeNSEC, rrs: []dns.RR{rr}}
}

// splitName splits a canonical name into its labels.
func splitName(name string) [][]byte {
	var wire [maxString + 1]byte
	end, err := dns.PackDomainName(name, wire[:], 0, nil, false)
	if err != nil {
		return nil // impossible: the name was unpacked from a message, or is in a zone
	}
	var out [][]byte
	for at := 0; at < end-1; at += int(wire[at]) + 1 {
		out = append(out, bytes.Clone(wire[at+1:at+1+int(wire[at])]))
	}
	return out
}

// joinName joins labels to a name in the notation of package dns.
func joinName(name [][]byte) string {
	var wire []byte
	for _, label := range name {
		wire = append(append(wire, byte(len(label))), label...)
	}
	out, _, err := dns.UnpackDomainName(append(wire, 0), 0)
	if err != nil {
		return "." // impossible: no caller makes a name that is too long
	}
	return out
}

// freeBytes returns by how many bytes a name can grow on the wire (RFC 1035 section 3.1).
func freeBytes(name [][]byte) int {
	size := 1
	for _, label := range name {
		size += 1 + len(label)
	}
	return maxString - size
}

const maxLabel = 63 // maximum length of a label in bytes

// nameAfter returns the first possible name that sorts after a name and all names below it. It
// returns the apex if there is none.
func (z *Zone) nameAfter(name [][]byte) [][]byte {
	apex := splitName(z.apex)
	for ; len(name) > len(apex); name = name[1:] {
		label := bytes.Clone(name[0])
		if len(label) < maxLabel && freeBytes(name) > 0 {
			return replaceLabel(name, append(label, 0))
		}
		label = bytes.TrimRight(label, "\xff")
		if len(label) > 0 {
			c := &label[len(label)-1]
			if *c++; *c >= 'A' && *c <= 'Z' { // capital letters sort as lower case
				*c = 'Z' + 1
			}
			return replaceLabel(name, label)
		}
	}
	return apex
}

func replaceLabel(name [][]byte, label []byte) [][]byte { return append([][]byte{label}, name[1:]...) }

// decrementLastByte decrements the last byte of a label, which must not be zero.
func decrementLastByte(label []byte) []byte {
	label = bytes.Clone(label)
	c := &label[len(label)-1]
	if *c--; *c >= 'A' && *c <= 'Z' {
		*c = 'A' - 1
	}
	return label
}

// shortPredecessor returns a short name that sorts before a name. Ordinary names, without bytes
// such as 0xff, do not lie between the two.
func shortPredecessor(name [][]byte) [][]byte {
	label := name[0]
	switch {
	case label[len(label)-1] != 0:
		label = decrementLastByte(label)
		if len(label) < maxLabel && freeBytes(name) > 0 {
			label = append(label, 0xff)
		}
		return replaceLabel(name, label)
	case len(label) == 1:
		return name[1:]
	}
	name = replaceLabel(name, label[:len(label)-1])
	if freeBytes(name) >= 2 {
		name = append([][]byte{{0xff}}, name...)
	}
	return name
}

// immediatePredecessor returns the last possible name that sorts before a name (RFC 4471 section
// 3.1.1).
func immediatePredecessor(name [][]byte) [][]byte {
	label := name[0]
	switch {
	case label[len(label)-1] != 0:
		label = decrementLastByte(label)
		name = replaceLabel(name, label)
		for free := freeBytes(name); len(label) < maxLabel && free > 0; free-- {
			label = append(label, 0xff)
		}
		name = replaceLabel(name, label)
	case len(label) == 1:
		return name[1:]
	default:
		name = replaceLabel(name, label[:len(label)-1])
	}
	for freeBytes(name) >= 2 {
		name = append([][]byte{bytes.Repeat([]byte{0xff}, min(maxLabel, freeBytes(name)-1))}, name...)
	}
	return name
}
