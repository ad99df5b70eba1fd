package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// binaryHeader makes a header of version 2.
func binaryHeader(command, family byte, rest string) string {
	b := append([]byte(signatureV2), command, family)
	return string(binary.BigEndian.AppendUint16(b, uint16(len(rest)))) + rest
}

func TestParse(t *testing.T) {
	v6 := string(netip.MustParseAddr("2001:db8::7").AsSlice())
	four, six := "\xcb\x00\x71\x07\x0a\x00\x00\x01\x04\xd2\x00\x19", v6+v6+"\x04\xd2\x00\x19"
	for _, c := range []struct{ header, source, wrong string }{
		{header: "PROXY TCP4 203.0.113.7 10.0.0.1 1234 25\r\n", source: "203.0.113.7:1234"},
		{header: "PROXY TCP6 2001:db8::7 2001:db8::1 1234 25\r\n", source: "[2001:db8::7]:1234"},
		{header: "PROXY TCP6 ::ffff:203.0.113.7 ::1 1234 25\r\n", source: "203.0.113.7:1234"},
		{header: "PROXY UNKNOWN\r\n", source: "invalid AddrPort"},
		{header: "PROXY UNKNOWN ff::1 what ever 1 2 3\r\n", source: "invalid AddrPort"},
		{header: "PROXY TCP4 203.0.113.7 10.0.0.1 01234 25\r\n", wrong: "invalid address or port"},
		{header: "PROXY TCP4 203.0.113.7 10.0.0.1 65536 25\r\n", wrong: "invalid address or port"},
		{header: "PROXY TCP4 203.0.113.7 10.0.0.1 1234 -1\r\n", wrong: "invalid address or port"},
		{header: "PROXY TCP4 2001:db8::7 2001:db8::1 1234 25\r\n", wrong: "invalid address or port"},
		{header: "PROXY TCP6 203.0.113.7 10.0.0.1 1234 25\r\n", wrong: "invalid address or port"},
		{header: "PROXY TCP6 fe80::1%eth0 ::1 1234 25\r\n", wrong: "invalid address or port"},
		{header: "PROXY TCP4  203.0.113.7 10.0.0.1 1234 25\r\n", wrong: "four words"},
		{header: "PROXY TCP4 203.0.113.7 10.0.0.1 1234 25 \r\n", wrong: "four words"},
		{header: "PROXY TCP4 203.0.113.7 10.0.0.1 1234 25\n", wrong: "bare LF"},
		{header: "PROXY \n", wrong: "bare LF"},
		{header: "PROXY UNKNOWN " + strings.Repeat("x", 91) + "\r\n", source: "invalid AddrPort"},
		{header: "PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n", wrong: "longer than 107"},
		{header: "PROXY " + strings.Repeat("x", 200), wrong: "longer than 107"},
		{header: "EHLO there\r\n", wrong: "does not begin with a PROXY header"},
		{header: "PROXYTCP4 1.2.3.4\r\n", wrong: "does not begin with a PROXY header"},
		{header: binaryHeader(commandProxy, familyTCP4, four), source: "203.0.113.7:1234"},
		{header: binaryHeader(commandProxy, familyTCP4, four+"\x04\x00\x01\x00"), source: "203.0.113.7:1234"},
		{header: binaryHeader(commandProxy, familyTCP6, six), source: "[2001:db8::7]:1234"},
		{header: binaryHeader(commandProxy, 0, ""), source: "invalid AddrPort"},
		{header: binaryHeader(commandProxy, 0x31, strings.Repeat("x", 216)), source: "invalid AddrPort"},
		{header: binaryHeader(commandLocal, familyTCP4, four), source: "invalid AddrPort"},
		{header: binaryHeader(commandLocal, familyTCP4, ""), source: "invalid AddrPort"},
		{header: binaryHeader(commandProxy, 0, strings.Repeat("x", MaxHeaderBytes-16)), source: "invalid AddrPort"},
		{header: binaryHeader(commandProxy, 0, strings.Repeat("x", MaxHeaderBytes-15)), wrong: "longer than 536"},
		{header: binaryHeader(commandProxy, familyTCP4, four[:11]), wrong: "shorter than its addresses"},
		{header: binaryHeader(commandProxy, familyTCP6, four), wrong: "shorter than its addresses"},
		{header: binaryHeader(0x22, familyTCP4, four), wrong: "command"},
		{header: binaryHeader(0x11, familyTCP4, four), wrong: "version"},
		{header: binaryHeader(commandProxy, 0x13, four), wrong: "family"},
		{header: binaryHeader(commandProxy, 0x41, four), wrong: "family"},
	} {
		h, n, err := Parse([]byte(c.header + "EHLO"))
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%q: %v, want %q", c.header, err, c.wrong)
			}
			continue
		}
		if err != nil || n != len(c.header) || h.Source.String() != c.source {
			t.Errorf("%q: %v, %d of %d bytes, %v", c.header, h.Source, n, len(c.header), err)
		}
		for i := range len(c.header) {
			if _, _, err := Parse([]byte(c.header[:i])); !errors.Is(err, errPartialHeader) {
				t.Errorf("%q: %v, want that it goes on", c.header[:i], err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("PROXY TCP4 203.0.113.7 10.0.0.1 1234 25\r\nEHLO"))
	f.Add([]byte(binaryHeader(commandProxy, familyTCP4, "\xcb\x00\x71\x07\x0a\x00\x00\x01\x04\xd2\x00\x19") + "EHLO"))
	f.Add([]byte(binaryHeader(commandLocal, 0, "")))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := Parse(b)
		if err != nil {
			if n != 0 || h.Source.IsValid() || errors.Is(err, errPartialHeader) && len(b) >= MaxHeaderBytes {
				t.Fatalf("%d bytes, %v, %v", n, h, err)
			}
			return
		}
		if n > MaxHeaderBytes || n > len(b) {
			t.Fatalf("%d of %d bytes", n, len(b))
		}
		again, m, err := Parse(b[:n])
		if again != h || m != n || err != nil {
			t.Fatalf("%v %d %v, then %v %d %v", h, n, err, again, m, err)
		}
		if _, _, err := Parse(b[:n-1]); !errors.Is(err, errPartialHeader) {
			t.Fatalf("without its last byte: %v", err)
		}
		if tcp, ok := h.clientAddr(&net.UnixAddr{}).(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
			t.Fatalf("%v is trusted", tcp)
		}
	})
}

// listening returns the address of a listener that treats network as proxies, and the connections
// that it accepts.
func listening(t *testing.T, network string) (addr string, accepted <-chan net.Conn) {
	t.Helper()
	below, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := Listen(below, []netip.Prefix{netip.MustParsePrefix(network)}, slog.New(slog.DiscardHandler))
	conns, done := make(chan net.Conn, 10), make(chan error, 1)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				done <- err
				return
			}
			conns <- c
		}
	}()
	t.Cleanup(func() {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
	return below.Addr().String(), conns
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestConnections sends headers in pieces, and with what follows in one.
func TestConnections(t *testing.T) {
	addr, accepted := listening(t, "127.0.0.0/8")
	slow := dial(t, addr) // holds nobody up
	if _, err := io.WriteString(slow, "PROXY TCP4 203"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ header, remote string }{
		{"PROXY TCP4 203.0.113.7 10.0.0.1 1234 25\r\n", "203.0.113.7:1234"},
		{"PROXY UNKNOWN\r\n", ""},
		{"PROXY TCP4 127.0.0.1 10.0.0.1 1234 25\r\n", "192.0.0.8:1234"},
		{"PROXY TCP6 ::ffff:127.9.0.1 ::1 1234 25\r\n", "192.0.0.8:1234"},
		{"PROXY TCP6 ::1 ::1 1234 25\r\n", "[100:0:0:1::]:1234"},
		{binaryHeader(commandLocal, 0, ""), ""},
	} {
		for _, piece := range []int{1, 7, 1000} {
			client := dial(t, addr)
			for rest := c.header + "EHLO"; rest != ""; {
				n := min(piece, len(rest))
				if _, err := io.WriteString(client, rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			conn := <-accepted
			want := c.remote
			if want == "" {
				want = client.LocalAddr().String()
			}
			got := make([]byte, 4)
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != "EHLO" || conn.RemoteAddr().String() != want {
				t.Errorf("%q: %v sent %q, %v; want %s", c.header, conn.RemoteAddr(), got, err, want)
			}
			if _, err := io.WriteString(conn, "250"); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadFull(client, got[:3]); err != nil || string(got[:3]) != "250" {
				t.Errorf("%q, %v", got, err)
			}
			conn.Close()
		}
	}
	if _, err := io.WriteString(slow, ".0.113.7 10.0.0.1 1234 25\r\n"); err != nil {
		t.Fatal(err)
	}
	if conn := <-accepted; conn.RemoteAddr().String() != "203.0.113.7:1234" {
		t.Error(conn.RemoteAddr())
	}
}

// TestConnectionsWithoutHeader: a proxy must send one in time, and from elsewhere it means nothing.
func TestConnectionsWithoutHeader(t *testing.T) {
	addr, _ := listening(t, "127.0.0.0/8")
	wrong, silent := dial(t, addr), dial(t, addr)
	if _, err := io.WriteString(wrong, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, c := range []net.Conn{wrong, silent} {
		_ = c.SetReadDeadline(time.Now().Add(3 * headerTimeout))
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v; want the end", n, err)
		}
	}
	if took := time.Since(began); took < headerTimeout-time.Second {
		t.Errorf("the silent one was closed after %s", took)
	}
	addr, accepted := listening(t, "192.0.2.0/24")
	const header = "PROXY TCP4 203.0.113.7 10.0.0.1 1234 25\r\n"
	client := dial(t, addr)
	if _, err := io.WriteString(client, header); err != nil {
		t.Fatal(err)
	}
	conn, got := <-accepted, make([]byte, len(header))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, []byte(header)) || conn.RemoteAddr().String() != client.LocalAddr().String() {
		t.Errorf("%v sent %q, %v", conn.RemoteAddr(), got, err)
	}
}
