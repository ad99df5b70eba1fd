package registrar_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov/cloudflare/cloudflaretest"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/dnsprov/registrar/registrartest"
)

const cloudflareToken = "token-that-may-buy"

func cloudflareShop() (*cloudflaretest.Server, *registrar.Cloudflare) {
	api := cloudflaretest.New()
	api.AddToken(cloudflareToken, cloudflaretest.Token{Rights: cloudflaretest.All})
	return api, registrar.NewCloudflare(registrar.CloudflareConfig{
		BaseURL: "http://api.test/client/v4", AccountID: cloudflaretest.AccountID, Token: cloudflareToken, HTTP: api.HTTP(),
	})
}

func TestCloudflare(t *testing.T) {
	api, shop := cloudflareShop()
	registrartest.Run(t, shop, registrartest.Names{
		Free: []string{"alpha.com", "beta.dev", "gamma.app", "delta.org"}, Taken: "taken-name.com", Premium: "premium-name.com", NotSold: "alpha.shop",
		Cut: func(taken bool) {
			kind := cloudflaretest.Cut
			if taken {
				kind = cloudflaretest.CutAfter
			}
			api.Fail(cloudflaretest.Fault{Kind: kind, Method: http.MethodPost, Path: "/registrations"})
		},
		Paid: func(name string) int {
			n := 0
			for _, p := range api.Purchases() {
				if p.Domain == name {
					n++
				}
			}
			return n
		},
	})
}

func order(domain string) registrar.Order {
	return registrar.Order{Key: "k", Domain: domain, Years: 1, MaxPrice: 5000}
}

func TestCloudflareTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, shop := cloudflareShop()
		api.Polls = 4
		r, err := shop.Register(t.Context(), order("alpha.com"))
		if err != nil || r.Domain != "alpha.com" || r.ExpiresAt.Before(r.RegisteredAt) {
			t.Fatalf("%+v, %v", r, err)
		}
		if err := shop.SetAutoRenew(t.Context(), "alpha.com", true); err != nil {
			t.Error(err)
		}
		if r, err := shop.Find(t.Context(), "alpha.com"); err != nil || !r.AutoRenew {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestCloudflareOrderInDoubt: while an order is in progress, Find reports neither a domain nor
// ErrNotFound, and a second order is refused.
func TestCloudflareOrderInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, shop := cloudflareShop()
		api.Polls = 1000
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := shop.Register(ctx, order("alpha.com")); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, registrar.ErrNotNow) {
			t.Errorf("an order without an end: %v", err)
		}
		if _, err := shop.Find(t.Context(), "alpha.com"); err == nil || errors.Is(err, registrar.ErrNotFound) {
			t.Errorf("found: %v", err)
		}
		if _, err := shop.Register(t.Context(), order("alpha.com")); !errors.Is(err, registrar.ErrTaken) {
			t.Errorf("ordered again: %v", err)
		}
	})
}

func TestCloudflareWaitsForTheOwner(t *testing.T) {
	api, shop := cloudflareShop()
	api.Stuck = true
	_, err := shop.Register(t.Context(), order("alpha.com"))
	if err == nil || errors.Is(err, registrar.ErrNotNow) || !strings.Contains(err.Error(), "confirm_email") {
		t.Errorf("%v", err)
	}
	if _, err := shop.Find(t.Context(), "alpha.com"); err == nil || errors.Is(err, registrar.ErrNotFound) {
		t.Errorf("found: %v", err)
	}
}

func TestCloudflareRefusals(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*cloudflaretest.Server)
		want   error
	}{
		{"no payment method", func(s *cloudflaretest.Server) { s.NoBilling = true }, registrar.ErrNoFunds},
		{"the registry says no", func(s *cloudflaretest.Server) { s.FailPurchases = "registry_rejected" }, registrar.ErrBadDomain},
		{"a token that may not buy", func(s *cloudflaretest.Server) {
			s.AddToken(cloudflareToken, cloudflaretest.Token{Rights: cloudflaretest.ReadDomains})
		}, registrar.ErrNotNow},
		{"a token without rights", func(s *cloudflaretest.Server) { s.AddToken(cloudflareToken, cloudflaretest.Token{}) }, registrar.ErrNotNow},
		{"too many orders", func(s *cloudflaretest.Server) {
			s.Fail(cloudflaretest.Fault{Kind: cloudflaretest.TooMany, Method: http.MethodPost, Path: "/registrations", After: time.Hour, Times: 9})
		}, registrar.ErrNotNow},
		{"a price that is none", func(s *cloudflaretest.Server) { s.Prices["com"] = [2]string{"1e9", "1"} }, registrar.ErrNotNow},
		{"no price", func(s *cloudflaretest.Server) { s.Prices["com"] = [2]string{"", "1"} }, registrar.ErrNotNow},
		{"a price in parts of a cent", func(s *cloudflaretest.Server) { s.Prices["com"] = [2]string{"50.001", "1"} }, registrar.ErrPrice},
		{"a free name", func(s *cloudflaretest.Server) { s.Prices["com"] = [2]string{"0", "1"} }, registrar.ErrNotNow},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api, shop := cloudflareShop()
			tc.change(api)
			r, err := shop.Register(t.Context(), order("alpha.com"))
			if !errors.Is(err, tc.want) || strings.Contains(err.Error(), cloudflareToken) {
				t.Errorf("%+v, %v; want %v", r, err, tc.want)
			}
			if n := len(api.Purchases()); n != 0 {
				t.Errorf("%d purchases", n)
			}
		})
	}
}

// TestCloudflareKnowsItsAccount: with a wrong account, no answer means that a domain does not
// exist.
func TestCloudflareKnowsItsAccount(t *testing.T) {
	api, _ := cloudflareShop()
	for _, account := range []string{"another", "../zones", ""} {
		shop := registrar.NewCloudflare(registrar.CloudflareConfig{BaseURL: "http://api.test/client/v4", AccountID: account, Token: cloudflareToken, HTTP: api.HTTP()})
		if _, err := shop.Find(t.Context(), "alpha.com"); err == nil || errors.Is(err, registrar.ErrNotFound) {
			t.Errorf("%q: %v", account, err)
		}
	}
}

func TestCloudflareQuotesInParts(t *testing.T) {
	api, shop := cloudflareShop()
	var names []string
	for _, label := range strings.Split("a b c d e f g h i j k l m n o p q r s t u v w x y z", " ") {
		names = append(names, label+label+".com", "bad_"+label+".com")
	}
	offers, err := shop.Quote(t.Context(), names)
	if err != nil || len(offers) != len(names) {
		t.Fatalf("%d offers, %v", len(offers), err)
	}
	for i, o := range offers {
		if bad := i%2 == 1; o.Domain != names[i] || errors.Is(o.Err, registrar.ErrBadDomain) != bad || o.Available == bad {
			t.Errorf("%+v", o)
		}
	}
	if n := api.Count(http.MethodPost, "domain-check"); n != 3 {
		t.Errorf("%d checks", n)
	}
	if offers, err := shop.Quote(t.Context(), []string{"alpha.link"}); err != nil || !errors.Is(offers[0].Err, registrar.ErrNotSold) {
		t.Errorf("an ending that the API does not sell: %+v, %v", offers, err)
	}
}
