package handlers

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/cputime"
)

// BenchmarkAPI is requests through the whole of HTTP, client included.
func BenchmarkAPI(b *testing.B) {
	s := newSandbox(b, nil)
	ann := "/v1/email-users/" + s.box("ann")
	for i := range 20 {
		s.box(fmt.Sprintf("u%d", i))
	}
	for i := range 2000 {
		s.Put(b, fmt.Sprintf("u%d@boxes.test", i%20), letter, mail{Warmup: i%2 == 0})
	}
	s.Put(b, "ann@boxes.test", letter, mail{})
	for _, c := range []struct{ name, method, path, body string }{
		{"get_email_user", "GET", ann, ""},
		{"get_message", "GET", ann + "/inbox/1", ""},
		{"list_inbox", "GET", "/v1/inbox", ""},        // 2 000 messages in 20 mailboxes
		{"list_inbox/plain", "GET", "/v1/inbox?", ""}, // not compressed
		{"list_inbox/filtered", "GET", "/v1/inbox?exclude_warmup=true&has_attachments=true&is_read=false", ""},
		{"list_inbox/search", "GET", "/v1/inbox?q=report&limit=100", ""},
		{"send_email", "POST", ann + "/inbox/send", `{"to":"x@far.test","subject":"Your berth","text":"It is berth 14."}`},
	} {
		b.Run(c.name, func(b *testing.B) { s.many(b, c.method, c.path, c.body) })
	}
}

// many sends a request again and again, side by side over connections that stay open.
func (c *client) many(b *testing.B, method, path, body string) {
	b.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: strings.HasSuffix(path, "?")}
	defer tr.CloseIdleConnections()
	b.ReportAllocs()
	report := cputime.Start(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := http.NewRequestWithContext(b.Context(), method, c.url+path, strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+c.token)
			r.Header.Set("Content-Type", "application/json")
			resp, err := tr.RoundTrip(r)
			if err != nil {
				b.Error(err)
				return
			}
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 {
				b.Errorf("status %d, %v: %s", resp.StatusCode, err, text)
			}
			resp.Body.Close()
		}
	})
	report()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
