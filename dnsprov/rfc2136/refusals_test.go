package rfc2136_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rfc2136"
)

// TestRefusals: keys, secrets, rights, zones, clocks and dead servers are told apart, in all that a
// client does.
func TestRefusals(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			p := start(t, k, 2)
			open, closed := p.newZone(t, true), p.newZone(t, false)
			dead := loopback + ":9"
			for _, tc := range []struct {
				name     string
				change   func(*rfc2136.Config)
				want     error
				text     string
				readable bool // what anybody may ask is answered
			}{
				{"key", func(c *rfc2136.Config) { c.KeyName = "unknown.key.test" }, dnsprov.ErrCredential, "does not know the key unknown.key.test,", false},
				{"secret", func(c *rfc2136.Config) { c.Secret = otherSecret }, dnsprov.ErrCredential, "secret is not that of the key " + strings.TrimSuffix(ourKey, ".") + " at", false},
				{"algorithm", func(c *rfc2136.Config) { c.Algorithm = "hmac-sha512" }, dnsprov.ErrCredential, "", false},
				{"right", func(c *rfc2136.Config) { c.KeyName, c.Secret = guestKey, guestSecret }, dnsprov.ErrCredential, "allow", true},
				{"zone", func(c *rfc2136.Config) { c.Zones = []string{"test"} }, dnsprov.ErrZoneNotFound, "primary nameserver of a zone test", false},
				{"no answer", func(c *rfc2136.Config) { c.Server = dead }, rfc2136.ErrNoAnswer, dead, false},
			} {
				for _, zone := range []string{open, closed} {
					conf := rfc2136.Config{Server: p.addr, KeyName: ourKey, Secret: ourSecret, Zones: []string{zone}}
					tc.change(&conf)
					c := client(t, conf)
					want := dnsprov.Record{Name: zone, Type: "TXT", Value: "x", TTL: 60, Purpose: dnsprov.PurposeCustom}
					at := dnsprov.ZoneRef{Domain: zone, Ask: []dnsprov.Set{{Name: zone, Type: "TXT"}}}
					_, readErr := c.Records(t.Context(), at)
					_, writeErr := c.Apply(t.Context(), at, dnsprov.Plan(nil, []dnsprov.Record{want}))
					errs := map[string]error{"check": c.Check(t.Context()), "apply": writeErr}
					if !tc.readable {
						errs["records"] = readErr
					}
					for what, err := range errs {
						hasNoSecret(t, err)
						if tc.name == "zone" && what != "check" && errors.Is(err, dnsprov.ErrZoneNotFound) {
							continue // told by what is answered to a question
						}
						if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
							t.Errorf("%s, %s of %s: %v", tc.name, what, zone, err)
						}
					}
				}
			}
			if c := p.client(t, nil, open, closed); c.Check(t.Context()) != nil {
				t.Errorf("a good key: %v", c.Check(t.Context()))
			}
			if err := p.client(t, nil, open, "nowhere.test").Check(t.Context()); !errors.Is(err, dnsprov.ErrZoneNotFound) {
				t.Errorf("of two zones one is not there: %v", err)
			}
			synctest.Test(t, func(t *testing.T) { // here the year is 2000
				c := p.client(t, nil, open)
				_, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: open})
				for _, err := range []error{c.Check(t.Context()), err} {
					if !errors.Is(err, rfc2136.ErrClock) || !strings.Contains(err.Error(), " is 2") {
						t.Errorf("a clock that is wrong: %v", err)
					}
				}
			})
			if n := len(p.all(t, open)) + len(p.all(t, closed)); n != 0 {
				t.Errorf("%d records were made", n)
			}
		})
	}
}

func TestAlgorithms(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			p := start(t, k, 1)
			zone := p.newZone(t, false)
			for _, size := range []string{"224", "384", "512"} {
				c := client(t, rfc2136.Config{Server: p.addr, KeyName: size + ".key.test", Algorithm: "hmac-sha" + size, Secret: ourSecret, Zones: []string{zone}})
				want := dnsprov.Record{Name: zone, Type: "TXT", Value: size, TTL: 60, Purpose: dnsprov.PurposeCustom}
				at := ask(zone, want)
				if err := c.Check(t.Context()); err != nil {
					t.Error(err)
				}
				if _, err := bring(t, c, at, want); err != nil {
					t.Error(err)
				}
			}
			if have := p.records(t, zone); len(have) != 3 {
				t.Errorf("there is %v", have)
			}
		})
	}
}

// TestNoTransferAndNothingToAsk: a zone that cannot be listed is no empty zone.
func TestNoTransferAndNothingToAsk(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			p := start(t, k, 1)
			zone := p.newZone(t, false)
			if have, err := p.client(t, nil, zone).Records(t.Context(), dnsprov.ZoneRef{Domain: zone}); !errors.Is(err, dnsprov.ErrCredential) {
				t.Errorf("%v, %v", have, err)
			}
		})
	}
}

// TestOneRecordIsRefused: what the server refuses for a record's sake is about that record alone.
func TestOneRecordIsRefused(t *testing.T) {
	p := start(t, kinds[0], 1)
	zone := p.newZone(t, true)
	c := p.client(t, nil, zone)
	at := dnsprov.ZoneRef{Domain: zone}
	odd := dnsprov.Record{Name: "not_a_host." + zone, Type: "A", Value: "192.0.2.1", TTL: 60, Purpose: dnsprov.PurposeCustom} // see check-names in bind's manual
	good := []dnsprov.Record{
		{Name: zone, Type: "TXT", Value: "first", TTL: 60, Purpose: dnsprov.PurposeCustom},
		odd,
		{Name: "last." + zone, Type: "TXT", Value: "last", TTL: 60, Purpose: dnsprov.PurposeCustom},
	}
	for _, want := range [][]dnsprov.Record{good, {odd}} {
		_, err := c.Apply(t.Context(), at, dnsprov.Plan(nil, want))
		var refused *dnsprov.Refused
		if !errors.As(err, &refused) || refused.Want != odd || errors.Is(err, dnsprov.ErrCredential) {
			t.Errorf("%v", err)
		}
	}
	if have := p.records(t, zone); len(have) != 1 || have[0].Value != "first" {
		t.Errorf("there is %v", have)
	}
}

// TestTooLargeForAnUpdate: a set that no update can hold is refused.
func TestTooLargeForAnUpdate(t *testing.T) {
	p := start(t, kinds[0], 1)
	zone := p.newZone(t, true)
	var want []dnsprov.Record
	for n := range 20 {
		want = append(want, dnsprov.Record{Name: zone, Type: "TXT", Value: strings.Repeat(string(rune('a'+n)), 4000), TTL: 60, Purpose: dnsprov.PurposeCustom})
	}
	_, err := p.client(t, nil, zone).Apply(t.Context(), dnsprov.ZoneRef{Domain: zone}, dnsprov.Plan(nil, want))
	if !errors.As(err, new(*dnsprov.Refused)) {
		t.Errorf("%v", err)
	}
}

// meanwhile dials connections on which do is called once, before the first message with records to
// add or delete.
func meanwhile(do func()) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &watched{Conn: conn, before: func(m *dns.Msg) {
			if do != nil && m.Opcode == dns.OpcodeUpdate && len(m.Ns) > 0 {
				do()
				do = nil
			}
		}}, err
	}
}

// watched is a connection of which each Write is one message.
type watched struct {
	net.Conn
	before func(*dns.Msg)
}

func (c *watched) Write(p []byte) (int, error) {
	m := new(dns.Msg)
	if err := m.Unpack(p[2:]); err != nil {
		return 0, err
	}
	c.before(m)
	return c.Conn.Write(p)
}
