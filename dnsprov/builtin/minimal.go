package builtin

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Answers that there is nothing hold NSEC records made for the question (RFC 4470), which name
// nothing but what was asked for: whoever asks cannot walk through a zone. The chain of all names
// is only in transfers.

// Bounds on what strangers can have signed. Whatever exists is signed once; for names that do not,
// the newest are kept.
const (
	denialsKept      = 16   // of one zone
	denialsPerSecond = 1000 // of one zone
	denialBurst      = 2000
)

// errTooManyDenials says that so many names that do not exist are asked for that their signatures
// would take too long.
var errTooManyDenials = errors.New("too many names that do not exist are asked for")

// denials are the newest NSEC sets of a zone, which prove that a name does not exist.
type denials struct {
	mu   sync.Mutex
	sets map[string]*rrset // by the name
	left float64           // that may be signed now
	at   time.Time         // when left was right
}

// take gives the set of a name, and makes it with fn if it is not kept.
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

// own returns the NSEC of a name that exists: what it has, and that nothing comes right behind it.
func (z *Zone) own(name string, n *node) *rrset {
	if have := n.own.Load(); have != nil {
		return have
	}
	next := wireName(name)
	if room(next) >= 2 {
		next = append([][]byte{{0}}, next...)
	} else {
		next = z.behind(next)
	}
	n.own.CompareAndSwap(nil, z.nsec(name, text(next)))
	return n.own.Load()
}

// absentWildcard returns the NSEC that shows that there is no wildcard below a name that exists.
func (z *Zone) absentWildcard(name string, n *node) *rrset {
	if have := n.noWildcard.Load(); have != nil {
		return have
	}
	n.noWildcard.CompareAndSwap(nil, z.around(append([][]byte{{'*'}}, wireName(name)...)))
	return n.noWildcard.Load()
}

// absent returns the NSEC that shows that nothing is at or below a name: the label below the
// closest name that exists.
func (z *Zone) absent(name string) (*rrset, error) {
	return z.lies.take(name, z.signing.now(), func() *rrset { return z.around(wireName(name)) })
}

// around makes the NSEC from right before a name to right behind all that is below it (RFC 4471
// section 3.1).
func (z *Zone) around(name [][]byte) *rrset {
	before := nearlyBefore(name)
	var space [maxKey]byte
	if last := z.chain.last(orderKey(space[:0], text(name))); last != nil && bytes.Compare(orderKey(nil, last.name()), orderKey(nil, text(before))) > 0 {
		before = rightBefore(name)
	}
	return z.nsec(text(before), text(z.behind(name)))
}

// nsec makes an NSEC set. The owner's types are those that it has.
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

// wireName takes a canonical name apart into its labels.
func wireName(name string) [][]byte {
	var wire [maxString + 1]byte
	end, err := dns.PackDomainName(name, wire[:], 0, nil, false)
	if err != nil {
		return nil // no name that was unpacked or that is in a zone
	}
	var out [][]byte
	for at := 0; at < end-1; at += int(wire[at]) + 1 {
		out = append(out, bytes.Clone(wire[at+1:at+1+int(wire[at])]))
	}
	return out
}

// text is a name in the notation of the dns package.
func text(name [][]byte) string {
	var wire []byte
	for _, label := range name {
		wire = append(append(wire, byte(len(label))), label...)
	}
	out, _, err := dns.UnpackDomainName(append(wire, 0), 0)
	if err != nil {
		return "." // only a name that is too long, which nobody makes
	}
	return out
}

// room is how many bytes a name may still grow by (RFC 1035 section 3.1).
func room(name [][]byte) int {
	size := 1
	for _, label := range name {
		size += 1 + len(label)
	}
	return maxString - size
}

const maxLabel = 63

// behind is the first name that can be behind a name and all below it; the apex where there is
// none.
func (z *Zone) behind(name [][]byte) [][]byte {
	apex := wireName(z.apex)
	for ; len(name) > len(apex); name = name[1:] {
		label := bytes.Clone(name[0])
		if len(label) < maxLabel && room(name) > 0 {
			return replaced(name, append(label, 0))
		}
		label = bytes.TrimRight(label, "\xff")
		if len(label) > 0 {
			c := &label[len(label)-1]
			if *c++; *c >= 'A' && *c <= 'Z' { // which order as small letters
				*c = 'Z' + 1
			}
			return replaced(name, label)
		}
	}
	return apex
}

func replaced(name [][]byte, label []byte) [][]byte { return append([][]byte{label}, name[1:]...) }

// lower takes one from the last byte of a label, which is none of zero.
func lower(label []byte) []byte {
	label = bytes.Clone(label)
	c := &label[len(label)-1]
	if *c--; *c >= 'A' && *c <= 'Z' {
		*c = 'A' - 1
	}
	return label
}

// nearlyBefore is a short name before a name, behind those that people give.
func nearlyBefore(name [][]byte) [][]byte {
	label := name[0]
	switch {
	case label[len(label)-1] != 0:
		label = lower(label)
		if len(label) < maxLabel && room(name) > 0 {
			label = append(label, 0xff)
		}
		return replaced(name, label)
	case len(label) == 1:
		return name[1:]
	}
	name = replaced(name, label[:len(label)-1])
	if room(name) >= 2 {
		name = append([][]byte{{0xff}}, name...)
	}
	return name
}

// rightBefore is the last name that can be before a name (RFC 4471 section 3.1.1).
func rightBefore(name [][]byte) [][]byte {
	label := name[0]
	switch {
	case label[len(label)-1] != 0:
		label = lower(label)
		name = replaced(name, label)
		for free := room(name); len(label) < maxLabel && free > 0; free-- {
			label = append(label, 0xff)
		}
		name = replaced(name, label)
	case len(label) == 1:
		return name[1:]
	default:
		name = replaced(name, label[:len(label)-1])
	}
	for room(name) >= 2 {
		name = append([][]byte{bytes.Repeat([]byte{0xff}, min(maxLabel, room(name)-1))}, name...)
	}
	return name
}
