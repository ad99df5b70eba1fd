package cloudflare_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/cloudflare"
	"github.com/mailstead/mailstead/dnsprov/cloudflare/cloudflaretest"
)

func TestTokens(t *testing.T) {
	const secret = "s3cret-token-0123456789"
	for _, tc := range []struct {
		name    string
		token   *cloudflaretest.Token // nil: not known
		check   error
		records error
		apply   error
		says    string // what the last error names
	}{
		{"all rights", &cloudflaretest.Token{Rights: cloudflaretest.DNS}, nil, nil, nil, ""},
		{"of an account", &cloudflaretest.Token{Rights: cloudflaretest.DNS, Account: true}, nil, nil, nil, ""},
		{"unknown", nil, dnsprov.ErrCredential, dnsprov.ErrCredential, dnsprov.ErrCredential, "Invalid"},
		{"expired", &cloudflaretest.Token{Rights: cloudflaretest.DNS, Status: "expired"}, dnsprov.ErrCredential, dnsprov.ErrCredential, dnsprov.ErrCredential, "Invalid"},
		{"disabled", &cloudflaretest.Token{Rights: cloudflaretest.DNS, Status: "disabled"}, dnsprov.ErrCredential, dnsprov.ErrCredential, dnsprov.ErrCredential, "Invalid"},
		{"no rights", &cloudflaretest.Token{}, dnsprov.ErrCredential, dnsprov.ErrCredential, dnsprov.ErrCredential, "Zone: Zone: Read"},
		{"zones only", &cloudflaretest.Token{Rights: cloudflaretest.ReadZones}, nil, dnsprov.ErrCredential, dnsprov.ErrCredential, "Zone: DNS: Edit"},
		{"reads only", &cloudflaretest.Token{Rights: cloudflaretest.ReadZones | cloudflaretest.ReadRecords}, nil, nil, dnsprov.ErrCredential, "Zone: DNS: Edit"},
		{"another zone", &cloudflaretest.Token{Rights: cloudflaretest.DNS, Zones: []string{"other.test"}}, nil, dnsprov.ErrZoneNotFound, dnsprov.ErrZoneNotFound, "Zone: Zone: Read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api := cloudflaretest.New()
			api.AddZone(testDomain, "")
			if tc.token != nil {
				api.AddToken(secret, *tc.token)
			}
			c := inside(api, secret)
			_, records := c.Records(t.Context(), place)
			_, apply := c.Apply(t.Context(), place, dnsprov.Plan(nil, wanted()[:2]))
			last := error(nil)
			for i, got := range []error{c.Check(t.Context()), records, apply} {
				if want := []error{tc.check, tc.records, tc.apply}[i]; !errors.Is(got, want) || want == nil && got != nil {
					t.Errorf("step %d: %v, want %v", i, got, want)
				}
				if got != nil {
					last = got
				}
				if got != nil && strings.Contains(got.Error(), secret) {
					t.Errorf("the token is in %q", got)
				}
			}
			if last != nil && !strings.Contains(last.Error(), tc.says) {
				t.Errorf("%q does not name %q", last, tc.says)
			}
		})
	}
}

func TestWhatCannotBeATokenIsNotSent(t *testing.T) {
	api := cloudflaretest.New()
	for _, token := range []string{"", "two words", "line\nbreak", "ünïcode", strings.Repeat("a", 1000)} {
		if err := inside(api, token).Check(t.Context()); !errors.Is(err, dnsprov.ErrCredential) {
			t.Errorf("%.20q: %v", token, err)
		}
	}
	if n := len(api.Calls()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestZone(t *testing.T) {
	api := cloudflaretest.New()
	api.AddToken(testToken, cloudflaretest.Token{Rights: cloudflaretest.DNS})
	api.AddZone("example.com", "moved")
	api.AddZone("example.com", "pending")
	active := api.AddZone("example.com", "active")
	api.AddZone("deep.example.com", "pending")
	c := inside(api, testToken)
	for domain, want := range map[string]string{"example.com": "example.com", "a.b.example.com": "example.com", "x.deep.example.com": "deep.example.com"} {
		if z, err := c.Zone(t.Context(), domain); err != nil || z.Name != want {
			t.Errorf("%s: %+v, %v", domain, z, err)
		}
	}
	if z, err := c.Zone(t.Context(), "example.com"); err != nil || z.ID != active || z.Status != cloudflare.Active {
		t.Errorf("of several the active one: %+v, %v", z, err)
	}
	if z, err := c.Zone(t.Context(), "deep.example.com"); err != nil || z.Status != "pending" || len(z.Nameservers) != 2 {
		t.Errorf("a pending zone: %+v, %v", z, err)
	}
	if _, err := c.Zone(t.Context(), "example.org"); !errors.Is(err, dnsprov.ErrZoneNotFound) {
		t.Errorf("a domain of nobody: %v", err)
	}
}

func TestTooManyRequests(t *testing.T) {
	for _, tc := range []struct {
		name   string
		after  time.Duration // Retry-After
		times  int
		within time.Duration // the caller's patience
		took   time.Duration
		wait   time.Duration // in the error; 0: there is none
	}{
		{"a short one is waited for", 4 * time.Second, 1, time.Minute, 4 * time.Second, 0},
		{"twice", 4 * time.Second, 2, time.Minute, 8 * time.Second, 0},
		{"again and again", 4 * time.Second, 9, time.Minute, 8 * time.Second, 4 * time.Second},
		{"a long one is the caller's", 90 * time.Second, 1, time.Minute, 0, 90 * time.Second},
		{"longer than the caller has", 4 * time.Second, 1, 3 * time.Second, 0, 4 * time.Second},
		{"it does not say", 0, 1, time.Minute, 0, 5 * time.Minute},
		{"for ever", 1e6 * time.Second, 1, time.Minute, 0, time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, c := start()
				api.Fail(cloudflaretest.Fault{Kind: cloudflaretest.TooMany, Method: http.MethodPost, Times: tc.times, After: tc.after})
				ctx, cancel := context.WithTimeout(t.Context(), tc.within)
				defer cancel()
				began := time.Now()
				_, err := c.Apply(ctx, place, dnsprov.Plan(nil, wanted()))
				if took := time.Since(began); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				var wait *dnsprov.Wait
				if errors.As(err, &wait) != (tc.wait > 0) || wait != nil && wait.For != tc.wait || wait == nil && err != nil {
					t.Errorf("%v", err)
				}
				if there := len(api.Records(testDomain)); (there == len(wanted())) != (err == nil) {
					t.Errorf("%d records are there", there)
				}
			})
		})
	}
}

// TestOnlyWhatMayBeRepeatedIs: a read is tried three times, a batch only once, whatever the
// failure.
func TestOnlyWhatMayBeRepeatedIs(t *testing.T) {
	for _, kind := range []string{
		cloudflaretest.Broken, cloudflaretest.Garbage, cloudflaretest.Empty, cloudflaretest.Endless, cloudflaretest.Cut, cloudflaretest.CutAfter,
		cloudflaretest.HalfDone, cloudflaretest.Elsewhere, cloudflaretest.Hang,
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, c := start()
				api.Fail(cloudflaretest.Fault{Kind: kind, Path: "dns_records", Times: 100})
				_, err := c.Records(t.Context(), place)
				if err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), testToken) {
					t.Errorf("reading: %v", err)
				}
				if n := api.Count(http.MethodGet, "dns_records"); n != 3 {
					t.Errorf("%d readings", n)
				}
				if _, err := c.Apply(t.Context(), place, dnsprov.Plan(nil, wanted())); err == nil {
					t.Error("the batch succeeded")
				}
				if n := api.Count(http.MethodPost, ""); n != 1 {
					t.Errorf("%d batches", n)
				}
				api.Heal()
				if _, err := bring(t, c, wanted()); err != nil {
					t.Error(err)
				}
				settled(t, c, wanted())
			})
		})
	}
}

func TestTheCallersEndIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, c := start()
		api.Fail(cloudflaretest.Fault{Kind: cloudflaretest.Hang, Times: 100})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if _, err := c.Records(ctx, place); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestTheTokenGoesNowhereElse: redirects are not followed, and the token is removed from error
// texts of the API.
func TestTheTokenGoesNowhereElse(t *testing.T) {
	seen := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen++ }))
	defer other.Close()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return
		}
		w.WriteHeader(map[string]int{http.MethodDelete: http.StatusBadRequest, http.MethodPost: http.StatusInternalServerError}[r.Method])
		_, _ = w.Write([]byte(`{"success":false,"errors":[{"code":6003,"message":"bad token ` + r.Header.Get("Authorization") + `"}],"messages":[],"result":null}`))
	}))
	defer api.Close()
	c := cloudflare.New(cloudflare.Config{BaseURL: api.URL, Token: testToken, Pause: time.Microsecond})
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPost} {
		_, err := c.Call(t.Context(), cloudflare.Request{Method: method, Path: "/zones", Repeat: true}, nil)
		if err == nil || strings.Contains(err.Error(), testToken) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if seen != 0 {
		t.Error("the redirect was followed")
	}
	c = cloudflare.New(cloudflare.Config{BaseURL: "http://user:pass@127.0.0.1:1/x", Token: testToken, Pause: time.Microsecond})
	if err := c.Check(t.Context()); err == nil || strings.Contains(err.Error(), "pass") || strings.Contains(err.Error(), testToken) {
		t.Errorf("nobody answers: %v", err)
	}
}
