package dnsd

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dchest/siphash"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/miekg/dns"
)

const (
	headerSize = 12 // bytes of the header of a DNS message
	// defaultUDPSize is the longest answer in bytes for a client without EDNS (RFC 1035 section
	// 4.2.1).
	defaultUDPSize = dns.MinMsgSize
	// ednsUDPSize is the longest answer in bytes over UDP. It passes everywhere without
	// fragmentation: it is the smallest IPv6 MTU without the headers.
	ednsUDPSize = 1232
)

// Bits of the header's flag word (RFC 1035 section 4.1.1).
const (
	flagQR      = 1 << 15
	flagRD      = 1 << 8
	opcodeShift = 11
	opcodeMask  = 0xF
)

// A query is one received message that is not parsed yet.
type query struct {
	wire    []byte // the message as received
	from    netip.Addr
	limit   int  // the longest answer in bytes, before the OPT record is known
	overTCP bool // received over TCP
	// The client's network is over the rate limit, so the query needs a valid cookie.
	overLimit bool
}

// A request is a query that was parsed.
type request struct {
	query
	at     time.Time // when it was parsed
	msg    *dns.Msg
	opt    *dns.OPT          // nil: the client does not know EDNS
	cookie *dns.EDNS0_COOKIE // for the answer; nil: none
	sig    *signingState     // nil: the query is not signed
}

// answer returns the answer to q in wire form, in the buffer out if it fits. It returns nil if q
// gets no answer: q is not a query, is too malformed, or its network is over the rate limit. If it
// returns a transfer, the caller must serve the transfer instead of an answer.
func (r *run) answer(q query, out []byte) (wire []byte, t *transfer) {
	if len(q.wire) < headerSize || headerFlags(q.wire)&flagQR != 0 {
		return nil, nil // a server that answers an answer could get into a loop with another one
	}
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("panic in a DNS query", "panic", p, "stack", string(debug.Stack()))
			wire, t = headerOnly(q.wire, dns.RcodeServerFailure), nil
		}
	}()
	if r.Answered != nil {
		defer func() {
			if len(wire) >= headerSize {
				r.Answered(dns.RcodeToString[int(wire[3]&0xf)])
			}
		}()
	}
	req, rcode := parseRequest(q)
	if req == nil {
		if q.overLimit {
			return nil, nil
		}
		return headerOnly(q.wire, rcode), nil
	}
	reply, t := r.reply(req)
	if reply == nil {
		return nil, t
	}
	wire, err := r.pack(req, reply, out)
	if err != nil {
		return headerOnly(q.wire, dns.RcodeServerFailure), nil
	}
	return wire, nil
}

// parseRequest parses a query. If the query is invalid, req is nil, and rcode is the status code of
// the answer.
func parseRequest(q query) (req *request, rcode int) {
	if rcode := checkHeader(q.wire); rcode != dns.RcodeSuccess {
		return nil, rcode
	}
	msg := new(dns.Msg)
	if msg.Unpack(q.wire) != nil || len(msg.Question) != 1 {
		return nil, dns.RcodeFormatError
	}
	opt, ok := onlyOPT(msg)
	if !ok {
		return nil, dns.RcodeFormatError
	}
	if opt != nil && !q.overTCP {
		q.limit = min(max(int(opt.UDPSize()), defaultUDPSize), ednsUDPSize)
	}
	return &request{query: q, msg: msg, opt: opt}, dns.RcodeSuccess
}

// headerFlags returns the flag word of a message's header.
func headerFlags(wire []byte) uint16 { return binary.BigEndian.Uint16(wire[2:]) }

// checkHeader checks the header of a query before the rest is parsed, and returns the status code
// of the answer. Besides one question, a query may have at most the SOA record of an IXFR, an OPT
// record and a TSIG record.
func checkHeader(wire []byte) (rcode int) {
	if headerFlags(wire)>>opcodeShift&opcodeMask != dns.OpcodeQuery {
		return dns.RcodeNotImplemented
	}
	count := func(at int) uint16 { return binary.BigEndian.Uint16(wire[at:]) }
	if count(4) != 1 || count(6) != 0 || count(8) > 1 || count(10) > 2 {
		return dns.RcodeFormatError // more than one question is an error (RFC 9619)
	}
	return dns.RcodeSuccess
}

// headerOnly returns an answer that has only a header with the status code.
func headerOnly(wire []byte, rcode int) []byte {
	out := make([]byte, headerSize)
	copy(out, wire[:2])
	keep := headerFlags(wire) & (flagRD | opcodeMask<<opcodeShift)
	binary.BigEndian.PutUint16(out[2:], flagQR|keep|uint16(rcode))
	return out
}

// onlyOPT returns the OPT record of a query, nil if there is none. ok is false if the query has
// several (RFC 6891 section 6.1.1).
func onlyOPT(msg *dns.Msg) (found *dns.OPT, ok bool) {
	for _, rr := range msg.Extra {
		opt, isOPT := rr.(*dns.OPT)
		if !isOPT {
			continue
		}
		if found != nil || opt.Hdr.Name != "." {
			return nil, false
		}
		found = opt
	}
	return found, true
}

// answerOPT returns the OPT record of an answer. It has our UDP size and EDNS version, the client's
// DO bit (RFC 3225 section 3), and the cookie unless that is nil.
func answerOPT(theirs *dns.OPT, cookie *dns.EDNS0_COOKIE) *dns.OPT {
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	opt.SetUDPSize(ednsUDPSize)
	if theirs.Do() {
		opt.SetDo()
	}
	if cookie != nil {
		opt.Option = []dns.EDNS0{cookie}
	}
	return opt
}

// reply checks the cookie, the rate and the signature of a query, and then answers the question.
// The reply has no OPT record yet. It is nil if the query gets no answer or a transfer.
func (r *run) reply(req *request) (*dns.Msg, *transfer) {
	req.at = r.Now()
	spoken := req.opt == nil || req.opt.Version() == 0
	proof := noCookie
	if spoken {
		proof, req.cookie = r.cookies.checkCookie(req.opt, req.from, req.at)
	}
	if req.overLimit {
		if refused, ok := r.checkOverLimit(req, proof); !ok {
			return refused, nil
		}
	}
	switch {
	case !spoken:
		return refusal(req.msg, dns.RcodeBadVers), nil
	case proof == badCookie:
		return refusal(req.msg, dns.RcodeFormatError), nil
	}
	tsig, ok := tsigOf(req.msg)
	if !ok {
		return refusal(req.msg, dns.RcodeFormatError), nil
	}
	if tsig != nil {
		sig, rcode := r.verify(req.wire, tsig)
		req.sig = sig
		if rcode != dns.RcodeSuccess {
			return refusal(req.msg, rcode), nil
		}
	}
	return r.answerQuestion(req)
}

// checkOverLimit decides about a query from a network over the rate limit. If ok is true, the query
// is answered as usual. Otherwise the answer is refused; nil means no answer.
//
// A valid cookie proves that the address is not forged, so such a client has a higher limit. Of the
// other queries, most get no answer. Some get an empty one, after which the client repeats the
// query over TCP or with the cookie in the answer (RFC 7873 section 5.2.3).
func (r *run) checkOverLimit(req *request, proof cookieProof) (refused *dns.Msg, ok bool) {
	switch {
	case proof == provenAddress:
		return nil, r.trusted.allow(req.from, req.at)
	case !r.limits.sendsEmptyAnswer():
		return nil, false
	case proof == unprovenAddress:
		return refusal(req.msg, dns.RcodeBadCookie), false
	}
	refused = refusal(req.msg, dns.RcodeSuccess)
	refused.Truncated = true
	return refused, false
}

// answerQuestion returns the answer of the zone that the question belongs to. For AXFR and IXFR it
// starts a transfer.
func (r *run) answerQuestion(req *request) (*dns.Msg, *transfer) {
	asked := req.msg.Question[0]
	if rcode := checkQuestion(asked); rcode != dns.RcodeSuccess {
		return refusal(req.msg, rcode), nil
	}
	if asked.Qtype == dns.TypeAXFR || asked.Qtype == dns.TypeIXFR {
		return r.startTransfer(req)
	}
	zone, ok := r.zoneFor(asked)
	if !ok {
		return refusal(req.msg, dns.RcodeRefused), nil
	}
	if h, ok := zone.(hideable); ok && h.Hidden() && r.secondaries.senderOf(req) == nil {
		return refusal(req.msg, dns.RcodeRefused), nil
	}
	reply := zone.Answer(req.msg)
	if reply == nil {
		return refusal(req.msg, dns.RcodeServerFailure), nil
	}
	if z, ok := zone.(countable); ok && !r.isOurs(req) {
		z.CountQuestion(req.at)
	}
	reply.RecursionAvailable, reply.Compress = false, true
	reply.CheckingDisabled = false // this server does not validate (RFC 4035 section 3.1.6)
	return reply, nil
}

// countable is implemented by zones that count their questions.
type countable interface {
	CountQuestion(at time.Time)
}

// isOurs reports whether a question is not of the world: whether this host asks, or one of its
// secondaries looks whether the zone has changed.
func (r *run) isOurs(req *request) bool {
	if req.msg.Question[0].Qtype == dns.TypeSOA && r.secondaries.senderOf(req) != nil {
		return true
	}
	return r.Own != nil && r.Own(req.from.Unmap())
}

// zoneFor returns the zone that answers a question: the one that encloses the name most closely. A
// question for the DS record of a zone goes to the parent zone if that is served here too (RFC 4035
// section 3.1.4.1).
func (r *run) zoneFor(asked dns.Question) (zone Answerer, ok bool) {
	name := strings.TrimSuffix(dns.CanonicalName(asked.Name), ".")
	if asked.Qtype == dns.TypeDS {
		if at, end := dns.NextLabel(name, 0); !end {
			if zone, ok := r.Zones.Zone(name[at:]); ok {
				return zone, true
			}
		}
	}
	return r.Zones.Zone(name)
}

// checkQuestion returns NOERROR for a question that a zone may answer, and the status code of the
// answer for others.
func checkQuestion(asked dns.Question) (rcode int) {
	switch asked.Qtype {
	case dns.TypeOPT, dns.TypeTSIG, dns.TypeTKEY, dns.TypeMAILA, dns.TypeMAILB, dns.TypeNone:
		return dns.RcodeFormatError // no name has records of these types
	}
	switch asked.Qclass {
	case dns.ClassINET:
		return dns.RcodeSuccess
	case 0: // class 0 does not exist, so the question was cut off
		return dns.RcodeFormatError
	}
	return dns.RcodeRefused
}

// refusal returns an empty answer with the status code.
func refusal(msg *dns.Msg, rcode int) *dns.Msg {
	m := new(dns.Msg)
	m.SetRcode(msg, rcode)
	m.CheckingDisabled = false
	return m
}

// authoritativeAnswer returns an authoritative answer that has the records.
func (req *request) authoritativeAnswer(records ...dns.RR) *dns.Msg {
	m := refusal(req.msg, dns.RcodeSuccess)
	m.Authoritative, m.Compress, m.Answer = true, true, records
	return m
}

// pack returns a reply in wire form, signed if the query was.
func (r *run) pack(req *request, reply *dns.Msg, out []byte) ([]byte, error) {
	if req.opt != nil {
		reply.Extra = append(slices.Clip(reply.Extra), answerOPT(req.opt, req.cookie))
	}
	if req.sig == nil {
		return packWithin(reply, req.limit, out)
	}
	now := r.Now()
	if _, err := packWithin(reply, req.limit-req.sig.maxRecordSize(reply.Id, now), out); err != nil {
		return nil, err
	}
	return req.sig.sign(reply, now)
}

// packWithin returns a reply in wire form with at most limit bytes. If the reply is too long, it
// first removes the additional records. If that is not enough, it returns an empty answer with the
// TC bit, after which the client repeats the query over TCP. An empty answer cannot be taken for a
// complete one (RFC 2181 section 9).
func packWithin(reply *dns.Msg, limit int, out []byte) ([]byte, error) {
	answer, err := reply.PackBuffer(out)
	if err == nil && len(answer) <= limit {
		return answer, nil
	}
	if opt := reply.IsEdns0(); opt != nil {
		reply.Extra = []dns.RR{opt}
	} else {
		reply.Extra = nil
	}
	answer, err = reply.PackBuffer(out)
	if err != nil || len(answer) <= limit {
		return answer, err
	}
	reply.Answer, reply.Ns, reply.Truncated = nil, nil, true
	return reply.PackBuffer(out)
}

const (
	clientCookie   = 8  // bytes of a client cookie (RFC 7873 section 4)
	serverCookie   = 16 // bytes of a server cookie of this server (RFC 9018 section 4)
	cookieVersion  = 1
	maxCookieAge   = time.Hour       // (RFC 9018 section 4.3)
	maxCookieAhead = 5 * time.Minute // how far in the future a cookie's time may be
	// secretLifetime is how long a secret is used to make cookies. Cookies of the previous secret
	// stay valid until the next change, which is far longer than maxCookieAge.
	secretLifetime = 24 * time.Hour
)

// A cookieProof says whether the cookie of a query proves its source address.
type cookieProof int

const (
	noCookie cookieProof = iota
	badCookie
	unprovenAddress // the client supports cookies, but has no valid server cookie
	provenAddress   // the server cookie is valid: this server sent it to this address
)

// cookieSecret is the key of the hash in server cookies.
type cookieSecret [16]byte

func newSecret() (s cookieSecret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// cookieSecrets are the secrets whose cookies are valid. The first one makes new cookies.
type cookieSecrets struct {
	accepted []cookieSecret
	made     time.Time // when the first one was made
}

// A cookieMaker makes and checks server cookies (RFC 7873, RFC 9018).
type cookieMaker struct {
	rotationMu sync.Mutex
	current    atomic.Pointer[cookieSecrets]
}

func newCookieMaker(now time.Time) *cookieMaker {
	c := &cookieMaker{}
	c.current.Store(&cookieSecrets{accepted: []cookieSecret{newSecret()}, made: now})
	return c
}

// secrets returns the current secrets. If the first one is too old, it makes a new one.
func (c *cookieMaker) secrets(now time.Time) *cookieSecrets {
	s := c.current.Load()
	if now.Sub(s.made) < secretLifetime {
		return s
	}
	c.rotationMu.Lock()
	defer c.rotationMu.Unlock()
	s = c.current.Load()
	if now.Sub(s.made) >= secretLifetime {
		s = &cookieSecrets{accepted: []cookieSecret{newSecret(), s.accepted[0]}, made: now}
		c.current.Store(s)
	}
	return s
}

// checkCookie checks the cookie of a query from an address, and returns the option for the answer,
// nil for none. If there are several cookies, the first counts (RFC 7873 section 5.2).
func (c *cookieMaker) checkCookie(opt *dns.OPT, from netip.Addr, now time.Time) (cookieProof, *dns.EDNS0_COOKIE) {
	sent := cookieOf(opt)
	if sent == nil {
		return noCookie, nil
	}
	var room [clientCookie + 2*serverCookie]byte
	if len(sent.Cookie) > hex.EncodedLen(len(room)) {
		return badCookie, nil
	}
	n, err := hex.Decode(room[:], []byte(sent.Cookie))
	if err != nil || n < clientCookie || n > clientCookie && n < 2*clientCookie {
		return badCookie, nil // section 5.2.2
	}
	have, all := unprovenAddress, c.secrets(now)
	for _, s := range all.accepted {
		if n == clientCookie+serverCookie && s.isValidCookie(room[:n], from, now) {
			have = provenAddress
		}
	}
	fresh := all.accepted[0].newCookie(room[:clientCookie], from, now)
	return have, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: hex.EncodeToString(fresh)}
}

// cookieOf returns the first cookie option of an OPT record, nil if there is none.
func cookieOf(opt *dns.OPT) *dns.EDNS0_COOKIE {
	if opt == nil {
		return nil
	}
	for _, o := range opt.Option {
		if cookie, ok := o.(*dns.EDNS0_COOKIE); ok {
			return cookie
		}
	}
	return nil
}

// newCookie returns a new cookie for a client at an address: the client's part and ours.
func (s cookieSecret) newCookie(client []byte, from netip.Addr, now time.Time) []byte {
	out := append(make([]byte, 0, clientCookie+serverCookie), client...)
	out = append(out, cookieVersion, 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(now.Unix()))
	return s.appendHash(out, from)
}

// appendHash appends to a cookie the hash over the cookie and the address.
func (s cookieSecret) appendHash(cookie []byte, from netip.Addr) []byte {
	in := append(make([]byte, 0, clientCookie+serverCookie+8), cookie...)
	from = from.Unmap()
	if from.Is4() {
		ip := from.As4()
		in = append(in, ip[:]...)
	} else {
		ip := from.As16()
		in = append(in, ip[:]...)
	}
	sum := siphash.Hash(binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:]), in)
	return binary.LittleEndian.AppendUint64(cookie, sum)
}

// isValidCookie reports whether a cookie of full length was made with s for this address, not too
// long ago. The hash covers the reserved bytes as they were received, because another server of the
// same operator may set them (RFC 9018 section 4.2).
func (s cookieSecret) isValidCookie(cookie []byte, from netip.Addr, now time.Time) bool {
	if cookie[clientCookie] != cookieVersion {
		return false
	}
	made := binary.BigEndian.Uint32(cookie[clientCookie+4:])
	// The difference is in serial number arithmetic (RFC 1982).
	age := time.Duration(int32(uint32(now.Unix())-made)) * time.Second
	if age > maxCookieAge || age < -maxCookieAhead {
		return false
	}
	unhashed := len(cookie) - 8
	want := s.appendHash(append(make([]byte, 0, len(cookie)), cookie[:unhashed]...), from)
	return subtle.ConstantTimeCompare(want, cookie) == 1
}

// limiterSlots is the number of slots of an answerLimiter, which take 512 KiB. Networks with the
// same slot share a rate. Which ones do is random.
const limiterSlots = 1 << 16

// One of slipEvery refused queries gets an empty answer ("slip" in response rate limiting), after
// which the client repeats the query over TCP or with its cookie. So a client still gets answers
// while an attacker forges its address.
const slipEvery = 2

// An answerLimiter limits the UDP answers to each network, because a query over UDP may have a
// forged address (response rate limiting). Each slot is a leaky bucket in one word: the time at
// which it will be empty, in Unix nanoseconds.
type answerLimiter struct {
	seed       maphash.Seed
	answerCost int64 // nanoseconds that one answer adds to a slot
	burst      int64 // nanoseconds that a slot may be ahead of the current time
	exempt     []netip.Prefix
	slots      []atomic.Int64
	refused    atomic.Uint64 // queries over the limit
}

// newAnswerLimiter returns a limiter that allows a number of answers per second to each network,
// and any number to the exempt networks.
func newAnswerLimiter(perSecond int, exempt []netip.Prefix) *answerLimiter {
	return &answerLimiter{
		exempt: exempt,
		seed:   maphash.MakeSeed(), answerCost: int64(time.Second) / int64(perSecond), burst: int64(time.Second),
		slots: make([]atomic.Int64, limiterSlots),
	}
}

// allow counts one answer to a client. It returns false if the client's network is over the limit.
func (l *answerLimiter) allow(from netip.Addr, now time.Time) (withinLimit bool) {
	if limit.Within(l.exempt, from) {
		return true
	}
	slot := &l.slots[maphash.Comparable(l.seed, clientNetwork(from))%limiterSlots]
	at := now.UnixNano()
	for {
		have := slot.Load()
		next := max(have, at) + l.answerCost
		if next-at > l.burst {
			return false
		}
		if slot.CompareAndSwap(have, next) {
			return true
		}
	}
}

// sendsEmptyAnswer counts a refused query. It reports whether the query gets an empty answer
// instead of none.
func (l *answerLimiter) sendsEmptyAnswer() bool { return l.refused.Add(1)%slipEvery == 0 }

// clientNetwork returns the network that counts as one client: an IPv4 /24, or an IPv6 /56, which
// is what one household gets.
func clientNetwork(ip netip.Addr) netip.Prefix { return limit.Prefix(ip, 24, 56) }
