package builtin

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Negative answers carry NSEC records made for the question (RFC 4470), which mention no other
// names, so that nobody can walk through the zone. The chain of all names is only in zone
// transfers.

// Limits on how many signatures strangers can cause. The sets of existing names are signed once;
// for names that do not exist, the newest proofs are kept.
const (
	denialsKept      = 16   // of one zone
	denialsPerSecond = 1000 // of one zone
	denialBurst      = 2000
)

// errTooManyDenials is returned when so many nonexistent names are queried that signing the proofs
// would take too long.
var errTooManyDenials = errors.New("too many queries for names that do not exist")

// denials holds the newest NSEC sets of a zone that prove that a name does not exist.
type denials struct {
	mu   sync.Mutex
	sets map[string]*rrset // by the name
	left float64           // how many may be signed now
	at   time.Time         // when left was last computed
}

// take returns the set of a name, and makes it with fn if it is not kept.
func (d *denials) take(name string, now time.Time, fn func() *rrset) (*rrset, error) {
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
		if len(d.sets) < denialsKept {
			break
		}
		delete(d.sets, old)
	}
	d.sets[name] = fn()
	return d.sets[name], nil
}

// ownNSEC returns the NSEC of an existing name: its types, and the proof that no name follows
// immediately after it.
func (z *Zone) ownNSEC(name string, n *node) *rrset {
	if have := n.own.Load(); have != nil {
		return have
	}
	next := wireName(name)
	if freeBytes(next) >= 2 {
		next = append([][]byte{{0}}, next...)
	} else {
		next = z.nameAfter(next)
	}
	n.own.CompareAndSwap(nil, z.nsec(name, nameText(next)))
	return n.own.Load()
}

// absentWildcard returns the NSEC that proves that there is no wildcard below an existing name.
func (z *Zone) absentWildcard(name string, n *node) *rrset {
	if have := n.noWildcard.Load(); have != nil {
		return have
	}
	n.noWildcard.CompareAndSwap(nil, z.denialOf(append([][]byte{{'*'}}, wireName(name)...)))
	return n.noWildcard.Load()
}

// absent returns the NSEC that proves that nothing exists at or below a name, which is one label
// below the closest existing name.
func (z *Zone) absent(name string) (*rrset, error) {
	return z.denied.take(name, z.signing.now(), func() *rrset { return z.denialOf(wireName(name)) })
}

// denialOf makes the NSEC that spans from just before a name to just after all names below it (RFC
// 4471 section 3.1).
func (z *Zone) denialOf(name [][]byte) *rrset {
	before := shortPredecessor(name)
	var space [maxKey]byte
	if last := z.chain.last(orderKey(space[:0], nameText(name))); last != nil && bytes.Compare(orderKey(nil, last.name()), orderKey(nil, nameText(before))) > 0 {
		before = immediatePredecessor(name)
	}
	return z.nsec(nameText(before), nameText(z.nameAfter(name)))
}

// nsec makes an NSEC set with the types of the owner.
func (z *Zone) nsec(owner, next string) *rrset {
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

// wireName splits a canonical name into its labels.
func wireName(name string) [][]byte {
	var wire [maxString + 1]byte
	end, err := dns.PackDomainName(name, wire[:], 0, nil, false)
	if err != nil {
		return nil // cannot happen for a name that was unpacked or is in a zone
	}
	var out [][]byte
	for at := 0; at < end-1; at += int(wire[at]) + 1 {
		out = append(out, bytes.Clone(wire[at+1:at+1+int(wire[at])]))
	}
	return out
}

// nameText returns a name in the notation of the dns package.
func nameText(name [][]byte) string {
	var wire []byte
	for _, label := range name {
		wire = append(append(wire, byte(len(label))), label...)
	}
	out, _, err := dns.UnpackDomainName(append(wire, 0), 0)
	if err != nil {
		return "." // only for a name that is too long, which nobody makes
	}
	return out
}

// freeBytes returns how many more bytes a name can hold (RFC 1035 section 3.1).
func freeBytes(name [][]byte) int {
	size := 1
	for _, label := range name {
		size += 1 + len(label)
	}
	return maxString - size
}

const maxLabel = 63

// nameAfter returns the first possible name after a name and all names below it; the apex if there
// is none.
func (z *Zone) nameAfter(name [][]byte) [][]byte {
	apex := wireName(z.apex)
	for ; len(name) > len(apex); name = name[1:] {
		label := bytes.Clone(name[0])
		if len(label) < maxLabel && freeBytes(name) > 0 {
			return replaceLabel(name, append(label, 0))
		}
		label = bytes.TrimRight(label, "\xff")
		if len(label) > 0 {
			c := &label[len(label)-1]
			if *c++; *c >= 'A' && *c <= 'Z' { // these sort as small letters
				*c = 'Z' + 1
			}
			return replaceLabel(name, label)
		}
	}
	return apex
}

func replaceLabel(name [][]byte, label []byte) [][]byte { return append([][]byte{label}, name[1:]...) }

// decrementLast decrements the last byte of a label, which must not be zero.
func decrementLast(label []byte) []byte {
	label = bytes.Clone(label)
	c := &label[len(label)-1]
	if *c--; *c >= 'A' && *c <= 'Z' {
		*c = 'A' - 1
	}
	return label
}

// shortPredecessor returns a short name just before a name, and after any name that people would
// choose.
func shortPredecessor(name [][]byte) [][]byte {
	label := name[0]
	switch {
	case label[len(label)-1] != 0:
		label = decrementLast(label)
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

// immediatePredecessor returns the last possible name before a name (RFC 4471 section 3.1.1).
func immediatePredecessor(name [][]byte) [][]byte {
	label := name[0]
	switch {
	case label[len(label)-1] != 0:
		label = decrementLast(label)
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
