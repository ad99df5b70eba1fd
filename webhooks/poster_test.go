package webhooks

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/netguard"
)

func TestStrictReceiverAcceptsEitherSecret(t *testing.T) {
	out := newWorld(t)
	old, current := NewSecret(), NewSecret()
	for _, http2 := range []bool{false, true} {
		for _, known := range []string{old, current} {
			result := out.poster.Post(t.Context(), delivery(out.serve(t, http2, strict(known)), current, old))
			want := "ok over HTTP/1.1"
			if http2 {
				want = "ok over HTTP/2.0"
			}
			if result.Outcome != Success || result.HTTPStatus != 200 || result.Excerpt != want || result.Error+result.ErrorCode != "" || result.Duration <= 0 {
				t.Errorf("%+v, want %s", result, want)
			}
		}
	}
	result := out.poster.Post(t.Context(), delivery(out.serve(t, true, strict(NewSecret())), current, old))
	if result.HTTPStatus != 400 || !strings.Contains(result.Excerpt, "service false, standard false") {
		t.Errorf("a receiver with another secret got %+v", result)
	}
}

func TestStatusDecides(t *testing.T) {
	out := newWorld(t)
	url := out.serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		var status int
		fmt.Sscan(r.Header.Get("X-Service-Event"), &status)
		w.WriteHeader(status)
	})
	for _, tc := range []struct {
		status        int
		outcome, code string
	}{
		{200, Success, ""}, {201, Success, ""}, {202, Success, ""}, {204, Success, ""}, {299, Success, ""},
		{300, Failed, CodeHTTPStatus}, {304, Failed, CodeHTTPStatus}, {400, Failed, CodeHTTPStatus}, {404, Failed, CodeHTTPStatus},
		{410, Failed, CodeHTTPStatus}, {429, Failed, CodeHTTPStatus}, {500, Failed, CodeHTTPStatus}, {503, Failed, CodeHTTPStatus}, {999, Failed, CodeHTTPStatus},
	} {
		d := delivery(url)
		d.EventType = fmt.Sprint(tc.status)
		result := out.poster.Post(t.Context(), d)
		if result.HTTPStatus != tc.status || result.Outcome != tc.outcome || result.ErrorCode != tc.code || result.Gone != (tc.status == 410) || (result.Error == "") != (tc.code == "") {
			t.Errorf("status %d: %+v", tc.status, result)
		}
	}
}

// TestFailures reaches every error code, most of them in several ways.
func TestFailures(t *testing.T) {
	out := newWorld(t)
	out.poster.Timeout = time.Second
	out.zone.hosts["dead.example"] = []string{"127.0.0.1"}
	out.zone.hosts["inside.example"] = []string{"169.254.169.254", "::1%lo"}
	write := func(text string) string {
		return out.raw(t, func(conn net.Conn) { io.WriteString(conn, text) })
	}
	for name, tc := range map[string]struct{ url, code, text string }{
		"no such name":        {"https://missing.example/", CodeDNS, "missing.example: no such host"},
		"nobody listens":      {"https://dead.example:" + closedPort(t) + "/", CodeConnect, "connection refused"},
		"metadata address":    {"https://inside.example/", CodeBlockedAddress, "inside.example has no public address"},
		"literal metadata":    {"https://169.254.169.254/", CodeBlockedAddress, "link-local"},
		"plain http":          {"http://hooks.example/", CodeBlockedAddress, "https://"},
		"unknown authority":   {withTLS(t, &tls.Config{Certificates: []tls.Certificate{newAuthority(t).issue(t, host, time.Now().Add(time.Hour))}}), CodeTLS, "unknown authority"},
		"other name":          {withTLS(t, &tls.Config{Certificates: []tls.Certificate{out.ca.issue(t, "other.example", time.Now().Add(time.Hour))}}), CodeTLS, "other.example"},
		"expired":             {withTLS(t, &tls.Config{Certificates: []tls.Certificate{out.ca.issue(t, host, time.Now().Add(-time.Minute))}}), CodeTLS, "expired"},
		"TLS 1.1":             {withTLS(t, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, Certificates: out.tls(t).Certificates}), CodeTLS, "version"},
		"not TLS":             {plain(t, func(conn net.Conn) { io.WriteString(conn, "220 mail.example ESMTP\r\n") }), CodeTLS, "does not look like a TLS handshake"},
		"closed in handshake": {plain(t, func(net.Conn) {}), CodeTLS, ""},
		"silent in handshake": {plain(t, func(conn net.Conn) { io.Copy(io.Discard, conn) }), CodeTimeout, "no answer within 1s"},
		"silent after it":     {out.raw(t, func(conn net.Conn) { io.Copy(io.Discard, conn) }), CodeTimeout, "no answer within 1s"},
		"dribbled head":       {out.raw(t, dribble("HTTP/1.1 200 OK\r\nX: ")), CodeTimeout, "no answer within 1s"},
		"closed at once":      {out.raw(t, func(net.Conn) {}), CodeConnect, "closed without an answer"},
		"cut in the head":     {write("HTTP/1.1 200 OK\r\n"), CodeConnect, "closed without an answer"},
		"not HTTP":            {write("hello\r\n\r\n"), CodeConnect, "malformed HTTP"},
		"endless early hints": {out.raw(t, flood("HTTP/1.1 103 Early Hints\r\nLink: </"+strings.Repeat("a", 1000)+">\r\n\r\n")), CodeConnect, ""},
		"protocol switch":     {write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), CodeHTTPStatus, "101"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := out.poster.Post(t.Context(), delivery(tc.url))
			if result.Outcome != Failed || result.ErrorCode != tc.code || !strings.Contains(result.Error, tc.text) || result.Gone {
				t.Errorf("%+v, want %s with %q", result, tc.code, tc.text)
			}
			if strings.Contains(result.Error, "127.0.0.1") || strings.Contains(result.Error, "10.9.8.7") {
				t.Errorf("error %q tells addresses of this machine", result.Error)
			}
			if result.Duration > 2*time.Second {
				t.Errorf("took %s", result.Duration)
			}
		})
	}
}

func TestResolverThatHangsIsATimeout(t *testing.T) {
	out := newWorld(t)
	out.poster.Timeout = 100 * time.Millisecond
	out.poster.Resolver = resolverFunc(func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	result := out.poster.Post(t.Context(), delivery("https://hooks.example/"))
	if result.ErrorCode != CodeTimeout || result.Duration > 2*time.Second {
		t.Errorf("%+v", result)
	}
}

func TestInterruptedAttemptBlamesNobody(t *testing.T) {
	out := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	url := out.raw(t, func(conn net.Conn) {
		cancel()
		io.Copy(io.Discard, conn)
	})
	result := out.poster.Post(ctx, delivery(url))
	if result.Outcome != Failed || result.ErrorCode != "" || result.Error == "" {
		t.Errorf("%+v", result)
	}
}

// TestEndlessBody: the answer is in, and what follows can neither undo it nor hold the delivery
// longer than the time-out.
func TestEndlessBody(t *testing.T) {
	out := newWorld(t)
	out.poster.Timeout = 500 * time.Millisecond
	for name, tc := range map[string]struct {
		peer func(net.Conn)
		full bool
	}{
		"dribbled": {dribble("HTTP/1.1 200 OK\r\n\r\nx"), false},
		"flooded":  {floodAfter("HTTP/1.1 200 OK\r\n\r\n", "x"), true},
		"chunked":  {floodAfter("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"), true},
	} {
		result := out.poster.Post(t.Context(), delivery(out.raw(t, tc.peer)))
		if result.Outcome != Success || result.HTTPStatus != 200 || !strings.HasPrefix(result.Excerpt, "x") || (len(result.Excerpt) == excerptLimit) != tc.full {
			t.Errorf("%s: %+v", name, result)
		}
		if result.Duration > 2*time.Second {
			t.Errorf("%s took %s", name, result.Duration)
		}
	}
}

// TestHugeHeaders: 10 MB of header end the exchange after 64 KiB, over HTTP/1.1 and HTTP/2.
func TestHugeHeaders(t *testing.T) {
	const size = 10 << 20
	out := newWorld(t)
	out.poster.Timeout = time.Minute // the end is to come from the size
	var written atomic.Int64
	one := out.raw(t, func(conn net.Conn) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		line := "X-Fill: " + strings.Repeat("a", 1<<10) + "\r\n"
		for written.Load() < size {
			n, err := io.WriteString(conn, line)
			if err != nil {
				return
			}
			written.Add(int64(n))
		}
	})
	two := out.serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Fill", strings.Repeat("a", size))
	})
	for _, url := range []string{one, two} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		result := out.poster.Post(t.Context(), delivery(url))
		runtime.ReadMemStats(&after)
		if result.Outcome != Failed || result.ErrorCode != CodeConnect {
			t.Errorf("%+v", result)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; url == one && grown > size/2 {
			t.Errorf("%d bytes allocated", grown)
		}
	}
	if written.Load() >= size {
		t.Error("all of the header was taken")
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	out := newWorld(t)
	var hits atomic.Int64
	private := out.serve(t, true, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{private, "http://169.254.169.254/", "https://127.0.0.1:1/", "://bad", ""} {
			url := out.serve(t, true, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", location)
				w.WriteHeader(status)
			})
			result := out.poster.Post(t.Context(), delivery(url))
			if result.HTTPStatus != status || result.ErrorCode != CodeHTTPStatus || !strings.Contains(result.Error, "redirects are not followed") {
				t.Errorf("%d to %q: %+v", status, location, result)
			}
		}
	}
	if hits.Load() != 0 {
		t.Errorf("the target was asked %d times", hits.Load())
	}
}

func TestEnvironmentProxyIsIgnored(t *testing.T) {
	out := newWorld(t)
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:"+closedPort(t))
	}
	secret := NewSecret()
	if result := out.poster.Post(t.Context(), delivery(out.serve(t, true, strict(secret)), secret)); result.Outcome != Success {
		t.Errorf("%+v", result)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		out := newWorld(t)
		body := strings.Repeat("b", excerptLimit) // the longest that can be read to its end
		url := out.serve(t, http2, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) })
		for range 5 {
			if result := out.poster.Post(t.Context(), delivery(url)); result.Outcome != Success || result.Excerpt != body {
				t.Fatalf("%+v", result)
			}
		}
		if out.zone.asked != 1 {
			t.Errorf("http2 %v: %d connections for 5 deliveries", http2, out.zone.asked)
		}
	}
}

// TestDeadKeptConnectionCostsNoAttempt: the receiver closes a kept connection just when it is used
// again.
func TestDeadKeptConnectionCostsNoAttempt(t *testing.T) {
	out := newWorld(t)
	var requests atomic.Int64
	url := out.serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
	})
	for range 2 {
		if result := out.poster.Post(t.Context(), delivery(url)); result.Outcome != Success {
			t.Errorf("%+v", result)
		}
	}
	if requests.Load() != 3 {
		t.Errorf("%d requests, want the second one repeated", requests.Load())
	}
}

func TestExcerptIsShortAndValid(t *testing.T) {
	out := newWorld(t)
	for name, tc := range map[string]struct {
		body, want string
	}{
		"empty":               {"", ""},
		"short":               {"thank you", "thank you"},
		"just the limit":      {strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		"cut in a character":  {strings.Repeat("x", 1022) + "€ and more", strings.Repeat("x", 1022)},
		"cut after one":       {strings.Repeat("x", 1021) + "€ and more", strings.Repeat("x", 1021) + "€"},
		"not UTF-8":           {"a\xff\xfeb", "a\uFFFDb"},
		"ends in half of one": {"a\xe2\x82", "a\uFFFD"},
		"all invalid":         {strings.Repeat("\xffx", 2048), strings.Repeat("\uFFFDx", 256)},
	} {
		url := out.serve(t, true, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip") // a lie, to be ignored
			io.WriteString(w, tc.body)
		})
		result := out.poster.Post(t.Context(), delivery(url))
		if result.Excerpt != tc.want || len(result.Excerpt) > excerptLimit || !utf8.ValidString(result.Excerpt) {
			t.Errorf("%s: %q", name, result.Excerpt)
		}
	}
}

// TestClockSignsAndDoesNotMeasure: the clock may be advanced while an attempt runs.
func TestClockSignsAndDoesNotMeasure(t *testing.T) {
	out := newWorld(t)
	start := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	var ticks atomic.Int64
	out.poster.Now = func() time.Time { return start.Add(time.Duration(ticks.Add(1)-1) * 24 * time.Hour) }
	out.poster.UserAgent = "Mailstead/1.2"
	url := out.serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Service-Timestamp"), " ", r.UserAgent())
	})
	result := out.poster.Post(t.Context(), delivery(url))
	if result.Excerpt != fmt.Sprint(start.Unix(), " Mailstead/1.2") || result.Duration <= 0 || result.Duration > time.Minute {
		t.Errorf("%+v", result)
	}
}

func TestZeroPosterIsStrict(t *testing.T) {
	var p Poster
	defer p.Close()
	for _, url := range []string{"https://127.0.0.1/", "https://localhost/", "https://[::ffff:10.0.0.1]/", "http://example.com/"} {
		if result := p.Post(t.Context(), delivery(url)); result.ErrorCode != CodeBlockedAddress {
			t.Errorf("%s: %+v", url, result)
		}
	}
	if p.timeout() != 10*time.Second {
		t.Errorf("time-out %s", p.timeout())
	}
}

func TestManyDeliveriesAtOnce(t *testing.T) {
	out := newWorld(t)
	secret := NewSecret()
	url := out.serve(t, true, strict(secret))
	results := make(chan Result)
	for range 64 {
		go func() { results <- out.poster.Post(context.Background(), delivery(url, secret)) }()
	}
	for range 64 {
		if result := <-results; result.Outcome != Success {
			t.Errorf("%+v", result)
		}
	}
}

func closedPort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// withTLS starts a listener that shakes hands as config says, and no more.
func withTLS(t testing.TB, config *tls.Config) string {
	t.Helper()
	return plain(t, func(conn net.Conn) {
		if tls.Server(conn, config).HandshakeContext(t.Context()) == nil {
			io.Copy(io.Discard, conn)
		}
	})
}

// plain starts a listener without TLS.
func plain(t testing.TB, peer func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accept(t, listener, peer)
	return at(listener)
}

// dribble sends text and then one byte every 20 ms until the other side leaves.
func dribble(text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, err := io.WriteString(conn, text)
		for err == nil {
			time.Sleep(20 * time.Millisecond)
			_, err = io.WriteString(conn, "x")
		}
	}
}

// flood sends text again and again until the other side leaves.
func flood(text string) func(net.Conn) { return floodAfter("", text) }

func floodAfter(head, text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, err := io.WriteString(conn, head)
		for err == nil {
			_, err = io.WriteString(conn, text)
		}
	}
}

// TestRebindingGainsNothing: a name that is public when somebody looks and private when it is
// dialled reaches nobody.
func TestRebindingGainsNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	answers := []string{"8.8.8.8", "127.0.0.1"}
	rebinding := resolverFunc(func(context.Context, string, string) ([]netip.Addr, error) {
		answer := netip.MustParseAddr(answers[0])
		answers = answers[1:]
		return []netip.Addr{answer}, nil
	})
	guard := &netguard.Guard{}
	first, err := rebinding.LookupNetIP(t.Context(), "ip", "rebind.example")
	if err != nil || !guard.Allowed(first[0]) || guard.CheckURL("https://rebind.example:"+port+"/") != nil {
		t.Fatalf("the first look at %v finds fault: %v", first, err)
	}
	p := &Poster{Guard: guard, Resolver: rebinding, Timeout: 5 * time.Second}
	result := p.Post(t.Context(), Delivery{URL: "https://rebind.example:" + port + "/", Secrets: []string{NewSecret()}})
	if result.ErrorCode != CodeBlockedAddress || len(answers) != 0 {
		t.Errorf("result %+v, answers left %v", result, answers)
	}
	listener.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond))
	if conn, err := listener.Accept(); err == nil {
		conn.Close()
		t.Error("the private listener was reached")
	}
}
