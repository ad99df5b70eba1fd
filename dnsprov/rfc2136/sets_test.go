package rfc2136_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/providertest"
)

// each runs a test against each kind of server, with a zone that we may copy and one that we may
// not.
func each(t *testing.T, test func(t *testing.T, p *peer, zone string)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, k, 2)
			for _, open := range []bool{true, false} {
				zone := p.newZone(t, open)
				t.Run(zone, func(t *testing.T) { test(t, p, zone) })
			}
		})
	}
}

// ask returns the ZoneRef of a zone and the sets of some records.
func ask(zone string, records ...dnsprov.Record) dnsprov.ZoneRef {
	at := dnsprov.ZoneRef{Domain: zone, OwnerTag: "m"}
	for _, r := range records {
		at.Ask = append(at.Ask, dnsprov.Set{Name: r.Name, Type: r.Type})
	}
	return at
}

// bring reads, plans and applies once.
func bring(t *testing.T, p dnsprov.Provider, at dnsprov.ZoneRef, want ...dnsprov.Record) ([]dnsprov.Record, error) {
	t.Helper()
	have, err := p.Records(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	return p.Apply(t.Context(), at, dnsprov.Plan(have, want))
}

// must is bring, and fails the test on an error, or if a second plan is not empty.
func must(t *testing.T, p dnsprov.Provider, at dnsprov.ZoneRef, want ...dnsprov.Record) {
	t.Helper()
	if _, err := bring(t, p, at, want...); err != nil {
		t.Fatal(err)
	}
	have, err := p.Records(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range dnsprov.Plan(have, want) {
		t.Errorf("left to do: %s have %+v want %+v", c.Op, c.Have, c.Want)
	}
}

// lines writes records with their TTLs, in order.
func lines(rrs []dns.RR) []string {
	var out []string
	for _, rr := range rrs {
		out = append(out, strings.Join(strings.Fields(rr.String()), " "))
	}
	slices.Sort(out)
	return out
}

func TestTypes(t *testing.T) {
	each(t, func(t *testing.T, p *peer, zone string) {
		own := func(name, typ, value string) dnsprov.Record {
			return dnsprov.Record{Name: name + "." + zone, Type: typ, Value: value, TTL: 600, Purpose: dnsprov.PurposeCustom}
		}
		mx, srv := own("mx", "MX", "mail.host.test"), own("_imaps._tcp", "SRV", "mail.host.test")
		mx.Priority, srv.Priority, srv.Weight, srv.Port = 10, 1, 2, 993
		want := []dnsprov.Record{
			mx, srv,
			own("a", "A", "192.0.2.1"), own("a", "AAAA", "2001:db8::1"), own("*.wild", "CNAME", "elsewhere.test"),
			own("t", "TXT", "one; \\ \"two\" é"), own("t", "TXT", strings.Repeat("0123456789", 400)), own("t", "TXT", `"\"quoted\""`),
			own("sub", "NS", "ns.elsewhere.test"), own("sub", "DS", "12345 13 2 "+strings.Repeat("0a", 32)), own("glue", "NS", "ns.glue."+zone), own("ns.glue", "A", "192.0.2.7"),
			own("c", "CAA", `0 issue "ca.test; accounturi=https://ca.test/Acct"`), own("_25._tcp.c", "TLSA", "3 1 1 "+strings.Repeat("ab", 32)),
			own("c", "SSHFP", "4 2 "+strings.Repeat("ab", 32)), own("c", "HTTPS", `1 . alpn="h2,h3"`), own("_dns.c", "SVCB", `1 svc.elsewhere.test alpn="dot" port="853"`),
		}
		c := providertest.Remember(p.client(t, nil, zone))
		at := ask(zone, want...)
		must(t, c, at, want...)
		have, err := c.Records(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			at := slices.IndexFunc(have, w.Same)
			if at < 0 || have[at].TTL != w.TTL || have[at].Purpose != w.Purpose || have[at].ID != w.Key() {
				t.Errorf("%s %s %.80s: not there as wanted", w.Name, w.Type, w.Value)
			}
		}
		if len(p.all(t, zone)) != len(want) {
			t.Errorf("there is %q", lines(p.all(t, zone)))
		}
		must(t, c, at)
		if left := p.all(t, zone); len(left) != 0 {
			t.Errorf("left: %q", lines(left))
		}
	})
}

// TestTTLs: a set of ours gets the TTL that is wanted, and one with others' values keeps its own.
func TestTTLs(t *testing.T) {
	each(t, func(t *testing.T, p *peer, zone string) {
		text := func(value string, ttl uint32) dnsprov.Record {
			return dnsprov.Record{Name: zone, Type: "TXT", Value: value, TTL: ttl, Purpose: dnsprov.PurposeCustom}
		}
		c := providertest.Remember(p.client(t, nil, zone))
		at := ask(zone, text("", 0))
		is := func(ttl int, values ...string) {
			t.Helper()
			var want []string
			for _, v := range values {
				want = append(want, fmt.Sprintf("%s. %d IN TXT %q", zone, ttl, v))
			}
			slices.Sort(want)
			if got := lines(p.all(t, zone)); !slices.Equal(got, want) {
				t.Errorf("there is %q, want %q", got, want)
			}
		}
		must(t, c, at, text("a", 600))
		is(600, "a")
		must(t, c, at, text("a", 900))
		is(900, "a")
		must(t, c, at, text("a", 900), text("b", 300))
		is(300, "a", "b")
		must(t, c, at, text("b", 700))
		is(700, "b")
		theirs := rr(t, "%s. 77 IN TXT theirs", zone)
		p.change(t, zone, []dns.RR{theirs}, nil)
		is(77, "b", "theirs")
		must(t, c, at, text("b", 700))
		must(t, c, at, text("b", 900), text("c", 60))
		is(77, "b", "c", "theirs")
		p.change(t, zone, nil, []dns.RR{theirs})
		must(t, c, at, text("b", 900), text("c", 60))
		is(60, "b", "c")
	})
}

// TestSwaps: an alias takes the place of other records of ours, and the other way round.
func TestSwaps(t *testing.T) {
	each(t, func(t *testing.T, p *peer, zone string) {
		www := func(typ, value string) dnsprov.Record {
			return dnsprov.Record{Name: "www." + zone, Type: typ, Value: value, TTL: 600, Purpose: dnsprov.PurposeCustom}
		}
		c := providertest.Remember(p.client(t, nil, zone))
		alias, other := www("CNAME", "site.elsewhere.test"), www("CNAME", "other.elsewhere.test")
		v4, v6, text := www("A", "192.0.2.1"), www("AAAA", "2001:db8::1"), www("TXT", "x")
		at := ask(zone, alias, v4, v6, text)
		for _, want := range [][]dnsprov.Record{{v4, v6}, {alias}, {other}, {v4, text}, {alias}, {v4, v6, text}, nil, {alias}, nil} {
			must(t, c, at, want...)
			if got := p.all(t, zone); len(got) != len(want) {
				t.Errorf("there is %q, want %v", lines(got), want)
			}
		}
	})
}

// TestAliasesOfOthers: a name that a stranger's alias uses, or that is to become an alias of ours,
// is not taken.
func TestAliasesOfOthers(t *testing.T) {
	each(t, func(t *testing.T, p *peer, zone string) {
		c := providertest.Remember(p.client(t, nil, zone))
		for _, tc := range []struct {
			theirs string
			ours   dnsprov.Record
		}{
			{"a.%s. 60 IN CNAME theirs.test.", dnsprov.Record{Name: "a." + zone, Type: "A", Value: "192.0.2.1"}},
			{"b.%s. 60 IN CNAME theirs.test.", dnsprov.Record{Name: "b." + zone, Type: "CNAME", Value: "ours.test"}},
			{"c.%s. 60 IN A 192.0.2.9", dnsprov.Record{Name: "c." + zone, Type: "CNAME", Value: "ours.test"}},
			{"d.%s. 60 IN HINFO a b", dnsprov.Record{Name: "d." + zone, Type: "CNAME", Value: "ours.test"}},
		} {
			theirs := rr(t, tc.theirs, zone)
			p.change(t, zone, []dns.RR{theirs}, nil)
			tc.ours.TTL, tc.ours.Purpose = 600, dnsprov.PurposeCustom
			at := ask(zone, tc.ours)
			have, err := c.Records(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			var conflict *dnsprov.Conflict
			if _, err := dnsprov.Compatible(have, []dnsprov.Record{tc.ours}); !errors.As(err, &conflict) {
				t.Errorf("%s: of %v a plan is made: %v", tc.theirs, have, err)
			}
			_, err = bring(t, c, at, tc.ours)
			if !errors.As(err, &conflict) || !conflict.Have.Same(dnsprov.RecordOf(theirs)) || !conflict.Want.Same(tc.ours) {
				t.Errorf("%s: %v", tc.theirs, err)
			}
			if got := p.all(t, zone); !slices.Equal(lines(got), lines([]dns.RR{theirs})) {
				t.Errorf("there is %q", lines(got))
			}
			p.change(t, zone, nil, []dns.RR{theirs})
		}
	})
}

// TestSomebodyElseIsFaster: what others change between Apply's reading and its writing makes it
// change nothing, and the next attempt is right.
func TestSomebodyElseIsFaster(t *testing.T) {
	each(t, func(t *testing.T, p *peer, zone string) {
		own := func(typ, value string) dnsprov.Record {
			return dnsprov.Record{Name: "n." + zone, Type: typ, Value: value, TTL: 600, Purpose: dnsprov.PurposeCustom}
		}
		line := func(text string) []dns.RR { return []dns.RR{rr(t, "n.%s. 600 IN %s", zone, text)} }
		for _, tc := range []struct {
			name        string
			ours, want  []dnsprov.Record
			add, remove []dns.RR
			end         []string
		}{
			{"makes the set", nil, []dnsprov.Record{own("TXT", "ours")}, line("TXT theirs"), nil, []string{`TXT "ours"`, `TXT "theirs"`}},
			{"makes the same", nil, []dnsprov.Record{own("TXT", "ours")}, line("TXT ours"), nil, []string{`TXT "ours"`}},
			{"adds to the set", []dnsprov.Record{own("TXT", "a")}, []dnsprov.Record{own("TXT", "b")}, line("TXT theirs"), nil, []string{`TXT "b"`, `TXT "theirs"`}},
			{"adds before we delete", []dnsprov.Record{own("TXT", "a")}, nil, line("TXT theirs"), nil, []string{`TXT "theirs"`}},
			{"adds what we are about to make", []dnsprov.Record{own("TXT", "a")}, []dnsprov.Record{own("TXT", "b")}, line("TXT b"), nil, []string{`TXT "b"`}},
			{"removes ours", []dnsprov.Record{own("TXT", "a")}, []dnsprov.Record{own("TXT", "b")}, nil, line("TXT a"), []string{`TXT "b"`}},
			{"makes an alias", nil, []dnsprov.Record{own("A", "192.0.2.1")}, line("CNAME theirs.test."), nil, []string{"CNAME theirs.test."}},
			{"is there before our alias", nil, []dnsprov.Record{own("CNAME", "ours.test")}, line("A 192.0.2.9"), nil, []string{"A 192.0.2.9"}},
			{"is there before our alias instead of an address", []dnsprov.Record{own("A", "192.0.2.1")}, []dnsprov.Record{own("CNAME", "ours.test")}, line("A 192.0.2.9"), nil, []string{"A 192.0.2.9"}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				var do func()
				p, zone := p, zone
				memory := providertest.Remember(p.client(t, func(ctx context.Context, network, address string) (net.Conn, error) {
					return meanwhile(do)(ctx, network, address)
				}, zone))
				at := ask(zone, own("TXT", ""), own("A", ""), own("CNAME", ""))
				must(t, memory, at, tc.ours...)
				do = func() { p.change(t, zone, tc.add, tc.remove) }
				made, err := bring(t, memory, at, tc.want...)
				if !errors.Is(err, dnsprov.ErrChanged) || len(made) > 0 {
					t.Errorf("it made %v, %v", made, err)
				}
				do = nil
				have, err := memory.Records(t.Context(), at)
				if err != nil {
					t.Fatal(err)
				}
				if fits, err := dnsprov.Compatible(have, tc.want); err == nil {
					must(t, memory, at, fits...)
				} else {
					must(t, memory, at)
				}
				var want []string
				for _, text := range tc.end {
					want = append(want, fmt.Sprintf("n.%s. 600 IN %s", zone, text))
				}
				if got := lines(p.all(t, zone)); !slices.Equal(got, want) {
					t.Errorf("there is %q, want %q", got, want)
				}
				must(t, memory, at)
				p.change(t, zone, nil, p.all(t, zone))
			})
		}
	})
}

// TestFormsOfOthers: a stranger's value that looks like ours and is another one on the wire is
// theirs, also beside ours.
func TestFormsOfOthers(t *testing.T) {
	each(t, func(t *testing.T, p *peer, zone string) {
		c := providertest.Remember(p.client(t, nil, zone))
		want := []dnsprov.Record{
			{Name: zone, Type: "TXT", Value: "a text", TTL: 600, Purpose: dnsprov.PurposeCustom},
			{Name: zone, Type: "CAA", Value: `0 issue "ca.test; accounturi=https://ca.test/a"`, TTL: 600, Purpose: dnsprov.PurposeCustom},
		}
		at := ask(zone, want...)
		must(t, c, at, want...)
		ours := lines(p.all(t, zone))
		theirs := []dns.RR{
			rr(t, `%s. 600 IN TXT "a" " text"`, zone), rr(t, `%s. 600 IN TXT "\"a text\""`, zone), rr(t, `%s. 600 IN TXT "A text"`, zone),
			rr(t, `%s. 600 IN CAA 0 issue "ca.test; accounturi=https://ca.test/A"`, zone), rr(t, `%s. 600 IN CAA 128 issue "ca.test; accounturi=https://ca.test/a"`, zone),
		}
		p.change(t, zone, theirs, nil)
		must(t, c, at, want...)
		all := append(ours, lines(theirs)...)
		slices.Sort(all)
		if got := lines(p.all(t, zone)); !slices.Equal(got, all) {
			t.Errorf("there is %q, want %q", got, all)
		}
		must(t, c, at)
		if got := lines(p.all(t, zone)); !slices.Equal(got, lines(theirs)) {
			t.Errorf("there is %q, want %q", got, lines(theirs))
		}
		p.change(t, zone, nil, theirs)
		must(t, c, at, want...)
		p.change(t, zone, theirs, p.all(t, zone)) // instead of ours
		must(t, c, at)
		if got := lines(p.all(t, zone)); !slices.Equal(got, lines(theirs)) {
			t.Errorf("there is %q, want %q", got, lines(theirs))
		}
	})
}

// TestLetterCase: the letter case of names is ignored, and theirs stays.
func TestLetterCase(t *testing.T) {
	each(t, func(t *testing.T, p *peer, zone string) {
		c := providertest.Remember(p.client(t, nil, zone))
		ours := dnsprov.Record{Name: "n." + zone, Type: "MX", Value: "mail.ours.test", Priority: 10, TTL: 600, Purpose: dnsprov.PurposeCustom}
		second := ours
		second.Value = "mail.theirs.test"
		theirs := []dns.RR{rr(t, "N.%s. 600 IN MX 10 Mail.Theirs.test.", zone)}
		p.change(t, zone, theirs, nil)
		at := ask(zone, ours)
		must(t, c, at, ours, second)
		if n := len(p.all(t, zone)); n != 2 {
			t.Errorf("%d records", n)
		}
		must(t, c, at)
		if got := p.records(t, zone); len(got) != 1 || !got[0].Same(second) {
			t.Errorf("there is %v", got)
		}
	})
}

// TestWildcards: what a wildcard answers is not there.
func TestWildcards(t *testing.T) {
	each(t, func(t *testing.T, p *peer, zone string) {
		theirs := []dns.RR{
			rr(t, "*.%s. 600 IN A 192.0.2.9", zone), rr(t, "*.%s. 600 IN TXT theirs", zone), rr(t, "*.al.%s. 600 IN CNAME theirs.test.", zone), rr(t, "dn.%s. 600 IN DNAME theirs.test.", zone),
			rr(t, "real.%s. 600 IN TXT theirs", zone),
		}
		p.change(t, zone, theirs, nil)
		c := providertest.Remember(p.client(t, nil, zone))
		var want []dnsprov.Record
		for n := range 40 {
			name := fmt.Sprintf("n%d.", n)
			want = append(want, dnsprov.Record{Name: name + zone, Type: "TXT", Value: "ours", TTL: 600, Purpose: dnsprov.PurposeCustom},
				dnsprov.Record{Name: name + "al." + zone, Type: "A", Value: "192.0.2.1", TTL: 600, Purpose: dnsprov.PurposeCustom})
		}
		want = append(want, dnsprov.Record{Name: "real." + zone, Type: "TXT", Value: "ours", TTL: 600, Purpose: dnsprov.PurposeCustom},
			dnsprov.Record{Name: "alias." + zone, Type: "CNAME", Value: "ours.test", TTL: 600, Purpose: dnsprov.PurposeCustom})
		at := ask(zone, want...)
		have, err := c.Records(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range have {
			if strings.HasPrefix(h.Name, "n") || strings.HasPrefix(h.Name, "alias") {
				t.Errorf("%+v is not there", h)
			}
		}
		must(t, c, at, want...)
		must(t, c, at)
		if got := lines(p.all(t, zone)); !slices.Equal(got, lines(theirs)) {
			t.Errorf("there is %q, want %q", got, lines(theirs))
		}
	})
}

// TestDelegatedDomain: records of a domain that the zone leaves to other nameservers would be seen
// by nobody.
func TestDelegatedDomain(t *testing.T) {
	each(t, func(t *testing.T, p *peer, zone string) {
		p.change(t, zone, []dns.RR{rr(t, "sub.%s. 600 IN NS ns.theirs.test.", zone)}, nil)
		c := p.client(t, nil, zone)
		for _, domain := range []string{"sub." + zone, "team.sub." + zone} {
			want := dnsprov.Record{Name: domain, Type: "TXT", Value: "x", TTL: 60, Purpose: dnsprov.PurposeCustom}
			at := ask(domain, want)
			if have, err := c.Records(t.Context(), at); !errors.Is(err, dnsprov.ErrZoneNotFound) {
				t.Errorf("%s: %v, %v", domain, have, err)
			}
			if _, err := c.Apply(t.Context(), at, dnsprov.Plan(nil, []dnsprov.Record{want})); !errors.Is(err, dnsprov.ErrZoneNotFound) {
				t.Errorf("%s: %v", domain, err)
			}
		}
	})
}

// TestManyRecords: three thousand records fit into few updates.
func TestManyRecords(t *testing.T) {
	each(t, func(t *testing.T, p *peer, zone string) {
		var want []dnsprov.Record
		for n := range 3000 {
			want = append(want, dnsprov.Record{Name: fmt.Sprintf("n%d.%s", n/2, zone), Type: "TXT", Value: fmt.Sprint("v=DKIM1; k=rsa; p=", n), TTL: 600, Purpose: dnsprov.PurposeCustom})
		}
		updates := 0
		c := providertest.Remember(p.client(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &watched{Conn: conn, before: func(m *dns.Msg) {
				if m.Opcode == dns.OpcodeUpdate && len(m.Ns) > 0 {
					updates++
				}
			}}, err
		}, zone))
		at := ask(zone, want...)
		must(t, c, at, want...)
		if n := len(p.all(t, zone)); n != len(want) || updates > 8 {
			t.Errorf("%d records after %d updates", n, updates)
		}
		must(t, c, at)
		if n := len(p.all(t, zone)); n != 0 {
			t.Errorf("%d records are left", n)
		}
	})
}
