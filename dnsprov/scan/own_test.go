package scan_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/scan"
)

const ownZone = `@ 60 SOA ns.own.test. h. 1 2 3 4 5
@ 60 NS ns.own.test.
own 60 TXT "mine" "; too"
own 60 TXT "second"
alias 60 CNAME own
out 60 CNAME own.other.test.
* 60 TXT "wild"
deep.below 60 TXT "deep"
*.wide 60 CNAME own.other.test.
own.wide 60 TXT "mine"
gone 60 NS ns.other.test.
`

// ownServers returns two servers with the zone.
func ownServers(w *world) (*scan.Servers, []*fake) {
	out, fakes := &scan.Servers{Names: []string{"ns1.own.test", "ns2.own.test"}}, []*fake{}
	for n, name := range out.Names {
		addr := fmt.Sprintf("192.0.2.%d", n+1)
		fakes = append(fakes, w.add(name, addr, "own.test", ownZone))
		out.Addrs = append(out.Addrs, netip.AddrPortFrom(netip.MustParseAddr(addr), 53))
	}
	return out, fakes
}

// TestOwnTexts: what is in the zone itself counts, and nothing that an alias, a wildcard or another
// zone brings.
func TestOwnTexts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		servers, fakes := ownServers(w)
		for name, want := range map[string]string{
			"own.own.test": "mine; too,second", "Own.own.test": "mine; too,second", "alias.own.test": "", "out.own.test": "", "any.own.test": "", "deep.below.own.test": "deep",
			"other.below.own.test": "", "own.wide.own.test": "mine", "any.wide.own.test": "", "x.gone.own.test": "", "none.test": "",
		} {
			got, err := w.client().OwnTexts(t.Context(), servers, "own.test", name)
			if err != nil || strings.Join(got[name], ",") != want {
				t.Errorf("%s: %q, %v, want %q", name, got[name], err, want)
			}
		}
		got, err := w.client().OwnTexts(t.Context(), servers, "below.own.test", "deep.below.own.test", "own.own.test")
		if err != nil || !slices.Equal(got["deep.below.own.test"], []string{"deep"}) {
			t.Errorf("a domain within the zone: %q, %v", got, err)
		}
		for _, f := range fakes {
			f.misbehave = inOtherZone("wide.own.test.")
		}
		got, err = w.client().OwnTexts(t.Context(), servers, "own.test", "own.wide.own.test", "own.own.test")
		if err != nil || len(got["own.wide.own.test"]) != 0 || len(got["own.own.test"]) != 2 {
			t.Errorf("a zone below that the same servers have: %q, %v", got, err)
		}
	})
}

// inOtherZone says of names below zone that they are in that zone.
func inOtherZone(zone string) func(*link, *dns.Msg) bool {
	return func(l *link, q *dns.Msg) bool {
		if q.Question[0].Qtype != dns.TypeSOA || !dns.IsSubDomain(zone, dns.CanonicalName(q.Question[0].Name)) {
			return false
		}
		m := new(dns.Msg).SetReply(q)
		m.Authoritative = true
		m.Ns = []dns.RR{&dns.SOA{Hdr: dns.RR_Header{Name: zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 60}, Ns: "ns.other.test.", Mbox: "h."}}
		return l.write(m)
	}
}

// TestOwnTextsOfAllServers: what one of the servers lacks does not count. Servers that are silent,
// or do not have the zone, do not matter, but one has to answer.
func TestOwnTextsOfAllServers(t *testing.T) {
	refuse := func(l *link, q *dns.Msg) bool { return l.write(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) }
	for _, tc := range []struct {
		name   string
		change func(f []*fake)
		want   int
		err    error
	}{
		{"all have it", func([]*fake) {}, 2, nil},
		{"one lacks a text", func(f []*fake) {
			f[1].rrs = slices.DeleteFunc(f[1].rrs, func(rr dns.RR) bool { return strings.Contains(rr.String(), "second") })
		}, 1, nil},
		{"one is silent", func(f []*fake) { f[0].dead = true }, 2, nil},
		{"one does not have the zone", func(f []*fake) { f[0].misbehave = refuse }, 2, nil},
		{"all are silent", func(f []*fake) { f[0].dead, f[1].dead = true, true }, 0, scan.ErrNoServer},
		{"none has the zone", func(f []*fake) { f[0].misbehave, f[1].misbehave = refuse, refuse }, 0, scan.ErrNoServer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				servers, fakes := ownServers(w)
				tc.change(fakes)
				began := time.Now()
				got, err := w.client().OwnTexts(t.Context(), servers, "own.test", "own.own.test")
				if len(got["own.own.test"]) != tc.want || !errors.Is(err, tc.err) {
					t.Errorf("%q, %v", got, err)
				}
				if took := time.Since(began); took > 8*time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// TestOwnTextsAreBounded: a delegation to very many servers, or an answer with very many texts,
// costs no more than is allowed.
func TestOwnTextsAreBounded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		servers := &scan.Servers{}
		var fakes []*fake
		for n := range 40 {
			addr := fmt.Sprintf("192.0.2.%d", n+1)
			fakes = append(fakes, w.add(fmt.Sprintf("ns%d.own.test", n), addr, "own.test", ownZone))
			servers.Addrs = append(servers.Addrs, netip.AddrPortFrom(netip.MustParseAddr(addr), 53))
		}
		for n := range 300 {
			for _, f := range fakes {
				f.rrs = append(f.rrs, &dns.TXT{Hdr: dns.RR_Header{Name: "many.own.test.", Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}, Txt: []string{fmt.Sprint(n)}})
			}
		}
		got, err := w.client().OwnTexts(t.Context(), servers, "own.test", "many.own.test")
		asked := 0
		for _, f := range fakes {
			asked += min(f.count(), 1)
		}
		if err != nil || len(got["many.own.test"]) != 100 || asked != 16 {
			t.Errorf("%d texts of %d servers, %v", len(got["many.own.test"]), asked, err)
		}
	})
}
