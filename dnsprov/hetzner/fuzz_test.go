package hetzner

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/mailstead/mailstead/dnsprov"
)

// always answers each request with the same body.
type always struct {
	status int
	body   string
}

func (a always) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/zones") {
		a = always{http.StatusOK, `{"zones":[{"id":1,"name":"a.test","ttl":3600,"mode":"primary"}]}`}
	}
	return &http.Response{StatusCode: a.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// FuzzAnswer reads any bytes as an answer with sets: nothing of it is ours, and errors have one
// line.
func FuzzAnswer(f *testing.F) {
	f.Add(200, `{"rrsets":[{"name":"@","type":"MX","ttl":null,"records":[{"value":"10 M"}]},{"name":"x","type":"TXT","ttl":60,"records":[{"value":"\"a\" ; x"}]}],"meta":{"pagination":{"next_page":2,"total_entries":4}}}`)
	f.Add(200, `{"rrsets":[{"name":"","type":"A","records":[{"value":"192.0.2.1"},{"value":"("}]}]}`)
	f.Add(422, `{"error":{"code":"invalid_input","message":"a\nb","details":{}}}`)
	f.Add(403, `{"error":{"code":"token_readonly"}}`)
	f.Add(200, `{"action":{"id":1,"status":"error","error":{"code":"x","message":"y"}}}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		c := New(Config{Token: "token", HTTP: &http.Client{Transport: always{status, body}}, Pause: 1})
		have, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: "a.test"})
		want := dnsprov.Record{Name: "a.test", Type: "TXT", Value: "x", TTL: 60, Purpose: dnsprov.PurposeCustom}
		var applied error
		if !strings.Contains(body, "running") { // it would be asked again and again
			_, applied = c.Apply(t.Context(), dnsprov.ZoneRef{Domain: "a.test"}, []dnsprov.Change{{Op: dnsprov.Create, Want: &want}})
		}
		for _, err := range []error{err, applied} {
			if err != nil && (len(err.Error()) > 3000 || strings.ContainsFunc(err.Error(), unicode.IsControl)) {
				t.Fatalf("%q", err)
			}
		}
		for _, h := range have {
			if h.Purpose != "" || h.Name != "a.test" && !strings.HasSuffix(h.Name, ".a.test") || h.ID != "" && h.ID != h.Key() {
				t.Fatalf("%+v", h)
			}
		}
	})
}
