package deliver

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// internet is a small world of names and SMTP hosts; every host listens on loopback and has a
// public address.
type internet struct {
	t    testing.TB
	mx   map[string][]*net.MX
	ips  map[string][]netip.Addr
	fail map[string]error // of look-ups

	mu     sync.Mutex
	real   map[netip.Addr]string // where an address listens
	dialed []string
	looked []string
	next   byte
}

func newInternet(t testing.TB) *internet {
	return &internet{
		t: t, mx: map[string][]*net.MX{}, ips: map[string][]netip.Addr{}, fail: map[string]error{},
		real: map[netip.Addr]string{},
	}
}

func (n *internet) client() *Client {
	c := &Client{Hostname: "us.example", Resolver: n, Dialer: n.dial, Timeouts: Timeouts{
		Greeting: 2 * time.Second, TLS: 2 * time.Second, Command: 2 * time.Second, DataStart: 2 * time.Second,
		DataBlock: 2 * time.Second, DataEnd: 2 * time.Second, Overall: 10 * time.Second,
	}}
	n.t.Cleanup(func() { c.Close() })
	return c
}

func notFound(name string) error {
	return &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (n *internet) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	name, absolute := strings.CutSuffix(name, ".")
	if !absolute {
		n.t.Errorf("MX look-up of %q would use the search list", name)
	}
	n.note("MX " + name)
	if err := n.fail[name]; err != nil {
		return nil, err
	}
	if len(n.mx[name]) == 0 {
		return nil, notFound(name)
	}
	return n.mx[name], nil
}

func (n *internet) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	host = strings.TrimSuffix(host, ".")
	n.note("A " + host)
	if err := n.fail[host]; err != nil {
		return nil, err
	}
	if len(n.ips[host]) == 0 || network != "ip" {
		return nil, notFound(host)
	}
	return n.ips[host], nil
}

func (n *internet) note(q string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looked = append(n.looked, q)
}

func (n *internet) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("dialled something that is not ip:port: %w", err)
	}
	n.mu.Lock()
	n.dialed = append(n.dialed, addr)
	where := n.real[ap.Addr()]
	n.mu.Unlock()
	if where == "" {
		return nil, errors.New("no route to host")
	}
	var d net.Dialer
	return d.DialContext(ctx, network, where)
}

func (n *internet) dials() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.dialed)
}

// host starts h under a name with a new address.
func (n *internet) host(name string, h *host) netip.Addr {
	n.next++
	ip := netip.AddrFrom4([4]byte{192, 0, 2, n.next})
	n.ips[name] = append(n.ips[name], ip)
	n.real[ip] = h.start(n.t)
	return ip
}

// domain publishes MX records, hosts in order of preference.
func (n *internet) domain(name string, hosts ...string) {
	for i, h := range hosts {
		n.mx[name] = append(n.mx[name], &net.MX{Host: h + ".", Pref: uint16(10 * (i + 1))})
	}
}

// host is an SMTP server: strict about what it hears, and as ill-mannered as its fields say.
type host struct {
	t        testing.TB
	greeting string            // default "220 fake ESMTP"
	offers   []string          // EHLO keywords
	tls      *tls.Config       // STARTTLS works with it
	implicit bool              // TLS from the first byte
	answers  map[string]string // by verb, "." for the final dot; CRLF is added
	// hook answers in place of the host; it returns false to let the host do it.
	hook func(p *peer, verb string) bool

	mu     sync.Mutex
	log    []string
	bodies []string
	conns  int
	chunks []string // the BDAT commands
}

// peer is the host's end of one connection.
type peer struct {
	h    *host
	conn net.Conn
	br   *bufio.Reader
	gone bool
	rcpt bool            // a recipient was taken
	part strings.Builder // of a message by BDAT
}

func (h *host) start(t testing.TB) string {
	h.t = t
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				h.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

func (h *host) serve(conn net.Conn) {
	h.mu.Lock()
	h.conns++
	h.mu.Unlock()
	if h.implicit {
		conn = tls.Server(conn, h.tls)
	}
	p := &peer{h: h, conn: conn, br: bufio.NewReader(conn)}
	if h.hook != nil && h.hook(p, "") {
		return
	}
	greeting := h.greeting
	if greeting == "" {
		greeting = "220 fake ESMTP"
	}
	p.say(greeting)
	for p.turn() {
	}
}

// hangUp ends the connection in the midst of whatever goes on.
func (p *peer) hangUp() {
	p.gone = true
	p.conn.Close()
}

func (p *peer) say(s string) { io.WriteString(p.conn, s+"\r\n") }

// turn answers one command; false ends the connection.
func (p *peer) turn() bool {
	line, err := p.br.ReadString('\n')
	if err != nil {
		return false
	}
	if !strings.HasSuffix(line, "\r\n") || strings.Count(line, "\r") != 1 {
		p.h.t.Errorf("command %q does not end in CRLF", line)
	}
	line = strings.TrimSuffix(line, "\r\n")
	p.h.mu.Lock()
	p.h.log = append(p.h.log, line)
	p.h.mu.Unlock()
	verb, _, _ := strings.Cut(line, " ")
	if p.h.hook != nil && p.h.hook(p, verb) {
		return !p.gone
	}
	if verb == "BDAT" {
		return p.chunk(line)
	}
	if answer, ok := p.h.answers[verb]; ok {
		p.say(answer)
		return answer[:3] != "421"
	}
	return p.comply(verb)
}

func (p *peer) comply(verb string) bool {
	switch verb {
	case "EHLO":
		p.say(strings.Join(append([]string{"250-fake"}, p.keywords()...), "\r\n250-") + "\r\n250 HELP")
	case "STARTTLS":
		p.say("220 go ahead")
		p.conn = tls.Server(p.conn, p.h.tls)
		p.br = bufio.NewReader(p.conn)
	case "DATA":
		p.say("354 go ahead")
		p.body()
	case "QUIT":
		p.say("221 bye")
		return false
	default:
		p.rcpt = verb == "RCPT" || p.rcpt && verb != "RSET" && verb != "MAIL"
		p.say("250 2.0.0 ok")
	}
	return true
}

// chunk reads a chunk by the letter of RFC 3030.
func (p *peer) chunk(line string) bool {
	var n int
	var last string
	if words, _ := fmt.Sscanf(line, "BDAT %d %s", &n, &last); words < 1 || last != "" && last != "LAST" {
		p.h.t.Errorf("command %q", line)
		return false
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(p.br, data); err != nil {
		return false
	}
	p.h.mu.Lock()
	p.h.chunks = append(p.h.chunks, line)
	p.h.mu.Unlock()
	if !p.rcpt {
		p.say("503 5.5.1 no valid recipients")
		return true
	}
	if answer, ok := p.h.answers["BDAT"]; ok {
		p.say(answer)
		return true
	}
	p.part.Write(data)
	if last == "" {
		p.say("250 2.0.0 go on")
		return true
	}
	body := p.part.String()
	p.part.Reset()
	p.rcpt = false
	if strings.Contains(strings.ReplaceAll(body, "\r\n", ""), "\r") || strings.Contains(strings.ReplaceAll(body, "\r\n", ""), "\n") || body != "" && !strings.HasSuffix(body, "\r\n") {
		p.h.t.Errorf("a chunked message has a bare CR or LF: %.100q", body)
	}
	p.h.mu.Lock()
	p.h.bodies = append(p.h.bodies, body)
	p.h.mu.Unlock()
	p.say("250 2.0.0 queued as 1")
	return true
}

func (p *peer) keywords() []string {
	out := slices.Clone(p.h.offers)
	if _, secure := p.conn.(*tls.Conn); p.h.tls != nil && !secure {
		out = append(out, "STARTTLS")
	}
	return out
}

// body reads a message by the letter of RFC 5321: only CRLF ends a line, only CRLF.CRLF the
// message.
func (p *peer) body() {
	var b strings.Builder
	for {
		line, err := p.br.ReadString('\n')
		if err != nil {
			return
		}
		if strings.Count(line, "\r") != 1 || !strings.HasSuffix(line, "\r\n") {
			p.h.t.Errorf("body line %q has a bare CR or LF", line)
		}
		if line == ".\r\n" {
			break
		}
		b.WriteString(strings.TrimPrefix(line, "."))
	}
	p.h.mu.Lock()
	p.h.bodies = append(p.h.bodies, b.String())
	p.h.mu.Unlock()
	answer := p.h.answers["."]
	if answer == "" {
		answer = "250 2.0.0 queued as 1"
	}
	if p.h.hook != nil && p.h.hook(p, ".") {
		return
	}
	p.say(answer)
}

func (h *host) heard() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

func (h *host) received() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.bodies)
}

func (h *host) connections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns
}

func text(s string) Message {
	return Message{Size: int64(len(s)), Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }}
}

var hello = text("Subject: hello\r\n\r\nhello\r\n")

func envelope() Envelope { return Envelope{From: "a@us.example", To: "b@them.example"} }

// certificate makes a self-signed one for names and the pool that trusts it.
func certificate(t testing.TB, names ...string) (*tls.Config, *x509.CertPool) {
	return certificateUntil(t, time.Now().Add(time.Hour), names...)
}

func certificateUntil(t testing.TB, end time.Time, names ...string) (*tls.Config, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fake"}, DNSNames: names,
		NotBefore: end.Add(-2 * time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, pool
}

// want checks the parts of a result that every test cares about.
func want(t *testing.T, r Result, status Status, code int, enhanced string) {
	t.Helper()
	if r.Status != status || r.Code != code || r.Enhanced != enhanced {
		t.Errorf("got %v %d %s %q, want %v %d %s", r.Status, r.Code, r.Enhanced, r.Reply, status, code, enhanced)
	}
	for _, a := range r.Attempts {
		if a.Enhanced == "" || a.Reply == "" || a.At.IsZero() {
			t.Errorf("attempt %+v lacks enhanced code, reply or time", a)
		}
	}
}
