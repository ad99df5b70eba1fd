package rfc2136_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rfc2136"
)

const fakeZone = "example.test"

// A fake is the server's end of a connection.
type fake struct {
	*dns.Conn
	asked  *dns.Msg
	mac    []byte // of the request, then of the last signed answer
	since  []byte // answers since then
	signed bool   // an answer was signed
}

// withFake runs a test in which time passes at once. Each connection of the client is answered by
// serve, which gets the first message.
func withFake(t *testing.T, serve func(*fake), test func(t *testing.T, c *rfc2136.Client)) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		test(t, client(t, rfc2136.Config{
			Server: "ns.test", KeyName: ourKey, Secret: ourSecret, Zones: []string{fakeZone},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				wg.Go(func() {
					defer theirs.Close()
					f := &fake{Conn: &dns.Conn{Conn: theirs}}
					if f.next() {
						serve(f)
					}
				})
				return ours, nil
			},
		}))
	})
}

// next reads a message.
func (f *fake) next() bool {
	wire, err := f.ReadMsgHeader(nil)
	f.asked = new(dns.Msg)
	if err != nil || f.asked.Unpack(wire) != nil {
		return false
	}
	f.mac, _ = hex.DecodeString(f.asked.IsTsig().MAC)
	f.since, f.signed = nil, false
	return true
}

// reply returns an answer to the message with records.
func (f *fake) reply(rrs ...dns.RR) *dns.Msg {
	m := new(dns.Msg).SetReply(f.asked)
	m.Authoritative, m.Answer = true, rrs
	return m
}

// sign signs a message by its own arithmetic (RFC 8945 sections 4.3 and 5.3.1).
func (f *fake) sign(m *dns.Msg, change ...func(*dns.TSIG)) {
	wire, err := m.Pack()
	if err != nil {
		panic(err)
	}
	secret, _ := base64.StdEncoding.DecodeString(ourSecret)
	t := &dns.TSIG{
		Hdr: dns.RR_Header{Name: ourKey, Rrtype: dns.TypeTSIG, Class: dns.ClassANY}, Algorithm: dns.HmacSHA256, TimeSigned: uint64(time.Now().Unix()), Fudge: 300, OrigId: m.Id,
	}
	for _, do := range change {
		do(t)
	}
	var times []byte
	times = append(times, binary.BigEndian.AppendUint64(nil, t.TimeSigned)[2:]...)
	times = binary.BigEndian.AppendUint16(times, t.Fudge)
	h := hmac.New(sha256.New, secret)
	h.Write(binary.BigEndian.AppendUint16(nil, uint16(len(f.mac))))
	h.Write(f.mac)
	h.Write(f.since)
	h.Write(wire)
	if !f.signed {
		name := make([]byte, 255)
		n, _ := dns.PackDomainName(t.Hdr.Name, name, 0, nil, false)
		h.Write(name[:n])
		h.Write([]byte{0, dns.ClassANY, 0, 0, 0, 0})
		n, _ = dns.PackDomainName(t.Algorithm, name, 0, nil, false)
		h.Write(name[:n])
		h.Write(times)
		h.Write(binary.BigEndian.AppendUint16(nil, t.Error))
		other, _ := hex.DecodeString(t.OtherData)
		h.Write(binary.BigEndian.AppendUint16(nil, uint16(len(other))))
		h.Write(other)
	} else {
		h.Write(times)
	}
	mac := h.Sum(nil)
	f.mac, f.since, f.signed = mac, nil, true
	t.MAC, t.MACSize = hex.EncodeToString(mac), uint16(len(mac))
	m.Extra = append(m.Extra, t)
}

// send sends a message as it is, and reports whether it was taken.
func (f *fake) send(m *dns.Msg) bool {
	wire, err := m.Pack()
	if err != nil {
		panic(err)
	}
	if m.IsTsig() == nil {
		f.since = append(f.since, wire...)
	}
	_, err = f.Write(wire)
	return err == nil
}

// wait waits until the client has gone.
func (f *fake) wait() { _, _ = io.Copy(io.Discard, f.Conn.Conn) }

func record(format string, args ...any) dns.RR {
	out, err := dns.NewRR(fmt.Sprintf(format, args...))
	if err != nil {
		panic(err)
	}
	return out
}

func soa() dns.RR {
	return record("%s. 60 IN SOA ns.test. host.test. 1 2 3 4 5", fakeZone)
}

// many returns 300 records below a name.
func many(below string) []dns.RR {
	var out []dns.RR
	for n := range 300 {
		out = append(out, record("n%d.%s. 60 IN TXT %s", n, below, strings.Repeat("x", 150)))
	}
	return out
}

// TestServersThatDoNotAnswer: all that a client does ends in time.
func TestServersThatDoNotAnswer(t *testing.T) {
	for name, serve := range map[string]func(*fake){
		"silent": (*fake).wait,
		"closes": func(*fake) {},
		"half an answer": func(f *fake) {
			_, _ = f.Conn.Conn.Write([]byte{0, 100, 1, 2, 3})
		},
		"a byte now and then": func(f *fake) {
			for {
				if _, err := f.Conn.Conn.Write([]byte{9}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFake(t, serve, func(t *testing.T, c *rfc2136.Client) {
				begin := time.Now()
				want := dnsprov.Record{Name: fakeZone, Type: "TXT", Value: "x", TTL: 60, Purpose: dnsprov.PurposeCustom}
				at := dnsprov.ZoneRef{Domain: fakeZone}
				_, readErr := c.Records(t.Context(), at)
				made, writeErr := c.Apply(t.Context(), at, dnsprov.Plan(nil, []dnsprov.Record{want}))
				for _, err := range []error{c.Check(t.Context()), readErr, writeErr} {
					if !errors.Is(err, rfc2136.ErrNoAnswer) || errors.Is(err, dnsprov.ErrCredential) {
						t.Errorf("%v", err)
					}
				}
				if took := time.Since(begin); took > 46*time.Second || made != nil {
					t.Errorf("it took %s and made %v", took, made)
				}
			})
		})
	}
}

func TestCancel(t *testing.T) {
	withFake(t, (*fake).wait, func(t *testing.T, c *rfc2136.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if err := c.Check(ctx); !errors.Is(err, rfc2136.ErrNoAnswer) || time.Since(begin) != time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}

// TestTransfers: a transfer is taken whole and signed, and within bounds of bytes, records and
// time.
func TestTransfers(t *testing.T) {
	signed := func(f *fake, rrs ...dns.RR) bool {
		m := f.reply(rrs...)
		f.sign(m)
		return f.send(m)
	}
	a, b := record("a.%s. 60 IN A 192.0.2.1", fakeZone), record("b.%s. 60 IN A 192.0.2.2", fakeZone)
	for _, tc := range []struct {
		name  string
		serve func(*fake)
		text  string // of the error; empty: it has a and b
	}{
		{"one message", func(f *fake) { signed(f, soa(), a, b, soa()) }, ""},
		{"several messages", func(f *fake) { _ = signed(f, soa()) && signed(f, a) && signed(f, b) && signed(f, soa()) }, ""},
		{"some unsigned", func(f *fake) { _ = signed(f, soa()) && f.send(f.reply(a)) && f.send(f.reply(b)) && signed(f, soa()) }, ""},
		{"others' records", func(f *fake) { signed(f, soa(), a, record("a.elsewhere.test. 60 IN A 192.0.2.1"), b, soa()) }, ""},
		{"closes in the middle", func(f *fake) { signed(f, soa(), a) }, "does not answer"},
		{"closes at the end", func(f *fake) { _ = signed(f, soa(), a) && f.send(f.reply(b)) }, "does not answer"},
		{"silent in the middle", func(f *fake) { signed(f, soa(), a); f.wait() }, "does not answer"},
		{"first unsigned", func(f *fake) { _ = f.send(f.reply(soa(), a, b)) && signed(f, soa()) }, "not signed"},
		{"last unsigned", func(f *fake) { _ = signed(f, soa(), a, b) && f.send(f.reply(soa())) }, "broken"},
		{"a changed one among the unsigned", func(f *fake) {
			_ = signed(f, soa()) && f.send(f.reply(a))
			f.since[len(f.since)-1]++
			_ = f.send(f.reply(b)) && signed(f, soa())
		}, "not signed"},
		{"a changed signed one", func(f *fake) {
			m := f.reply(soa(), a, b, soa())
			f.sign(m)
			m.Answer[1] = record("a.%s. 60 IN A 192.0.2.9", fakeZone)
			f.send(m)
		}, "not signed"},
		{"an answer that was sent before", func(f *fake) { f.mac = nil; signed(f, soa(), a, b, soa()) }, "not signed"},
		{"too many unsigned", func(f *fake) {
			signed(f, soa())
			for range 100 {
				f.send(f.reply(a))
			}
			signed(f, soa())
		}, "not signed"},
		{"no SOA", func(f *fake) { signed(f, a, b) }, "broken"},
		{"records after the end", func(f *fake) { signed(f, soa(), a, soa(), b) }, "broken"},
		{"a SOA of another zone", func(f *fake) { signed(f, record("test. 60 IN SOA ns.test. host.test. 1 2 3 4 5"), a, b) }, "broken"},
		{"another class", func(f *fake) { signed(f, soa(), record("a.%s. 60 CH TXT x", fakeZone), soa()) }, "broken"},
		{"another message", func(f *fake) { f.asked.Id++; signed(f, soa(), a, b, soa()) }, "broken"},
		{"endless", func(f *fake) {
			for signed(f, append([]dns.RR{soa()}, many("elsewhere.test")...)...) {
				for signed(f, many("elsewhere.test")...) {
				}
			}
		}, "more than 5 MiB"},
		{"endless records", func(f *fake) {
			for ok := signed(f, soa()); ok; ok = signed(f, many(fakeZone)[:100]...) {
			}
		}, "more than"},
		{"endless empty messages", func(f *fake) {
			for ok := signed(f, soa()); ok; ok = signed(f) {
			}
		}, "more than 5 MiB"},
		{"endless and slow", func(f *fake) {
			for ok := signed(f, soa()); ok; ok = signed(f, a) {
				time.Sleep(10 * time.Second)
			}
		}, "does not answer"},
		{"fails in the middle", func(f *fake) {
			signed(f, soa(), a)
			m := f.reply()
			m.Rcode = dns.RcodeServerFailure
			f.sign(m)
			f.send(m)
		}, "SERVFAIL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			withFake(t, tc.serve, func(t *testing.T, c *rfc2136.Client) {
				begin := time.Now()
				have, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: fakeZone})
				switch {
				case tc.text == "" && (err != nil || len(have) != 2):
					t.Errorf("%v, %v", have, err)
				case tc.text != "" && (err == nil || have != nil || !strings.Contains(err.Error(), tc.text)):
					t.Errorf("%d records, %v; want %q", len(have), err, tc.text)
				}
				if took := time.Since(begin); took > time.Minute {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// TestTooManyRecords: the records of the domain are counted, and not those of others in the zone.
func TestTooManyRecords(t *testing.T) {
	serve := func(f *fake) {
		var all []dns.RR
		for n := range 10_001 {
			all = append(all, record("n%d.team.%s. 60 IN A 192.0.2.1", n, fakeZone))
		}
		m := f.reply(soa())
		f.sign(m)
		f.send(m)
		for len(all) > 0 {
			n := min(len(all), 1000)
			m := f.reply(all[:n]...)
			m.Compress = true
			f.sign(m)
			f.send(m)
			all = all[n:]
		}
		m = f.reply(soa())
		f.sign(m)
		f.send(m)
	}
	withFake(t, serve, func(t *testing.T, c *rfc2136.Client) {
		if have, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: "team." + fakeZone}); err == nil || !strings.Contains(err.Error(), "more than 10000 records") {
			t.Errorf("%d records, %v", len(have), err)
		}
		if have, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: "n1.team." + fakeZone}); err != nil || len(have) != 1 {
			t.Errorf("%d records, %v", len(have), err)
		}
	})
}

// TestAnswers: what an answer says counts only if it is signed, and each code has its error.
func TestAnswers(t *testing.T) {
	coded := func(code int, change ...func(*dns.TSIG)) func(*fake) {
		return func(f *fake) {
			m := f.reply()
			m.Rcode = code
			f.sign(m, change...)
			f.send(m)
		}
	}
	unsigned := func(code int) func(*fake) {
		return func(f *fake) {
			m := f.reply()
			m.Rcode = code
			f.send(m)
		}
	}
	bad := func(code uint16) func(*fake) {
		return func(f *fake) {
			m := f.reply()
			m.Rcode = dns.RcodeNotAuth
			m.Extra = append(m.Extra, &dns.TSIG{
				Hdr: dns.RR_Header{Name: ourKey, Rrtype: dns.TypeTSIG, Class: dns.ClassANY}, Algorithm: dns.HmacSHA256, TimeSigned: uint64(time.Now().Unix()), Error: code,
				OtherLen: 6, OtherData: hex.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix()-3600))[2:]),
			})
			f.send(m)
		}
	}
	kinds := []error{dnsprov.ErrCredential, dnsprov.ErrZoneNotFound, dnsprov.ErrChanged, rfc2136.ErrClock, rfc2136.ErrNoAnswer}
	for _, tc := range []struct {
		name  string
		serve func(*fake)
		kind  error
		text  string // empty: no error
	}{
		{"success", coded(dns.RcodeSuccess), nil, ""},
		{"REFUSED", coded(dns.RcodeRefused), dnsprov.ErrCredential, "does not allow the key"},
		{"NOTIMP", coded(dns.RcodeNotImplemented), dnsprov.ErrCredential, "takes no updates"},
		{"NOTAUTH", coded(dns.RcodeNotAuth), dnsprov.ErrZoneNotFound, "not the primary"},
		{"YXDOMAIN", coded(dns.RcodeYXDomain), dnsprov.ErrChanged, "somebody else"},
		{"YXRRSET", coded(dns.RcodeYXRrset), dnsprov.ErrChanged, "somebody else"},
		{"NXRRSET", coded(dns.RcodeNXRrset), dnsprov.ErrChanged, "somebody else"},
		{"NXDOMAIN", coded(dns.RcodeNameError), dnsprov.ErrChanged, "somebody else"},
		{"SERVFAIL", coded(dns.RcodeServerFailure), nil, "SERVFAIL"},
		{"FORMERR", coded(dns.RcodeFormatError), nil, "FORMERR"},
		{"NOTZONE", coded(dns.RcodeNotZone), nil, "NOTZONE"},
		{"BADKEY", bad(dns.RcodeBadKey), dnsprov.ErrCredential, "does not know the key"},
		{"BADSIG", bad(dns.RcodeBadSig), dnsprov.ErrCredential, "secret is not"},
		{"BADTRUNC", bad(dns.RcodeBadTrunc), dnsprov.ErrCredential, "secret is not"},
		{"BADTIME", bad(dns.RcodeBadTime), rfc2136.ErrClock, "1h0m0s behind ours"},
		{"unsigned success", unsigned(dns.RcodeSuccess), nil, "not signed"},
		{"unsigned REFUSED", unsigned(dns.RcodeRefused), dnsprov.ErrCredential, "REFUSED without a signature"},
		{"unsigned SERVFAIL", unsigned(dns.RcodeServerFailure), nil, "SERVFAIL without a signature"},
		{"unsigned NOTAUTH", unsigned(dns.RcodeNotAuth), dnsprov.ErrZoneNotFound, "not the primary"},
		{"unsigned NXRRSET", unsigned(dns.RcodeNXRrset), dnsprov.ErrCredential, "without a signature"},
		{"another code than was signed", func(f *fake) {
			m := f.reply()
			f.sign(m)
			m.Rcode = dns.RcodeNotAuth
			f.send(m)
		}, nil, "not signed"},
		{"another key", coded(dns.RcodeSuccess, func(t *dns.TSIG) { t.Hdr.Name = theirKey }), nil, "not signed"},
		{"another algorithm", coded(dns.RcodeSuccess, func(t *dns.TSIG) { t.Algorithm = dns.HmacSHA1 }), nil, "not signed"},
		{"another time", coded(dns.RcodeSuccess, func(t *dns.TSIG) { t.TimeSigned += 3600 }), rfc2136.ErrClock, "1h0m0s ahead of ours"},
		{"another message", func(f *fake) { f.asked.Id++; coded(dns.RcodeSuccess)(f) }, nil, "was not asked"},
		{"a question", func(f *fake) { m := f.reply(); m.Response = false; f.sign(m); f.send(m) }, nil, "question"},
		{"garbage", func(f *fake) { _, _ = f.Write([]byte("this is no message of the DNS")) }, nil, "cannot be read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			withFake(t, tc.serve, func(t *testing.T, c *rfc2136.Client) {
				err := c.Check(t.Context())
				if tc.text == "" && err != nil || tc.text != "" && (err == nil || !strings.Contains(err.Error(), tc.text)) {
					t.Fatalf("%v, want %q", err, tc.text)
				}
				for _, kind := range kinds {
					if errors.Is(err, kind) != (kind == tc.kind) {
						t.Errorf("%v is it %v, that it is %q", errors.Is(err, kind), err, kind)
					}
				}
				hasNoSecret(t, err)
			})
		})
	}
}

// TestServersThatAnswerForOthers: a resolver is no nameserver of the zone.
func TestServersThatAnswerForOthers(t *testing.T) {
	serve := func(f *fake) {
		for ok := true; ok; ok = f.next() {
			m := f.reply()
			if f.asked.Question[0].Qtype == dns.TypeAXFR {
				m.Rcode = dns.RcodeRefused
			}
			m.Authoritative, m.Answer = false, nil
			f.sign(m)
			f.send(m)
		}
	}
	withFake(t, serve, func(t *testing.T, c *rfc2136.Client) {
		at := dnsprov.ZoneRef{Domain: fakeZone, Ask: []dnsprov.Set{{Name: fakeZone, Type: "TXT"}}}
		if have, err := c.Records(t.Context(), at); !errors.Is(err, dnsprov.ErrZoneNotFound) {
			t.Errorf("%v, %v", have, err)
		}
	})
}

// TestQuestionsAreBounded: the answers to all questions have bounds together. Records of one name
// need few bytes, so they are counted, too.
func TestQuestionsAreBounded(t *testing.T) {
	const questions = 120
	short := make([]dns.RR, 3000)
	for n := range short {
		short[n] = record("n.%s. 60 IN A 10.0.%d.%d", fakeZone, n/250, n%250)
	}
	answers := map[string]func(name string) []dns.RR{
		"more than 5 MiB": func(string) []dns.RR { return many(fakeZone) },
		"more than 10000 records": func(name string) (out []dns.RR) {
			for _, rr := range short {
				rr = dns.Copy(rr)
				rr.Header().Name = name
				out = append(out, rr)
			}
			return out
		},
	}
	for bound, answer := range answers {
		testQuestionsAreBounded(t, questions, bound, answer)
	}
}

func testQuestionsAreBounded(t *testing.T, questions int, bound string, answer func(name string) []dns.RR) {
	t.Helper()
	sent := 0
	serve := func(f *fake) {
		if f.asked.Question[0].Qtype == dns.TypeAXFR {
			m := f.reply()
			m.Rcode = dns.RcodeRefused
			f.sign(m)
			f.send(m)
			return
		}
		all := []fake{*f}
		for len(all) < questions && f.next() {
			all = append(all, *f)
		}
		for _, one := range all {
			m := one.reply(answer(one.asked.Question[0].Name)...)
			m.Compress = true
			one.sign(m)
			if !one.send(m) {
				return
			}
			sent++
		}
	}
	withFake(t, serve, func(t *testing.T, c *rfc2136.Client) {
		at := dnsprov.ZoneRef{Domain: fakeZone}
		for n := range questions {
			at.Ask = append(at.Ask, dnsprov.Set{Name: fmt.Sprintf("n%d.%s", n, fakeZone), Type: "A"})
		}
		if have, err := c.Records(t.Context(), at); err == nil || !strings.Contains(err.Error(), bound) {
			t.Errorf("%s: %d records, %v", bound, len(have), err)
		}
	})
	if sent == questions {
		t.Errorf("%s: all %d answers were read", bound, sent)
	}
}
