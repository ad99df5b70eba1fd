package listen

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/service/health"
)

// limitedServer is an HTTP server that takes four connections. Its handler says on working that it
// has a request for /slow, and answers it when answer is closed.
func limitedServer(t *testing.T, secure bool) (s *httptest.Server, working, answer chan struct{}) {
	t.Helper()
	working, answer = make(chan struct{}), make(chan struct{})
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			working <- struct{}{}
			<-answer
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	s.EnableHTTP2 = true
	ln := LimitHTTP(s.Listener, "http", !secure, nil, slog.New(slog.DiscardHandler)).(*limitedListener)
	ln.limiter = connlimit.New("http", connlimit.Limits{All: 4}, slog.New(slog.DiscardHandler))
	s.Listener = ln
	trackConns(s.Config)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, working, answer
}

// clientFrom is a client that connects from an address of this host.
func clientFrom(t *testing.T, s *httptest.Server, from string) *http.Client {
	t.Helper()
	c := s.Client()
	transport := c.Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialFrom(ctx, from, addr)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// TestPortsOfListeners: one at an address that is not public has a port too, where nobody from
// outside is to reach it.
func TestPortsOfListeners(t *testing.T) {
	all, inner := listenAt(t, ":0"), listenAt(t, "127.0.0.1:0")
	l := &Listeners{SMTP: all, DNSTCP: inner}
	public := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	number := func(ln net.Listener) int { return ln.Addr().(*net.TCPAddr).Port }
	want := []health.Port{{Name: "dns", Number: number(inner), Inner: "127.0.0.1"}, {Name: "smtp", Number: number(all)}}
	if got := l.Ports(public); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	want[0].Inner = ""
	if got := l.Ports([]netip.Addr{netip.MustParseAddr("127.0.0.1")}); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func listenAt(t *testing.T, addr string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func dialFrom(ctx context.Context, from, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 30 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", addr)
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestIdleConnectionsMakeRoom fills a server from one network, one connection in the middle of a
// request. Who comes from elsewhere is served, and the request too.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			s, working, answer := limitedServer(t, secure)
			release := sync.OnceFunc(func() { close(answer) })
			t.Cleanup(release) // before the server closes, which waits for its requests
			busy := clientFrom(t, s, "127.0.1.1")
			answered := make(chan error, 1)
			go func() {
				resp, err := busy.Get(s.URL + "/slow")
				if err == nil {
					err = resp.Body.Close()
				}
				answered <- err
			}()
			<-working
			idle := clientFrom(t, s, "127.0.1.2")
			get(t, idle, s.URL) // and keeps its connection
			for range 2 {
				silent, err := dialFrom(t.Context(), "127.0.1.3", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer silent.Close()
			}
			wantRefused(t, s, secure)
			for range 2 {
				want := "HTTP/1.1"
				if secure {
					want = "HTTP/2.0"
				}
				if got := get(t, clientFrom(t, s, "127.0.2.1"), s.URL); got != want {
					t.Errorf("answered %q", got)
				}
			}
			release()
			if err := <-answered; err != nil {
				t.Errorf("a request was cut: %v", err)
			}
		})
	}
}

// wantRefused connects from the network that has every slot.
func wantRefused(t *testing.T, s *httptest.Server, secure bool) {
	t.Helper()
	conn, err := dialFrom(t.Context(), "127.0.1.4", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if secure {
		if err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake(); err == nil {
			t.Error("hands were shaken with one too many")
		}
		return
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(text), "Too many") {
		t.Errorf("%d %q, %v", resp.StatusCode, text, err)
	}
}
