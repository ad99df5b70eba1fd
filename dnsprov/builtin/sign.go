package builtin

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Lifetimes of signatures. The second half of a signature's life is a reserve for when new ones
// cannot be made.
const (
	validity            = 14 * 24 * time.Hour
	renewal             = 7 * 24 * time.Hour  // after this, up to a tenth earlier or later, a new signature is made
	minTransferValidity = 10 * 24 * time.Hour // the least validity of signatures in a transfer, since a secondary keeps them until the zone changes
	backdate            = time.Hour           // signatures begin one to three of these in the past, for clocks that are slow
)

// signing makes the signatures of one zone when they are first needed. It keeps one for each set
// and name of the zone, and a limited number for proofs of nonexistence.
type signing struct {
	apex string
	key  *Key
	tag  uint16
	now  func() time.Time

	making sync.Mutex // held while a signature is made; others that need a new one wait
}

// A signature is a set with the RRSIG over it. It never changes.
type signature struct {
	rrs      []dns.RR // the set and the RRSIG
	negative []dns.RR // the same with the TTL of a negative answer; only for an SOA
	rrsig    *dns.RRSIG

	from, renew, until time.Time
}

// validFor reports whether a signature can be given to somebody who may keep it for the duration
// left.
func (s *signature) validFor(now time.Time, left time.Duration) bool {
	return s != nil && !now.Before(s.from) && now.Before(s.renew) && !now.Add(left).After(s.until)
}

// of returns a signature over a set that is valid for left at least.
func (s *signing) of(set *rrset, left time.Duration) (*signature, error) {
	now := s.now()
	if have := set.signature.Load(); have.validFor(now, left) {
		return have, nil
	}
	s.making.Lock()
	defer s.making.Unlock()
	if have := set.signature.Load(); have.validFor(now, left) {
		return have, nil
	}
	made, err := s.make(set, now)
	if err != nil {
		return nil, err
	}
	set.signature.Store(made)
	return made, nil
}

func (s *signing) make(set *rrset, now time.Time) (*signature, error) {
	key, err := s.key.private()
	if err != nil {
		return nil, err
	}
	now = now.Truncate(time.Second)
	out := &signature{
		from: now.Add(-backdate - rand.N(2*backdate)).Truncate(time.Second), until: now.Add(validity),
		renew: now.Add(renewal - renewal/10 + rand.N(renewal/5)),
	}
	h := set.rrs[0].Header()
	out.rrsig = &dns.RRSIG{
		Hdr: header(h.Name, dns.TypeRRSIG, h.Ttl), Algorithm: dns.ECDSAP256SHA256, KeyTag: s.tag, SignerName: s.apex,
		Inception: uint32(out.from.Unix()), Expiration: uint32(out.until.Unix()), // these are serial numbers (RFC 1982) and wrap in 2106
	}
	if err := out.rrsig.Sign(key, set.rrs); err != nil {
		return nil, err
	}
	out.rrs = append(slices.Clip(set.rrs), out.rrsig)
	if set.typ == dns.TypeSOA {
		for _, rr := range out.rrs {
			rr = dns.Copy(rr)
			rr.Header().Ttl = negativeTTL
			out.negative = append(out.negative, rr)
		}
	}
	return out, nil
}

// adopt takes the signatures over unchanged sets from the previous version of the zone.
func (z *Zone) adopt(before *Zone) {
	if z.signing == nil || before == nil || before.signing == nil || !bytes.Equal(z.signing.key.public, before.signing.key.public) {
		return
	}
	for name, n := range z.nodes {
		old := before.nodes[name]
		if old == nil {
			continue
		}
		for _, set := range n.sets {
			if had := old.set(set.typ); had != nil && slices.EqualFunc(set.rrs, had.rrs, sameRR) {
				set.signature.Store(had.signature.Load())
			}
		}
	}
}

func sameRR(a, b dns.RR) bool { return a.Header().Ttl == b.Header().Ttl && dns.IsDuplicate(a, b) }
