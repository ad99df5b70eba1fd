package builtin

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Lifetimes of signatures. They are replaced after half of their validity, so that there is time if
// new ones cannot be made.
const (
	// validity is how long a signature is valid.
	validity = 14 * 24 * time.Hour
	// renewal is the age at which a signature is replaced. It varies by 10 percent, so that not all
	// signatures are made at the same time.
	renewal = 7 * 24 * time.Hour
	// minTransferValidity is how long the signatures in a transfer must still be valid. A secondary
	// keeps them until the zone changes.
	minTransferValidity = 10 * 24 * time.Hour
	// backdate is how long before now a signature begins to be valid, for resolvers with slow
	// clocks. Up to twice this time is added at random.
	backdate = time.Hour
)

// signer signs the record sets of one zone when a signature is first needed. It stores each
// signature in the set.
type signer struct {
	apex string
	key  *Key
	tag  uint16
	now  func() time.Time

	making sync.Mutex // held while a signature is made
}

// A signature is the signature of a record set. It never changes.
type signature struct {
	rrs      []dns.RR // the records of the set, and the RRSIG
	negative []dns.RR // for an SOA: rrs with the TTL of a negative answer
	rrsig    *dns.RRSIG

	from, renew, until time.Time
}

// validFor reports whether the signature can still be used and stays valid for the duration left.
// It returns false for nil.
func (s *signature) validFor(now time.Time, left time.Duration) bool {
	return s != nil && !now.Before(s.from) && now.Before(s.renew) && !now.Add(left).After(s.until)
}

// signatureOf returns a signature of a set that is valid for at least the duration left. It makes a
// new one if needed.
func (s *signer) signatureOf(set *rrset, left time.Duration) (*signature, error) {
	now := s.now()
	if have := set.signature.Load(); have.validFor(now, left) {
		return have, nil
	}
	s.making.Lock()
	defer s.making.Unlock()
	if have := set.signature.Load(); have.validFor(now, left) {
		return have, nil
	}
	made, err := s.sign(set, now)
	if err != nil {
		return nil, err
	}
	set.signature.Store(made)
	return made, nil
}

func (s *signer) sign(set *rrset, now time.Time) (*signature, error) {
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
		Inception: uint32(out.from.Unix()), Expiration: uint32(out.until.Unix()), // serial numbers that wrap in 2106 (RFC 1982)
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

// reuseSignatures copies the signatures of unchanged sets from the previous version of the zone.
func (z *Zone) reuseSignatures(before *Zone) {
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
