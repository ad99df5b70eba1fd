package netguard

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// zone is a resolver with fixed answers.
type zone struct {
	hosts map[string][]string
}

func (z *zone) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	texts, ok := z.hosts[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.9.8.7:53", IsNotFound: true}
	}
	var out []netip.Addr
	for _, text := range texts {
		ip := netip.MustParseAddr(text)
		if network == "ip" || (network == "ip4") == ip.Unmap().Is4() {
			out = append(out, ip)
		}
	}
	return out, nil
}

// resolverFunc is a resolver with a custom fault.
type resolverFunc func(ctx context.Context, network, host string) ([]netip.Addr, error)

func (f resolverFunc) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return f(ctx, network, host)
}

var _ Resolver = net.DefaultResolver

// plan is the behaviour of each address of a fake network; other addresses never answer.
type plan map[string]struct {
	after time.Duration
	err   error
}

// network is a fake network that records when each address was tried.
type network struct {
	plan  plan
	mu    sync.Mutex
	start time.Time
	tried []string
	open  int
}

type countedConn struct {
	net.Conn
	addr string
	net  *network
}

func (c *countedConn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.open--
	return nil
}

func (n *network) connect(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	n.tried = append(n.tried, fmt.Sprintf("%s@%s", addr, time.Since(n.start)))
	n.mu.Unlock()
	treatment, ok := n.plan[addr]
	if !ok {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(treatment.after) // deaf to ctx, so that late connections are seen
	if treatment.err != nil {
		return nil, treatment.err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open++
	return &countedConn{addr: addr, net: n}, nil
}

func TestDialerRacesAddresses(t *testing.T) {
	refused := errors.New("connection refused")
	for name, tc := range map[string]struct {
		answers []string
		plan    plan
		winner  string
		tried   []string
	}{
		"first answers": {
			[]string{"2606:4700::1", "1.1.1.1"}, plan{"[2606:4700::1]:443": {after: 10 * time.Millisecond}},
			"[2606:4700::1]:443", []string{"[2606:4700::1]:443@0s"},
		},
		"dead family costs a quarter of a second": {
			[]string{"2606:4700::1", "2606:4700::2", "1.1.1.1"}, plan{"1.1.1.1:443": {after: time.Millisecond}},
			"1.1.1.1:443", []string{"[2606:4700::1]:443@0s", "1.1.1.1:443@250ms"},
		},
		"refusal starts the next at once": {
			[]string{"1.1.1.1", "1.0.0.1", "8.8.8.8"}, plan{"1.1.1.1:443": {10 * time.Millisecond, refused}, "1.0.0.1:443": {10 * time.Millisecond, refused}, "8.8.8.8:443": {}},
			"8.8.8.8:443", []string{"1.1.1.1:443@0s", "1.0.0.1:443@10ms", "8.8.8.8:443@20ms"},
		},
		"a late second connection is closed": {
			[]string{"1.1.1.1", "8.8.8.8"}, plan{"1.1.1.1:443": {after: 300 * time.Millisecond}, "8.8.8.8:443": {after: 100 * time.Millisecond}},
			"1.1.1.1:443", []string{"1.1.1.1:443@0s", "8.8.8.8:443@250ms"},
		},
		"refused addresses are left out": {
			[]string{"10.0.0.1", "::1", "::ffff:8.8.8.8", "169.254.169.254"}, plan{"8.8.8.8:443": {}},
			"8.8.8.8:443", []string{"8.8.8.8:443@0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{plan: tc.plan, start: time.Now()}
				d := &dialer{guard: &Guard{}, resolver: &zone{hosts: map[string][]string{"h.example": tc.answers}}, connect: n.connect}
				conn, err := d.dial(t.Context(), "tcp", "h.example:443")
				if err != nil {
					t.Fatal(err)
				}
				if got := conn.(*countedConn).addr; got != tc.winner {
					t.Errorf("connected to %s, want %s", got, tc.winner)
				}
				if !slices.Equal(n.tried, tc.tried) {
					t.Errorf("tried %v, want %v", n.tried, tc.tried)
				}
				if n.open != 1 {
					t.Errorf("%d connections left open, want the winner's", n.open)
				}
			})
		})
	}
}

func TestDialerEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now()}
		d := &dialer{guard: &Guard{}, resolver: &zone{hosts: map[string][]string{"h.example": {"1.1.1.1", "8.8.8.8"}}}, connect: n.connect}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.dial(ctx, "tcp", "h.example:443")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(n.start) != time.Second {
			t.Errorf("after %s: %v", time.Since(n.start), err)
		}
	})
}

func TestDialerTriesNoMoreThanEight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{plan: plan{}, start: time.Now()}
		z := &zone{hosts: map[string][]string{}}
		for i := range 100 {
			ip := "8.8.4." + strconv.Itoa(i)
			z.hosts["h.example"] = append(z.hosts["h.example"], ip)
			n.plan[ip+":25"] = struct {
				after time.Duration
				err   error
			}{err: errors.New("refused")}
		}
		_, err := (&dialer{guard: &Guard{}, resolver: z, connect: n.connect}).dial(t.Context(), "tcp4", "h.example:25")
		if err == nil || len(n.tried) != 8 {
			t.Errorf("tried %d addresses: %v", len(n.tried), err)
		}
	})
}

func TestDialerGivesUpOnADeadResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		dead := resolverFunc(func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		_, err := (&Guard{}).Dialer(dead)(t.Context(), "tcp", "h.example:443")
		if !errors.Is(err, ErrResolve) || time.Since(start) != lookupTimeout {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestDialerRefusals(t *testing.T) {
	z := &zone{hosts: map[string][]string{"inside.example": {"10.0.0.1", "::1", "fe80::1", "::ffff:127.0.0.1"}, "empty.example": {}, "six.example": {"2606:4700::1"}}}
	for _, tc := range []struct {
		network, addr string
		want          error
	}{
		{"tcp", "inside.example:443", ErrBlocked},
		{"tcp4", "inside.example:443", ErrBlocked},
		{"tcp6", "inside.example:443", ErrBlocked},
		{"tcp", "127.0.0.1:443", ErrBlocked},
		{"tcp", "[::1]:443", ErrBlocked},
		{"tcp", "[::ffff:10.0.0.1]:443", ErrBlocked},
		{"tcp", "[fe80::1%lo]:443", ErrBlocked},
		{"udp", "8.8.8.8:53", ErrBlocked},
		{"unix", "/run/x.sock", ErrBlocked},
		{"tcp", "missing.example:443", ErrResolve},
		{"tcp", "empty.example:443", ErrResolve},
		{"tcp4", "six.example:443", ErrResolve},
		{"tcp", "2130706433:443", ErrResolve},
		{"tcp", "8.8.8.8", nil},
		{"tcp", "8.8.8.8:https", nil},
		{"tcp", "8.8.8.8:99999", nil},
	} {
		conn, err := (&Guard{}).Dialer(z)(t.Context(), tc.network, tc.addr)
		if err == nil {
			conn.Close()
			t.Errorf("%s %s connected", tc.network, tc.addr)
		} else if tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s %s: %v, want %v", tc.network, tc.addr, err, tc.want)
		}
	}
}

func TestTransportAsksTheGuard(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	get := func(g *Guard, roots *x509.CertPool) error {
		transport := g.Transport(nil, roots)
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := get(&Guard{}, roots); !errors.Is(err, ErrBlocked) {
		t.Errorf("strict: %v", err)
	}
	if err := get(&Guard{AllowPrivate: true}, roots); err != nil {
		t.Errorf("lenient: %v", err)
	}
	var unknown x509.UnknownAuthorityError
	if err := get(&Guard{AllowPrivate: true}, x509.NewCertPool()); !errors.As(err, &unknown) {
		t.Errorf("without roots: %v", err)
	}
}

// TestTransportLimitsTheHeader: a server cannot make the client store an endless header.
func TestTransportLimitsTheHeader(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Long", strings.Repeat("x", 2*maxHeaderBytes))
	}))
	defer server.Close()
	transport := (&Guard{AllowPrivate: true}).Transport(nil, nil)
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := transport.RoundTrip(r); err == nil {
		resp.Body.Close()
		t.Error("a header of 128 KiB was read")
	}
}

// TestDialerFrom: connections use the source address that was chosen for their family.
func TestDialerFrom(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dial := (&Guard{AllowPrivate: true}).DialerFrom(nil, netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("2001:db8::1"))
	conn, err := dial(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if from := conn.LocalAddr().(*net.TCPAddr).IP.String(); from != "127.0.0.2" {
		t.Errorf("it comes from %s", from)
	}
}

func TestDialIP(t *testing.T) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	stream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for _, to := range []net.Addr{packets.LocalAddr(), stream.Addr()} {
		conn, err := (&Guard{AllowPrivate: true}).DialIP(t.Context(), to.Network(), to.String())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		_, err = (&Guard{}).DialIP(t.Context(), to.Network(), to.String())
		if !errors.Is(err, ErrBlocked) {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, tc := range [][2]string{{"udp", "169.254.169.254:53"}, {"udp", "[::ffff:127.0.0.1]:53"}, {"udp", "[fe80::1%lo]:53"}, {"udp", "localhost:53"}, {"tcp", "8.8.8.8"}, {"unix", "8.8.8.8:53"}} {
		if _, err := (&Guard{}).DialIP(t.Context(), tc[0], tc[1]); !errors.Is(err, ErrBlocked) {
			t.Errorf("%s %s: %v", tc[0], tc[1], err)
		}
	}
}
