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
	plainUDP   = dns.MinMsgSize // what a client without EDNS takes (RFC 1035 section 4.2.1)
	ednsUDP    = 1232           // what passes everywhere without fragments: the smallest IPv6 MTU less its headers
)

// Bits of the header's flag word (RFC 1035 section 4.1.1).
const (
	flagQR    = 1 << 15
	flagRD    = 1 << 8
	opcodeAt  = 11
	opcodeAll = 0xF
)

// query is one message as it came in.
type query struct {
	wire   []byte
	from   netip.Addr
	limit  int  // the longest answer that the client takes, as far as is known before the message is read
	stream bool // it came over TCP
	over   bool // its network has had its share: only who proves that he is there gets more
}

// request is a query that has been read.
type request struct {
	query
	msg    *dns.Msg
	opt    *dns.OPT          // nil: the client does not know EDNS
	cookie *dns.EDNS0_COOKIE // for the answer; nil for none
	sig    *signature        // nil: the query is not signed
}

// answer returns the wire form of the answer to q, made in out if that is long enough, or nil if q
// gets none: it is no query, or so broken that there is nothing to answer to, or its network has
// asked too much. A transfer is instead of an answer and must be served.
func (r *run) answer(q query, out []byte) (wire []byte, t *transfer) {
	if len(q.wire) < headerSize || flags(q.wire)&flagQR != 0 {
		return nil, nil // never answer an answer: two servers would go on for ever
	}
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("dns query panicked", "panic", p, "stack", string(debug.Stack()))
			wire, t = bare(q.wire, dns.RcodeServerFailure), nil
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
		if q.over {
			return nil, nil
		}
		return bare(q.wire, rcode), nil
	}
	reply, t := r.reply(req)
	if reply == nil {
		return nil, t
	}
	wire, err := r.pack(req, reply, out)
	if err != nil {
		return bare(q.wire, dns.RcodeServerFailure), nil
	}
	return wire, nil
}

// read unpacks a query; without one, the status says why.
func read(q query) (*request, int) {
	if rcode := screen(q.wire); rcode != dns.RcodeSuccess {
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
		q.limit = min(max(int(opt.UDPSize()), plainUDP), ednsUDP)
	}
	return &request{query: q, msg: msg, opt: opt}, dns.RcodeSuccess
}

func flags(wire []byte) uint16 { return binary.BigEndian.Uint16(wire[2:]) }

// screen judges a query by its header alone, which bounds the work on the rest: one question, and
// beside it no more than the SOA of an IXFR, an OPT and a TSIG.
func screen(wire []byte) int {
	if flags(wire)>>opcodeAt&opcodeAll != dns.OpcodeQuery {
		return dns.RcodeNotImplemented
	}
	count := func(at int) uint16 { return binary.BigEndian.Uint16(wire[at:]) }
	if count(4) != 1 || count(6) != 0 || count(8) > 1 || count(10) > 2 {
		return dns.RcodeFormatError // more than one question has no meaning (RFC 9619)
	}
	return dns.RcodeSuccess
}

// bare answers with a header only.
func bare(wire []byte, rcode int) []byte {
	out := make([]byte, headerSize)
	copy(out, wire[:2])
	keep := flags(wire) & (flagRD | opcodeAll<<opcodeAt)
	binary.BigEndian.PutUint16(out[2:], flagQR|keep|uint16(rcode))
	return out
}

// onlyOPT returns a query's OPT record, or nil; more than one is an error (RFC 6891 section 6.1.1).
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

// ourOPT answers a client's OPT record: our size and version, its DO bit (RFC 3225 section 3), and
// a cookie if it sent one.
func ourOPT(theirs *dns.OPT, cookie *dns.EDNS0_COOKIE) *dns.OPT {
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	opt.SetUDPSize(ednsUDP)
	if theirs.Do() {
		opt.SetDo()
	}
	if cookie != nil {
		opt.Option = []dns.EDNS0{cookie}
	}
	return opt
}

// reply judges who asks, and then answers what is asked. The reply is without an OPT record; nil is
// for none, or for a transfer.
func (r *run) reply(req *request) (*dns.Msg, *transfer) {
	spoken := req.opt == nil || req.opt.Version() == 0
	proof := noCookie
	if spoken {
		proof, req.cookie = r.cookies.read(req.opt, req.from, r.Now())
	}
	if req.over {
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

// overRate decides about a query from a network that has had its share. Who has a cookie of ours is
// where he says that he is, and gets a larger share; of the others some are told how to come back,
// over TCP or with the cookie in this answer (RFC 7873 section 5.2.3), and most are dropped.
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

// find finds the zone and has it answer.
func (r *run) find(req *request) (*dns.Msg, *transfer) {
	asked := req.msg.Question[0]
	if rcode := serves(asked); rcode != dns.RcodeSuccess {
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
	reply.CheckingDisabled = false // nothing is checked here (RFC 4035 section 3.1.6)
	return reply, nil
}

// zone finds the zone that answers a question: the closest, but for a delegation's DS the one above
// it, if that is here too (RFC 4035 section 3.1.4.1).
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

// serves judges what is asked for before a zone is asked.
func serves(asked dns.Question) int {
	switch asked.Qtype {
	case dns.TypeOPT, dns.TypeTSIG, dns.TypeTKEY, dns.TypeMAILA, dns.TypeMAILB, dns.TypeNone:
		return dns.RcodeFormatError // these are not types of data that a name can have
	}
	switch asked.Qclass {
	case dns.ClassINET:
		return dns.RcodeSuccess
	case 0: // no class is so numbered: the question was cut short
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

// authoritative is an answer with these records.
func (req *request) authoritative(records ...dns.RR) *dns.Msg {
	m := refusal(req.msg, dns.RcodeSuccess)
	m.Authoritative, m.Compress, m.Answer = true, true, records
	return m
}

// pack brings a reply to the wire, signed if the query was.
func (r *run) pack(req *request, reply *dns.Msg, out []byte) ([]byte, error) {
	if req.opt != nil {
		reply.Extra = append(slices.Clip(reply.Extra), ourOPT(req.opt, req.cookie))
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

// fit cuts a reply to what fits in limit bytes on the wire: glue goes first, and if that is not
// enough the client is told to come again over TCP and gets nothing that it might take for the
// whole (RFC 2181 section 9).
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
	clientCookie  = 8  // bytes (RFC 7873 section 4)
	serverCookie  = 16 // bytes, of the ones that we make (RFC 9018 section 4)
	cookieVersion = 1
	cookiePast    = time.Hour // how old a cookie may be (RFC 9018 section 4.3)
	cookieFuture  = 5 * time.Minute
	// secretFor is how long cookies are made with one secret. Those of the one before are taken
	// until the next, far longer than they live.
	secretFor = 24 * time.Hour
)

// proof is what a query's cookie says about its source address.
type proof int

const (
	noCookie proof = iota
	badCookie
	unproven // the client knows cookies, and has none of ours that holds
	proven   // the client has had an answer from us at this address
)

// secret keys the hash of server cookies.
type secret [16]byte

func newSecret() (s secret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// secrets are those whose cookies are taken; the first makes new ones.
type secrets struct {
	accepted []secret
	made     time.Time
}

// cookies makes and checks the server cookies of RFC 7873 and 9018.
type cookies struct {
	rolling sync.Mutex
	current atomic.Pointer[secrets]
}

func newCookies(now time.Time) *cookies {
	c := &cookies{}
	c.current.Store(&secrets{accepted: []secret{newSecret()}, made: now})
	return c
}

// secrets gives those of now, and makes a new one when it is time.
func (c *cookies) secrets(now time.Time) *secrets {
	s := c.current.Load()
	if now.Sub(s.made) < secretFor {
		return s
	}
	c.rolling.Lock()
	defer c.rolling.Unlock()
	s = c.current.Load()
	if now.Sub(s.made) >= secretFor {
		s = &secrets{accepted: []secret{newSecret(), s.accepted[0]}, made: now}
		c.current.Store(s)
	}
	return s
}

// read checks the cookie of a query from an address, and gives the option that goes into the
// answer, nil for none. Of several cookies the first counts (RFC 7873 section 5.2).
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
		if n == clientCookie+serverCookie && s.holds(room[:n], from, now) {
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

// cookie makes the whole cookie, client's and server's part, for a client at an address.
func (s secret) cookie(client []byte, from netip.Addr, now time.Time) []byte {
	out := append(make([]byte, 0, clientCookie+serverCookie), client...)
	out = append(out, cookieVersion, 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(now.Unix()))
	return s.hash(out, from)
}

// hash appends the hash of a cookie without one and of the address.
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

// holds reports whether a cookie of full length was made with s for this address, not long ago. The
// reserved bytes are hashed as they came, since another server of our operator's may fill them (RFC
// 9018 section 4.2).
func (s secret) holds(cookie []byte, from netip.Addr, now time.Time) bool {
	if cookie[clientCookie] != cookieVersion {
		return false
	}
	made := binary.BigEndian.Uint32(cookie[clientCookie+4:])
	age := time.Duration(int32(uint32(now.Unix())-made)) * time.Second // serial arithmetic (RFC 1982)
	if age > cookiePast || age < -cookieFuture {
		return false
	}
	unhashed := len(cookie) - 8
	want := s.hash(append(make([]byte, 0, len(cookie)), cookie[:unhashed]...), from)
	return subtle.ConstantTimeCompare(want, cookie) == 1
}

// slots bounds the memory of a limiter (512 KiB). Networks that meet in a slot share its rate;
// which ones do is random.
const slots = 1 << 16

// slipEvery is how many refused queries come to one that is told to use TCP, or its cookie: whoever
// really asks from an address that an attacker forges still gets through.
const slipEvery = 2

// limiter bounds what is sent to one network over UDP, where anybody can ask in the name of another
// (response-rate limiting). Each slot is a leaky bucket in one word: the time at which it would be
// empty, in nanoseconds.
type limiter struct {
	seed    maphash.Seed
	every   int64 // nanoseconds that one answer costs
	burst   int64 // nanoseconds that may be owed
	exempt  []netip.Prefix
	slots   []atomic.Int64
	refused atomic.Uint64
}

func newLimiter(perSecond int, exempt []netip.Prefix) *limiter {
	return &limiter{
		exempt: exempt,
		seed:   maphash.MakeSeed(), every: int64(time.Second) / int64(perSecond), burst: int64(time.Second),
		slots: make([]atomic.Int64, slots),
	}
}

// allow counts one answer to a client, and reports whether it may have it.
func (l *limiter) allow(from netip.Addr, now time.Time) bool {
	if limit.Within(l.exempt, from) {
		return true
	}
	slot := &l.slots[maphash.Comparable(l.seed, network(from))%slots]
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

// slips reports whether a refused query gets an answer without content; the others get none.
func (l *limiter) slips() bool { return l.refused.Add(1)%slipEvery == 0 }

// network returns what counts as one client: a /24, or a /56, which is what one household gets.
func network(ip netip.Addr) netip.Prefix { return limit.Prefix(ip, 24, 56) }
