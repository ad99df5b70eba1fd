package ca_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/dnsprov/ca/catest"
)

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A stand is an authority, a client with an account there, and the challenges that the client has
// published.
type stand struct {
	*catest.Authority
	t      *testing.T
	client *ca.Client
	key    crypto.Signer
	order  string
	shown  map[string]string // by name and token
}

func newStand(t *testing.T, manners catest.Manners) *stand {
	t.Helper()
	s := &stand{Authority: catest.New(t), t: t, key: newKey(t), shown: map[string]string{}}
	s.Look = func(kind, name, token string) string {
		if kind == ca.DNS01 {
			return s.shown[name]
		}
		return s.shown[token]
	}
	s.client = ca.New(ca.Config{Directory: s.URL, HTTP: s.Client(), Email: "ops@example.test", Agent: "test"}, ca.Account{Key: newKey(t)})
	if _, err := s.client.Register(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.Behave(func(m *catest.Manners) { *m = manners })
	return s
}

func (s *stand) obtain(kind string, names ...string) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s.client.Obtain(ctx, ca.Request{
		Names: names, Key: s.key, Kind: kind, Order: s.order,
		Begun: func(url string) error { s.order = url; return nil },
		Publish: func(_ context.Context, all []ca.Challenge) error {
			for _, ch := range all {
				s.shown[ch.Name], s.shown[ch.Token] = ch.Answer, ch.Answer
			}
			return nil
		},
	})
}

func TestObtain(t *testing.T) {
	for _, kind := range []string{ca.HTTP01, ca.DNS01} {
		s := newStand(t, catest.Manners{StaleNonce: 3})
		chain, err := s.obtain(kind, "a.test", "www.a.test")
		if err != nil || len(chain) != 2 {
			t.Fatalf("%s: %d certificates, %v", kind, len(chain), err)
		}
		if err := ca.Check(chain, []string{"a.test", "www.a.test"}, s.key.Public(), time.Now()); err != nil {
			t.Error(err)
		}
	}
}

// A refusal of one name does not affect the others.
func TestRefusalNamesTheNames(t *testing.T) {
	for _, m := range []catest.Manners{{Refuses: map[string]string{"b.test": "no route"}}, {Rejects: map[string]string{"b.test": "no route"}}} {
		s := newStand(t, m)
		_, err := s.obtain(ca.HTTP01, "a.test", "b.test")
		var r *ca.Refusal
		if !errors.As(err, &r) || len(r.Names) != 1 || r.Names["b.test"] != "no route" {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

func TestUnfitCertificatesAreNotUsed(t *testing.T) {
	for _, m := range []catest.Manners{{ForOthers: true}, {Expired: true}, {OtherKey: true}, {Unchained: true}} {
		if chain, err := newStand(t, m).obtain(ca.HTTP01, "a.test"); !errors.Is(err, ca.ErrUnfit) {
			t.Errorf("%+v: %d certificates, %v", m, len(chain), err)
		}
	}
}

func TestWaitIsTheAuthoritysWithinBounds(t *testing.T) {
	for _, tc := range []struct {
		manners catest.Manners
		want    time.Duration
	}{
		{catest.Manners{Limited: true, RetryAfter: "7200"}, 2 * time.Hour},
		{catest.Manners{Limited: true, RetryAfter: "1"}, time.Minute},
		{catest.Manners{Limited: true, RetryAfter: "999999999"}, 24 * time.Hour},
		{catest.Manners{Limited: true, RetryAfter: "soon"}, time.Hour},
		{catest.Manners{Limited: true, RetryAfter: "Thu, 01 Jan 1970 00:00:00 GMT"}, time.Minute},
		{catest.Manners{Down: 503, RetryAfter: "600"}, 10 * time.Minute},
		{catest.Manners{Down: 429}, time.Hour},
	} {
		_, err := newStand(t, tc.manners).obtain(ca.HTTP01, "a.test")
		var w *ca.Wait
		if !errors.As(err, &w) || w.For != tc.want {
			t.Errorf("%+v: %v", tc.manners, err)
		}
	}
}

// Whatever a failing authority answers, the client uses little memory and time, and returns a short
// error.
func TestTroubleIsAnError(t *testing.T) {
	for _, m := range []catest.Manners{{Down: 500}, {Garbage: true}, {Endless: true}} {
		_, err := newStand(t, m).obtain(ca.HTTP01, "a.test")
		if err == nil || len(err.Error()) > 2000 {
			t.Errorf("%+v: %.100v", m, err)
		}
	}
}

func TestUnknownAccountIsTold(t *testing.T) {
	s := newStand(t, catest.Manners{})
	s.ForgetAccounts()
	if _, err := s.obtain(ca.HTTP01, "a.test"); !errors.Is(err, ca.ErrNoAccount) {
		t.Errorf("got %v", err)
	}
}

// The client stops waiting for a stuck order and continues it later; only one certificate is
// issued.
func TestStuckOrderIsTakenUpAgain(t *testing.T) {
	s := newStand(t, catest.Manners{Stuck: true})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	request := ca.Request{
		Names: []string{"a.test"}, Key: s.key, Kind: ca.HTTP01, Begun: func(url string) error { s.order = url; return nil },
		Publish: func(_ context.Context, all []ca.Challenge) error { s.shown[all[0].Token] = all[0].Answer; return nil },
	}
	if _, err := s.client.Obtain(ctx, request); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	s.Unstick()
	if _, err := s.obtain(ca.HTTP01, "a.test"); err != nil {
		t.Fatal(err)
	}
	if len(s.Orders()) != 1 || s.Issued() != 1 {
		t.Errorf("%d orders, %d certificates", len(s.Orders()), s.Issued())
	}
}

// An order that has failed, or is for other names, is not continued.
func TestDeadOrderIsLeft(t *testing.T) {
	s := newStand(t, catest.Manners{Refuses: map[string]string{"a.test": "no"}})
	if _, err := s.obtain(ca.HTTP01, "a.test"); err == nil {
		t.Fatal("no error")
	}
	s.Behave(func(m *catest.Manners) { m.Refuses = nil })
	for _, name := range []string{"a.test", "b.test"} {
		if _, err := s.obtain(ca.HTTP01, name); err != nil {
			t.Error(err)
		}
	}
	s.order = strings.Replace(s.order, "/order/", "/gone/", 1)
	if _, err := s.obtain(ca.HTTP01, "c.test"); err != nil {
		t.Error(err)
	}
	if n := len(s.Orders()); n != 4 {
		t.Errorf("%d orders", n)
	}
}

func TestPace(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := ca.NewRateLimiter(3, time.Minute, func() time.Time { return now })
	var waits []time.Duration
	for range 5 {
		waits = append(waits, p.Take())
	}
	now = now.Add(time.Minute)
	waits = append(waits, p.Take(), p.Take())
	now = now.Add(time.Hour)
	for range 4 {
		waits = append(waits, p.Take())
	}
	for i, want := range []time.Duration{0, 0, 0, time.Minute, time.Minute, 0, time.Minute, 0, 0, 0, time.Minute} {
		if waits[i] != want {
			t.Errorf("turn %d waits %s, want %s", i, waits[i], want)
		}
	}
}

// FuzzCheck: Check panics for no chain, and accepts none that is not for our key.
func FuzzCheck(f *testing.F) {
	stand := catest.New(f)
	f.Add(stand.Certificate().Raw, []byte{})
	f.Add([]byte{0x30, 0x80}, stand.Certificate().Raw)
	key := newKey(f)
	f.Fuzz(func(t *testing.T, leaf, issuer []byte) {
		if err := ca.Check([][]byte{leaf, issuer}, []string{"a.test"}, key.Public(), time.Now()); err == nil {
			t.Error("it passes")
		}
	})
}
