package e2e

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/lookup/lookuptest"
	"github.com/miekg/dns"
)

// A fakeResolver is the internet's DNS as the tests need it: some names of its own, and delegation
// of the rest to an authoritative server.
type fakeResolver struct {
	addr string
	mu   sync.Mutex
	mute bool                           // it answers nothing
	ad   bool                           // DNSSEC vouches for its own names, to those who ask
	auth string                         // where names without an own answer are looked up; "" = NXDOMAIN
	own  map[string]map[uint16][]dns.RR // by lower-case name with final dot
	hook func(dns.Question)             // sees each question before it is answered; may be nil
	held chan struct{}                  // what a hook waits for
}

func newResolver(t *testing.T) *fakeResolver {
	t.Helper()
	pc, ln := lookuptest.SamePort(t)
	f := &fakeResolver{addr: pc.LocalAddr().String(), own: map[string]map[uint16][]dns.RR{}}
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: f}, {Listener: ln, Handler: f}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return f
}

// at has it answer at another address too.
func (f *fakeResolver) at(t *testing.T, addr string) {
	t.Helper()
	pc, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: f}, {Listener: ln, Handler: f}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
}

// set gives a name its records of one type, in zone-file form without the name.
func (f *fakeResolver) set(t *testing.T, name, kind string, values ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	name = dns.Fqdn(strings.ToLower(name))
	if f.own[name] == nil {
		f.own[name] = map[uint16][]dns.RR{}
	}
	var rrs []dns.RR
	for _, v := range values {
		rr, err := dns.NewRR(fmt.Sprintf("%s 0 IN %s %s", name, kind, v))
		if err != nil {
			t.Fatal(err)
		}
		rrs = append(rrs, rr)
	}
	f.own[name][dns.StringToType[kind]] = rrs
}

func (f *fakeResolver) delegate(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.auth = addr
}

// hush makes the resolver dead, or brings it back.
func (f *fakeResolver) hush(mute bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mute = mute
}

func (f *fakeResolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	f.mu.Lock()
	name := strings.ToLower(q.Question[0].Name)
	byType, known := f.own[name]
	rrs, has := byType[q.Question[0].Qtype]
	auth, mute, hook, ad := f.auth, f.mute, f.hook, f.ad
	vouched := ad && known && q.IsEdns0() != nil && q.IsEdns0().Do()
	f.mu.Unlock()
	if hook != nil {
		hook(q.Question[0])
	}
	if mute {
		return
	}
	answer := new(dns.Msg).SetReply(q)
	answer.RecursionAvailable, answer.AuthenticatedData = true, vouched
	switch {
	case has:
		answer.Answer = rrs
	case known && vouched:
	case auth != "":
		if real, _, err := new(dns.Client).Exchange(q.Copy(), auth); err == nil {
			answer = real
			answer.RecursionAvailable = true
			for _, rr := range append(append([]dns.RR{}, real.Answer...), real.Ns...) {
				rr.Header().Ttl = 0 // tests change zones, and nobody is to keep what they were
			}
			if ad && real.Rcode == dns.RcodeRefused { // nobody's name
				answer = new(dns.Msg).SetRcode(q, dns.RcodeNameError)
				answer.AuthenticatedData = true
			}
		} else {
			answer.Rcode = dns.RcodeServerFailure
		}
	case !known:
		answer.Rcode = dns.RcodeNameError
	}
	_ = w.WriteMsg(answer)
}

// A hook is an HTTPS receiver that trusts nobody: it verifies both signatures of every delivery by
// itself.
type hook struct {
	t      *testing.T
	server *httptest.Server
	caFile string
	mu     sync.Mutex
	secret string
	events []hookEvent
	bad    []string
}

type hookEvent struct {
	ID, Type string
	Data     map[string]any
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{t: t}
	h.server = httptest.NewUnstartedServer(h)
	h.server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that a kill cuts are no news
	h.server.StartTLS()
	t.Cleanup(h.server.Close)
	h.caFile = filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
	if err := os.WriteFile(h.caFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// subscribe makes an endpoint for the types.
func (h *hook) subscribe(i *instance, types ...string) (id string) {
	h.t.Helper()
	var made struct{ ID, Secret string }
	i.want(201, "POST", "/v1/webhooks", map[string]any{"url": h.server.URL, "events": types}, &made)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.secret = made.Secret
	return made.ID
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever posts was killed in the middle
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	err = h.verify(r.Header, body)
	var e hookEvent
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if err != nil {
		h.bad = append(h.bad, err.Error())
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.events = append(h.events, e)
}

func (h *hook) verify(header http.Header, body []byte) error {
	mac := hmac.New(sha256.New, []byte(h.secret))
	fmt.Fprintf(mac, "%s.%s", header.Get("X-Service-Timestamp"), body)
	if want := "v1=" + hex.EncodeToString(mac.Sum(nil)); !slices.Contains(strings.Split(header.Get("X-Service-Signature"), ","), want) {
		return fmt.Errorf("X-Service-Signature %q is not %q", header.Get("X-Service-Signature"), want)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(h.secret, "whsec_"))
	if err != nil {
		return err
	}
	mac = hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", header.Get("webhook-id"), header.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); !slices.Contains(strings.Fields(header.Get("webhook-signature")), want) {
		return fmt.Errorf("webhook-signature %q is not %q", header.Get("webhook-signature"), want)
	}
	return nil
}

// of gives the ids of the events of a type by one of their data fields.
func (h *hook) of(kind, field string) map[string][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.bad {
		h.t.Errorf("a delivery did not verify: %s", b)
	}
	out := map[string][]string{}
	for _, e := range h.events {
		if e.Type != kind {
			continue
		}
		key := fmt.Sprint(e.Data[field])
		if !slices.Contains(out[key], e.ID) {
			out[key] = append(out[key], e.ID)
		}
	}
	return out
}

// A fakeSMTP is a strict mail server: a relay that mints ids, or somebody's MX. It takes any
// log-in, wants one recipient in a transaction if it is told so, CRLF everywhere, and keeps what it
// took.
type fakeSMTP struct {
	t       *testing.T
	addr    string
	oneRcpt bool
	cuts    bool               // whoever sends may be killed in the middle of a message
	reply   func(n int) string // to the n-th message, from 1
	mu      sync.Mutex
	took    []tookMail
}

type tookMail struct {
	From string
	To   []string
	Data []byte
}

func newSMTP(t *testing.T, oneRcpt bool, reply func(n int) string) *fakeSMTP {
	t.Helper()
	f := &fakeSMTP{t: t, oneRcpt: oneRcpt, reply: reply}
	f.addr = answering(t, f.serve)
	return f
}

// answering has every connection to an address of this host served until the test ends, and gives
// the address.
func answering(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return ln.Addr().String()
}

// newPicky is a relay that refuses gone@ for good and later@ for now, and mints ids as SES does.
func newPicky(t *testing.T) *fakeSMTP {
	t.Helper()
	var relay *fakeSMTP
	relay = newSMTP(t, true, func(n int) string {
		switch to := relay.mails()[n-1].To[0]; {
		case strings.HasPrefix(to, "gone@"):
			return "550 5.1.1 no such user"
		case strings.HasPrefix(to, "later@"):
			return "451 4.3.0 not now"
		}
		return fmt.Sprintf("250 Ok 0100018f-%d", n)
	})
	return relay
}

func (f *fakeSMTP) mails() []tookMail {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.took)
}

func (f *fakeSMTP) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	say := func(format string, args ...any) { fmt.Fprintf(c, format+"\r\n", args...) }
	say("220 fake ESMTP")
	var m tookMail
	for {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if !strings.HasSuffix(line, "\r\n") {
			say("500 bare LF")
			return
		}
		line = strings.TrimSpace(line)
		verb, rest, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "EHLO":
			say("250-fake\r\n250-8BITMIME\r\n250-PIPELINING\r\n250-AUTH PLAIN\r\n250 SMTPUTF8")
		case "AUTH":
			say("334 ")
			if _, err = r.ReadString('\n'); err != nil {
				return
			}
			say("235 welcome")
		case "MAIL":
			m = tookMail{From: between(rest)}
			say("250 ok")
		case "RCPT":
			if f.oneRcpt && len(m.To) == 1 {
				say("452 one recipient at a time")
				continue
			}
			m.To = append(m.To, between(rest))
			say("250 ok")
		case "DATA":
			say("354 go on")
			m.Data, err = readDots(r)
			if err != nil {
				if !f.cuts {
					f.t.Error(err)
				}
				return
			}
			f.mu.Lock()
			f.took = append(f.took, m)
			n := len(f.took)
			f.mu.Unlock()
			say("%s", f.reply(n))
		case "RSET", "NOOP":
			m = tookMail{}
			say("250 ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("502 no %s", verb)
		}
	}
}

// between takes what stands between < and >.
func between(s string) string {
	_, s, _ = strings.Cut(s, "<")
	s, _, _ = strings.Cut(s, ">")
	return s
}

func readDots(r *bufio.Reader) ([]byte, error) {
	var out bytes.Buffer
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		if !bytes.HasSuffix(line, []byte("\r\n")) {
			return nil, fmt.Errorf("a line of the message ends without CR: %q", line)
		}
		if string(line) == ".\r\n" {
			return out.Bytes(), nil
		}
		out.Write(bytes.TrimPrefix(line, []byte(".")))
	}
}
