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
	headerSize = 12
	// The longest answer for a client without EDNS (RFC 1035 section 4.2.1).
	defaultUDPSize = dns.MinMsgSize
	// Passes everywhere without fragments: the smallest IPv6 MTU less its headers.
	ednsUDPSize = 1232
)

// Bits of the header's flag word (RFC 1035 section 4.1.1).
const (
	flagQR    = 1 << 15
	flagRD    = 1 << 8
	opcodeAt  = 11
	opcodeAll = 0xF
)

// query is one received message.
type query struct {
	wire   []byte
	from   netip.Addr
	limit  int  // the longest answer in bytes, as far as known before the message is parsed
	stream bool // received over TCP
	// Its network is over the rate limit: only a client with a valid cookie gets an answer.
	overLimit bool
}

// request is a parsed query.
type request struct {
	query
	msg    *dns.Msg
	opt    *dns.OPT          // nil: the client does not know EDNS
	cookie *dns.EDNS0_COOKIE // the cookie for the answer; nil: none
	sig    *signature        // nil: the query is not signed
}

// answer returns the wire form of the answer to q, in out if it fits. It returns nil if q gets no
// answer: q is not a query, is too malformed to be answered, or its network is over the rate limit.
// If it returns a transfer, the caller must serve that instead of an answer.
func (r *run) answer(q query, out []byte) (wire []byte, t *transfer) {
	if len(q.wire) < headerSize || flags(q.wire)&flagQR != 0 {
		return nil, nil // never answer an answer: two servers would do so for ever
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
	req, rcode := read(q)
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

// read parses a query. If it returns nil, the status code says why.
func read(q query) (*request, int) {
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
	if opt != nil && !q.stream {
		q.limit = min(max(int(opt.UDPSize()), defaultUDPSize), ednsUDPSize)
	}
	return &request{query: q, msg: msg, opt: opt}, dns.RcodeSuccess
}

func flags(wire []byte) uint16 { return binary.BigEndian.Uint16(wire[2:]) }

// checkHeader checks a query by its header alone, which limits the work for the rest: one question,
// and besides it at most the SOA of an IXFR, an OPT and a TSIG.
func checkHeader(wire []byte) int {
	if flags(wire)>>opcodeAt&opcodeAll != dns.OpcodeQuery {
		return dns.RcodeNotImplemented
	}
	count := func(at int) uint16 { return binary.BigEndian.Uint16(wire[at:]) }
	if count(4) != 1 || count(6) != 0 || count(8) > 1 || count(10) > 2 {
		return dns.RcodeFormatError // more than one question has no meaning (RFC 9619)
	}
	return dns.RcodeSuccess
}

// headerOnly returns an answer that is only a header.
func headerOnly(wire []byte, rcode int) []byte {
	out := make([]byte, headerSize)
	copy(out, wire[:2])
	keep := flags(wire) & (flagRD | opcodeAll<<opcodeAt)
	binary.BigEndian.PutUint16(out[2:], flagQR|keep|uint16(rcode))
	return out
}

// onlyOPT returns a query's OPT record, nil if there is none; false if there are several (RFC 6891
// section 6.1.1).
func onlyOPT(msg *dns.Msg) (*dns.OPT, bool) {
	var found *dns.OPT
	for _, rr := range msg.Extra {
		opt, ok := rr.(*dns.OPT)
		if !ok {
			continue
		}
		if found != nil || opt.Hdr.Name != "." {
			return nil, false
		}
		found = opt
	}
	return found, true
}

// answerOPT returns the OPT record for the answer: our UDP size and EDNS version, the client's DO
// bit (RFC 3225 section 3), and cookie if it is not nil.
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

// reply checks the client's cookie, rate and signature, and then answers the question. The reply
// has no OPT record yet. It is nil for no answer, and for a transfer.
func (r *run) reply(req *request) (*dns.Msg, *transfer) {
	spoken := req.opt == nil || req.opt.Version() == 0
	proof := noCookie
	if spoken {
		proof, req.cookie = r.cookies.read(req.opt, req.from, r.Now())
	}
	if req.overLimit {
		if refused, ok := r.overRate(req, proof); !ok {
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
	return r.find(req)
}

// overRate decides about a query from a network over the rate limit. A client with a valid cookie
// has not forged its address, and gets a higher limit. Some of the others get an empty answer that
// tells them to retry over TCP, or with the cookie in it (RFC 7873 section 5.2.3); most get none.
func (r *run) overRate(req *request, proof proof) (refused *dns.Msg, ok bool) {
	switch {
	case proof == proven:
		return nil, r.trusted.allow(req.from, r.Now())
	case !r.limits.slips():
		return nil, false
	case proof == unproven:
		return refusal(req.msg, dns.RcodeBadCookie), false
	}
	refused = refusal(req.msg, dns.RcodeSuccess)
	refused.Truncated = true
	return refused, false
}

// find returns the answer of the zone that the question belongs to, or starts a transfer.
func (r *run) find(req *request) (*dns.Msg, *transfer) {
	asked := req.msg.Question[0]
	if rcode := checkQuestion(asked); rcode != dns.RcodeSuccess {
		return refusal(req.msg, rcode), nil
	}
	if asked.Qtype == dns.TypeAXFR || asked.Qtype == dns.TypeIXFR {
		return r.startTransfer(req)
	}
	zone, ok := r.zone(asked)
	if !ok {
		return refusal(req.msg, dns.RcodeRefused), nil
	}
	if h, ok := zone.(hidden); ok && h.Hidden() && r.secondaries.find(req) == nil {
		return refusal(req.msg, dns.RcodeRefused), nil
	}
	reply := zone.Answer(req.msg)
	if reply == nil {
		return refusal(req.msg, dns.RcodeServerFailure), nil
	}
	reply.RecursionAvailable, reply.Compress = false, true
	reply.CheckingDisabled = false // this server does not validate (RFC 4035 section 3.1.6)
	return reply, nil
}

// zone returns the zone that answers a question: the closest enclosing one. The DS of a delegation
// is in the zone above it, so that zone answers if it is here too (RFC 4035 section 3.1.4.1).
func (r *run) zone(asked dns.Question) (Answerer, bool) {
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

// checkQuestion returns the status code for questions that no zone can answer, success for others.
func checkQuestion(asked dns.Question) int {
	switch asked.Qtype {
	case dns.TypeOPT, dns.TypeTSIG, dns.TypeTKEY, dns.TypeMAILA, dns.TypeMAILB, dns.TypeNone:
		return dns.RcodeFormatError // names cannot have records of these types
	}
	switch asked.Qclass {
	case dns.ClassINET:
		return dns.RcodeSuccess
	case 0: // class 0 does not exist: the question was truncated
		return dns.RcodeFormatError
	}
	return dns.RcodeRefused
}

func refusal(msg *dns.Msg, rcode int) *dns.Msg {
	m := new(dns.Msg)
	m.SetRcode(msg, rcode)
	m.CheckingDisabled = false
	return m
}

// authoritative returns an authoritative answer with the records.
func (req *request) authoritative(records ...dns.RR) *dns.Msg {
	m := refusal(req.msg, dns.RcodeSuccess)
	m.Authoritative, m.Compress, m.Answer = true, true, records
	return m
}

// pack returns a reply in wire form, signed if the query was signed.
func (r *run) pack(req *request, reply *dns.Msg, out []byte) ([]byte, error) {
	if req.opt != nil {
		reply.Extra = append(slices.Clip(reply.Extra), answerOPT(req.opt, req.cookie))
	}
	if req.sig == nil {
		return fit(reply, req.limit, out)
	}
	now := r.Now()
	if _, err := fit(reply, req.limit-req.sig.room(reply.Id, now), out); err != nil {
		return nil, err
	}
	return req.sig.sign(reply, now)
}

// fit shortens a reply to at most limit bytes in wire form. It first removes glue. If that is not
// enough, it returns an empty, truncated answer, which tells the client to retry over TCP and
// cannot be mistaken for a complete one (RFC 2181 section 9).
func fit(reply *dns.Msg, limit int, out []byte) ([]byte, error) {
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
	clientCookie   = 8  // bytes (RFC 7873 section 4)
	serverCookie   = 16 // bytes of a cookie of this server (RFC 9018 section 4)
	cookieVersion  = 1
	maxCookieAge   = time.Hour // maximum age of a cookie (RFC 9018 section 4.3)
	maxCookieAhead = 5 * time.Minute
	// secretLifetime is how long one secret makes cookies. Cookies of the previous secret are
	// accepted until the next change, which is far longer than a cookie is valid.
	secretLifetime = 24 * time.Hour
)

// proof says what a query's cookie proves about its source address.
type proof int

const (
	noCookie proof = iota
	badCookie
	unproven // the client supports cookies, but has no valid one of this server
	proven   // the cookie is valid: this server has sent it to this address
)

// secret is the key of the hash in server cookies.
type secret [16]byte

func newSecret() (s secret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// secrets are the secrets whose cookies are accepted; the first one makes new cookies.
type secrets struct {
	accepted []secret
	made     time.Time
}

// cookies makes and checks the server cookies of RFC 7873 and 9018.
type cookies struct {
	rotating sync.Mutex
	current  atomic.Pointer[secrets]
}

func newCookies(now time.Time) *cookies {
	c := &cookies{}
	c.current.Store(&secrets{accepted: []secret{newSecret()}, made: now})
	return c
}

// secrets returns the current secrets, after adding a new one if it is time.
func (c *cookies) secrets(now time.Time) *secrets {
	s := c.current.Load()
	if now.Sub(s.made) < secretLifetime {
		return s
	}
	c.rotating.Lock()
	defer c.rotating.Unlock()
	s = c.current.Load()
	if now.Sub(s.made) >= secretLifetime {
		s = &secrets{accepted: []secret{newSecret(), s.accepted[0]}, made: now}
		c.current.Store(s)
	}
	return s
}

// read checks the cookie of a query from an address, and returns the option for the answer, nil for
// none. If there are several cookies, the first counts (RFC 7873 section 5.2).
func (c *cookies) read(opt *dns.OPT, from netip.Addr, now time.Time) (proof, *dns.EDNS0_COOKIE) {
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
	have, all := unproven, c.secrets(now)
	for _, s := range all.accepted {
		if n == clientCookie+serverCookie && s.valid(room[:n], from, now) {
			have = proven
		}
	}
	fresh := all.accepted[0].cookie(room[:clientCookie], from, now)
	return have, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: hex.EncodeToString(fresh)}
}

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

// cookie returns a whole cookie, the client's and the server's part, for a client at an address.
func (s secret) cookie(client []byte, from netip.Addr, now time.Time) []byte {
	out := append(make([]byte, 0, clientCookie+serverCookie), client...)
	out = append(out, cookieVersion, 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(now.Unix()))
	return s.hash(out, from)
}

// hash appends the hash over the address and the cookie so far.
func (s secret) hash(cookie []byte, from netip.Addr) []byte {
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

// valid reports whether a cookie of full length was made with s for this address, and recently. The
// reserved bytes are hashed as received, since another server of the same operator may set them
// (RFC 9018 section 4.2).
func (s secret) valid(cookie []byte, from netip.Addr, now time.Time) bool {
	if cookie[clientCookie] != cookieVersion {
		return false
	}
	made := binary.BigEndian.Uint32(cookie[clientCookie+4:])
	// Serial arithmetic (RFC 1982).
	age := time.Duration(int32(uint32(now.Unix())-made)) * time.Second
	if age > maxCookieAge || age < -maxCookieAhead {
		return false
	}
	unhashed := len(cookie) - 8
	want := s.hash(append(make([]byte, 0, len(cookie)), cookie[:unhashed]...), from)
	return subtle.ConstantTimeCompare(want, cookie) == 1
}

// limiterSlots is the number of slots of a limiter (512 KiB). Networks with the same slot share a
// rate; which ones do is random.
const limiterSlots = 1 << 16

// slipEvery is how many refused queries there are per query that gets an empty answer, which tells
// the client to retry over TCP or with its cookie. So a client whose address an attacker forges
// still gets an answer.
const slipEvery = 2

// limiter limits the UDP answers to one network, since a query over UDP may have a forged address
// (response-rate limiting). Each slot is a leaky bucket in one word: the time at which it is empty,
// in nanoseconds.
type limiter struct {
	seed    maphash.Seed
	every   int64 // nanoseconds that one answer adds to a slot
	burst   int64 // nanoseconds that a slot may be ahead of now
	exempt  []netip.Prefix
	slots   []atomic.Int64
	refused atomic.Uint64
}

func newLimiter(perSecond int, exempt []netip.Prefix) *limiter {
	return &limiter{
		exempt: exempt,
		seed:   maphash.MakeSeed(), every: int64(time.Second) / int64(perSecond), burst: int64(time.Second),
		slots: make([]atomic.Int64, limiterSlots),
	}
}

// allow counts one answer to a client, and reports whether it is within the limit.
func (l *limiter) allow(from netip.Addr, now time.Time) bool {
	if limit.Within(l.exempt, from) {
		return true
	}
	slot := &l.slots[maphash.Comparable(l.seed, network(from))%limiterSlots]
	at := now.UnixNano()
	for {
		have := slot.Load()
		next := max(have, at) + l.every
		if next-at > l.burst {
			return false
		}
		if slot.CompareAndSwap(have, next) {
			return true
		}
	}
}

// slips reports whether a refused query gets an empty answer; the others get no answer.
func (l *limiter) slips() bool { return l.refused.Add(1)%slipEvery == 0 }

// network returns the network that counts as one client: a /24, or a /56, which is what one
// household gets.
func network(ip netip.Addr) netip.Prefix { return limit.Prefix(ip, 24, 56) }
