package handlers

import (
	"fmt"
	"io"
	"net/http"
	"testing"
)

// load sends GETs of the path side by side over connections that stay open.
func (c *client) load(b *testing.B, path string) {
	b.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	defer tr.CloseIdleConnections()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := http.NewRequestWithContext(b.Context(), "GET", c.url+path, nil)
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+c.token)
			resp, err := tr.RoundTrip(r)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
				b.Errorf("status %d, %v", resp.StatusCode, err)
			}
			resp.Body.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// BenchmarkGetEmailUser is one authenticated GET through the whole of HTTP, client included.
func BenchmarkGetEmailUser(b *testing.B) {
	s := newSandbox(b, nil)
	path := "/v1/email-users/" + s.box("ann")
	b.ResetTimer()
	s.load(b, path)
}

// BenchmarkListInbox is a page of the account's inbox, 2 000 messages in 20 mailboxes.
func BenchmarkListInbox(b *testing.B) {
	s := newSandbox(b, nil)
	for i := range 20 {
		s.box(fmt.Sprintf("u%d", i))
	}
	for i := range 2000 {
		s.Put(b, fmt.Sprintf("u%d@boxes.test", i%20), letter, mail{Warmup: i%2 == 0})
	}
	for name, query := range map[string]string{"newest": "", "filtered": "?exclude_warmup=true&has_attachments=true&is_read=false", "search": "?q=report&limit=100"} {
		b.Run(name, func(b *testing.B) { s.load(b, "/v1/inbox"+query) })
	}
}
