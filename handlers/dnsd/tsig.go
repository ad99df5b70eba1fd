package dnsd

import (
	"bytes"
	"crypto/sha512"
	"errors"
	"fmt"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/builtin"
)

// tsigFudge is how far the clocks of two servers may be apart, in seconds (RFC 8945 section 10).
const tsigFudge = 300

// maxMAC is the length of the longest message authentication code, in bytes.
const maxMAC = sha512.Size

// signature is how the answers to a signed query are signed.
type signature struct {
	key    *builtin.TSIGKey
	query  *dns.TSIG
	mac    string // of the query, and then of the answer before, which the next one covers
	timers bool   // there has been an answer: the next covers less (RFC 8945 section 5.3.1)
	code   uint16 // the error that answers tell
}

// tsigOf returns a query's TSIG record, or nil; it must be the last record and the only one of its
// kind (RFC 8945 section 5.1).
func tsigOf(msg *dns.Msg) (tsig *dns.TSIG, ok bool) {
	for i, rr := range msg.Extra {
		t, isTSIG := rr.(*dns.TSIG)
		if !isTSIG {
			continue
		}
		if i != len(msg.Extra)-1 || t.Hdr.Class != dns.ClassANY || t.Algorithm == "" { // which is a record without data
			return nil, false
		}
		tsig = t
	}
	return tsig, true
}

// verify checks a query's signature (RFC 8945 section 5.2). The answer is signed with what it
// returns, also when the status says that the query was not taken.
func (r *run) verify(wire []byte, tsig *dns.TSIG) (*signature, int) {
	key := r.secondaries.keys[dns.CanonicalName(tsig.Hdr.Name)]
	s := &signature{key: key, query: tsig, mac: tsig.MAC}
	if key == nil || dns.CanonicalName(tsig.Algorithm) != key.Algorithm {
		return s.failed(dns.RcodeBadKey)
	}
	err := dns.TsigVerifyWithProvider(bytes.Clone(wire), key, "", false)
	switch {
	case errors.Is(err, dns.ErrSig):
		return s.failed(dns.RcodeBadSig)
	case errors.Is(err, dns.ErrTime):
		return s.failed(dns.RcodeBadTime)
	case err != nil:
		return nil, dns.RcodeFormatError
	case int(tsig.MACSize) < key.MACSize(): // we take none that is cut
		return s.failed(dns.RcodeBadTrunc)
	}
	return s, dns.RcodeSuccess
}

func (s *signature) failed(code uint16) (*signature, int) {
	s.code = code
	return s, dns.RcodeNotAuth
}

// record is the TSIG record of the next answer, which has no MAC yet.
func (s *signature) record(id uint16, now time.Time) *dns.TSIG {
	t := &dns.TSIG{
		Hdr:       dns.RR_Header{Name: s.query.Hdr.Name, Rrtype: dns.TypeTSIG, Class: dns.ClassANY},
		Algorithm: s.query.Algorithm, TimeSigned: uint64(now.Unix()), Fudge: tsigFudge, OrigId: id, Error: s.code,
	}
	if s.code == dns.RcodeBadTime { // tells our time (section 5.2.3)
		t.TimeSigned, t.Fudge = s.query.TimeSigned, s.query.Fudge
		t.OtherLen, t.OtherData = 6, fmt.Sprintf("%012x", uint64(now.Unix())&(1<<48-1))
	}
	return t
}

// room is what a signature takes at most, in bytes.
func (s *signature) room(id uint16, now time.Time) int { return dns.Len(s.record(id, now)) + maxMAC }

// sign brings an answer to the wire with its signature. Errors about key or MAC go out without a
// MAC (section 5.3.2).
func (s *signature) sign(m *dns.Msg, now time.Time) ([]byte, error) {
	m.Extra = append(m.Extra, s.record(m.Id, now))
	wire, mac, err := dns.TsigGenerateWithProvider(m, s.key, s.mac, s.timers)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	s.mac, s.timers = mac, true
	return wire, nil
}
