package mail

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// theProxy is the address of a proxy that speaks the PROXY protocol.
const theProxy = "127.9.9.9"

// viaProxy connects from the proxy, with a header.
func viaProxy(t *testing.T, addr, header string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(theProxy)}, Timeout: 10 * time.Second}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, header); err != nil {
		t.Fatal(err)
	}
	return conn
}

// headerOf is a header of version 2 for a client with an IPv4 address.
func headerOf(client string) string {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"), netip.MustParseAddr(client).AsSlice()...)
	return string(append(b, 192, 0, 2, 1, 0x12, 0x34, 0, 25))
}

// TestProxyProtocol: on every TCP listener the address in the header counts, a proxy must send one,
// and from elsewhere it is wrong input.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, "", "--proxy-protocol", theProxy)
	i.AddDomain("boxes.test")
	ann := i.AddMailbox("ann@boxes.test", "correct horse")

	conn := viaProxy(t, i.Ready.SMTP, headerOf("203.0.113.7"))
	smtp := bufio.NewReader(conn)
	for _, line := range []string{"", "EHLO far.test", "MAIL FROM:<a@far.test>", "RCPT TO:<ann@boxes.test>", "DATA", "Subject: by proxy\r\n\r\nx\r\n."} {
		if line != "" {
			fmt.Fprintf(conn, "%s\r\n", line)
		}
		for {
			answer, err := smtp.ReadString('\n')
			if err != nil || answer[0] != '2' && answer[0] != '3' {
				t.Fatalf("%s: %q %v", line, answer, err)
			}
			if answer[3] == ' ' {
				break
			}
		}
	}
	i.Until("the message is there", func() bool { return len(i.Inbox(ann)) == 1 })
	var message struct {
		Headers []struct{ Name, Value string }
	}
	i.Want(200, "GET", "/v1/email-users/"+ann+"/inbox/1", nil, &message)
	received := ""
	for _, h := range message.Headers {
		if h.Name == "Received" {
			received = h.Value
		}
	}
	if !strings.Contains(received, "[203.0.113.7]") {
		t.Errorf("Received: %s", received)
	}

	c := imapclient.New(viaProxy(t, i.Ready.IMAP, "PROXY TCP6 2001:db8::7 2001:db8::1 1234 143\r\n"), nil)
	if err := c.Login("ann@boxes.test", "correct horse").Wait(); err != nil {
		t.Error(err)
	}
	c.Close()
	conn = viaProxy(t, i.Ready.HTTP, "PROXY UNKNOWN\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("%v %v", resp, err)
	}
	query := &dns.Conn{Conn: viaProxy(t, i.Ready.DNS, headerOf("203.0.113.8"))}
	if err := query.WriteMsg(new(dns.Msg).SetQuestion("boxes.test.", dns.TypeSOA)); err != nil {
		t.Fatal(err)
	}
	if answer, err := query.ReadMsg(); err != nil || len(answer.Answer) == 0 {
		t.Errorf("%v %v", answer, err)
	}

	// Limits are those of the address in the header, which is never loopback.
	for _, client := range []string{"198.51.100.9", "127.0.0.1"} {
		refused := 0
		for range 60 {
			line, err := bufio.NewReader(viaProxy(t, i.Ready.SMTP, headerOf(client))).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, "421 ") {
				refused++
			}
		}
		if refused != 10 { // an address may have fifty
			t.Errorf("%s: %d of 60 connections were refused", client, refused)
		}
	}

	for name, addr := range map[string]string{"smtp": i.Ready.SMTP, "submission": i.Ready.Submission, "imap": i.Ready.IMAP, "http": i.Ready.HTTP, "dns": i.Ready.DNS} {
		conn := viaProxy(t, addr, "PROXY TCP4 nobody 192.0.2.1 1 2\r\n")
		if n, err := io.Copy(io.Discard, conn); n > 0 {
			t.Errorf("%s: %d bytes for a wrong header, %v", name, n, err)
		}
	}
	conn, err := net.Dial("tcp", i.Ready.SMTP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "PROXY TCP4 203.0.113.7 192.0.2.1 1 2\r\n")
	lines := bufio.NewReader(conn)
	greeting, _ := lines.ReadString('\n')
	if answer, err := lines.ReadString('\n'); !strings.HasPrefix(greeting, "220 ") || !strings.HasPrefix(answer, "50") {
		t.Errorf("a header from elsewhere: %q %q %v", greeting, answer, err)
	}
}
