package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// A copier is a name server of somebody else's that copies our zones.
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
	nsdPath, knotPath := peer(t, "nsd"), peer(t, "knotd")
	nsdAddr := net.JoinHostPort("127.53.0.61", freePortOn(t, "127.53.0.61"))
	knotAddr := net.JoinHostPort("127.53.0.62", freePortOn(t, "127.53.0.62"))
	i := newInstance(t, secondariesFile(nsdAddr, knotAddr))
	id := i.addDomain("example.test")
	nsd := startCopier(t, nsdPath, nsdConf, nsdAddr, i.ready.DNS, nsdSecret, "-d")
	knot := startCopier(t, knotPath, knotConf, knotAddr, i.ready.DNS, knotSecret)
	for _, c := range []*copier{nsd, knot} {
		c.comes("first copy", "example.test.", dns.TypeMX, answered)
		c.comes("third nameserver", "example.test.", dns.TypeNS, func(m *dns.Msg) bool {
			return len(m.Answer) == 4 && strings.Contains(fmt.Sprint(m.Answer), "ns3.elsewhere.test.")
		})
	}
	i.want(200, "POST", "/v1/domains/"+id+"/custom-dns-records", map[string]any{"name": "fresh", "type": "TXT", "value": "just now"}, nil)
	for _, c := range []*copier{nsd, knot} {
		c.comes("new record", "fresh.example.test.", dns.TypeTXT, answered)
	}
	second := i.addDomain("second.test")
	knot.comes("new zone", "second.test.", dns.TypeMX, answered)
	i.want(202, "DELETE", "/v1/domains/"+second, nil, nil)
	knot.comes("removal", "second.test.", dns.TypeMX, refused)

	serial := nsd.ask("example.test.", dns.TypeSOA).Answer[0].(*dns.SOA).Serial
	i.stop()
	i.args = append(i.args, "--public-ip", "192.0.2.77", "--dns", i.ready.DNS) // the last flag wins
	i.start()
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
	kdig, dig := peer(t, "kdig"), peer(t, "dig")
	i := newInstance(t, secondariesFile("127.53.0.63:9", "127.53.0.64:9")+"[[dns.secondaries]]\naddress = \""+listedAddress+":9\"\n")
	i.addDomain("example.test")
	host, port, err := net.SplitHostPort(i.ready.DNS)
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
