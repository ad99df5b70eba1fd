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
	// transferMessageSize is about how many bytes of records one message of a transfer has. Name
	// compression cannot point further than that (RFC 1035 section 4.1.4).
	transferMessageSize = 16 << 10
	// transfersPerSecondary is how many transfers one secondary may have at once. Further ones
	// wait.
	transfersPerSecondary = 8
)

// secondaries finds the secondary that sent a query, by the key of its signature or by its address.
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

// senderOf returns the secondary that sent a query, nil if none of them did. The signature must
// have been verified before.
func (s *secondaries) senderOf(req *request) *builtin.Secondary {
	if req.sig != nil {
		return s.byKey[req.sig.key]
	}
	return s.byAddr[req.from.Unmap()]
}

// transferable is implemented by zones that secondaries can copy. Transfer yields all records, with
// the SOA record first and last (RFC 5936 section 2.2).
type transferable interface {
	Transfer() iter.Seq[dns.RR]
}

// hideable is implemented by zones that may be for secondaries only, because they reveal more than
// the public should know.
type hideable interface {
	Hidden() bool
}

// transfer is one zone that is being sent to a secondary.
type transfer struct {
	run     *run
	to      *builtin.Secondary
	req     *request
	origin  string
	zone    transferable
	message *dns.Msg // the message that is being filled
	size    int      // bytes of the records in message, uncompressed
	conn    net.Conn
	until   time.Time // when the transfer must have ended
	records int       // added so far
}

// startTransfer answers AXFR and IXFR. It returns a transfer, or a reply if there is nothing to
// transfer. Differences between versions of a zone are not stored, so IXFR gets the whole zone (RFC
// 1995 section 4).
func (r *run) startTransfer(req *request) (*dns.Msg, *transfer) {
	to := r.secondaries.senderOf(req)
	if to == nil {
		return refusal(req.msg, dns.RcodeRefused), nil
	}
	asked := req.msg.Question[0]
	origin := dns.CanonicalName(asked.Name)
	found, ok := r.Zones.Zone(strings.TrimSuffix(origin, "."))
	if !ok {
		return refusal(req.msg, dns.RcodeNotAuth), nil
	}
	zone, ok := found.(transferable)
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
		if !req.overTCP || int32(soa.Serial-have.Serial) <= 0 { // serial number arithmetic (RFC 1982)
			// The client has this version already, or must repeat the query over TCP.
			return req.authoritativeAnswer(soa), nil
		}
	case !req.overTCP:
		return refusal(req.msg, dns.RcodeRefused), nil
	}
	return nil, &transfer{run: r, to: to, req: req, origin: origin, zone: zone}
}

// firstSOA returns the SOA record of a zone, nil if the zone does not begin with one.
func firstSOA(zone transferable) *dns.SOA {
	for rr := range zone.Transfer() {
		soa, _ := rr.(*dns.SOA)
		return soa
	}
	return nil
}

// clientSOA returns the SOA record of the version that the client of an IXFR has. ok is false if
// the query has none.
func clientSOA(msg *dns.Msg) (soa *dns.SOA, ok bool) {
	if len(msg.Ns) != 1 {
		return nil, false
	}
	soa, ok = msg.Ns[0].(*dns.SOA)
	return soa, ok
}

// The reasons why a transfer ends early.
var (
	// errBusy means that the transfer waited longer than Idle for a slot.
	errBusy = errors.New("too many zone transfers run at once")
	// errIncompleteZone means that the zone could not be read to its end, for example because a
	// signature could not be made.
	errIncompleteZone = errors.New("the zone's records do not end with an SOA record")
)

// serve waits for a slot and sends the zone. After an error the caller must close the connection.
func (t *transfer) serve(ctx context.Context, conn net.Conn) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while sending the zone: %v", p)
		}
	}()
	t.conn = conn
	// The semaphore also limits each secondary, so one with many transfers does not take all slots.
	waiting, cancel := context.WithTimeout(ctx, t.run.Idle)
	release, err := t.run.transfers.Acquire(waiting, t.to)
	cancel()
	if err != nil {
		return errBusy
	}
	defer release()
	start := time.Now()
	t.until = start.Add(t.run.TransferFor)
	t.message = t.req.authoritativeAnswer()
	if t.req.opt != nil { // RFC 5936 section 2.2.5: in the first message
		t.message.Extra = []dns.RR{answerOPT(t.req.opt, t.req.cookie)}
	}
	var last dns.RR
	for rr := range t.zone.Transfer() {
		if err := t.add(rr); err != nil {
			return err
		}
		last = rr
	}
	if _, whole := last.(*dns.SOA); !whole || t.records < 2 {
		return errIncompleteZone
	}
	if err := t.flush(); err != nil {
		return err
	}
	t.run.Log.Info("zone transferred", "zone", t.origin, "secondary", t.to.Name, "records", t.records, "took", time.Since(start))
	return nil
}

// add adds a record to the message. If the message is full, it sends the message first. The first
// message always has more than the SOA record: a client that asked for IXFR would take the SOA
// record alone for the whole answer (RFC 1995 section 4).
func (t *transfer) add(rr dns.RR) error {
	size, least := dns.Len(rr), 1
	if t.records == len(t.message.Answer) { // this is the first message
		least = 2
	}
	if len(t.message.Answer) >= least && t.size+size > transferMessageSize {
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
	next := t.req.authoritativeAnswer()
	next.Question = nil
	t.message, t.size = next, 0
	return nil
}

// pack returns the message in wire form, signed if the query was.
func (t *transfer) pack() ([]byte, error) {
	if t.req.sig != nil {
		return t.req.sig.sign(t.message, t.run.Now())
	}
	return t.message.Pack()
}

// tsigFudge is by how many seconds the clocks of two servers may differ (RFC 8945 section 10).
const tsigFudge = 300

// maxMACBytes is the length in bytes of the longest message authentication code.
const maxMACBytes = sha512.Size

// signingState is the state for signing the answers to a signed query.
type signingState struct {
	key       *builtin.TSIGKey
	query     *dns.TSIG
	mac       string // MAC of the query, later of the last answer; the next MAC covers it
	timers    bool   // an answer was signed, so the next MAC covers less (RFC 8945 section 5.3.1)
	tsigError uint16 // the error code in the TSIG records of answers
}

// tsigOf returns the TSIG record of a query, nil if there is none. ok is false if there are
// several, or if it is not the last record (RFC 8945 section 5.1).
func tsigOf(msg *dns.Msg) (tsig *dns.TSIG, ok bool) {
	for i, rr := range msg.Extra {
		t, isTSIG := rr.(*dns.TSIG)
		if !isTSIG {
			continue
		}
		// A record without data has an empty algorithm.
		if i != len(msg.Extra)-1 || t.Hdr.Class != dns.ClassANY || t.Algorithm == "" {
			return nil, false
		}
		tsig = t
	}
	return tsig, true
}

// verify checks the signature of a query (RFC 8945 section 5.2). rcode is the status code of the
// answer. answer is the state for signing the answer, also if rcode is an error. It is nil if the
// answer is not signed.
func (r *run) verify(wire []byte, tsig *dns.TSIG) (answer *signingState, rcode int) {
	key := r.secondaries.keys[dns.CanonicalName(tsig.Hdr.Name)]
	s := &signingState{key: key, query: tsig, mac: tsig.MAC}
	if key == nil || dns.CanonicalName(tsig.Algorithm) != key.Algorithm {
		return s.rejected(dns.RcodeBadKey)
	}
	err := dns.TsigVerifyWithProvider(bytes.Clone(wire), key, "", false)
	switch {
	case errors.Is(err, dns.ErrSig):
		return s.rejected(dns.RcodeBadSig)
	case errors.Is(err, dns.ErrTime):
		return s.rejected(dns.RcodeBadTime)
	case err != nil:
		return nil, dns.RcodeFormatError
	case int(tsig.MACSize) < key.MACSize(): // truncated MACs are refused
		return s.rejected(dns.RcodeBadTrunc)
	}
	return s, dns.RcodeSuccess
}

// rejected returns what verify returns for a query with an invalid signature. tsigError is the
// error code in the TSIG record of the answer.
func (s *signingState) rejected(tsigError uint16) (answer *signingState, rcode int) {
	s.tsigError = tsigError
	return s, dns.RcodeNotAuth
}

// tsigRecord returns the TSIG record of the next answer, without a MAC.
func (s *signingState) tsigRecord(id uint16, now time.Time) *dns.TSIG {
	t := &dns.TSIG{
		Hdr:       dns.RR_Header{Name: s.query.Hdr.Name, Rrtype: dns.TypeTSIG, Class: dns.ClassANY},
		Algorithm: s.query.Algorithm, TimeSigned: uint64(now.Unix()), Fudge: tsigFudge, OrigId: id, Error: s.tsigError,
	}
	if s.tsigError == dns.RcodeBadTime { // the answer has our time (section 5.2.3)
		t.TimeSigned, t.Fudge = s.query.TimeSigned, s.query.Fudge
		t.OtherLen, t.OtherData = 6, fmt.Sprintf("%012x", uint64(now.Unix())&(1<<48-1))
	}
	return t
}

// maxRecordSize returns the maximum size of a TSIG record of an answer, in bytes.
func (s *signingState) maxRecordSize(id uint16, now time.Time) int {
	return dns.Len(s.tsigRecord(id, now)) + maxMACBytes
}

// sign returns an answer in wire form with its TSIG record. Answers with an error of the key or the
// MAC have no MAC (section 5.3.2).
func (s *signingState) sign(m *dns.Msg, now time.Time) ([]byte, error) {
	m.Extra = append(m.Extra, s.tsigRecord(m.Id, now))
	wire, mac, err := dns.TsigGenerateWithProvider(m, s.key, s.mac, s.timers)
	if err != nil {
		return nil, fmt.Errorf("sign a DNS message: %w", err)
	}
	s.mac, s.timers = mac, true
	return wire, nil
}
