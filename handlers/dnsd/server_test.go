package dnsd

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// sockets opens a UDP and a TCP socket on one port of the loopback.
func sockets(t testing.TB) (*net.UDPConn, net.Listener) {
	t.Helper()
	for range 20 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(tcp.Addr().String())))
		if err == nil {
			return udp, tcp
		}
		tcp.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

// serve runs s until the test ends and returns its address.
func serve(t testing.TB, s *Server) string {
	t.Helper()
	udp, tcp := sockets(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, udp, tcp) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return tcp.Addr().String()
}

func exchange(t *testing.T, network, addr string, q *dns.Msg) *dns.Msg {
	t.Helper()
	c := dns.Client{Net: network, Timeout: 5 * time.Second}
	m, _, err := c.Exchange(q, addr)
	if err != nil {
		t.Fatalf("%s %v: %v", network, q.Question, err)
	}
	return m
}

func TestTruncatedThenWholeOverTCP(t *testing.T) {
	addr := serve(t, &Server{Zones: stubZone{"a.test"}})
	q := question("big.a.test.", dns.TypeTXT)
	if m := exchange(t, "udp", addr, q); !m.Truncated || len(m.Answer) != 0 {
		t.Errorf("over UDP: tc=%v with %d records", m.Truncated, len(m.Answer))
	}
	if m := exchange(t, "tcp", addr, q); m.Truncated || len(m.Answer) != 20 {
		t.Errorf("over TCP: tc=%v with %d records", m.Truncated, len(m.Answer))
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func frame(wire []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)
}

func readFrame(t *testing.T, conn net.Conn) *dns.Msg {
	t.Helper()
	var size uint16
	if err := binary.Read(conn, binary.BigEndian, &size); err != nil {
		t.Fatal(err)
	}
	wire := make([]byte, size)
	if _, err := io.ReadFull(conn, wire); err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg)
	if err := m.Unpack(wire); err != nil {
		t.Fatal(err)
	}
	return m
}

// closed reports whether the server ends a connection without another byte.
func closed(conn net.Conn) bool {
	n, err := conn.Read(make([]byte, 1))
	return n == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET))
}

func TestPipelinedQueriesAreAnsweredInOrder(t *testing.T) {
	addr := serve(t, &Server{Zones: stubZone{"a.test"}})
	conn := dial(t, addr)
	var all []byte
	for i := range 200 {
		q := question("a.test.", dns.TypeA)
		q.Id = uint16(i)
		all = append(all, frame(packed(t, q))...)
	}
	go func() {
		for len(all) > 0 { // in pieces that fall anywhere
			n := min(997, len(all))
			if _, err := conn.Write(all[:n]); err != nil {
				return
			}
			all = all[n:]
		}
	}()
	for i := range 200 {
		if m := readFrame(t, conn); m.Id != uint16(i) || len(m.Answer) != 1 {
			t.Fatalf("answer %d: %v", i, m)
		}
	}
}

func TestTCPClientsThatMisbehave(t *testing.T) {
	addr := serve(t, &Server{Zones: stubZone{"a.test"}, Idle: 200 * time.Millisecond})
	for name, sent := range map[string][]byte{
		"silent":          nil,
		"half a length":   {0},
		"half a query":    frame(packed(t, question("a.test.", dns.TypeA)))[:20],
		"an empty frame":  {0, 0},
		"an answer":       frame(packed(t, change("a.test.", dns.TypeA, func(m *dns.Msg) { m.Response = true }))),
		"an HTTP request": []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		conn := dial(t, addr)
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		if !closed(conn) {
			t.Errorf("%s: the connection stays open", name)
		}
	}
	conn := dial(t, addr)
	if _, err := conn.Write(frame([]byte(strings.Repeat("\x00", 30)))); err != nil {
		t.Fatal(err)
	}
	if m := readFrame(t, conn); m.Rcode != dns.RcodeFormatError {
		t.Errorf("garbage got %v", m)
	}
}

// A client that asks and never reads is let go when its buffers are full.
func TestTCPClientThatNeverReadsIsClosed(t *testing.T) {
	addr := serve(t, &Server{Zones: stubZone{"a.test"}, Idle: 200 * time.Millisecond})
	conn := dial(t, addr)
	q := frame(packed(t, question("big.a.test.", dns.TypeTXT)))
	for {
		if _, err := conn.Write(q); err != nil {
			if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
				t.Fatal("still connected after 5 s")
			}
			return
		}
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

func TestConnectionsAreBounded(t *testing.T) {
	for name, s := range map[string]*Server{
		"in all":      {Zones: stubZone{"a.test"}, Conns: 3},
		"per network": {Zones: stubZone{"a.test"}, ConnsPerNetwork: 3},
	} {
		addr := serve(t, s)
		ask := frame(packed(t, question("a.test.", dns.TypeA)))
		var open []net.Conn
		for range 3 {
			conn := dial(t, addr)
			if _, err := conn.Write(ask); err != nil {
				t.Fatal(err)
			}
			readFrame(t, conn)
			open = append(open, conn)
		}
		if !closed(dial(t, addr)) {
			t.Errorf("%s: a fourth connection was taken", name)
		}
		open[0].Close()
		deadline := time.Now().Add(5 * time.Second)
		for { // until the server has seen the end of the first
			conn := dial(t, addr)
			if _, err := conn.Write(ask); err == nil && !closed(conn) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: no connection is taken after one has ended", name)
			}
			conn.Close()
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func TestStopUnderLoad(t *testing.T) {
	before := runtime.NumGoroutine()
	udp, tcp := sockets(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- (&Server{Zones: stubZone{"a.test"}}).Run(ctx, udp, tcp) }()
	addr := tcp.Addr().String()

	var answers atomic.Int64
	load, stopLoad := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			c := dns.Client{Net: []string{"udp", "tcp"}[i%2], Timeout: time.Second}
			for load.Err() == nil {
				if m, _, err := c.Exchange(question("big.a.test.", dns.TypeTXT), addr); err == nil && m.Rcode == dns.RcodeSuccess {
					answers.Add(1)
				}
			}
		})
	}
	idle := dial(t, addr) // an open connection without a query must not hold the stop up
	for answers.Load() < 200 {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Run has not returned after 5 s")
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("the stop took %v", took)
	}
	if !closed(idle) {
		t.Error("a connection outlives the server")
	}
	stopLoad()
	clients.Wait()
	for range 100 { // goroutines of closed sockets end a moment later
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// A client that does not take its answer is cut off when the grace is over.
func TestStopDoesNotWaitForAStuckClient(t *testing.T) {
	udp, tcp := sockets(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	s := &Server{Zones: stubZone{"a.test"}, Idle: time.Hour, Grace: 50 * time.Millisecond}
	go func() { done <- s.Run(ctx, udp, tcp) }()
	conn := dial(t, tcp.Addr().String())
	if err := conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	q := frame(packed(t, question("big.a.test.", dns.TypeTXT)))
	for {
		if _, err := conn.Write(q); err != nil {
			break // the server's answers, and then our queries, fill all buffers
		}
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Run waits for a client that never reads")
	}
}

func TestRunFailsWithItsSockets(t *testing.T) {
	for name, lose := range map[string]func(*net.UDPConn, net.Listener){
		"UDP": func(udp *net.UDPConn, _ net.Listener) { udp.Close() },
		"TCP": func(_ *net.UDPConn, tcp net.Listener) { tcp.Close() },
	} {
		udp, tcp := sockets(t)
		lose(udp, tcp)
		if err := (&Server{Zones: stubZone{"a.test"}}).Run(t.Context(), udp, tcp); !errors.Is(err, net.ErrClosed) {
			t.Errorf("without its %s socket Run returned %v", name, err)
		}
	}
}

// Answers must come from the address that was asked, which a socket on all addresses has to be
// told.
func TestAnswerComesFromTheAddressAsked(t *testing.T) {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if !reportDestination(server) {
		t.Skip("this system does not tell where a datagram was sent")
	}
	client, err := net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	control := make([]byte, controlReadSize)
	_, n, _, from, err := server.ReadMsgUDPAddrPort(make([]byte, 10), control)
	if err != nil {
		t.Fatal(err)
	}
	src := replySource(control[:n])
	if len(src) == 0 {
		t.Fatalf("no source from control message %x", control[:n])
	}
	if _, _, err := server.WriteMsgUDPAddrPort([]byte("y"), src, from); err != nil {
		t.Fatalf("write with control message %x: %v", src, err)
	}
	// What the system reads as the source is what we set: it sits in the second field of
	// in_pktinfo.
	want := (&ipv4.ControlMessage{Src: net.IPv4(127, 0, 0, 1)}).Marshal()
	if string(src) != string(want) {
		t.Errorf("source control message %x, want %x", src, want)
	}
	if replySource(nil) != nil || replySource([]byte("nonsense")) != nil {
		t.Error("a source out of nothing")
	}
	six := (&ipv6.ControlMessage{Src: net.ParseIP("2001:db8::1")}).Marshal() // the same layout both ways
	if string(replySource(six)) != string(six) {
		t.Errorf("IPv6: %x, want %x", replySource(six), six)
	}
}

// BenchmarkUDP measures whole exchanges over the loopback: four clients that keep 16 queries under
// way each.
func BenchmarkUDP(b *testing.B) {
	addr := serve(b, &Server{Zones: stubZone{"a.test"}})
	wire := packed(b, change("a.test.", dns.TypeA, func(m *dns.Msg) { m.SetEdns0(1232, false) }))
	const clients, window = 4, 16
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range clients {
		conn, err := net.Dial("udp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		wg.Go(func() {
			in := make([]byte, 1500)
			for left.Load() > 0 {
				for range window {
					if _, err := conn.Write(wire); err != nil {
						b.Error(err)
						return
					}
				}
				for range window {
					if _, err := conn.Read(in); err != nil {
						b.Error(err)
						return
					}
				}
				left.Add(-window)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "queries/s")
}
