package handlers

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
)

// withTLS is an installation in production, with every port.
func withTLS(c *core.Config) {
	c.SubmissionPort, c.SMTPSecurity, c.SubmissionBeside = 465, "tls", 587
	c.IMAPPort, c.IMAPSecurity, c.IMAPBeside = 993, "tls", 143
	c.HTTPS, c.HTTPSPort = true, 443
}

// A visitor asks by the name of a host, without a token.
type visitor struct {
	t *testing.T
	s *Server
}

// status asks, and wants an answer of that status.
func (v visitor) status(want int, method, host, path string) *http.Response {
	v.t.Helper()
	r := httptest.NewRequestWithContext(v.t.Context(), method, "http://"+host+path, strings.NewReader(""))
	r.RemoteAddr = "198.51.100.7:1"
	w := httptest.NewRecorder()
	v.s.ServeHTTP(w, r)
	if w.Code != want {
		v.t.Errorf("%s %s%s: %d, want %d", method, host, path, w.Code, want)
	}
	return w.Result()
}

// A redirect of the domain leaves the documents and the challenges of certificate authorities
// alone.
func TestRedirectLeavesDiscoveryAlone(t *testing.T) {
	b := newSandbox(t, withTLS)
	b.post("/v1/domains/"+b.domain+"/redirect", `{"redirect_url":"https://else.test/"}`).is(200)
	v := visitor{t, b.server}
	v.status(301, "GET", "boxes.test", "/")
	v.status(301, "GET", "www.boxes.test", "/autodiscover/autodiscover.xml")
	v.status(301, "GET", "boxes.test", "/.well-known/mta-sts.txt")
	v.status(200, "GET", "boxes.test", "/.well-known/autoconfig/mail/config-v1.1.xml")
	v.status(200, "POST", "boxes.test", "/autodiscover/autodiscover.xml")
	v.status(200, "GET", "mta-sts.boxes.test", "/.well-known/mta-sts.txt")
}

func TestDiscoveryIsLimited(t *testing.T) {
	b := newSandbox(t, withTLS)
	v := visitor{t, b.server}
	now := time.Date(2030, 1, 1, 0, 0, 15, 0, time.UTC)
	b.server.now = func() time.Time { return now }
	for range autoconfigPerMinute {
		b.server.autoconfigRate.add("198.51.100.7", now)
	}
	if resp := v.status(429, "GET", "mta-sts.boxes.test", "/.well-known/mta-sts.txt"); resp.Header.Get("Retry-After") != "45" {
		t.Errorf("Retry-After %q", resp.Header.Get("Retry-After"))
	}
	now = now.Add(time.Minute)
	v.status(200, "GET", "mta-sts.boxes.test", "/.well-known/mta-sts.txt")
}
