package builtin

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// How long signatures hold. The older half of a signature's life is a reserve for when nobody can
// make new ones.
const (
	validity    = 14 * 24 * time.Hour
	renewal     = 7 * 24 * time.Hour  // after this, up to a tenth earlier or later, a signature is made anew
	transferred = 10 * 24 * time.Hour // a secondary gets none that ends before; it keeps them until the zone changes
	backdate    = time.Hour           // one to three of these, for clocks that are behind
)

// signing makes the signatures of one zone when they are first asked for. There are as many as the
// zone has sets and names, and a bounded number of those that say that a name does not exist.
type signing struct {
	apex string
	key  *Key
	tag  uint16
	now  func() time.Time

	making sync.Mutex // whoever makes a signature; others who need a new one wait
}

// A signature is a set with the RRSIG over it. It never changes.
type signature struct {
	rrs      []dns.RR // the set and the RRSIG
	negative []dns.RR // both as they go with "there is nothing"; of an SOA only
	rrsig    *dns.RRSIG

	from, renew, until time.Time
}

// lasts reports whether a signature can be given out, to somebody who may keep it for as long as
// left.
func (s *signature) lasts(now time.Time, left time.Duration) bool {
	return s != nil && !now.Before(s.from) && now.Before(s.renew) && !now.Add(left).After(s.until)
}

// of returns the signature over a set that lasts.
func (s *signing) of(set *rrset, left time.Duration) (*signature, error) {
	now := s.now()
	if have := set.signature.Load(); have.lasts(now, left) {
		return have, nil
	}
	s.making.Lock()
	defer s.making.Unlock()
	if have := set.signature.Load(); have.lasts(now, left) {
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
		Inception: uint32(out.from.Unix()), Expiration: uint32(out.until.Unix()), // of RFC 1982: they wrap in 2106
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

// adopt takes over, from the zone of before, the signatures over what has not changed.
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
