package registrar

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/cloudflare"
)

// saying is a transport that gives every answer the same body.
type saying string

func (s saying) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(s)))}, nil
}

// FuzzCloudflareAnswers: after any answer, an offered name has a price, and a found domain has an
// expiry date.
func FuzzCloudflareAnswers(f *testing.F) {
	for _, seed := range []string{
		`{"success":true,"result":{"domains":[{"name":"a.com","registrable":true,"tier":"standard","pricing":{"currency":"USD","registration_cost":"10.44","renewal_cost":"10"}}]}}`,
		`{"success":true,"result":{"domain_name":"a.com","created_at":"2026-01-01T00:00:00Z","expires_at":"2027-01-01T00:00:00Z","auto_renew":true}}`,
		`{"success":true,"result":{"domain_name":"a.com","expires_at":null}}`, `{"success":true,"result":{"state":"failed","error":null}}`,
		`{"success":true,"result":{"domains":[{"name":"A.com","registrable":true,"pricing":{"currency":"USD","registration_cost":"1/3","renewal_cost":"1e9"}}]}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		shop := &Cloudflare{api: cloudflare.New(cloudflare.Config{
			BaseURL: "http://api.test", Token: "token", HTTP: &http.Client{Transport: saying(body)}, Pause: time.Nanosecond,
		})}
		offers, err := shop.Quote(t.Context(), []string{"a.com"})
		if err != nil {
			return
		}
		if o := offers[0]; o.Available && !o.Premium && (o.Err != nil || o.Price <= 0 || o.Renewal <= 0) {
			t.Fatalf("%+v", o)
		}
		if r, err := shop.Find(t.Context(), "a.com"); err == nil && (r.ExpiresAt.IsZero() || r.Domain != "a.com") {
			t.Fatalf("%+v", r)
		}
	})
}

func FuzzCentsOf(f *testing.F) {
	for _, seed := range []string{"10.44", "0", "", ".", "1.", "0.001", "99999999999999", "1/3", "1_0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, price string) {
		if got, err := parseCents(price); err == nil && (got <= 0 || got > 1<<40) {
			t.Fatalf("%q is %d", price, got)
		}
	})
}
