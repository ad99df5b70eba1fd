package scan_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
)

const registry = `@ 900 SOA a.registry.test. h. 1 2 3 4 5
@ 900 NS a.registry.test.
example 172800 NS ns1.dns.test.
example 172800 NS NS2.example
example 86400 DS 12345 13 2 ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789
ns2.example 172800 A 192.0.2.53
co 900 NS b.registry.test.
inside 900 A 192.0.2.7
`

// withRegistry adds the servers of com. and co.com.
func withRegistry(w *world) {
	w.add("a.registry.test", "198.51.100.1", "com.", registry)
	w.add("b.registry.test", "198.51.100.2", "co.com.", "@ 900 SOA b.registry.test. h. 1 2 3 4 5\n@ 900 NS b.registry.test.\nshop 3600 NS ns1.dns.test.\n")
	w.ns["com."] = []string{"a.registry.test."}
	w.hosts["ns1.dns.test."] = []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")}
}

func addrs(s *scan.Servers) string {
	var out []string
	for _, a := range s.Addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

func TestFind(t *testing.T) {
	const both, first = "192.0.2.1:53 192.0.2.53:53 [2001:db8::1]:53", "192.0.2.1:53 [2001:db8::1]:53"
	for _, tc := range []struct {
		name, domain string
		given        []string
		change       func(w *world)
		names, addrs string
		ds           bool
		nsTTL        time.Duration
	}{
		{"the parent zone tells", "example.com", nil, nil, "ns1.dns.test ns2.example.com", both, true, 48 * time.Hour},
		{"the resolver knows others", "Example.COM.", nil, func(w *world) { w.ns["example.com."] = []string{"old.dns.test."} }, "ns1.dns.test ns2.example.com", both, true, 48 * time.Hour},
		{"the resolver fails", "example.com", nil, func(w *world) { w.failing["example.com."] = true }, "ns1.dns.test ns2.example.com", both, true, 48 * time.Hour},
		{"a delegation between", "shop.co.com", nil, nil, "ns1.dns.test", first, false, time.Hour},
		{"inside of the zone", "inside.com", nil, nil, "a.registry.test", "198.51.100.1:53", false, 0},
		{"nobody serves it", "nothing.com", nil, nil, "", "", false, 0},
		{"no parent zone", "nothing.test", nil, nil, "", "", false, 0},
		{"names are given", "example.com", []string{" NS1.dns.test. ", "192.0.2.9", "2001:db8::9"}, nil, "192.0.2.9 2001:db8::9 ns1.dns.test", "192.0.2.1:53 192.0.2.9:53 [2001:db8::9]:53 [2001:db8::1]:53", true, 48 * time.Hour},
		{"a name without an address", "example.com", []string{"gone.dns.test"}, nil, "gone.dns.test", "", true, 48 * time.Hour},
		{"the parent zone is silent", "example.com", nil, func(w *world) {
			w.servers["198.51.100.1"].dead = true
			w.ns["example.com."] = []string{"ns1.dns.test."}
		}, "ns1.dns.test", first, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				withRegistry(w)
				if tc.change != nil {
					tc.change(w)
				}
				c := w.client()
				c.LookupDS = func(_ context.Context, name string) ([]dnsprov.DS, error) {
					if name != domain {
						t.Errorf("DS of %s", name)
					}
					return []dnsprov.DS{{KeyTag: 12345}}, nil
				}
				s, err := c.Find(t.Context(), tc.domain, tc.given)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Join(s.Names, " ") != tc.names || addrs(s) != tc.addrs || s.NSTTL != tc.nsTTL {
					t.Errorf("%v %s %s", s.Names, addrs(s), s.NSTTL)
				}
				if (len(s.DS) > 0) != tc.ds || tc.ds && s.DS[0].KeyTag != 12345 || (s.DSTTL > 0) != (tc.ds && tc.nsTTL > 0) {
					t.Errorf("%v %s", s.DS, s.DSTTL)
				}
			})
		})
	}
}

// TestParent: what the parent zone has, and what is known of it where its servers are silent.
func TestParent(t *testing.T) {
	told := func(w *world) { w.ns["example.com."] = []string{"old.dns.test."} }
	silent := func(w *world) {
		told(w)
		w.servers["198.51.100.1"].dead = true
	}
	for _, tc := range []struct {
		name, domain string
		change       func(w *world)
		lookupDS     error
		names        string
		ttl          time.Duration
		ds           int // -1: not known
	}{
		{"it tells", "example.com", told, nil, "ns1.dns.test ns2.example.com", 48 * time.Hour, 1},
		{"a delegation between", "shop.co.com", nil, nil, "ns1.dns.test", time.Hour, 0},
		{"inside of the zone", "inside.com", nil, nil, "", 0, 0},
		{"nobody serves it", "nothing.com", nil, nil, "", 0, 0},
		{"its servers are silent", "example.com", silent, nil, "old.dns.test", 0, 1},
		{"its servers are silent, and the resolver tells no DS", "example.com", silent, errors.New("timeout"), "old.dns.test", 0, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				withRegistry(w)
				if tc.change != nil {
					tc.change(w)
				}
				c := w.client()
				c.LookupDS = func(context.Context, string) ([]dnsprov.DS, error) { return []dnsprov.DS{{KeyTag: 12345}}, tc.lookupDS }
				p, err := c.Parent(t.Context(), tc.domain)
				if err != nil {
					t.Fatal(err)
				}
				ds := -1
				if p.DS != nil {
					ds = len(*p.DS)
				}
				if strings.Join(p.Names, " ") != tc.names || p.TTL != tc.ttl || ds != tc.ds {
					t.Errorf("%v %s, %d DS records", p.Names, p.TTL, ds)
				}
			})
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		withRegistry(w)
		w.failing["example.com."], w.servers["198.51.100.1"].dead = true, true
		if p, err := w.client().Parent(t.Context(), "example.com"); err != scan.ErrLookup {
			t.Errorf("nobody answers: %v, %v", p, err)
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		withRegistry(w)
		f := w.servers["198.51.100.1"]
		for i := range 100 {
			f.rrs = append(f.rrs, record("many.com. 60 IN NS n%d.dns.test.", i), record("many.com. 60 IN DS %d 13 2 ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789", i))
		}
		if p, err := w.client().Parent(t.Context(), "many.com"); err != nil || len(p.Names) != 16 || len(*p.DS) != 100 {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// TestFindFails: it is not known who serves the domain.
func TestFindFails(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"the resolver fails, and the parent zone is silent": func(w *world) { w.failing["example.com."] = true; w.servers["198.51.100.1"].dead = true },
		"the parent zone is silent":                         func(w *world) { w.servers["198.51.100.1"].dead = true },
		"the resolver fails for all":                        func(w *world) { w.failing["example.com."], w.failing["com."] = true, true },
	} {
		inWorld(t, func(t *testing.T, w *world) {
			withRegistry(w)
			change(w)
			if s, err := w.client().Find(t.Context(), domain, nil); err != scan.ErrLookup {
				t.Errorf("%s: %v, %v", name, s, err)
			}
			s, err := w.client().Find(t.Context(), domain, []string{"ns1.dns.test"})
			if err != nil || len(s.Addrs) != 2 {
				t.Errorf("%s, with a name: %v, %v", name, s, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := w.client().Find(ctx, domain, nil); err != scan.ErrLookup && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s, soon: %v", name, err)
			}
		})
	}
}

// TestFindIsBounded: a zone may have any number of nameservers, and these any number of addresses.
func TestFindIsBounded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		withRegistry(w)
		f := w.servers["198.51.100.1"]
		for i := range 100 {
			host := "n" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + ".dns.test."
			f.rrs = append(f.rrs, record("many.com. 60 IN NS %s", host))
			for n := range 50 {
				w.hosts[host] = append(w.hosts[host], netip.AddrFrom4([4]byte{203, 0, byte(i), byte(n)}))
			}
		}
		s, err := w.client().Find(t.Context(), "many.com", nil)
		if err != nil || len(s.Names) != 16 || len(s.Addrs) != 64 {
			t.Errorf("%d names, %d addresses, %v", len(s.Names), len(s.Addrs), err)
		}
	})
	inWorld(t, func(t *testing.T, w *world) { // delegations without end
		withRegistry(w)
		w.servers["198.51.100.1"].misbehave = func(l *link, q *dns.Msg) bool {
			m := new(dns.Msg).SetReply(q)
			m.Ns = []dns.RR{record("%s 60 IN NS a.registry.test.", q.Question[0].Name[2*w.servers["198.51.100.1"].count()-2:])}
			return l.write(m)
		}
		name := strings.Repeat("a.", 100) + "com"
		if s, err := w.client().Find(t.Context(), name, nil); err == nil && len(s.Names) > 1 {
			t.Errorf("%v", s)
		}
		if n := w.servers["198.51.100.1"].count(); n > 30 {
			t.Errorf("%d questions", n)
		}
	})
}

func TestAsk(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.add("ns1.dns.test", "192.0.2.1", domain, inUse+unusual)
		s := servers("192.0.2.1")
		for _, tc := range []struct {
			name, typ string
			want      []string
		}{
			{"example.com", "A", []string{"example.com A 192.0.2.80"}},
			{"WWW.example.com.", "AAAA", []string{"www.example.com CNAME example.com", "example.com AAAA 2001:db8::80"}},
			{"www.example.com", "CNAME", []string{"www.example.com CNAME example.com"}},
			{"k1._domainkey.example.com", "TXT", []string{"k1._domainkey.example.com CNAME dkim.mcsv.test"}},
			{"blog.example.com", "TYPE65280", []string{`blog.example.com TYPE65280 \# 4 0a000001`}},
			{"shop.example.com", "MX", nil},
			{"other.example.com", "A", []string{"other.example.com A 192.0.2.81"}},
			{"deep.shop.example.com", "A", nil},
			{"spf-b.example.com", "TXT", []string{"spf-b.example.com TXT v=spf1 -all"}},
		} {
			a, err := w.client().Ask(t.Context(), s, tc.name, tc.typ)
			if err != nil {
				t.Errorf("%s %s: %v", tc.name, tc.typ, err)
				continue
			}
			slices.Sort(tc.want)
			compare(t, a, tc.want)
		}
		for _, name := range []string{"example.org", "www.dev.example.com"} {
			if a, err := w.client().Ask(t.Context(), s, name, "A"); err != scan.ErrNoServer {
				t.Errorf("%s: %v, %v", name, a, err)
			}
		}
		if _, err := w.client().Ask(t.Context(), s, domain, "NONSENSE"); err == nil || err == scan.ErrNoServer {
			t.Errorf("%v", err)
		}
		if _, err := w.client().Ask(t.Context(), &scan.Servers{}, domain, "A"); err != scan.ErrNoServer {
			t.Errorf("%v", err)
		}
	})
}

// TestRefusedAddresses: addresses that the guard refuses are as those that do not answer.
func TestRefusedAddresses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.add("ns1.dns.test", "192.0.2.1", domain, inUse)
		c := w.client()
		dial := c.Dial
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasPrefix(address, "127.") {
				return nil, errors.New("refused")
			}
			return dial(ctx, network, address)
		}
		if _, err := c.Zone(t.Context(), servers("127.0.0.1"), domain, nil); err != scan.ErrNoServer {
			t.Errorf("%v", err)
		}
		a, err := c.Ask(t.Context(), servers("127.0.0.1", "192.0.2.1"), domain, "A")
		if err != nil || len(a) != 1 {
			t.Errorf("%v, %v", a, err)
		}
	})
}
