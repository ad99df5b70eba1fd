package dnsd

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
)

// A countedZone is a stubZone that keeps when it was asked.
type countedZone struct {
	stubZone
	at *[]time.Time
}

func (z countedZone) Zone(name string) (Answerer, bool) {
	_, ok := z.stubZone.Zone(name)
	return z, ok
}

func (z countedZone) CountQuestion(at time.Time) { *z.at = append(*z.at, at) }

// Zones count the questions of the world that they answer: not those of this host, nor those by
// which secondaries look for changes, nor those that get no answer from the zone.
func TestQuestionsOfTheWorldAreCounted(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var counted []time.Time
	own := netip.MustParseAddr("192.0.2.1")
	r := (&Server{
		Zones: countedZone{stubZone{"a.test"}, &counted}, Log: slog.New(slog.DiscardHandler), Secondaries: loopbackSecondaries(true),
		Now: func() time.Time { return now }, Own: func(ip netip.Addr) bool { return ip == own },
	}).newRun()
	const world, secondary = "198.51.100.7", "127.0.0.1"
	for _, tc := range []struct {
		what, from, name string
		typ              uint16
		overLimit        bool
		counted          int
	}{
		{"the world", world, "www.a.test.", dns.TypeA, false, 1},
		{"the world, over IPv6", "2001:db8::7", "a.test.", dns.TypeA, false, 1},
		{"the world asks for the SOA", world, "a.test.", dns.TypeSOA, false, 1},
		{"this host", "192.0.2.1", "www.a.test.", dns.TypeA, false, 0},
		{"this host, as a mapped address", "::ffff:192.0.2.1", "www.a.test.", dns.TypeA, false, 0},
		{"a secondary looks for changes", secondary, "a.test.", dns.TypeSOA, false, 0},
		{"somebody else at the secondary", secondary, "a.test.", dns.TypeMX, false, 1},
		{"another zone", world, "b.test.", dns.TypeA, false, 0},
		{"too many questions", world, "www.a.test.", dns.TypeA, true, 0},
		{"no answer", world, "nil.a.test.", dns.TypeA, false, 0},
		{"a transfer", world, "a.test.", dns.TypeAXFR, false, 0},
	} {
		counted = nil
		r.answer(query{wire: packed(t, question(tc.name, tc.typ)), from: netip.MustParseAddr(tc.from), limit: defaultUDPSize, overLimit: tc.overLimit}, nil)
		if len(counted) != tc.counted || tc.counted > 0 && !counted[0].Equal(now) {
			t.Errorf("%s: counted %v", tc.what, counted)
		}
	}
	r = (&Server{Zones: countedZone{stubZone{"a.test"}, &counted}, Log: slog.New(slog.DiscardHandler)}).newRun()
	counted = nil
	if r.answer(query{wire: packed(t, question("a.test.", dns.TypeA)), from: own, limit: defaultUDPSize}, nil); len(counted) != 1 {
		t.Errorf("without own addresses: counted %v", counted)
	}
}

// servedZones answers from zones as the program does.
type servedZones struct{ *builtin.Zones }

func (z servedZones) Zone(name string) (Answerer, bool) { return z.Zones.Zone(name) }

func BenchmarkZone(b *testing.B) {
	for name, owner := range map[string]string{"counted": "dom_1", "uncounted": ""} {
		b.Run(name, func(b *testing.B) {
			mx := dnsprov.Record{Name: "a.test", Type: "MX", Value: "mail.test", TTL: 300, Priority: 10}
			zone, err := builtin.NewZone("a.test", []dnsprov.Record{mx}, builtin.Options{Nameservers: []string{"ns1.test"}, Owner: owner})
			if err != nil {
				b.Fatal(err)
			}
			var zones builtin.Zones
			zones.Put(zone)
			r := (&Server{Zones: servedZones{&zones}, Log: slog.New(slog.DiscardHandler), Own: netip.Addr.IsLoopback}).newRun()
			wire, from := packed(b, question("a.test.", dns.TypeMX)), netip.MustParseAddr("198.51.100.7")
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				out := make([]byte, udpReadSize)
				for pb.Next() {
					r.answer(query{wire: wire, from: from, limit: defaultUDPSize}, out)
				}
			})
		})
	}
}
