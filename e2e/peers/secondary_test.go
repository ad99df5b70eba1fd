package peers

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/internal/lookup/lookuptest"
	"github.com/miekg/dns"
)

const (
	nsdSecret  = "bnNkIGFuZCB3ZSBzaGFyZSB0aGlzIHNlY3JldCA6LSk="
	knotSecret = "a25vdCBhbmQgd2Ugc2hhcmUgdGhpcyBzZWNyZXQgOi0p"
)

// nsdConf and knotConf are secondaries. Their gaps are their own address and port, their directory,
// our address and port, and the secret.
const nsdConf = `server:
  ip-address: %[1]s@%[2]s
  port: %[2]s
  username: ""
  chroot: ""
  zonesdir: "%[3]s"
  database: ""
  pidfile: "%[3]s/nsd.pid"
  xfrdfile: "%[3]s/xfrd.state"
  zonelistfile: "%[3]s/zone.list"
  xfrdir: "%[3]s"
  server-count: 1
  verbosity: 2
remote-control:
  control-enable: no
key:
  name: nsd.key.test
  algorithm: hmac-sha256
  secret: "%[6]s"
zone:
  name: example.test
  zonefile: example.zone
  allow-notify: %[4]s nsd.key.test
  request-xfr: %[4]s@%[5]s nsd.key.test
`

const knotConf = `server:
  rundir: "%[3]s"
  listen: "%[1]s@%[2]s"
database:
  storage: "%[3]s"
log:
  - target: stderr
    any: info
key:
  - id: knot.key.test
    algorithm: hmac-sha512
    secret: "%[6]s"
remote:
  - id: primary
    address: "%[4]s@%[5]s"
    key: knot.key.test
acl:
  - id: told
    address: "%[4]s"
    key: knot.key.test
    action: notify
template:
  - id: default
    storage: "%[3]s"
    zonefile-sync: -1
    zonefile-load: none
    journal-content: all
    master: primary
    acl: told
  - id: member
    storage: "%[3]s"
    zonefile-sync: -1
    zonefile-load: none
    journal-content: all
    master: primary
    acl: told
zone:
  - domain: catalog.test
    catalog-role: interpret
    catalog-template: member
`

// A copier is a nameserver of somebody else's that copies our zones.
type copier struct {
	t    *testing.T
	addr string
}

// startCopier runs a secondary until the test ends.
func startCopier(t *testing.T, program, conf, addr, primary, secret string, args ...string) *copier {
	t.Helper()
	dir := t.TempDir()
	ip, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	ourIP, ourPort, err := net.SplitHostPort(primary)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, conf, ip, port, dir, ourIP, ourPort, secret), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(args, "-c", file)...)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopProgram(t, cmd)
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s says:\n%s", filepath.Base(program), text)
		}
	})
	return &copier{t: t, addr: addr}
}

// stopProgram ends what the test has started, and waits.
func stopProgram(t *testing.T, cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(10*time.Second, func() {
		t.Errorf("%s does not stop", cmd.Path)
		_ = cmd.Process.Kill()
	})
	defer late.Stop()
	_ = cmd.Wait()
}

// ask sends one query over UDP, for signatures too; nil if there is no answer.
func (c *copier) ask(name string, typ uint16) *dns.Msg {
	client := dns.Client{Timeout: time.Second}
	m, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, typ).SetEdns0(1232, true), c.addr)
	if err != nil {
		return nil
	}
	return m
}

// comes waits until an answer of the secondary is as it should be.
func (c *copier) comes(what, name string, typ uint16, ok func(*dns.Msg) bool) {
	c.t.Helper()
	start := time.Now()
	for deadline := start.Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		m := c.ask(name, typ)
		if m != nil && ok(m) {
			c.t.Logf("%s: %s after %v", c.addr, what, time.Since(start).Round(time.Millisecond))
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: no %s after 10 s: %v", c.addr, what, m)
		}
	}
}

// answered tells whether an answer has what was asked for, and its signature.
func answered(m *dns.Msg) bool {
	return m.Rcode == dns.RcodeSuccess && m.Authoritative && len(m.Answer) == 2 && m.Answer[1].Header().Rrtype == dns.TypeRRSIG
}

func refused(m *dns.Msg) bool { return m.Rcode == dns.RcodeRefused }

// secondariesFile lists both secondaries and one more that is dead, which must not be felt.
func secondariesFile(nsd, knot string) string {
	return fmt.Sprintf(`[dns]
catalog = "catalog.test"
[[dns.secondaries]]
name = "dead"
address = "127.53.0.66:9"
[[dns.secondaries]]
name = "nsd"
address = %q
tsig_name = "nsd.key.test"
tsig_secret = %q
[[dns.secondaries]]
name = "knot"
address = %q
nameserver = "ns3.elsewhere.test"
tsig_name = "knot.key.test"
tsig_algorithm = "hmac-sha512"
tsig_secret = %q
`, nsd, nsdSecret, knot, knotSecret)
}

// TestSecondariesFollow: what the API changes is at NSD and Knot within seconds, which are told and
// fetch it, both with a key; Knot learns from the catalog which zones there are.
func TestSecondariesFollow(t *testing.T) {
	t.Parallel()
	nsdPath, knotPath := rig.Peer(t, "nsd"), rig.Peer(t, "knotd")
	nsdAddr := net.JoinHostPort("127.53.0.61", rig.FreePortOn(t, "127.53.0.61"))
	knotAddr := net.JoinHostPort("127.53.0.62", rig.FreePortOn(t, "127.53.0.62"))
	i := rig.Start(t, secondariesFile(nsdAddr, knotAddr))
	id := i.AddDomain("example.test")
	nsd := startCopier(t, nsdPath, nsdConf, nsdAddr, i.Ready.DNS, nsdSecret, "-d")
	knot := startCopier(t, knotPath, knotConf, knotAddr, i.Ready.DNS, knotSecret)
	for _, c := range []*copier{nsd, knot} {
		c.comes("first copy", "example.test.", dns.TypeMX, answered)
		c.comes("third nameserver", "example.test.", dns.TypeNS, func(m *dns.Msg) bool {
			return len(m.Answer) == 4 && strings.Contains(fmt.Sprint(m.Answer), "ns3.elsewhere.test.")
		})
	}
	i.Want(200, "POST", "/v1/domains/"+id+"/custom-dns-records", map[string]any{"name": "fresh", "type": "TXT", "value": "just now"}, nil)
	for _, c := range []*copier{nsd, knot} {
		c.comes("new record", "fresh.example.test.", dns.TypeTXT, answered)
	}
	second := i.AddDomain("second.test")
	knot.comes("new zone", "second.test.", dns.TypeMX, answered)
	i.Want(202, "DELETE", "/v1/domains/"+second, nil, nil)
	knot.comes("removal", "second.test.", dns.TypeMX, refused)

	serial := nsd.ask("example.test.", dns.TypeSOA).Answer[0].(*dns.SOA).Serial
	i.Stop()
	i.Args = append(i.Args, "--public-ip", "192.0.2.77", "--dns", i.Ready.DNS) // the last flag wins
	i.Start()
	for _, c := range []*copier{nsd, knot} {
		c.comes("new address after a restart", "example.test.", dns.TypeA, func(m *dns.Msg) bool {
			return answered(m) && m.Answer[0].(*dns.A).A.String() == "192.0.2.77"
		})
	}
	if now := nsd.ask("example.test.", dns.TypeSOA).Answer[0].(*dns.SOA).Serial; now <= serial {
		t.Errorf("serial %d after %d", now, serial)
	}
}

// run gives what a program prints, for as long as it may take.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // a refused transfer is an error of kdig's; what it prints tells
	return out.String()
}

const (
	otherSecret   = "bm9ib2R5IGhhcyBldmVyIHNoYXJlZCB0aGlzIHRoaW5n"
	noTransfer    = "REFUSED"
	listedAddress = "127.53.0.65"
)

// TestOnlySecondariesCopy: a whole zone goes to whoever has a secondary's key, or has none and
// comes from its address.
func TestOnlySecondariesCopy(t *testing.T) {
	t.Parallel()
	kdig, dig := rig.Peer(t, "kdig"), rig.Peer(t, "dig")
	i := rig.Start(t, secondariesFile("127.53.0.63:9", "127.53.0.64:9")+"[[dns.secondaries]]\naddress = \""+listedAddress+":9\"\n")
	i.AddDomain("example.test")
	host, port, err := net.SplitHostPort(i.Ready.DNS)
	if err != nil {
		t.Fatal(err)
	}
	const soaTwice = "2"
	nsdKey, knotKey := "hmac-sha256:nsd.key.test:"+nsdSecret, "hmac-sha512:knot.key.test:"+knotSecret
	for _, tc := range []struct{ name, program, args, want string }{
		{"key of NSD", dig, "-y " + nsdKey + " example.test AXFR", soaTwice},
		{"key of Knot", kdig, "-y " + knotKey + " example.test AXFR", soaTwice},
		{"IXFR from an old version", kdig, "-y " + knotKey + " example.test IXFR=1", soaTwice},
		{"catalog", kdig, "-y " + knotKey + " catalog.test AXFR", soaTwice},
		{"listed address", dig, "-b " + listedAddress + " example.test AXFR", soaTwice},
		{"no key", dig, "example.test AXFR", "Transfer failed"},
		{"no key", kdig, "example.test AXFR", noTransfer},
		{"no key, IXFR", kdig, "example.test IXFR=1", noTransfer},
		{"another address", kdig, "-b 127.53.0.67 example.test AXFR", noTransfer},
		{"address of a secondary that has a key", kdig, "-b 127.53.0.63 example.test AXFR", noTransfer},
		{"wrong secret", kdig, "-y hmac-sha256:nsd.key.test:" + otherSecret + " example.test AXFR", "BADSIG"},
		{"wrong secret from a listed address", kdig, "-b " + listedAddress + " -y hmac-sha256:nsd.key.test:" + otherSecret + " example.test AXFR", "BADSIG"},
		{"unknown key", kdig, "-y hmac-sha256:other.key.test:" + nsdSecret + " example.test AXFR", "BADKEY"},
		{"another algorithm", kdig, "-y hmac-sha512:nsd.key.test:" + nsdSecret + " example.test AXFR", "BADKEY"},
		{"a zone that is not here", kdig, "-y " + knotKey + " other.test AXFR", "NOTAUTH"},
		{"a name inside a zone", kdig, "-y " + knotKey + " mail.example.test AXFR", "NOTAUTH"},
		{"the catalog, by anybody", kdig, "catalog.test SOA", noTransfer},
		{"a signed query", dig, "-y " + nsdKey + " example.test MX", "TSIG PSEUDOSECTION"},
		{"a cookie", kdig, "+cookie example.test MX", "COOKIE"},
	} {
		out := run(t, tc.program, append([]string{"@" + host, "-p", port}, strings.Fields(tc.args)...)...)
		if tc.want == soaTwice {
			if n := strings.Count(out, "\tSOA\t"); n != 2 {
				t.Errorf("%s: %d times the SOA:\n%s", tc.name, n, out)
			}
		} else if !strings.Contains(out, tc.want) || strings.Contains(out, "\tSOA\t") {
			t.Errorf("%s: want %s:\n%s", tc.name, tc.want, out)
		}
		if strings.Contains(out, "WARNING") && tc.want == soaTwice {
			t.Errorf("%s: there is a complaint:\n%s", tc.name, out)
		}
	}
}

// signedDomain is what the API shows of a domain that is signed.
type signedDomain struct {
	Domain string
	DNSSEC struct {
		Status string
		DNSKEY string
		DS     []struct {
			KeyTag     int `json:"key_tag"`
			Algorithm  int
			DigestType int `json:"digest_type"`
			Digest     string
			Value      string
		}
	}
}

func readSigned(i *rig.Instance, id string) (d signedDomain) {
	i.T.Helper()
	i.Want(200, "GET", "/v1/domains/"+id, nil, &d)
	if len(d.DNSSEC.DS) != 1 {
		i.T.Fatalf("dnssec: %+v", d.DNSSEC)
	}
	return d
}

func addRecord(i *rig.Instance, domainID, typ, name, value string) {
	i.T.Helper()
	i.Want(200, "POST", "/v1/domains/"+domainID+"/custom-dns-records", map[string]any{"type": typ, "name": name, "value": value}, nil)
}

// addSigned makes a domain with an alias, a long text and a name without records, and gives its id.
func addSigned(i *rig.Instance, name string) string {
	i.T.Helper()
	id := i.AddDomain(name)
	addRecord(i, id, "CNAME", "www", "@")
	addRecord(i, id, "TXT", "long", strings.Repeat("0123456789", 300))
	addRecord(i, id, "A", "a.b", "192.0.2.9")
	return id
}

// query runs a program that asks the instance, and gives what it says.
func query(i *rig.Instance, path string, args ...string) string {
	i.T.Helper()
	host, port, err := net.SplitHostPort(i.Ready.DNS)
	if err != nil {
		i.T.Fatal(err)
	}
	out, _ := exec.CommandContext(i.T.Context(), path, append([]string{"@" + host, "-p", port}, args...)...).CombinedOutput()
	return string(out) // the status does not count: delv has the same for most ends
}

func TestDigSeesSignatures(t *testing.T) {
	dig, kdig := program(t, "dig"), program(t, "kdig")
	i := rig.Start(t, "")
	id := addSigned(i, "signed.test")
	d := readSigned(i, id)
	for _, tc := range []struct{ args, want string }{
		{"+dnssec signed.test MX", "flags: do"},
		{"+dnssec +cdflag signed.test MX", "flags: qr aa rd;"},
		{"+dnssec signed.test MX", "RRSIG\tMX 13 2 3600 "},
		{"+dnssec signed.test DNSKEY", "DNSKEY\t257 3 13 "},
		{"+dnssec WwW.signed.test A", "CNAME\tsigned.test."},
		{"+dnssec no.signed.test A", "status: NXDOMAIN"},
		{"+dnssec no.signed.test A", "AUTHORITY: 6"},
		{"+dnssec b.signed.test A", "AUTHORITY: 4"},
		{"+dnssec signed.test DS", "AUTHORITY: 4"},
		{"+dnssec signed.test ANY", "RRSIG"},
		{"+dnssec +ignore +bufsize=512 signed.test DNSKEY", "flags: qr aa rd;"},
		{"+dnssec +ignore +bufsize=512 a.name.that.is.not.there.signed.test A", "flags: qr aa tc rd;"},
		{"+dnssec +bufsize=512 a.name.that.is.not.there.signed.test A", "AUTHORITY: 6"}, // over TCP
		{"+dnssec long.signed.test TXT", "RRSIG\tTXT"},                                  // over TCP too
		{"signed.test MX", "ANSWER: 1,"},
		{"no.signed.test A", "AUTHORITY: 1,"},
	} {
		out := query(i, dig, append([]string{"+time=2", "+tries=1"}, strings.Fields(tc.args)...)...)
		if !strings.Contains(out, tc.want) || strings.Contains(out, "malformed") || strings.Contains(out, "WARNING: Message") {
			t.Errorf("dig %s:\n%s\nwant %q", tc.args, out, tc.want)
		}
	}
	if out := query(i, kdig, "+dnssec", "no.signed.test", "A"); !strings.Contains(out, "status: NXDOMAIN") || strings.Count(out, "RRSIG\tNSEC") != 2 || strings.Contains(out, "WARNING") {
		t.Errorf("kdig:\n%s", out)
	}
	// What the API tells is what is served, by somebody else's arithmetic.
	out := query(i, dig, "+short", "signed.test", "DNSKEY")
	rr, err := dns.NewRR("signed.test. IN DNSKEY " + strings.TrimSpace(out))
	if err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	key, shown := rr.(*dns.DNSKEY), d.DNSSEC.DS[0]
	if ds := key.ToDS(dns.SHA256); shown.Digest != ds.Digest || shown.KeyTag != int(ds.KeyTag) || shown.Algorithm != 13 || shown.DigestType != 2 ||
		shown.Value != fmt.Sprintf("%d 13 2 %s", ds.KeyTag, ds.Digest) || d.DNSSEC.DNSKEY != "257 3 13 "+key.PublicKey {
		t.Errorf("the API shows %+v, the server has %v", d.DNSSEC, ds)
	}
}

// delv validates from an anchor that is made of what the API shows.
func TestDelvValidates(t *testing.T) {
	t.Parallel()
	delv := program(t, "delv")
	i := rig.Start(t, "")
	id, other := addSigned(i, "signed.test"), i.AddDomain("other.test")
	anchor := func(kind, data string) string {
		path := filepath.Join(t.TempDir(), "anchor")
		text := fmt.Sprintf("trust-anchors { signed.test. %s %s; };\n", kind, data)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	quoteLast := func(data string) string {
		f := strings.Fields(data)
		f[3] = `"` + f[3] + `"`
		return strings.Join(f, " ")
	}
	ours, theirs := readSigned(i, id).DNSSEC, readSigned(i, other).DNSSEC
	byKey := anchor("static-key", quoteLast(ours.DNSKEY))
	byDS := anchor("static-ds", quoteLast(ours.DS[0].Value))
	wrong := anchor("static-key", quoteLast(theirs.DNSKEY))
	ask := func(anchor string, args ...string) string {
		return query(i, delv, append([]string{"-a", anchor, "+root=signed.test", "-4"}, args...)...)
	}
	const valid, nothing = "; fully validated", "; negative response, fully validated"
	for _, tc := range []struct{ name, typ, want, has string }{
		{"signed.test", "A", valid, "127.0.0.1"},
		{"signed.test", "MX", valid, "MX\t10 "},
		{"signed.test", "TXT", valid, "v=spf1"},
		{"signed.test", "SOA", valid, "SOA"},
		{"signed.test", "NS", valid, "NS"},
		{"signed.test", "DNSKEY", valid, "257 3 13"},
		{"ms1._domainkey.signed.test", "TXT", valid, "v=DKIM1"},
		{"sIgNeD.tEsT", "A", valid, "127.0.0.1"},
		{"www.signed.test", "A", valid, "127.0.0.1"},
		{"www.signed.test", "TXT", valid, "v=spf1"},
		{"long.signed.test", "TXT", valid, "0123456789"},
		{"signed.test", "AAAA", nothing, ""},
		{"www.signed.test", "AAAA", valid, "$NXRRSET"},
		{"b.signed.test", "A", nothing, ""},
		{"_domainkey.signed.test", "TXT", nothing, ""},
		{"no.signed.test", "A", nothing, "ncache nxdomain"},
		{"zzzz.signed.test", "A", nothing, "ncache nxdomain"},
		{"x.y.z.a.b.signed.test", "MX", nothing, "ncache nxdomain"},
	} {
		for _, a := range []string{byKey, byDS} {
			if out := ask(a, tc.name, tc.typ); !strings.Contains(out, tc.want) || !strings.Contains(out, tc.has) || strings.Contains(out, "unsigned") {
				t.Errorf("delv %s %s:\n%s\nwant %q with %q", tc.name, tc.typ, out, tc.want, tc.has)
			}
		}
		if out := ask(wrong, tc.name, tc.typ); strings.Contains(out, "fully validated") || !strings.Contains(out, "resolution failed") {
			t.Errorf("delv %s %s with another key:\n%s", tc.name, tc.typ, out)
		}
	}
	addRecord(i, id, "TXT", "fresh", "just made") // and the very first question after that is answered with it
	if out := ask(byKey, "fresh.signed.test", "TXT"); !strings.Contains(out, valid) || !strings.Contains(out, "just made") {
		t.Errorf("a record that was just made:\n%s", out)
	}
}

// A parentZone is the zone test., signed by other code than ours, which delegates domains with what
// an owner hands in.
type parentZone struct {
	addr   string
	signer crypto.Signer
	key    *dns.DNSKEY
	mu     sync.Mutex
	ds     map[string]string // by domain, with the dot
}

func newParentZone(t *testing.T) *parentZone {
	t.Helper()
	key := &dns.DNSKEY{Hdr: parentHeader("test.", dns.TypeDNSKEY), Flags: 257, Protocol: 3, Algorithm: dns.ECDSAP256SHA256}
	private, err := key.Generate(256)
	if err != nil {
		t.Fatal(err)
	}
	signer, ok := private.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("a key of type %T", private)
	}
	pc, ln := lookuptest.SamePort(t)
	p := &parentZone{addr: ln.Addr().String(), signer: signer, key: key, ds: map[string]string{}}
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: p}, {Listener: ln, Handler: p}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return p
}

func parentHeader(name string, typ uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: typ, Class: dns.ClassINET, Ttl: 1}
}

// publish puts a DS record into the zone, as a registrar does.
func (p *parentZone) publish(domain, ds string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ds[domain+"."] = ds
}

func (p *parentZone) records(q dns.Question) []dns.RR {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := strings.ToLower(q.Name)
	switch {
	case name == "test." && q.Qtype == dns.TypeDNSKEY:
		return []dns.RR{p.key}
	case name == "test." && q.Qtype == dns.TypeSOA:
		return []dns.RR{&dns.SOA{Hdr: parentHeader(name, dns.TypeSOA), Ns: "ns.test.", Mbox: "x.test.", Minttl: 1}}
	case name == "test." && q.Qtype == dns.TypeNS:
		return []dns.RR{&dns.NS{Hdr: parentHeader(name, dns.TypeNS), Ns: "ns.test."}}
	case q.Qtype == dns.TypeDS && p.ds[name] != "":
		rr, err := dns.NewRR(name + " 1 IN DS " + p.ds[name])
		if err == nil {
			return []dns.RR{rr}
		}
	}
	return nil
}

func (p *parentZone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	m.Authoritative = true
	m.SetEdns0(1232, true)
	m.Answer = p.records(q.Question[0])
	if len(m.Answer) > 0 {
		now := uint32(time.Now().Unix())
		sig := &dns.RRSIG{
			Hdr: parentHeader(m.Answer[0].Header().Name, dns.TypeRRSIG), Algorithm: p.key.Algorithm, KeyTag: p.key.KeyTag(), SignerName: "test.",
			Inception: now - 3600, Expiration: now + 3600,
		}
		if sig.Sign(p.signer, m.Answer) == nil {
			m.Answer = append(m.Answer, sig)
		}
	}
	_ = w.WriteMsg(m)
}

// validatingConf has five gaps: port, anchor, and the addresses of the root (nobody), the parent
// and ours.
const validatingConf = `server:
  interface: 127.53.0.53
  port: %s
  outgoing-interface: 127.0.0.1
  do-ip6: no
  do-not-query-localhost: no
  use-caps-for-id: yes
  module-config: "validator iterator"
  aggressive-nsec: no
  trust-anchor: "%s"
  local-zone: "test." nodefault
  target-fetch-policy: "0 0 0 0 0"
  val-bogus-ttl: 0
  infra-host-ttl: 0
  cache-max-ttl: 0
  cache-max-negative-ttl: 0
  val-log-level: 2
  do-daemonize: no
  use-syslog: no
  chroot: ""
  username: ""
  pidfile: ""
  directory: "."
  num-threads: 1
remote-control:
  control-enable: no
stub-zone:
  name: "test."
  stub-addr: %s
stub-zone:
  name: "signed.test."
  stub-addr: %s
stub-zone:
  name: "tampered.test."
  stub-addr: %[4]s
stub-zone:
  name: "unsigned.test."
  stub-addr: %[4]s
`

// asker starts an unbound that trusts the parent's key, and gives what asks it with the DO bit.
func (p *parentZone) asker(t *testing.T, i *rig.Instance) func(name string, typ uint16) *dns.Msg {
	t.Helper()
	at := func(addr string) string { return strings.Replace(addr, ":", "@", 1) }
	resolver := runUnbound(t, func(port string) string {
		return fmt.Sprintf(validatingConf, port, strings.ReplaceAll(p.key.String(), "\t", " "), at(p.addr), at(i.Ready.DNS))
	})
	ask := func(name string, typ uint16) *dns.Msg {
		q := new(dns.Msg).SetQuestion(name+".", typ).SetEdns0(4096, true)
		m, _, err := (&dns.Client{Timeout: 5 * time.Second}).Exchange(q, resolver)
		if err == nil && m.Truncated {
			m, _, err = (&dns.Client{Timeout: 5 * time.Second, Net: "tcp"}).Exchange(q, resolver)
		}
		if err != nil {
			return new(dns.Msg)
		}
		return m
	}
	i.Until("unbound answers", func() bool { return ask("signed.test", dns.TypeSOA).Response })
	return ask
}

// unbound follows the chain from the key of the parent over the DS that the owner took from the
// API.
func TestUnboundValidatesThroughTheParent(t *testing.T) {
	program(t, "unbound", "/usr/sbin/unbound")
	i := rig.Start(t, "")
	signed, tampered := addSigned(i, "signed.test"), addSigned(i, "tampered.test")
	ds := readSigned(i, signed).DNSSEC.DS[0].Value
	parent := newParentZone(t)
	parent.publish("signed.test", ds)
	parent.publish("tampered.test", ds) // another domain's
	ask := parent.asker(t, i)
	for _, tc := range []struct {
		name  string
		typ   uint16
		rcode int
		types []uint16
	}{
		{"signed.test", dns.TypeA, 0, []uint16{dns.TypeA, dns.TypeRRSIG}},
		{"signed.test", dns.TypeMX, 0, []uint16{dns.TypeMX, dns.TypeRRSIG}},
		{"Signed.Test", dns.TypeTXT, 0, []uint16{dns.TypeTXT, dns.TypeRRSIG}},
		{"signed.test", dns.TypeANY, 0, nil},
		{"signed.test", dns.TypeAAAA, 0, nil},
		{"signed.test", dns.TypeNSEC, 0, []uint16{dns.TypeNSEC, dns.TypeRRSIG}},
		{"signed.test", dns.TypeDS, 0, []uint16{dns.TypeDS, dns.TypeRRSIG}},
		{"www.signed.test", dns.TypeA, 0, []uint16{dns.TypeCNAME, dns.TypeRRSIG, dns.TypeA, dns.TypeRRSIG}},
		{"www.signed.test", dns.TypeAAAA, 0, []uint16{dns.TypeCNAME, dns.TypeRRSIG}},
		{"long.signed.test", dns.TypeTXT, 0, []uint16{dns.TypeTXT, dns.TypeRRSIG}},
		{"b.signed.test", dns.TypeTXT, 0, nil},
		{"no.signed.test", dns.TypeTXT, dns.RcodeNameError, nil},
		{"x.no.a.b.signed.test", dns.TypeTXT, dns.RcodeNameError, nil},
	} {
		m := ask(tc.name, tc.typ)
		var types []uint16
		for _, rr := range m.Answer {
			types = append(types, rr.Header().Rrtype)
		}
		if tc.typ == dns.TypeANY {
			types = nil
		}
		if m.Rcode != tc.rcode || !m.AuthenticatedData || !slices.Equal(types, tc.types) {
			t.Errorf("%s %s: %v", tc.name, dns.TypeToString[tc.typ], m)
		}
	}
	for _, name := range []string{"tampered.test", "www.tampered.test", "no.tampered.test"} {
		if m := ask(name, dns.TypeA); m.Rcode != dns.RcodeServerFailure {
			t.Errorf("%s, whose DS is another's: %v", name, m)
		}
	}
	parent.publish("tampered.test", readSigned(i, tampered).DNSSEC.DS[0].Value)
	if m := parent.asker(t, i)("tampered.test", dns.TypeMX); m.Rcode != dns.RcodeSuccess || !m.AuthenticatedData {
		t.Errorf("with the right DS: %v", m)
	}
	addRecord(i, signed, "TXT", "fresh", "just made")
	if m := ask("fresh.signed.test", dns.TypeTXT); len(m.Answer) != 2 || !m.AuthenticatedData {
		t.Errorf("a record that was just made: %v", m)
	}
	i.Kill() // signatures are made anew after it, and validate as well
	old := i.Ready.DNS
	i.Args = append(i.Args, "--dns", old)
	i.Start()
	if i.Ready.DNS != old {
		t.Fatalf("DNS listens at %s, not %s", i.Ready.DNS, old)
	}
	if m := ask("signed.test", dns.TypeMX); m.Rcode != dns.RcodeSuccess || !m.AuthenticatedData {
		t.Errorf("after a kill: %v", m)
	}
}

// Domains below others are validated through the zone above, which is ours too.
func TestUnboundValidatesADomainBelowAnother(t *testing.T) {
	program(t, "unbound", "/usr/sbin/unbound")
	i := rig.Start(t, "")
	top := addSigned(i, "signed.test")
	addSigned(i, "shop.signed.test")
	parent := newParentZone(t)
	parent.publish("signed.test", readSigned(i, top).DNSSEC.DS[0].Value)
	ask := parent.asker(t, i)
	for name, rcode := range map[string]int{"shop.signed.test": 0, "www.shop.signed.test": 0, "no.shop.signed.test": dns.RcodeNameError, "no.signed.test": dns.RcodeNameError} {
		if m := ask(name, dns.TypeA); m.Rcode != rcode || !m.AuthenticatedData {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// The API says what the parent has: nothing, ours, or somebody else's.
func TestTheParentsDSIsLookedAt(t *testing.T) {
	world := rig.NewFakeResolver(t)
	i := rig.Start(t, "", "--resolver", world.Addr)
	world.Delegate(i.Ready.DNS)
	id := i.AddDomain("signed.test")
	status := func(want string) {
		t.Helper()
		i.Want(200, "GET", "/v1/domains/"+id+"/dns-status?refresh=true", nil, nil)
		if got := readSigned(i, id).DNSSEC.Status; got != want {
			t.Errorf("dnssec is %s, want %s", got, want)
		}
	}
	ds := readSigned(i, id).DNSSEC.DS[0].Value
	status("unpublished")
	world.Set(t, "signed.test", "DS", ds)
	status("secure")
	world.Set(t, "signed.test", "DS", "1"+strings.TrimLeft(ds, "0123456789"))
	status("bogus")
}
