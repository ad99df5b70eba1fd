package desec

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
	status     int
	body, link string
}

func (a always) RoundTrip(r *http.Request) (*http.Response, error) {
	body := a.body
	if strings.HasSuffix(r.URL.Path, "/domains/") {
		a.status, body = http.StatusOK, `[{"name":"a.test","minimum_ttl":3600}]`
	}
	return &http.Response{StatusCode: a.status, Header: http.Header{"Link": {a.link}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// FuzzAnswer reads any bytes as an answer with sets: nothing of it is ours, and errors have one
// line.
func FuzzAnswer(f *testing.F) {
	const next = `<https://desec.test/?cursor=>; rel="first", <https://desec.test/?cursor=a%3D1>; rel="next"`
	f.Add(200, next, `[{"subname":"A","type":"MX","ttl":1,"records":["10 M.test."]},{"subname":"","type":"TXT","records":["\"\\300\"","a ; b","("]}]`)
	f.Add(200, "", `[{"subname":"..","type":"TYPE1","records":["\\# 1 00"]},{"type":"HTTPS","records":["1 . alpn=h2"]}]`)
	f.Add(400, "", `[{},{"ttl":["too small\n"]},{"records":{"0":["bad"]}}]`)
	f.Add(404, "", `{"detail":"Not found."}`)
	f.Fuzz(func(t *testing.T, status int, link, body string) {
		c := New(Config{Token: "token", HTTP: &http.Client{Transport: always{status, body, link}}, Pause: 1})
		have, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: "a.test"})
		if err != nil {
			if text := err.Error(); len(text) > 2000 || strings.ContainsFunc(text, unicode.IsControl) {
				t.Fatalf("%q", text)
			}
		}
		for _, h := range have {
			if h.Purpose != "" || h.Name != "a.test" && !strings.HasSuffix(h.Name, ".a.test") || h.ID != "" && h.ID != h.Key() {
				t.Fatalf("%+v", h)
			}
		}
		_ = refusedItems([]byte(body))
	})
}
