package rdap_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/dnsprov/rdap/rdaptest"
)

// newClient returns a client that trusts the fake's servers.
func newClient(t *testing.T, f *rdaptest.Fake, change func(*rdap.Config)) *rdap.Client {
	t.Helper()
	c := rdap.Config{BootstrapURL: f.URL(), NoCopy: true, Log: slog.New(slog.DiscardHandler), HTTP: f.Client()}
	if change != nil {
		change(&c)
	}
	client := rdap.New(c)
	t.Cleanup(client.Close)
	return client
}

func TestDomain(t *testing.T) {
	f := rdaptest.Start(t, "com", "co.uk", "xn--p1ai")
	expires := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	d := rdaptest.Domain{Registrar: "Example Registrar, Inc.", IANAID: "1910", Nameservers: []string{"NS2.Example.Net", "ns1.example.net"}, ExpiresAt: expires}
	for _, name := range []string{"taken.com", "xn--bcher-kva.com", "taken.co.uk", "xn--e1afmkfd.xn--p1ai"} {
		f.Add(name, d)
	}
	c := newClient(t, f, nil)
	for _, manner := range []rdaptest.Manner{rdaptest.Good, rdaptest.Moved, rdaptest.Mixed} {
		f.Behave("com", manner)
		for _, name := range []string{"taken.com", "Taken.COM.", "xn--bcher-kva.com", "taken.co.uk", "xn--e1afmkfd.xn--p1ai"} {
			got, err := c.Domain(t.Context(), name)
			if err != nil {
				t.Errorf("%s: %s: %v", manner, name, err)
				continue
			}
			if got.Name != strings.ToLower(strings.TrimSuffix(name, ".")) || got.Registrar != d.Registrar || got.IANAID != "1910" ||
				!slices.Equal(got.Nameservers, []string{"ns1.example.net", "ns2.example.net"}) || !got.ExpiresAt.Equal(expires) || got.Status[0] != "active" {
				t.Errorf("%s: %s: %+v", manner, name, got)
			}
		}
		for _, name := range []string{"free.com", "other.co.uk"} {
			if got, err := c.Domain(t.Context(), name); !errors.Is(err, rdap.ErrNotFound) {
				t.Errorf("%s: %s: %+v, %v", manner, name, got, err)
			}
		}
	}
	for _, name := range []string{"taken.org", "taken.uk", "com.example"} {
		if _, err := c.Domain(t.Context(), name); !errors.Is(err, rdap.ErrNoServer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	asked := f.Asked("com")
	for _, name := range []string{"", "com", ".com", "a..com", "a b.com", "bücher.com", "../dns.json.com", "a/b.com", "a?b.com", "a%2f.com", strings.Repeat("a.", 130) + "com"} {
		if _, err := c.Domain(t.Context(), name); err == nil || errors.Is(err, rdap.ErrNotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if f.Asked("com") != asked {
		t.Error("names that are none were asked for")
	}
	if n := f.Asked(rdaptest.Bootstrap); n != 1 {
		t.Errorf("the list was fetched %d times", n)
	}
}

// TestBadManners: no bad answer is taken for one that says whether a domain exists.
func TestBadManners(t *testing.T) {
	t.Parallel()
	manners := []rdaptest.Manner{
		rdaptest.Broken, rdaptest.Busy, rdaptest.Garbage, rdaptest.Page, rdaptest.LostPage, rdaptest.OtherName, rdaptest.OtherClass,
		rdaptest.Nameless, rdaptest.Endless, rdaptest.Loop, rdaptest.Downgrade, rdaptest.Hangup, rdaptest.Slow, rdaptest.Drip,
	}
	endings := make([]string, len(manners))
	for i := range manners {
		endings[i] = fmt.Sprintf("m%d", i)
	}
	f := rdaptest.Start(t, append(endings, "com")...)
	f.Add("taken.com", rdaptest.Domain{Registrar: "R"})
	c := newClient(t, f, nil)
	for i, manner := range manners {
		f.Behave(endings[i], manner)
		f.Add("taken."+endings[i], rdaptest.Domain{Registrar: "R"})
	}
	began := time.Now()
	var wg sync.WaitGroup
	for i, manner := range manners {
		wg.Go(func() {
			d, err := c.Domain(t.Context(), "taken."+endings[i])
			if err == nil || errors.Is(err, rdap.ErrNotFound) || errors.Is(err, rdap.ErrNoServer) {
				t.Errorf("%s: %+v, %v", manner, d, err)
			}
			if n := f.Asked(endings[i]); n > 4 {
				t.Errorf("%s: asked %d times", manner, n)
			}
		})
	}
	wg.Wait()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("bad manners held it up for %s", took)
	}
	if _, err := c.Domain(t.Context(), "taken.com"); err != nil {
		t.Errorf("a good neighbour: %v", err)
	}
}

func TestServerThatFailsIsLeftAlone(t *testing.T) {
	f := rdaptest.Start(t, "com", "net")
	now := time.Now()
	var mu sync.Mutex
	later := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	c := newClient(t, f, func(c *rdap.Config) {
		c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	ask := func(name string) error { _, err := c.Domain(t.Context(), name); return err }
	f.Behave("com", rdaptest.Broken)
	for range 10 {
		if ask("a.com") == nil {
			t.Fatal("a broken server has answered")
		}
	}
	if n := f.Asked("com"); n != 3 {
		t.Errorf("a broken server was asked %d times", n)
	}
	f.Behave("com", rdaptest.Good)
	if err := ask("a.com"); !errors.Is(err, rdap.ErrBusy) {
		t.Errorf("it is not left alone: %v", err)
	}
	if err := ask("a.net"); !errors.Is(err, rdap.ErrNotFound) {
		t.Errorf("its neighbour suffers: %v", err)
	}
	later(31 * time.Second)
	if err := ask("a.com"); !errors.Is(err, rdap.ErrNotFound) {
		t.Errorf("it is not asked again: %v", err)
	}

	f.RetryAfter = "120"
	f.Behave("com", rdaptest.Busy)
	if err := ask("a.com"); !errors.Is(err, rdap.ErrBusy) {
		t.Errorf("429: %v", err)
	}
	f.Behave("com", rdaptest.Good)
	asked := f.Asked("com")
	later(119 * time.Second)
	if err := ask("a.com"); !errors.Is(err, rdap.ErrBusy) || f.Asked("com") != asked {
		t.Errorf("Retry-After is not kept to: %v", err)
	}
	later(2 * time.Second)
	if err := ask("a.com"); !errors.Is(err, rdap.ErrNotFound) {
		t.Errorf("after the pause: %v", err)
	}
}

// TestHangingUpIsNotTheServersFault: queries that their callers cancelled do not pause a server for
// others.
func TestHangingUpIsNotTheServersFault(t *testing.T) {
	f := rdaptest.Start(t, "com")
	c := newClient(t, f, nil)
	_, _ = c.Domain(t.Context(), "first.com")
	f.Behave("com", rdaptest.Slow)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := c.Domain(ctx, "a.com"); err == nil || ctx.Err() == nil {
			t.Errorf("given up: %v", err)
		}
		cancel()
	}
	f.Behave("com", rdaptest.Good)
	if _, err := c.Domain(t.Context(), "a.com"); !errors.Is(err, rdap.ErrNotFound) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestPaceOfManyQuestions(t *testing.T) {
	t.Parallel()
	f := rdaptest.Start(t, "com")
	c := newClient(t, f, nil)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			if _, err := c.Domain(t.Context(), fmt.Sprintf("n%d.com", i)); !errors.Is(err, rdap.ErrNotFound) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := f.Peak("com"); n > 32 {
		t.Errorf("%d questions within a second", n)
	}
}

func TestBootstrap(t *testing.T) {
	t.Parallel()
	f := rdaptest.Start(t, "com")
	f.Add("taken.com", rdaptest.Domain{Registrar: "R"})
	var mu sync.Mutex
	now := time.Now()
	c := newClient(t, f, func(c *rdap.Config) {
		c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	later := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	for _, manner := range []rdaptest.Manner{rdaptest.Broken, rdaptest.Garbage, rdaptest.Page, rdaptest.Loop, rdaptest.Endless, rdaptest.Hangup} {
		f.Behave(rdaptest.Bootstrap, manner)
		before := f.Asked(rdaptest.Bootstrap)
		for range 3 {
			if _, err := c.Domain(t.Context(), "taken.com"); err == nil || errors.Is(err, rdap.ErrNotFound) || errors.Is(err, rdap.ErrNoServer) {
				t.Errorf("%s: %v", manner, err)
			}
		}
		if n := f.Asked(rdaptest.Bootstrap) - before; n == 0 || n > 4 {
			t.Errorf("%s: the list was asked for %d times", manner, n)
		}
		later(6 * time.Minute)
	}
	f.Behave(rdaptest.Bootstrap, rdaptest.Good)
	if _, err := c.Domain(t.Context(), "taken.com"); err != nil {
		t.Fatal(err)
	}
	asked := f.Asked(rdaptest.Bootstrap)
	f.Behave(rdaptest.Bootstrap, rdaptest.Garbage)
	later(25 * time.Hour)
	if _, err := c.Domain(t.Context(), "taken.com"); err != nil || f.Asked(rdaptest.Bootstrap) != asked+1 {
		t.Errorf("an old list is not kept over a failure: %v, asked %d times", err, f.Asked(rdaptest.Bootstrap)-asked)
	}
}

// TestBuiltInCopyStandsIn checks which server the built-in copy names, without a query.
func TestBuiltInCopyStandsIn(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	world := roundTrip(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.String())
		w := httptest.NewRecorder()
		if r.URL.Host == "data.iana.org" {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			w.Header().Set("Content-Type", "application/rdap+json")
			_, _ = io.WriteString(w, `{"objectClassName":"domain","ldhName":"EXAMPLE.COM"}`)
		}
		resp := w.Result()
		resp.Request = r
		return resp, nil
	})
	c := rdap.New(rdap.Config{HTTP: &http.Client{Transport: world}, Log: slog.New(slog.DiscardHandler)})
	d, err := c.Domain(t.Context(), "example.com")
	if err != nil || d.Registrar != "" || d.IANAID != "" || len(d.Nameservers) != 0 || !d.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", d, err)
	}
	if want := []string{rdap.IANABootstrap, "https://rdap.verisign.com/com/v1/domain/example.com"}; !slices.Equal(asked, want) {
		t.Errorf("asked %s", asked)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
