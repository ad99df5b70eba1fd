// Package registrartest is a test suite for every registrar.Registrar. It does not know any
// registrar.
//
// It tests the optional interfaces GlueSetter, AutoRenewer and NameserverPolicy if a registrar
// implements them.
package registrartest

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/dnsprov/registrar"
)

// Names has the names that the suite may use in a registrar's test environment, and what that
// environment can do.
type Names struct {
	Free    []string // at least four available names, which the suite buys
	Taken   string   // a name that is not available
	Premium string   // a name with a premium price; "" if there is none
	NotSold string   // a name with a suffix that the registrar does not sell

	// Cut makes the next order end without an answer: after the domain was bought and paid for if
	// taken is true, and without any effect otherwise. It is nil if that is impossible.
	Cut func(taken bool)
	// Paid returns how many times a name was paid for. It is nil if that is unknown.
	Paid func(name string) int
}

// Run tests a registrar against the rules of registrar.Registrar.
func Run(t *testing.T, shop registrar.Registrar, n Names) {
	t.Run("quotes in order", func(t *testing.T) { testQuote(t, shop, n) })
	t.Run("sells once", func(t *testing.T) { testRegister(t, shop, n) })
	t.Run("refuses", func(t *testing.T) { testRefusals(t, shop, n) })
	t.Run("delegates", func(t *testing.T) { testDelegate(t, shop, n) })
	if r, ok := shop.(registrar.AutoRenewer); ok {
		t.Run("renews", func(t *testing.T) { testAutoRenew(t, shop, r, n) })
	}
	if g, ok := shop.(registrar.GlueSetter); ok {
		t.Run("sets glue", func(t *testing.T) { testSetGlue(t, g, n) })
	}
	if n.Cut != nil {
		t.Run("survives cuts", func(t *testing.T) { testCuts(t, shop, n) })
	}
	if n.Paid != nil {
		for _, name := range n.Free {
			if paid := n.Paid(name); paid > 1 {
				t.Errorf("%s was paid for %d times", name, paid)
			}
		}
	}
}

func testQuote(t *testing.T, shop registrar.Registrar, n Names) {
	names := []string{n.Taken, n.Free[0], n.NotSold, n.Free[1]}
	offers, err := shop.Quote(t.Context(), names)
	if err != nil || len(offers) != len(names) {
		t.Fatalf("%d offers, %v", len(offers), err)
	}
	for i, o := range offers {
		if o.Domain != names[i] {
			t.Errorf("offer %d is about %s, not %s", i, o.Domain, names[i])
		}
	}
	for _, i := range []int{1, 3} {
		if o := offers[i]; o.Err != nil || !o.Available || o.Premium || o.Price <= 0 || o.Renewal <= 0 {
			t.Errorf("offer of a free name %+v", o)
		}
	}
	if offers[0].Available || offers[0].Err != nil {
		t.Errorf("offer of a taken name %+v", offers[0])
	}
	if !errors.Is(offers[2].Err, registrar.ErrNotSold) {
		t.Errorf("offer of a name that is not sold %+v", offers[2])
	}
	if offers, err := shop.Quote(t.Context(), nil); err != nil || len(offers) != 0 {
		t.Errorf("no names: %v, %v", offers, err)
	}
}

func quotedPrice(t *testing.T, shop registrar.Registrar, name string, years int) int64 {
	t.Helper()
	offers, err := shop.Quote(t.Context(), []string{name})
	if err != nil {
		t.Fatal(err)
	}
	return offers[0].Total(years)
}

func testRegister(t *testing.T, shop registrar.Registrar, n Names) {
	name := n.Free[0]
	if _, err := shop.Find(t.Context(), name); !errors.Is(err, registrar.ErrNotFound) {
		t.Fatalf("found before it was bought: %v", err)
	}
	o := registrar.Order{Key: "key-" + name, Domain: name, Years: 2, MaxPrice: quotedPrice(t, shop, name, 2), Nameservers: []string{"ns1.example.test", "ns2.example.test"}}
	first, err := shop.Register(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if months := first.ExpiresAt.Sub(first.RegisteredAt).Hours() / 24 / 30; first.Domain != name || first.Price > o.MaxPrice || months < 24 || months > 25 {
		t.Errorf("registration %+v", first)
	}
	again, err := shop.Register(t.Context(), o)
	if err == nil && (again.Price != first.Price || !again.ExpiresAt.Equal(first.ExpiresAt)) {
		t.Errorf("the second try of one order came to %+v, the first to %+v", again, first)
	}
	if err != nil && !errors.Is(err, registrar.ErrTaken) {
		t.Errorf("second try of one order: %v", err)
	}
	o.Key = "another key"
	if _, err := shop.Register(t.Context(), o); !errors.Is(err, registrar.ErrTaken) {
		t.Errorf("another order of the name: %v", err)
	}
	found, err := shop.Find(t.Context(), name)
	if err != nil || found.Domain != name || !found.ExpiresAt.Equal(first.ExpiresAt) || !registrar.HasFixedNameservers(shop) && !slices.Equal(found.Nameservers, o.Nameservers) {
		t.Errorf("found %+v, %v", found, err)
	}
	offers, err := shop.Quote(t.Context(), []string{name})
	if err != nil || offers[0].Available {
		t.Errorf("it is offered again: %+v, %v", offers, err)
	}
}

func testRefusals(t *testing.T, shop registrar.Registrar, n Names) {
	cheap := n.Free[1]
	for _, tc := range []struct {
		order registrar.Order
		want  error
	}{
		{registrar.Order{Domain: cheap, Years: 1, MaxPrice: quotedPrice(t, shop, cheap, 1) - 1}, registrar.ErrPrice},
		{registrar.Order{Domain: cheap, Years: 2, MaxPrice: quotedPrice(t, shop, cheap, 1)}, registrar.ErrPrice},
		{registrar.Order{Domain: cheap, Years: 0, MaxPrice: 1 << 40}, registrar.ErrBadDomain},
		{registrar.Order{Domain: cheap, Years: 11, MaxPrice: 1 << 40}, registrar.ErrBadDomain},
		{registrar.Order{Domain: n.Taken, Years: 1, MaxPrice: 1 << 40}, registrar.ErrTaken},
		{registrar.Order{Domain: n.NotSold, Years: 1, MaxPrice: 1 << 40}, registrar.ErrNotSold},
		{registrar.Order{Domain: n.Premium, Years: 1, MaxPrice: 1 << 40}, registrar.ErrPremium},
	} {
		if tc.order.Domain == "" {
			continue
		}
		tc.order.Key = "refused"
		if r, err := shop.Register(t.Context(), tc.order); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %+v, %v; want %v", tc.order, r, err, tc.want)
		}
		if _, err := shop.Find(t.Context(), tc.order.Domain); !errors.Is(err, registrar.ErrNotFound) {
			t.Errorf("%s was bought all the same: %v", tc.order.Domain, err)
		}
	}
}

func buy(t *testing.T, shop registrar.Registrar, name string) {
	t.Helper()
	if _, err := shop.Register(t.Context(), registrar.Order{Key: "buys " + name, Domain: name, Years: 1, MaxPrice: quotedPrice(t, shop, name, 1)}); err != nil {
		t.Fatal(err)
	}
}

// testDelegate tests Delegate. It buys the third free name.
func testDelegate(t *testing.T, shop registrar.Registrar, n Names) {
	name, ours := n.Free[2], []string{"ns1.example.test", "ns2.example.test"}
	if registrar.HasFixedNameservers(shop) {
		buy(t, shop, name)
		if err := shop.Delegate(t.Context(), name, ours); !errors.Is(err, registrar.ErrFixedNameservers) {
			t.Errorf("delegate where nameservers are fixed: %v", err)
		}
		return
	}
	if err := shop.Delegate(t.Context(), name, []string{"ns1.example.test"}); !errors.Is(err, registrar.ErrNotFound) {
		t.Errorf("delegate a name that is not there: %v", err)
	}
	buy(t, shop, name)
	for range 2 {
		if err := shop.Delegate(t.Context(), name, ours); err != nil {
			t.Error(err)
		}
	}
	if found, err := shop.Find(t.Context(), name); err != nil || !slices.Equal(found.Nameservers, ours) {
		t.Errorf("found %+v, %v", found, err)
	}
}

func testAutoRenew(t *testing.T, shop registrar.Registrar, r registrar.AutoRenewer, n Names) {
	for _, on := range []bool{true, true, false} {
		if err := r.SetAutoRenew(t.Context(), n.Free[2], on); err != nil {
			t.Error(err)
		}
		if found, err := shop.Find(t.Context(), n.Free[2]); err != nil || found.AutoRenew != on {
			t.Errorf("set to %v: found %+v, %v", on, found, err)
		}
	}
	if err := r.SetAutoRenew(t.Context(), n.Free[1], true); !errors.Is(err, registrar.ErrNotFound) {
		t.Errorf("renew a name that is not there: %v", err)
	}
}

func testSetGlue(t *testing.T, g registrar.GlueSetter, n Names) {
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, ips := range [][]netip.Addr{{one}, {one}, {two, one}, {one, two}} {
		if err := g.SetGlue(t.Context(), n.Free[2], "ns1."+n.Free[2], ips); err != nil {
			t.Errorf("%s: %v", ips, err)
		}
	}
	if err := g.SetGlue(t.Context(), n.Free[1], "ns1."+n.Free[1], []netip.Addr{one}); !errors.Is(err, registrar.ErrNotFound) {
		t.Errorf("glue for a name that is not there: %v", err)
	}
	if err := g.SetGlue(t.Context(), n.Free[2], "ns1."+n.Free[1], []netip.Addr{one}); err == nil {
		t.Error("glue outside of the domain was set")
	}
}

// testCuts tests orders without an answer. It buys the fourth free name. Register must return an
// error that says nothing about the result, and Find must report the result.
func testCuts(t *testing.T, shop registrar.Registrar, n Names) {
	name := n.Free[3]
	o := registrar.Order{Key: "cut " + name, Domain: name, Years: 1, MaxPrice: quotedPrice(t, shop, name, 1)}
	unknown := func(r *registrar.Registration, err error) {
		t.Helper()
		if err == nil {
			t.Fatalf("an order without an answer came to %+v", r)
		}
		for _, known := range []error{
			registrar.ErrNotFound, registrar.ErrNotSold, registrar.ErrTaken, registrar.ErrPrice, registrar.ErrPremium, registrar.ErrNoFunds,
			registrar.ErrBadDomain, registrar.ErrNotNow,
		} {
			if errors.Is(err, known) {
				t.Fatalf("an order without an answer claims to know: %v", err)
			}
		}
	}
	n.Cut(false)
	unknown(shop.Register(t.Context(), o))
	if r, err := shop.Find(t.Context(), name); !errors.Is(err, registrar.ErrNotFound) {
		t.Fatalf("after an order that was cut before it was taken: %+v, %v", r, err)
	}
	n.Cut(true)
	unknown(shop.Register(t.Context(), o))
	found, err := shop.Find(t.Context(), name)
	if err != nil || found.Domain != name || found.Key != "" && found.Key != o.Key {
		t.Fatalf("after an order that was cut when it was taken: %+v, %v", found, err)
	}
	again, err := shop.Register(t.Context(), o)
	if err == nil && !again.ExpiresAt.Equal(found.ExpiresAt) || err != nil && !errors.Is(err, registrar.ErrTaken) {
		t.Errorf("the same order again: %+v, %v", again, err)
	}
	o.Key = "not " + o.Key
	if r, err := shop.Register(t.Context(), o); !errors.Is(err, registrar.ErrTaken) {
		t.Errorf("another order of the name: %+v, %v", r, err)
	}
}
