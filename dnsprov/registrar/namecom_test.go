package registrar_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/dnsprov/registrar/namecomtest"
	"github.com/mailstead/mailstead/dnsprov/registrar/registrartest"
)

func newNameCom(t testing.TB, c registrar.NameComConfig) *registrar.NameCom {
	t.Helper()
	if c.Username == "" {
		c.Username, c.Token = "user-test", "secret-token"
	}
	n, err := registrar.NewNameCom(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// over serves a handler on loopback, and returns a client of it that keeps connections open, like
// the default client.
func over(t testing.TB, h http.Handler) *registrar.NameCom {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return newNameCom(t, registrar.NameComConfig{BaseURL: s.URL, HTTP: s.Client()})
}

func onlyOnce(f *namecomtest.Fake, call string, fate namecomtest.Fate) {
	f.Set(func() {
		f.Meddle = func(c, _ string) namecomtest.Fate {
			if c != call {
				return namecomtest.Well
			}
			f.Set(func() { f.Meddle = nil })
			return fate
		}
	})
}

func TestNameCom(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		t.Run(fmt.Sprint("forgets keys ", forgets), func(t *testing.T) {
			f := namecomtest.New()
			f.ForgetsKeys = forgets
			registrartest.Run(t, over(t, f), registrartest.Names{
				Free: []string{"alpha.com", "beta.io", "gamma.dev", "delta.net"}, Taken: "example.org", Premium: "premium-name.com", NotSold: "alpha.shop",
				Paid: f.Purchases,
				Cut: func(taken bool) {
					onlyOnce(f, map[bool]string{true: "charged", false: "create"}[taken], namecomtest.Drop)
				},
			})
		})
	}
}

// Whatever the answer to an order is, the result is either known or unknown, and an order buys at
// most once, even if the connection breaks at a point where net/http would repeat a request with an
// idempotency key.
func TestNameComOrders(t *testing.T) {
	for _, tc := range []struct {
		name   string
		call   string
		fate   namecomtest.Fate
		change func(*namecomtest.Fake)
		want   error // nil: it is not known
		bought int
	}{
		{name: "charged and dropped", call: "charged", fate: namecomtest.Drop, bought: 1},
		{name: "charged and 500", call: "charged", fate: namecomtest.Fail, bought: 1},
		{name: "charged and garbage", call: "charged", fate: namecomtest.Garbage, bought: 1},
		{name: "dropped", call: "create", fate: namecomtest.Drop},
		{name: "500", call: "create", fate: namecomtest.Fail},
		{name: "garbage", call: "create", fate: namecomtest.Garbage},
		{name: "no answer about the name", call: "check", fate: namecomtest.Drop, want: registrar.ErrNotNow},
		{name: "no answer about the price", call: "pricing", fate: namecomtest.Garbage, want: registrar.ErrNotNow},
		{name: "no funds", change: func(f *namecomtest.Fake) { f.Balance = 10_98 }, want: registrar.ErrNoFunds},
		{name: "other credentials", change: func(f *namecomtest.Fake) { f.Token = "another" }, want: registrar.ErrNotNow},
		{name: "dearer since", change: func(f *namecomtest.Fake) { f.Raise = 1 }, want: registrar.ErrPrice},
		{name: "down", change: func(f *namecomtest.Fake) { f.Down = []string{"com"} }, want: registrar.ErrNotNow},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := namecomtest.New()
			f.ForgetsKeys, f.Oversells = true, true
			if tc.change != nil {
				tc.change(f)
			}
			onlyOnce(f, tc.call, tc.fate)
			n := over(t, f)
			r, err := n.Register(t.Context(), registrar.Order{Key: "k", Domain: "alpha.com", Years: 1, MaxPrice: 10_99})
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("%+v, %v; want %v", r, err, tc.want)
			}
			if tc.want == nil && (errors.Is(err, registrar.ErrNotNow) || errors.Is(err, registrar.ErrTaken)) {
				t.Errorf("it is not known what became of it, and the error claims so: %v", err)
			}
			if got := f.Purchases("alpha.com"); got != tc.bought {
				t.Errorf("bought %d times, want %d", got, tc.bought)
			}
			if strings.Contains(err.Error(), "secret-token") || strings.Contains(err.Error(), "dXNlci") {
				t.Errorf("the credentials are in the error: %v", err)
			}
		})
	}
}

// If the price rises between the check and the order, the order is refused, since it states the
// price.
func TestNameComSendsThePrice(t *testing.T) {
	f := namecomtest.New()
	f.Meddle = func(call, _ string) namecomtest.Fate {
		if call == "create" {
			f.Set(func() { f.Raise = 1 })
		}
		return namecomtest.Well
	}
	n := over(t, f)
	if _, err := n.Register(t.Context(), registrar.Order{Key: "k", Domain: "alpha.com", Years: 1, MaxPrice: 99_00}); !errors.Is(err, registrar.ErrPrice) || f.Spent() != 0 {
		t.Errorf("%d spent, %v", f.Spent(), err)
	}
	f.Set(func() { f.Meddle, f.Raise = nil, 0 })
	r, err := n.Register(t.Context(), registrar.Order{Key: "k2", Domain: "two.ai", Years: 3, MaxPrice: 239_97, AutoRenew: true})
	if err != nil || r.Price != 239_97 || f.Paid("two.ai") != 239_97 || !r.AutoRenew {
		t.Errorf("%+v, %v; paid %d", r, err, f.Paid("two.ai"))
	}
	if _, err := n.Register(t.Context(), registrar.Order{Key: "k3", Domain: "one.ai", Years: 1, MaxPrice: 999_00}); !errors.Is(err, registrar.ErrBadDomain) {
		t.Errorf("fewer years than the ending has: %v", err)
	}
}

// A repeated key gets the stored answer for the same order, and an error for another order.
func TestNameComKeys(t *testing.T) {
	f := namecomtest.New()
	f.Lag = time.Hour // so that the name does not show as taken
	n := over(t, f)
	o := registrar.Order{Key: "k", Domain: "alpha.com", Years: 1, MaxPrice: 10_99}
	first, err := n.Register(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := n.Register(t.Context(), o)
	if err != nil || !again.ExpiresAt.Equal(first.ExpiresAt) || again.Price != 10_99 || f.Calls("replay") != 1 {
		t.Errorf("%+v, %v; %d replays", again, err, f.Calls("replay"))
	}
	o.AutoRenew = true
	if r, err := n.Register(t.Context(), o); err == nil || errors.Is(err, registrar.ErrTaken) || errors.Is(err, registrar.ErrNotNow) {
		t.Errorf("another order under the key: %+v, %v", r, err)
	}
	if f.Purchases("alpha.com") != 1 {
		t.Errorf("bought %d times", f.Purchases("alpha.com"))
	}
}

// 120 names take three calls, and a bad name or an unreachable registry affects no other name.
func TestNameComQuotesMany(t *testing.T) {
	f := namecomtest.New()
	n := over(t, f)
	var names []string
	for i := range 120 {
		names = append(names, fmt.Sprintf("name-%d.%s", i, []string{"com", "net", "shop"}[i%3]))
	}
	offers, err := n.Quote(t.Context(), names)
	if err != nil || f.Calls("check") != 3 {
		t.Fatalf("%d calls, %v", f.Calls("check"), err)
	}
	for i, o := range offers {
		want := []int64{1099, 1299, 0}[i%3]
		if o.Domain != names[i] || o.Price != want || o.Available != (want > 0) || errors.Is(o.Err, registrar.ErrNotSold) != (want == 0) {
			t.Errorf("%d: %+v", i, o)
		}
	}
	names[7], names[71] = "-bad-.com", "name.io"
	f.Set(func() { f.Down = []string{"io"} })
	offers, err = n.Quote(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range offers {
		switch {
		case i == 7 && !errors.Is(o.Err, registrar.ErrBadDomain), i == 71 && (o.Err == nil || errors.Is(o.Err, registrar.ErrBadDomain)):
			t.Errorf("%d: %+v", i, o)
		case i != 7 && i != 71 && o.Available != (i%3 < 2):
			t.Errorf("neighbour %d: %+v", i, o)
		}
	}
	f.Set(func() { f.Meddle = func(string, string) namecomtest.Fate { return namecomtest.Fail } })
	if offers, err := n.Quote(t.Context(), names); err == nil {
		t.Errorf("nothing was answered, and it came to %+v", offers[0])
	}
	if offers, err := n.Quote(t.Context(), []string{"Übel.com"}); err == nil {
		t.Errorf("a name that is no name: %+v", offers)
	}
}

// The client waits for a short 429, but never beyond the end of the context.
func TestNameComWaitsWhenToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := namecomtest.New()
		n := newNameCom(t, registrar.NameComConfig{HTTP: &http.Client{Transport: namecomtest.Direct{Handler: f}}})
		o := registrar.Order{Key: "k", Domain: "alpha.com", Years: 1, MaxPrice: 10_99}
		f.RetryAfter = 3 * time.Second
		onlyOnce(f, "create", namecomtest.Busy)
		start := time.Now()
		if _, err := n.Register(t.Context(), o); err != nil || time.Since(start) != 3*time.Second || f.Purchases("alpha.com") != 1 {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		f.Meddle = func(string, string) namecomtest.Fate { return namecomtest.Busy }
		for _, tc := range []struct{ asked, within, waited time.Duration }{{time.Minute, time.Hour, 0}, {4 * time.Second, 2 * time.Second, 0}, {time.Second, time.Hour, 3 * time.Second}} {
			ctx, cancel := context.WithTimeout(t.Context(), tc.within)
			f.RetryAfter, start = tc.asked, time.Now()
			if _, err := n.Find(ctx, "alpha.com"); err == nil || errors.Is(err, registrar.ErrNotFound) || time.Since(start) != tc.waited {
				t.Errorf("asked for %s: %v after %s", tc.asked, err, time.Since(start))
			}
			cancel()
		}
	})
}

// The result of an order that takes too long is unknown, and the domain appears later.
func TestNameComThatAnswersLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := namecomtest.New()
		onlyOnce(f, "create", namecomtest.Late)
		n := newNameCom(t, registrar.NameComConfig{HTTP: &http.Client{Transport: namecomtest.Direct{Handler: f}}})
		start := time.Now()
		_, err := n.Register(t.Context(), registrar.Order{Key: "k", Domain: "alpha.com", Years: 1, MaxPrice: 10_99})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, registrar.ErrNotNow) || time.Since(start) > 30*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if _, err := n.Find(t.Context(), "alpha.com"); !errors.Is(err, registrar.ErrNotFound) {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(f.Pause)
		if r, err := n.Find(t.Context(), "alpha.com"); err != nil || f.Purchases("alpha.com") != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// An answer that name.com's API did not write proves neither that a domain does not exist nor that
// an order was refused.
func TestNameComBehindSomethingElse(t *testing.T) {
	status, body := 0, ""
	n := over(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status == 307 {
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	for _, tc := range []struct {
		status int
		body   string
	}{
		{404, "<html>nginx</html>"}, {404, "{}"}, {200, ""}, {200, "null"}, {200, "{}"}, {200, `{"domainName":"other.com","createDate":"2026-01-01T00:00:00Z","expireDate":"2027-01-01T00:00:00Z"}`},
		{200, `{"domainName":"alpha.com"}`}, {204, ""}, {307, ""}, {500, `{"message":"Not Found"}`}, {200, strings.Repeat(" ", 2<<20) + "{}"},
		{403, `{"message":"Forbidden secret-token dXNlci10ZXN0OnNlY3JldC10b2tlbg=="}`},
	} {
		status, body = tc.status, tc.body
		r, err := n.Find(t.Context(), "alpha.com")
		if err == nil || errors.Is(err, registrar.ErrNotFound) {
			t.Errorf("%d %.60q: %+v, %v", tc.status, tc.body, r, err)
		}
		if text := fmt.Sprint(err); strings.Contains(text, "secret-token") || strings.Contains(text, "dXNl") || len(text) > 600 {
			t.Errorf("%d: the error is %s", tc.status, text)
		}
		if offers, err := n.Quote(t.Context(), []string{"alpha.com"}); err == nil && offers[0].Available {
			t.Errorf("%d %.60q: offered %+v", tc.status, tc.body, offers)
		}
	}
}

// An API that cannot be reached has sold nothing.
func TestNameComUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	n := newNameCom(t, registrar.NameComConfig{BaseURL: "http://" + ln.Addr().String()})
	if _, err := n.Register(t.Context(), registrar.Order{Key: "k", Domain: "alpha.com", Years: 1, MaxPrice: 1099}); !errors.Is(err, registrar.ErrNotNow) {
		t.Error(err)
	}
	if _, err := n.Find(t.Context(), "alpha.com"); err == nil || errors.Is(err, registrar.ErrNotFound) {
		t.Error(err)
	}
}

func TestNameComGlue(t *testing.T) {
	f := namecomtest.New()
	n := over(t, f)
	f.Put(namecomtest.Domain{Name: "alpha.com", Created: time.Now(), Expires: time.Now().AddDate(1, 0, 0)})
	ours := []string{"ns1.alpha.com", "ns2.alpha.com"}
	if err := n.Delegate(t.Context(), "alpha.com", ours); err == nil {
		t.Error("delegated to names that have no addresses")
	}
	for _, host := range ours {
		if err := n.SetGlue(t.Context(), "alpha.com", host, []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Delegate(t.Context(), "alpha.com", ours); err != nil {
		t.Error(err)
	}
	if d := f.Domain("alpha.com"); !slices.Equal(d.Nameservers, ours) || !slices.Equal(d.Glue["ns2.alpha.com"], []string{"192.0.2.7", "2001:db8::7"}) {
		t.Errorf("%+v", d)
	}
}

func TestNameComSettings(t *testing.T) {
	for _, c := range []registrar.NameComConfig{
		{}, {Username: "u"}, {Token: "t"}, {Username: "u", Token: "t", BaseURL: "name.com"}, {Username: "u", Token: "t", BaseURL: "ftp://name.com"},
		{Username: "u", Token: "t", BaseURL: "https://u:t@name.com"}, {Username: "u", Token: "t", BaseURL: "https://name.com/?a=b"},
	} {
		if _, err := registrar.NewNameCom(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

// FuzzNameComAnswers: no answer leads to a registration of another domain, or to an offer without a
// price.
func FuzzNameComAnswers(f *testing.F) {
	f.Add(200, `{"results":[{"domainName":"alpha.com","purchasable":true,"purchasePrice":10.99,"renewalPrice":12.99}]}`)
	f.Add(200, `{"domain":{"domainName":"alpha.com","createDate":"2026-01-01T00:00:00Z","expireDate":"2027-01-01T00:00:00Z"},"totalPaid":1e300}`)
	f.Add(200, `{"domainName":"alpha.com","createDate":"2026-01-01T00:00:00Z","expireDate":"2027-01-01T00:00:00Z","nameservers":["NS1.x."]}`)
	f.Add(200, `{"premium":false,"purchasePrice":-1}`)
	f.Add(400, `{"message":"Invalid argument","details":"The domain is not available"}`)
	f.Add(429, `{"message":"Rate Limit Exceeded","details":null}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 || status == 429 {
			return
		}
		n := newNameCom(t, registrar.NameComConfig{HTTP: &http.Client{Transport: namecomtest.Direct{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})}}})
		if r, err := n.Find(t.Context(), "alpha.com"); err == nil && (r.Domain != "alpha.com" || r.ExpiresAt.IsZero()) {
			t.Errorf("found %+v", r)
		}
		if r, err := n.Register(t.Context(), registrar.Order{Domain: "alpha.com", Years: 1, MaxPrice: 1 << 40}); err == nil && (r.Domain != "alpha.com" || r.Price < 0) {
			t.Errorf("registered %+v", r)
		}
		if offers, err := n.Quote(t.Context(), []string{"alpha.com", "beta.com"}); err == nil && (len(offers) != 2 || offers[0].Available && offers[0].Price <= 0) {
			t.Errorf("offers %+v", offers)
		}
	})
}
