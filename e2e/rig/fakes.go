package rig

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

// A FakeResolver answers as the DNS of the internet: it has records of its own, and asks an
// authoritative server for all other names.
type FakeResolver struct {
	Addr    string
	Mu      sync.Mutex
	mute    bool                           // it answers no question
	Vouches bool                           // its own records are answered with the AD bit, to questions with DO
	auth    string                         // where names without an own answer are looked up; "" = NXDOMAIN
	own     map[string]map[uint16][]dns.RR // by lower-case name with final dot
	Hook    func(dns.Question)             // sees each question before it is answered; may be nil
	Release chan struct{}                  // a channel that a hook waits for
}

// NewFakeResolver starts a resolver on a port of 127.0.0.1, over UDP and TCP.
func NewFakeResolver(t *testing.T) *FakeResolver {
	t.Helper()
	pc, ln := lookuptest.SamePort(t)
	f := &FakeResolver{Addr: pc.LocalAddr().String(), own: map[string]map[uint16][]dns.RR{}}
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: f}, {Listener: ln, Handler: f}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return f
}

// ListenAt has the resolver answer at another address too.
func (f *FakeResolver) ListenAt(t *testing.T, addr string) {
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

// Set gives a name its records of one type, in zone-file form without the name.
func (f *FakeResolver) Set(t *testing.T, name, kind string, values ...string) {
	t.Helper()
	f.Mu.Lock()
	defer f.Mu.Unlock()
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

// PointHere gives a name the address 127.0.0.1.
func (f *FakeResolver) PointHere(t *testing.T, name string) {
	t.Helper()
	f.Set(t, name, "A", "127.0.0.1")
	f.Set(t, name, "AAAA")
}

// Delegate has names without records here looked up at addr, an authoritative server.
func (f *FakeResolver) Delegate(addr string) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.auth = addr
}

// SetSilent has the resolver answer no question any more, or answer again.
func (f *FakeResolver) SetSilent(mute bool) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.mute = mute
}

// ServeDNS answers a question.
func (f *FakeResolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	f.Mu.Lock()
	name := strings.ToLower(q.Question[0].Name)
	byType, known := f.own[name]
	rrs, has := byType[q.Question[0].Qtype]
	auth, mute, hook, ad := f.auth, f.mute, f.Hook, f.Vouches
	vouched := ad && known && q.IsEdns0() != nil && q.IsEdns0().Do()
	f.Mu.Unlock()
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

// A WebhookReceiver takes events over HTTPS. It verifies both signatures of every delivery with
// code of its own.
type WebhookReceiver struct {
	t      *testing.T
	Server *httptest.Server
	CAFile string
	Mu     sync.Mutex
	Secret string
	Events []WebhookEvent
	Bad    []string
}

// A WebhookEvent has the fields of an event that tests read.
type WebhookEvent struct {
	ID, Type string
	Data     map[string]any
}

// NewWebhookReceiver starts a receiver, which has no endpoint yet.
func NewWebhookReceiver(t *testing.T) *WebhookReceiver {
	t.Helper()
	h := &WebhookReceiver{t: t}
	h.Server = httptest.NewUnstartedServer(h)
	h.Server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that a kill cuts are no news
	h.Server.StartTLS()
	t.Cleanup(h.Server.Close)
	h.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Server.Certificate().Raw})
	if err := os.WriteFile(h.CAFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// Subscribe creates an endpoint for the types of events, and returns its id.
func (h *WebhookReceiver) Subscribe(i *Instance, types ...string) (id string) {
	h.t.Helper()
	var made struct{ ID, Secret string }
	i.Want(201, "POST", "/v1/webhooks", map[string]any{"url": h.Server.URL, "events": types}, &made)
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.Secret = made.Secret
	return made.ID
}

// ServeHTTP takes a delivery, and answers 400 if it does not verify.
func (h *WebhookReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever posts was killed in the middle
	}
	h.Mu.Lock()
	defer h.Mu.Unlock()
	err = h.verify(r.Header, body)
	var e WebhookEvent
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if err != nil {
		h.Bad = append(h.Bad, err.Error())
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.Events = append(h.Events, e)
}

func (h *WebhookReceiver) verify(header http.Header, body []byte) error {
	mac := hmac.New(sha256.New, []byte(h.Secret))
	fmt.Fprintf(mac, "%s.%s", header.Get("X-Service-Timestamp"), body)
	if want := "v1=" + hex.EncodeToString(mac.Sum(nil)); !slices.Contains(strings.Split(header.Get("X-Service-Signature"), ","), want) {
		return fmt.Errorf("X-Service-Signature %q is not %q", header.Get("X-Service-Signature"), want)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(h.Secret, "whsec_"))
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

// EventIDs returns the ids of the events of a type by the value of one field of their data. Each
// delivery that did not verify fails the test.
func (h *WebhookReceiver) EventIDs(kind, field string) map[string][]string {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	for _, b := range h.Bad {
		h.t.Errorf("a delivery did not verify: %s", b)
	}
	out := map[string][]string{}
	for _, e := range h.Events {
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

// A FakeSMTP is a strict mail server: a relay or an MX. It accepts any log-in, refuses lines that
// do not end in CRLF and, if oneRcpt is set, a second recipient in a transaction. It keeps the
// messages.
type FakeSMTP struct {
	t        *testing.T
	Addr     string
	oneRcpt  bool
	MayBeCut bool               // a message that breaks off is no failure of the test
	reply    func(n int) string // the reply to the n-th message, from 1
	mu       sync.Mutex
	took     []TakenMail
}

// A TakenMail is a message that a FakeSMTP accepted.
type TakenMail struct {
	From string
	To   []string
	Data []byte
}

// NewFakeSMTP starts a mail server on a port of 127.0.0.1.
func NewFakeSMTP(t *testing.T, oneRcpt bool, reply func(n int) string) *FakeSMTP {
	t.Helper()
	f := &FakeSMTP{t: t, oneRcpt: oneRcpt, reply: reply}
	f.Addr = Serve(t, f.Serve)
	return f
}

// Serve listens on a port of 127.0.0.1 until the test ends, calls serve for each connection, and
// returns the address.
func Serve(t *testing.T, serve func(net.Conn)) (addr string) {
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

// Mails returns the messages that were accepted so far.
func (f *FakeSMTP) Mails() []TakenMail {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.took)
}

// Serve speaks SMTP on a connection.
func (f *FakeSMTP) Serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	say := func(format string, args ...any) { fmt.Fprintf(c, format+"\r\n", args...) }
	say("220 fake ESMTP")
	var m TakenMail
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
			m = TakenMail{From: BetweenBrackets(rest)}
			say("250 ok")
		case "RCPT":
			if f.oneRcpt && len(m.To) == 1 {
				say("452 one recipient at a time")
				continue
			}
			m.To = append(m.To, BetweenBrackets(rest))
			say("250 ok")
		case "DATA":
			say("354 go on")
			m.Data, err = ReadDots(r)
			if err != nil {
				if !f.MayBeCut {
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
			m = TakenMail{}
			say("250 ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("502 no %s", verb)
		}
	}
}

// BetweenBrackets returns the part of s between < and >.
func BetweenBrackets(s string) string {
	_, s, _ = strings.Cut(s, "<")
	s, _, _ = strings.Cut(s, ">")
	return s
}

// ReadDots reads a message up to the line with a dot alone, and removes the dots that SMTP adds
// (RFC 5321, section 4.5.2).
func ReadDots(r *bufio.Reader) ([]byte, error) {
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

// ServeHTTPS starts an HTTPS server for webhooks, and returns its URL and a file with its
// certificate.
func ServeHTTPS(t *testing.T, answer http.HandlerFunc) (url, caFile string) {
	t.Helper()
	s := httptest.NewUnstartedServer(answer)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(caFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return s.URL, caFile
}

// KeepSubjects speaks SMTP as a relay on a connection, and counts the messages that it has
// acknowledged in got, whose keys are "recipient subject".
func KeepSubjects(c net.Conn, mu *sync.Mutex, got map[string]int) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 32<<10)
	say := func(text string) { fmt.Fprintf(c, "%s\r\n", text) }
	say("220 relay")
	to := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch strings.ToUpper(line[:min(4, len(line))]) {
		case "EHLO":
			say("250-relay\r\n250-PIPELINING\r\n250 8BITMIME")
		case "RCPT":
			to = BetweenBrackets(line)
			say("250 ok")
		case "DATA":
			say("354 go on")
			text, err := ReadDots(r)
			if err != nil {
				return
			}
			_, subject, _ := strings.Cut(string(text), "\nSubject: ")
			subject, _, _ = strings.Cut(subject, "\r")
			mu.Lock()
			got[to+" "+subject]++
			mu.Unlock()
			say("250 Ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}
