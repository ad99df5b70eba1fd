package handlers

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/service/core"
)

func trusting(networks ...string) *Proxies {
	var all []netip.Prefix
	for _, n := range networks {
		all = append(all, netip.MustParsePrefix(n))
	}
	return NewProxies(all, slog.New(slog.DiscardHandler))
}

// TestWhoAsksBehindProxies: the last hop that no trusted proxy is, told by trusted proxies alone.
func TestWhoAsksBehindProxies(t *testing.T) {
	p := trusting("192.0.2.1/32", "10.0.0.0/8", "2001:db8::1/128")
	for _, tc := range []struct {
		peer      string
		forwarded []string
		proto     []string
		want      requestClient
	}{
		{"192.0.2.1:5", []string{"198.51.100.7"}, []string{"https"}, requestClient{"198.51.100.7", true}},
		{"192.0.2.2:5", []string{"198.51.100.7"}, []string{"https"}, requestClient{"192.0.2.2", false}},                  // a stranger
		{"[::ffff:192.0.2.1]:5", []string{"198.51.100.7"}, []string{"HTTPS"}, requestClient{"198.51.100.7", true}},       // the proxy on a socket for both
		{"192.0.2.1:5", []string{"203.0.113.9, 198.51.100.7"}, []string{"https"}, requestClient{"198.51.100.7", true}},   // made up by the client
		{"192.0.2.1:5", []string{"203.0.113.9", "198.51.100.7"}, []string{"https"}, requestClient{"198.51.100.7", true}}, // the same in two fields
		{"192.0.2.1:5", []string{"198.51.100.7, 10.1.2.3", "10.9.9.9"}, nil, requestClient{"198.51.100.7", false}},       // three proxies in a row
		{"192.0.2.1:5", []string{"10.4.4.4, 10.1.2.3"}, nil, requestClient{"10.4.4.4", false}},                           // from within
		{"192.0.2.1:5", nil, nil, requestClient{"192.0.2.1", false}},                                                     // the proxy itself
		{"192.0.2.1:5", []string{"", " , ,"}, []string{""}, requestClient{"192.0.2.1", false}},
		{"192.0.2.1:5", []string{"198.51.100.7:4711"}, []string{"http"}, requestClient{"198.51.100.7", false}},
		{"192.0.2.1:5", []string{"[2001:db8:1::7]:4711"}, []string{"https"}, requestClient{"2001:db8:1::7", true}},
		{"192.0.2.1:5", []string{"[2001:db8:1::7]"}, []string{"https"}, requestClient{"2001:db8:1::7", true}},
		{"[2001:db8::1]:5", []string{"2001:DB8:1::7"}, []string{"https"}, requestClient{"2001:db8:1::7", true}},
		{"[2001:db8::1%eth0]:5", []string{"fe80::7%eth1"}, nil, requestClient{"fe80::7", false}},
		{"192.0.2.1:5", []string{"::ffff:198.51.100.7"}, []string{"https"}, requestClient{"198.51.100.7", true}},
		{"192.0.2.1:5", []string{"::ffff:10.0.0.1, 198.51.100.7, ::ffff:10.0.0.1"}, nil, requestClient{"198.51.100.7", false}}, // a proxy that writes so
		{"192.0.2.1:5", []string{"198.51.100.7, unknown"}, []string{"https"}, requestClient{"192.0.2.1", true}},                // no address: the one who says so
		{"192.0.2.1:5", []string{"198.51.100.7, unix:, 10.0.0.2"}, nil, requestClient{"10.0.0.2", false}},
		{"192.0.2.1:5", []string{"198.51.100.7, 999.1.1.1"}, nil, requestClient{"192.0.2.1", false}},
		{"192.0.2.1:5", []string{"198.51.100.7, [::1"}, nil, requestClient{"192.0.2.1", false}},
		{"192.0.2.1:5", []string{"198.51.100.7"}, []string{"https", "http"}, requestClient{"198.51.100.7", false}}, // made up by the client
		{"192.0.2.1:5", []string{"198.51.100.7"}, []string{"https, http"}, requestClient{"198.51.100.7", false}},
		{"192.0.2.1:5", []string{"198.51.100.7"}, []string{"http,https "}, requestClient{"198.51.100.7", true}},
		{"192.0.2.1:5", []string{"198.51.100.7"}, []string{"httpss"}, requestClient{"198.51.100.7", false}},
		{"@", []string{"198.51.100.7"}, []string{"https"}, requestClient{"", false}}, // a socket in the file system
		{"", []string{"198.51.100.7"}, []string{"https"}, requestClient{"", false}},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tc.peer
		r.Header = http.Header{"X-Forwarded-For": tc.forwarded, "X-Forwarded-Proto": tc.proto, "X-Forwarded-Host": {"evil.test"}, "Forwarded": {"for=203.0.113.1;proto=https"}}
		if tc.proto == nil {
			delete(r.Header, "X-Forwarded-Proto")
		}
		out, leave, ok := p.admit(r)
		if !ok {
			t.Fatalf("%s %q: refused", tc.peer, tc.forwarded)
		}
		leave()
		if got := clientOf(out); got != tc.want || out.Host != "example.com" {
			t.Errorf("%s %q %q: %+v, want %+v; host %s", tc.peer, tc.forwarded, tc.proto, got, tc.want, out.Host)
		}
		out, _, _ = (*Proxies)(nil).admit(r)
		if out != r {
			t.Errorf("%s is believed although no proxy is", tc.peer)
		}
	}
}

// TestSignInThroughProxy: what a trusted proxy says of TLS counts for cookies, HSTS and the way to
// HTTPS, and the client's address for everything that goes by addresses.
func TestSignInThroughProxy(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.Sandbox, c.BaseURL = false, "https://mail.example.test" })
	b.server.Web = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("page")) })
	login := map[string]string{"email": "owner@example.test", "password": "correct horse"}
	by := func(ip, proto string) []string { return []string{"X-Forwarded-For", ip, "X-Forwarded-Proto", proto} }

	b.browser().ask("POST", "/session", login, by("198.51.100.7", "https")...).fails(403, "https_required") // nobody is trusted yet
	b.server.Proxies = trusting("127.0.0.1/32")
	b.browser().ask("POST", "/session", login, by("198.51.100.7", "http")...).fails(403, "https_required")

	web := b.browser()
	set := web.ask("POST", "/session", login, by("203.0.113.1, 198.51.100.7", "https")...).is(200).header.Get("Set-Cookie")
	if !strings.HasPrefix(set, "__Host-mailstead=mst_") || !strings.Contains(set, "; Secure") {
		t.Errorf("the cookie is %q", set)
	}
	web.ask("GET", "/session", nil).fails(401, "unauthorized") // in the clear the cookie does not count
	web.ask("GET", "/session/list", nil, by("198.51.100.8", "https")...).is(200).has("count", "1", "data.0.ip", "198.51.100.7")
	b.do("GET", "/v1/account", nil, by("198.51.100.9", "https")...).is(200)
	b.FlushUses(t)
	b.get("/v1/auth/tokens").has("data.0.last_used_ip", "198.51.100.9")

	page := func(proto string) *http.Response {
		t.Helper()
		r := httptest.NewRequest("GET", "http://mail.example.test/inbox", nil)
		r.RemoteAddr = "127.0.0.1:9"
		r.Header.Set("X-Forwarded-Proto", proto)
		w := httptest.NewRecorder()
		b.server.ServeHTTP(w, r)
		return w.Result()
	}
	if got := page("http"); got.StatusCode != 307 || got.Header.Get("Location") != "https://mail.example.test/inbox" {
		t.Errorf("in the clear: %d, to %q", got.StatusCode, got.Header.Get("Location"))
	}
	if got := page("https"); got.StatusCode != 200 || got.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("by HTTPS: %d %v", got.StatusCode, got.Header)
	}
}

// TestGuessersBehindProxyAreCountedByThemselves: one who shows bad tokens shuts out nobody else,
// and cannot pass for others.
func TestGuessersBehindProxyAreCountedByThemselves(t *testing.T) {
	b := newSandbox(t, nil)
	b.server.Proxies = trusting("127.0.0.1/32")
	from := func(c *client, ip string) *reply {
		t.Helper()
		return c.do("GET", "/v1/account", nil, "X-Forwarded-For", ip)
	}
	for range badTokensPerMinute + 1 {
		b.server.badTokens.count("198.51.100.7", b.server.now())
	}
	for range 3 {
		if r := from(b.client, "198.51.100.7"); r.status == 429 {
			from(b.client, "198.51.100.8").is(200)
			from(b.client, "198.51.100.8, 198.51.100.7").fails(429, "rate_limited")
			b.get("/v1/account").is(200)
			return
		}
		for range badTokensPerMinute + 1 { // the minute was over
			b.server.badTokens.count("198.51.100.7", b.server.now())
		}
	}
	t.Error("a guesser is never refused")
}

// TestOneClientCannotTakeAllOfAProxy: it has a bounded number of requests under way.
func TestOneClientCannotTakeAllOfAProxy(t *testing.T) {
	b := newSandbox(t, nil)
	b.server.Proxies = trusting("127.0.0.1/32")
	var inside, done sync.WaitGroup
	release := make(chan struct{})
	inside.Add(maxRequestsPerClient)
	b.server.Web = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Done(); <-release })
	ask := func(ip string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/page", nil)
		r.RemoteAddr = "127.0.0.1:9"
		r.Header.Set("X-Forwarded-For", ip)
		w := httptest.NewRecorder()
		b.server.ServeHTTP(w, r)
		return w
	}
	for range maxRequestsPerClient {
		done.Go(func() { ask("198.51.100.7") })
	}
	inside.Wait()
	if got := ask("198.51.100.7"); got.Code != 503 || got.Header().Get("Retry-After") == "" {
		t.Errorf("one more: %d", got.Code)
	}
	inside.Add(1)
	done.Go(func() { ask("198.51.100.8") })
	inside.Wait()
	close(release)
	done.Wait()
	inside.Add(1)
	if got := ask("198.51.100.7"); got.Code != 200 {
		t.Errorf("when the others are answered: %d", got.Code)
	}
}

func FuzzForwardedFor(f *testing.F) {
	f.Add("203.0.113.9, 198.51.100.7", "10.0.0.1:80")
	f.Add("[2001:db8::1]:443,,fe80::1%eth0", " unix:, ::ffff:1.2.3.4")
	p := trusting("10.0.0.0/8", "192.0.2.1/32")
	peer := netip.MustParseAddr("192.0.2.1")
	f.Fuzz(func(t *testing.T, first, second string) {
		got := p.clientAddr(peer, []string{first, second})
		if !got.IsValid() || got.Zone() != "" || got.Is4In6() {
			t.Fatalf("%q, %q: %v", first, second, got)
		}
		if alone := p.clientAddr(peer, []string{first + "," + second}); alone != got {
			t.Fatalf("%q, %q: %v in two fields, %v in one", first, second, got, alone)
		}
		// What stands before an untrusted hop is the client's own word.
		if both := p.clientAddr(peer, []string{first, second, "198.51.100.7"}); both.String() != "198.51.100.7" {
			t.Fatalf("%q, %q: %v", first, second, both)
		}
	})
}
