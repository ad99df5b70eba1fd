package dnsd

import (
	"bytes"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/miekg/dns"
)

const (
	// transferSize is about how much of a zone goes into one message: names are compressed by
	// pointers that reach no further (RFC 1035 section 4.1.4).
	transferSize = 16 << 10
	// transfersEach is how many transfers one secondary has at once; more of them wait.
	transfersEach = 8
)

// secondaries finds who asks.
type secondaries struct {
	keys   map[string]*builtin.TSIGKey // by canonical name
	byKey  map[*builtin.TSIGKey]*builtin.Secondary
	byAddr map[netip.Addr]*builtin.Secondary
}

func newSecondaries(all []builtin.Secondary) *secondaries {
	s := &secondaries{keys: make(map[string]*builtin.TSIGKey), byKey: make(map[*builtin.TSIGKey]*builtin.Secondary), byAddr: make(map[netip.Addr]*builtin.Secondary)}
	for _, one := range all {
		if one.Key == nil {
			s.byAddr[one.Addr.Addr().Unmap()] = &one
			continue
		}
		key := &builtin.TSIGKey{Name: dns.CanonicalName(one.Key.Name), Algorithm: dns.CanonicalName(one.Key.Algorithm), Secret: one.Key.Secret}
		s.keys[key.Name], s.byKey[key] = key, &one
	}
	return s
}

// find returns the secondary that a query comes from, or nil if it is none of ours. The signature
// has been verified.
func (s *secondaries) find(req *request) *builtin.Secondary {
	if req.sig != nil {
		return s.byKey[req.sig.key]
	}
	return s.byAddr[req.from.Unmap()]
}

// copied is a zone that can be copied: every record of it, its SOA first and last (RFC 5936 section
// 2.2).
type copied interface {
	Transfer() iter.Seq[dns.RR]
}

// hidden is a zone that only secondaries may ask, since it tells more than the world needs to know.
type hidden interface {
	Hidden() bool
}

// transfer is one zone on its way to a secondary.
type transfer struct {
	run     *run
	to      *builtin.Secondary
	req     *request
	origin  string
	zone    copied
	message *dns.Msg // being filled
	size    int      // of its answers, in bytes, before they are compressed
	conn    net.Conn
	until   time.Time
	records int
}

// startTransfer answers AXFR and IXFR: with a transfer, or with a reply if there is nothing to
// transfer. There are no differences between versions of a zone here, so that IXFR gets the whole
// of it (RFC 1995 section 4).
func (r *run) startTransfer(req *request) (*dns.Msg, *transfer) {
	to := r.secondaries.find(req)
	if to == nil {
		return refusal(req.msg, dns.RcodeRefused), nil
	}
	asked := req.msg.Question[0]
	origin := dns.CanonicalName(asked.Name)
	found, ok := r.Zones.Zone(strings.TrimSuffix(origin, "."))
	if !ok {
		return refusal(req.msg, dns.RcodeNotAuth), nil
	}
	zone, ok := found.(copied)
	if !ok {
		return refusal(req.msg, dns.RcodeRefused), nil
	}
	soa := firstSOA(zone)
	switch {
	case soa == nil:
		return refusal(req.msg, dns.RcodeServerFailure), nil
	case dns.CanonicalName(soa.Hdr.Name) != origin:
		return refusal(req.msg, dns.RcodeNotAuth), nil
	case asked.Qtype == dns.TypeIXFR:
		have, ok := clientSOA(req.msg)
		if !ok {
			return refusal(req.msg, dns.RcodeFormatError), nil
		}
		if !req.stream || int32(soa.Serial-have.Serial) <= 0 { // serial arithmetic (RFC 1982)
			return req.authoritative(soa), nil // this is the newest: have it already, or come again over TCP
		}
	case !req.stream:
		return refusal(req.msg, dns.RcodeRefused), nil
	}
	return nil, &transfer{run: r, to: to, req: req, origin: origin, zone: zone}
}

func firstSOA(zone copied) *dns.SOA {
	for rr := range zone.Transfer() {
		soa, _ := rr.(*dns.SOA)
		return soa
	}
	return nil
}

// clientSOA is the version of a zone that an IXFR client has.
func clientSOA(msg *dns.Msg) (*dns.SOA, bool) {
	if len(msg.Ns) != 1 {
		return nil, false
	}
	soa, ok := msg.Ns[0].(*dns.SOA)
	return soa, ok
}

// Why a transfer ends early.
var (
	errBusy = errors.New("too many transfers at once") // it has waited too long for its turn
	errCut  = errors.New("the zone has no end")        // as when a signature cannot be made
)

// serve sends the zone, when it is its turn. An error means that the connection is of no more use.
func (t *transfer) serve(ctx context.Context, conn net.Conn) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	t.conn = conn
	// A secondary that has many transfers does not keep the slots of others.
	waiting, cancel := context.WithTimeout(ctx, t.run.Idle)
	release, err := t.run.transfers.Acquire(waiting, t.to)
	cancel()
	if err != nil {
		return errBusy
	}
	defer release()
	start := time.Now()
	t.until = start.Add(t.run.TransferFor)
	t.message = t.req.authoritative()
	if t.req.opt != nil { // in the first message (RFC 5936 section 2.2.5)
		t.message.Extra = []dns.RR{ourOPT(t.req.opt, t.req.cookie)}
	}
	var last dns.RR
	for rr := range t.zone.Transfer() {
		if err := t.add(rr); err != nil {
			return err
		}
		last = rr
	}
	if _, whole := last.(*dns.SOA); !whole || t.records < 2 {
		return errCut
	}
	if err := t.flush(); err != nil {
		return err
	}
	t.run.Log.Info("zone transferred", "zone", t.origin, "secondary", t.to.Name, "records", t.records, "took", time.Since(start))
	return nil
}

// add puts a record into the message, which goes out first if it is full. The SOA alone never does:
// a client that asked for IXFR would take it for all there is (RFC 1995 section 4).
func (t *transfer) add(rr dns.RR) error {
	size, least := dns.Len(rr), 1
	if t.records == len(t.message.Answer) { // this is the first message
		least = 2
	}
	if len(t.message.Answer) >= least && t.size+size > transferSize {
		if err := t.flush(); err != nil {
			return err
		}
	}
	t.message.Answer = append(t.message.Answer, rr)
	t.size += size
	t.records++
	return nil
}

// flush sends the message and begins the next one, which needs no question (RFC 5936 section
// 2.2.1).
func (t *transfer) flush() error {
	wire, err := t.pack()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(t.run.Idle)
	if t.until.Before(deadline) {
		deadline = t.until
	}
	if err := writeFrame(t.conn, wire, deadline); err != nil {
		return err
	}
	next := t.req.authoritative()
	next.Question = nil
	t.message, t.size = next, 0
	return nil
}

func (t *transfer) pack() ([]byte, error) {
	if t.req.sig != nil {
		return t.req.sig.sign(t.message, t.run.Now())
	}
	return t.message.Pack()
}

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
