package rfc2136_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rfc2136"
)

// Keys of the servers. That of others is used by strangers, and that of guests may change nothing.
const (
	ourKey, ourSecret     = "ours.key.test.", "b3VyIHNlY3JldCBvZiAzMiBieXRlcywgbm8gbW9yZSE="
	theirKey, theirSecret = "theirs.key.test.", "dGhlaXIgc2VjcmV0IG9mIDMyIGJ5dGVzLCBubyBsZXM="
	guestKey, guestSecret = "guest.key.test.", "YSBndWVzdCdzIHNlY3JldCBvZiAzMiBieXRlcyB0b28="
	otherSecret           = "YSBzZWNyZXQgdGhhdCBub2JvZHkgaGFzIGdpdmVuIG0="
)

const loopback = "127.0.0.1" // bind listens at no other address of the interface

// zoneText is a zone at the start; its gap is its name.
const zoneText = `$ORIGIN %[1]s.
$TTL 3600
@ SOA ns.elsewhere.test. hostmaster.elsewhere.test. 1 3600 600 86400 60
@ NS ns.elsewhere.test.
`

// The gaps of bindConf and knotConf are the directory, the address and the port.
const bindConf = `options {
	directory "%[1]s";
	listen-on port %[3]s { %[2]s; };
	listen-on-v6 { none; };
	pid-file none;
	session-keyfile none;
	managed-keys-directory "%[1]s";
	recursion no;
	dnssec-validation no;
	notify no;
	transfers-out 200;
	tcp-clients 1000;
};
controls {};
key "ours.key.test" { algorithm hmac-sha256; secret "` + ourSecret + `"; };
key "theirs.key.test" { algorithm hmac-sha256; secret "` + theirSecret + `"; };
key "guest.key.test" { algorithm hmac-sha256; secret "` + guestSecret + `"; };
key "224.key.test" { algorithm hmac-sha224; secret "` + ourSecret + `"; };
key "384.key.test" { algorithm hmac-sha384; secret "` + ourSecret + `"; };
key "512.key.test" { algorithm hmac-sha512; secret "` + ourSecret + `"; };
`

const knotConf = `server:
  rundir: "%[1]s"
  listen: "%[2]s@%[3]s"
  tcp-max-clients: 1000
database:
  storage: "%[1]s"
log:
  - target: stderr
    any: info
key:
  - id: ours.key.test
    algorithm: hmac-sha256
    secret: "` + ourSecret + `"
  - id: theirs.key.test
    algorithm: hmac-sha256
    secret: "` + theirSecret + `"
  - id: guest.key.test
    algorithm: hmac-sha256
    secret: "` + guestSecret + `"
  - id: 224.key.test
    algorithm: hmac-sha224
    secret: "` + ourSecret + `"
  - id: 384.key.test
    algorithm: hmac-sha384
    secret: "` + ourSecret + `"
  - id: 512.key.test
    algorithm: hmac-sha512
    secret: "` + ourSecret + `"
acl:
  - id: ours
    key: [ours.key.test, 224.key.test, 384.key.test, 512.key.test]
    action: update
  - id: copies
    key: ours.key.test
    action: transfer
  - id: theirs
    key: theirs.key.test
    action: [update, transfer]
template:
  - id: default
    storage: "%[1]s"
    file: "%%s.zone"
    zonefile-sync: -1
    zonefile-load: whole
zone:
`

// A kind is a kind of nameserver.
type kind struct {
	name, program, conf string
	args                []string
	zone                func(name string, open bool) string // its part of the configuration
}

var kinds = []kind{
	{"bind9", "named", bindConf, []string{"-g"}, func(name string, open bool) string {
		copies := "key theirs.key.test;"
		if open {
			copies += " key ours.key.test;"
		}
		const changes = "key ours.key.test; key 224.key.test; key 384.key.test; key 512.key.test; key theirs.key.test;"
		return fmt.Sprintf("zone %q { type primary; file \"%s.zone\"; allow-update { %s }; allow-transfer { %s }; };\n", name, name, changes, copies)
	}},
	{"knot", "knotd", knotConf, nil, func(name string, open bool) string {
		acl := "ours, theirs"
		if open {
			acl += ", copies"
		}
		return fmt.Sprintf("  - domain: %s\n    acl: [%s]\n", name, acl)
	}},
}

// A peer is a nameserver of somebody else's. Its zones are empty but for SOA and NS.
type peer struct {
	kind
	addr  string
	taken atomic.Int64 // zones
	zones int          // of each sort
}

// start runs a nameserver until the test ends, with a number of zones that we may copy, and as
// many that we may not.
func start(t *testing.T, k kind, zones int) *peer {
	t.Helper()
	program := ""
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		path := filepath.Join(dir, k.program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && program == "" {
			program = path
		}
	}
	switch {
	case program == "" && os.Getenv("CI") == "true":
		t.Fatalf("%s is missing; make peers installs it", k.program)
	case program == "":
		t.Skipf("%s is not installed", k.program)
	}
	for range 5 { // another program may take the port
		if p := tryStart(t, k, program, zones); p != nil {
			return p
		}
	}
	t.Fatalf("%s does not start", k.program)
	return nil
}

func tryStart(t *testing.T, k kind, program string, zones int) *peer {
	t.Helper()
	port := fmt.Sprint(30_001 + rand.IntN(2700)) // below those that the kernel gives, above those of the end-to-end tests
	p := &peer{kind: k, addr: net.JoinHostPort(loopback, port), zones: zones}
	free, err := net.Listen("tcp", p.addr)
	if err != nil {
		return nil
	}
	free.Close()
	dir := t.TempDir()
	conf := fmt.Sprintf(k.conf, dir, loopback, port)
	for n := range zones {
		for _, open := range []bool{true, false} {
			name := zoneName(n, open)
			conf += k.zone(name, open)
			write(t, filepath.Join(dir, name+".zone"), fmt.Sprintf(zoneText, name))
		}
	}
	file := filepath.Join(dir, "conf")
	write(t, file, conf)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(slices.Clone(k.args), "-c", file)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Errorf("%s does not stop", program)
			_ = cmd.Process.Kill()
			<-ended
		}
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s says:\n%s", k.program, text[max(0, len(text)-10_000):])
		}
	})
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if p.serves(zoneName(zones-1, false)) {
			return p
		}
		select {
		case <-ended:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
	text, _ := os.ReadFile(log.Name())
	t.Fatalf("%s does not serve its zones:\n%s", k.program, text)
	return nil
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func zoneName(n int, open bool) string {
	if open {
		return fmt.Sprintf("open%d.test", n)
	}
	return fmt.Sprintf("closed%d.test", n)
}

func (p *peer) serves(zone string) bool {
	c := dns.Client{Net: "tcp", Timeout: time.Second}
	m, _, err := c.Exchange(new(dns.Msg).SetQuestion(zone+".", dns.TypeSOA), p.addr)
	return err == nil && m.Authoritative
}

// newZone returns the name of an empty zone. If it is open we may copy it.
func (p *peer) newZone(t *testing.T, open bool) string {
	t.Helper()
	n := int(p.taken.Add(1)) - 1
	if n >= p.zones {
		t.Fatalf("%s has only %d zones", p.name, p.zones)
	}
	name := zoneName(n, open)
	for deadline := time.Now().Add(10 * time.Second); !p.serves(name); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not serve %s", p.name, name)
		}
	}
	return name
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// client returns our client for zones of the server.
func (p *peer) client(t *testing.T, dial dialer, zones ...string) *rfc2136.Client {
	t.Helper()
	return client(t, rfc2136.Config{Server: p.addr, KeyName: ourKey, Secret: ourSecret, Zones: zones, Dial: dial})
}

func client(t *testing.T, conf rfc2136.Config) *rfc2136.Client {
	t.Helper()
	c, err := rfc2136.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// change sends an update of a stranger's, without prerequisites.
func (p *peer) change(t *testing.T, zone string, insert, remove []dns.RR) {
	t.Helper()
	if err := p.tryChange(zone, insert, remove); err != nil {
		t.Fatal(err)
	}
}

func (p *peer) tryChange(zone string, insert, remove []dns.RR) error {
	m := new(dns.Msg).SetUpdate(zone + ".")
	m.Remove(copies(remove))
	m.Insert(copies(insert))
	in, err := p.ask(m)
	if err == nil && in.Rcode != dns.RcodeSuccess {
		err = errors.New(dns.RcodeToString[in.Rcode])
	}
	return err
}

func copies(rrs []dns.RR) []dns.RR {
	var out []dns.RR
	for _, rr := range rrs {
		out = append(out, dns.Copy(rr))
	}
	return out
}

// ask sends a message of a stranger's.
func (p *peer) ask(m *dns.Msg) (*dns.Msg, error) {
	m.SetTsig(theirKey, dns.HmacSHA256, 300, time.Now().Unix())
	c := dns.Client{Net: "tcp", Timeout: 20 * time.Second, TsigSecret: map[string]string{theirKey: theirSecret}}
	in, _, err := c.Exchange(m, p.addr)
	return in, err
}

// all returns the records of a zone, as a stranger gets them, without the zone's own SOA and NS.
func (p *peer) all(t *testing.T, zone string) []dns.RR {
	t.Helper()
	m := new(dns.Msg).SetAxfr(zone + ".")
	m.SetTsig(theirKey, dns.HmacSHA256, 300, time.Now().Unix())
	tr := dns.Transfer{TsigSecret: map[string]string{theirKey: theirSecret}, ReadTimeout: 20 * time.Second}
	parts, err := tr.In(m, p.addr)
	if err != nil {
		t.Fatal(err)
	}
	var out []dns.RR
	for part := range parts {
		if part.Error != nil {
			t.Fatal(part.Error)
		}
		for _, rr := range part.RR {
			if h := rr.Header(); h.Rrtype != dns.TypeSOA && (h.Rrtype != dns.TypeNS || h.Name != zone+".") {
				out = append(out, rr)
			}
		}
	}
	return out
}

// records is all in the form of providers.
func (p *peer) records(t *testing.T, zone string) []dnsprov.Record {
	t.Helper()
	var out []dnsprov.Record
	for _, rr := range p.all(t, zone) {
		out = append(out, dnsprov.RecordOf(rr))
	}
	return out
}

func rr(t *testing.T, format string, args ...any) dns.RR {
	t.Helper()
	out, err := dns.NewRR(fmt.Sprintf(format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// hasNoSecret fails the test if an error tells a secret.
func hasNoSecret(t *testing.T, err error) {
	t.Helper()
	for _, secret := range []string{ourSecret, theirSecret, guestSecret, otherSecret} {
		plain, _ := base64.StdEncoding.DecodeString(secret)
		if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), string(plain))) {
			t.Errorf("%v tells a secret", err)
		}
	}
}
