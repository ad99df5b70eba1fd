package dnsd

import (
	"encoding/binary"
	"runtime/debug"
	"strings"

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
	limit  int  // the longest answer that the client takes, as far as is known before the message is read
	stream bool // it came over TCP
	slip   bool // answer only that it should come again over TCP
}

// answer returns the wire form of the answer to q, made in out if that is long enough, or nil if q gets none: it is no
// query, or so broken that there is nothing to answer to.
func (r *run) answer(q query, out []byte) (wire []byte) {
	if len(q.wire) < headerSize || flags(q.wire)&flagQR != 0 {
		return nil // never answer an answer: two servers would go on for ever
	}
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("dns query panicked", "panic", p, "stack", string(debug.Stack()))
			wire = bare(q.wire, dns.RcodeServerFailure)
		}
	}()
	if rcode := screen(q.wire); rcode != dns.RcodeSuccess {
		return bare(q.wire, rcode)
	}
	var msg dns.Msg
	if msg.Unpack(q.wire) != nil || len(msg.Question) != 1 {
		return bare(q.wire, dns.RcodeFormatError)
	}
	opt, ok := onlyOPT(&msg)
	if !ok {
		return bare(q.wire, dns.RcodeFormatError)
	}
	reply := r.reply(&msg, opt, q.slip)
	if opt != nil {
		if !q.stream {
			q.limit = min(max(int(opt.UDPSize()), plainUDP), ednsUDP)
		}
		reply.Extra = append(reply.Extra, ourOPT(opt))
	}
	return pack(reply, q.limit, q.wire, out)
}

func flags(wire []byte) uint16 { return binary.BigEndian.Uint16(wire[2:]) }

// screen judges a query by its header alone, which bounds the work on the rest: one question, and beside it no more than
// the SOA of an IXFR, an OPT and a TSIG.
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

// ourOPT answers a client's OPT record: our size and version, its DO bit (RFC 3225 section 3).
func ourOPT(theirs *dns.OPT) *dns.OPT {
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	opt.SetUDPSize(ednsUDP)
	if theirs.Do() {
		opt.SetDo()
	}
	return opt
}

// reply finds the zone and has it answer. The reply is without an OPT record.
func (r *run) reply(msg *dns.Msg, opt *dns.OPT, slip bool) *dns.Msg {
	asked := msg.Question[0]
	if opt != nil && opt.Version() != 0 {
		return refusal(msg, dns.RcodeBadVers)
	}
	if rcode := serves(asked); rcode != dns.RcodeSuccess {
		return refusal(msg, rcode)
	}
	if slip {
		reply := refusal(msg, dns.RcodeSuccess)
		reply.Truncated = true
		return reply
	}
	zone, ok := r.zone(asked)
	if !ok {
		return refusal(msg, dns.RcodeRefused)
	}
	reply := zone.Answer(msg)
	if reply == nil {
		return refusal(msg, dns.RcodeServerFailure)
	}
	reply.RecursionAvailable, reply.Compress = false, true
	reply.CheckingDisabled = false // nothing is checked here (RFC 4035 section 3.1.6)
	return reply
}

// zone finds the zone that answers a question: the closest, but for a delegation's DS the one above it, if that is here
// too (RFC 4035 section 3.1.4.1).
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
	case dns.TypeAXFR, dns.TypeIXFR:
		return dns.RcodeRefused
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

// pack brings a reply to the wire in limit bytes: glue goes first, and if that is not enough the client is told to come
// again over TCP and gets nothing that it might take for the whole (RFC 2181 section 9).
func pack(reply *dns.Msg, limit int, wire, out []byte) []byte {
	answer, err := reply.PackBuffer(out)
	if err == nil && len(answer) <= limit {
		return answer
	}
	if opt := reply.IsEdns0(); opt != nil {
		reply.Extra = []dns.RR{opt}
	} else {
		reply.Extra = nil
	}
	answer, err = reply.PackBuffer(out)
	if err == nil && len(answer) <= limit {
		return answer
	}
	if err != nil {
		return bare(wire, dns.RcodeServerFailure)
	}
	reply.Answer, reply.Ns, reply.Truncated = nil, nil, true
	if answer, err = reply.PackBuffer(out); err != nil {
		return bare(wire, dns.RcodeServerFailure)
	}
	return answer
}
