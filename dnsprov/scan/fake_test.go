package scan_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
)

// A world is nameservers that are reached without a network. It is their resolver, too.
type world struct {
	t       *testing.T
	servers map[string]*fake        // by address
	hosts   map[string][]netip.Addr // by canonical name
	ns      map[string][]string     // by canonical name
	failing map[string]bool         // names for which the resolver fails
	pace    scan.Pace
	wg      sync.WaitGroup
}

// inWorld runs a test in which time passes at once.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, servers: map[string]*fake{}, hosts: map[string][]netip.Addr{}, ns: map[string][]string{}, failing: map[string]bool{}}
		test(t, w)
		w.wg.Wait()
		for addr, f := range w.servers {
			f.checkPace(addr)
		}
	})
}

func (w *world) client() *scan.Client {
	return &scan.Client{Resolver: w, Dial: w.dial, Pace: &w.pace}
}

// add adds a nameserver with an address, which serves a zone.
func (w *world) add(host, addr, zone, text string) *fake {
	f := &fake{t: w.t, zone: dns.CanonicalName(zone), edns: true, open: map[string]bool{}}
	for z := dns.NewZoneParser(strings.NewReader(text), f.zone, ""); ; {
		rr, ok := z.Next()
		if !ok {
			if z.Err() != nil {
				w.t.Fatal(z.Err())
			}
			break
		}
		f.rrs = append(f.rrs, rr)
	}
	w.servers[addr] = f
	w.hosts[dns.CanonicalName(host)] = append(w.hosts[dns.CanonicalName(host)], netip.MustParseAddr(addr))
	return f
}

func (w *world) LookupNS(_ context.Context, name string) ([]*net.NS, error) {
	name = dns.CanonicalName(name)
	if w.failing[name] {
		return nil, &net.DNSError{Err: "server misbehaving", Name: name, IsTemporary: true}
	}
	var out []*net.NS
	for _, host := range w.ns[name] {
		out = append(out, &net.NS{Host: host})
	}
	if len(out) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return out, nil
}

func (w *world) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if found := w.hosts[dns.CanonicalName(host)]; len(found) > 0 {
		return found, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "53" {
		w.t.Errorf("dialed %s", address)
	}
	f := w.servers[host]
	if f == nil || f.dead {
		<-ctx.Done() // as if packets were dropped
		return nil, ctx.Err()
	}
	if f.noTCP && network == "tcp" {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	w.wg.Go(func() {
		defer theirs.Close()
		f.serve(network, theirs)
	})
	return ours, nil
}

// A fake is a nameserver for one zone. Its fields say how it behaves badly.
type fake struct {
	t    *testing.T
	zone string
	rrs  []dns.RR // of the zone

	transfers bool // it gives the zone away
	edns      bool // it takes EDNS
	dead      bool // nothing arrives there
	noTCP     bool
	limit     int // bytes of an answer over UDP; 0: as many as the client takes

	// misbehave answers a question instead of the fake. It returns false for those that it does not
	// want to answer.
	misbehave func(conn *link, q *dns.Msg) bool

	mu    sync.Mutex
	times []time.Time     // of the questions
	open  map[string]bool // questions, as name and type
}

// A link is the server's end of a connection.
type link struct {
	net.Conn
	network string
}

func (l *link) write(m *dns.Msg) bool {
	wire, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return l.writeRaw(wire)
}

func (l *link) writeRaw(wire []byte) bool {
	if l.network == "tcp" {
		wire = append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)
	}
	_, err := l.Write(wire)
	return err == nil
}

func (l *link) read() (*dns.Msg, bool) {
	m := new(dns.Msg)
	if l.network == "udp" {
		buf := make([]byte, 65535)
		n, err := l.Read(buf)
		return m, err == nil && m.Unpack(buf[:n]) == nil
	}
	var size [2]byte
	if _, err := io.ReadFull(l, size[:]); err != nil {
		return nil, false
	}
	wire := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(l, wire)
	return m, err == nil && m.Unpack(wire) == nil
}

// wait waits until the client has gone.
func (l *link) wait() { _, _ = io.Copy(io.Discard, l.Conn) }

func (f *fake) serve(network string, conn net.Conn) {
	l := &link{conn, network}
	for {
		q, ok := l.read()
		if !ok {
			return
		}
		if len(q.Question) != 1 || q.RecursionDesired || q.Response || q.Question[0].Qclass != dns.ClassINET {
			f.t.Errorf("a strange question:\n%v", q)
			return
		}
		f.mu.Lock()
		f.times = append(f.times, time.Now())
		f.open[dns.CanonicalName(q.Question[0].Name)+" "+dns.TypeToString[q.Question[0].Qtype]] = true
		f.mu.Unlock()
		if f.misbehave != nil && f.misbehave(l, q) {
			continue
		}
		switch opt := q.IsEdns0(); {
		case opt != nil && !f.edns:
			l.write(new(dns.Msg).SetRcode(q, dns.RcodeFormatError))
		case q.Question[0].Qtype == dns.TypeAXFR:
			f.transfer(l, q)
		default:
			m := f.answer(q)
			size := dns.MinMsgSize
			if opt != nil {
				size = int(opt.UDPSize())
				m.SetEdns0(1232, false)
			}
			if f.limit > 0 {
				size = f.limit
			}
			if network == "udp" {
				m.Truncate(size)
			}
			l.write(m)
		}
	}
}

func (f *fake) transfer(l *link, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	if !f.transfers {
		l.write(m.SetRcode(q, dns.RcodeRefused))
		return
	}
	all := slices.Concat(f.rrs, f.rrs[:1])
	for part := range slices.Chunk(all, 3) {
		m.Authoritative, m.Answer = true, part
		l.write(m)
	}
}

// at returns the records of a name.
func (f *fake) at(name string) []dns.RR {
	var out []dns.RR
	for _, rr := range f.rrs {
		if dns.CanonicalName(rr.Header().Name) == name {
			out = append(out, rr)
		}
	}
	return out
}

func (f *fake) exists(name string) bool {
	return slices.ContainsFunc(f.rrs, func(rr dns.RR) bool { return dns.IsSubDomain(name, rr.Header().Name) })
}

func ofType(rrs []dns.RR, typ uint16) []dns.RR {
	return slices.DeleteFunc(slices.Clone(rrs), func(rr dns.RR) bool { return rr.Header().Rrtype != typ })
}

// answer answers as RFC 1034 section 4.3.2 says. NSEC records that the zone has are proofs.
func (f *fake) answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.Authoritative = true
	name, typ := dns.CanonicalName(q.Question[0].Name), q.Question[0].Qtype
	if !dns.IsSubDomain(f.zone, name) {
		return m.SetRcode(q, dns.RcodeRefused)
	}
	secure := q.IsEdns0() != nil && q.IsEdns0().Do()
	for at := name; at != f.zone; at = at[strings.IndexByte(at, '.')+1:] {
		ns := ofType(f.at(at), dns.TypeNS)
		if len(ns) == 0 || at == name && typ == dns.TypeDS {
			continue
		}
		m.Authoritative, m.Ns = false, ns
		for _, rr := range ns {
			host := f.at(dns.CanonicalName(rr.(*dns.NS).Ns))
			m.Extra = append(m.Extra, append(ofType(host, dns.TypeA), ofType(host, dns.TypeAAAA)...)...)
		}
		if ds := ofType(f.at(at), dns.TypeDS); secure {
			m.Ns = append(m.Ns, ds...)
		}
		return m
	}
	for range 10 {
		rrs := f.at(name)
		if !f.exists(name) {
			m.Rcode = dns.RcodeNameError
			for parent := name; parent != f.zone; {
				parent = parent[strings.IndexByte(parent, '.')+1:]
				if f.exists(parent) {
					for _, rr := range f.at("*." + parent) {
						rr = dns.Copy(rr)
						rr.Header().Name = name
						rrs, m.Rcode = append(rrs, rr), dns.RcodeSuccess
					}
					break
				}
			}
		}
		found := ofType(rrs, typ)
		m.Answer = append(m.Answer, found...)
		alias := ofType(rrs, dns.TypeCNAME)
		if len(found) > 0 || len(alias) == 0 {
			break
		}
		m.Answer = append(m.Answer, alias...)
		name = dns.CanonicalName(alias[0].(*dns.CNAME).Target)
		if !dns.IsSubDomain(f.zone, name) {
			return m
		}
	}
	if len(m.Answer) == 0 {
		m.Ns = ofType(f.at(f.zone), dns.TypeSOA)
	}
	if secure {
		m.Ns = append(m.Ns, f.proof(name)...)
	}
	return m
}

// proof returns the NSEC record that covers a name.
func (f *fake) proof(name string) []dns.RR {
	var last dns.RR
	for _, rr := range f.rrs {
		if rr.Header().Rrtype == dns.TypeNSEC && (last == nil || !before(name, rr.Header().Name)) {
			last = rr
		}
	}
	if last == nil {
		return nil
	}
	return []dns.RR{last}
}

// before reports whether a comes before b (RFC 4034 section 6.1); both are plain names.
func before(a, b string) bool {
	labels := func(s string) []string {
		out := strings.Split(strings.TrimSuffix(strings.ToLower(s), "."), ".")
		slices.Reverse(out)
		return out
	}
	return slices.Compare(labels(a), labels(b)) < 0
}

// chain adds NSEC records to a zone.
func (f *fake) chain() {
	types := map[string][]uint16{}
	for _, rr := range f.rrs {
		name := dns.CanonicalName(rr.Header().Name)
		types[name] = append(types[name], rr.Header().Rrtype)
	}
	for name := range types {
		for at := name; at != f.zone; at = at[strings.IndexByte(at, '.')+1:] {
			if above := at[strings.IndexByte(at, '.')+1:]; above != f.zone && slices.Contains(types[above], dns.TypeNS) {
				delete(types, name) // glue
			}
		}
	}
	var names []string
	for name := range types {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	for i, name := range names {
		bits := append(types[name], dns.TypeRRSIG, dns.TypeNSEC)
		slices.Sort(bits)
		f.rrs = append(f.rrs, &dns.NSEC{
			Hdr:        dns.RR_Header{Name: name, Rrtype: dns.TypeNSEC, Class: dns.ClassINET, Ttl: 60},
			NextDomain: names[(i+1)%len(names)], TypeBitMap: slices.Compact(bits),
		})
	}
}

// count returns the number of questions so far.
func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.times)
}

func (f *fake) asked(question string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[question]
}

// checkPace fails the test if there were more than 20 questions in a second.
func (f *fake) checkPace(addr string) {
	for i := 20; i < len(f.times); i++ {
		if d := f.times[i].Sub(f.times[i-20]); d < time.Second {
			f.t.Errorf("%s was asked 21 times within %s", addr, d)
			return
		}
	}
}

// texts returns records as lines of name, type, numbers and value, sorted.
func texts(records []dnsprov.Record) []string {
	out := []string{}
	for _, r := range records {
		out = append(out, r.Name+" "+r.Type+" "+r.Text())
	}
	slices.Sort(out)
	return out
}

// visible returns the records of a zone's text that the result should have, without those of some
// names.
func visible(t *testing.T, zone, text string, without ...string) []string {
	t.Helper()
	var out []dnsprov.Record
	for z := dns.NewZoneParser(strings.NewReader(text), zone, ""); ; {
		rr, ok := z.Next()
		if !ok {
			if z.Err() != nil {
				t.Fatal(z.Err())
			}
			return texts(out)
		}
		r := dnsprov.RecordOf(rr)
		if r.Type != "SOA" && !slices.Contains(without, r.Name) {
			out = append(out, r)
		}
	}
}

func compare(t *testing.T, got []dnsprov.Record, want []string) {
	t.Helper()
	have := texts(got)
	for _, line := range want {
		if !slices.Contains(have, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range have {
		if !slices.Contains(want, line) {
			t.Errorf("not in the zone: %s", line)
		}
	}
	if len(have) != len(slices.Compact(slices.Clone(have))) {
		t.Error("some records are there twice")
	}
}
