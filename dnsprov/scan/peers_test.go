package scan_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/scan"
)

// The gaps of bindConf and knotConf are the directory and the port. There are three zones, which
// are all the same: one may be transferred, one is signed, and one is neither.
const bindConf = `options {
	directory "%[1]s";
	listen-on port %[2]s { 127.0.0.1; };
	listen-on-v6 { none; };
	pid-file none;
	session-keyfile none;
	managed-keys-directory "%[1]s";
	recursion no;
	dnssec-validation no;
	notify no;
	allow-transfer { none; };
};
controls {};
dnssec-policy chain {
	keys { csk lifetime unlimited algorithm ecdsap256sha256; };
};
zone "open.test" { type primary; file "open.test.zone"; allow-transfer { any; }; };
zone "signed.test" { type primary; file "signed.test.zone"; dnssec-policy chain; inline-signing yes; key-directory "%[1]s"; };
zone "closed.test" { type primary; file "closed.test.zone"; };
`

const knotConf = `server:
  rundir: "%[1]s"
  listen: "127.0.0.1@%[2]s"
database:
  storage: "%[1]s"
log:
  - target: stderr
    any: info
acl:
  - id: all
    address: 127.0.0.1
    action: transfer
policy:
  - id: chain
    single-type-signing: on
    nsec3: off
template:
  - id: default
    storage: "%[1]s"
    file: "%%s.zone"
    zonefile-sync: -1
    zonefile-load: whole
zone:
  - domain: open.test
    acl: all
  - domain: signed.test
    dnssec-signing: on
    dnssec-policy: chain
  - domain: closed.test
`

// startPeer runs a nameserver of somebody else's until the test ends, and returns its port.
func startPeer(t *testing.T, program, conf string, args ...string) uint16 {
	t.Helper()
	path := ""
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		file := filepath.Join(dir, program)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && path == "" {
			path = file
		}
	}
	switch {
	case path == "" && os.Getenv("CI") == "true":
		t.Fatalf("%s is missing; make peers installs it", program)
	case path == "":
		t.Skipf("%s is not installed", program)
	}
	for range 5 { // another program may take the port
		if port := tryPeer(t, path, conf, args); port != 0 {
			return port
		}
	}
	t.Fatalf("%s does not start", program)
	return 0
}

func tryPeer(t *testing.T, path, conf string, args []string) uint16 {
	t.Helper()
	port := 30_001 + rand.IntN(2700) // below those that the kernel gives, above those of the end-to-end tests
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	free, err := net.Listen("tcp", addr)
	if err != nil {
		return 0
	}
	free.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, zone := range []string{"open.test", "signed.test", "closed.test"} {
		write(zone+".zone", "$ORIGIN "+zone+".\n"+renamed(inUse+unusual, zone))
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append(args, "-c", write("conf", fmt.Sprintf(conf, dir, strconv.Itoa(port))))...)
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
		case <-time.After(20 * time.Second):
			t.Errorf("%s does not stop", path)
			_ = cmd.Process.Kill()
			<-ended
		}
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s says:\n%s", path, text[max(0, len(text)-10_000):])
		}
	})
	serves := func(zone string, typ uint16) bool {
		c := dns.Client{Net: "tcp", Timeout: time.Second}
		m, _, err := c.Exchange(new(dns.Msg).SetQuestion(zone, typ), addr)
		return err == nil && m.Authoritative && len(m.Answer) > 0
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if serves("open.test.", dns.TypeSOA) && serves("closed.test.", dns.TypeSOA) && serves("signed.test.", dns.TypeNSEC) {
			return uint16(port)
		}
		select {
		case <-ended:
			return 0
		case <-time.After(50 * time.Millisecond):
		}
	}
	text, _ := os.ReadFile(log.Name())
	t.Fatalf("%s does not serve its zones:\n%s", path, text)
	return 0
}

// renamed returns the text of a zone for another domain.
func renamed(text, zone string) string {
	return strings.NewReplacer("example.com", zone, "Example.COM", zone).Replace(text)
}

// loopback is the resolver of a test: all nameservers are on this host.
type loopback struct{}

func (loopback) LookupNS(context.Context, string) ([]*net.NS, error) {
	return nil, &net.DNSError{IsNotFound: true}
}

func (loopback) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// TestPeers reads the zones of Bind and Knot in all ways.
func TestPeers(t *testing.T) {
	for _, peer := range []struct {
		program, conf string
		args          []string
	}{{"named", bindConf, []string{"-g"}}, {"knotd", knotConf, nil}} {
		t.Run(peer.program, func(t *testing.T) {
			t.Parallel()
			c := &scan.Client{
				Resolver: loopback{}, Dial: new(net.Dialer).DialContext, Pace: &scan.Pace{Every: time.Microsecond},
				Port: startPeer(t, peer.program, peer.conf, peer.args...),
			}
			for zone, method := range map[string]scan.Method{"open.test": scan.MethodAXFR, "signed.test": scan.MethodNSEC, "closed.test": scan.MethodQuestions} {
				s, err := c.Find(t.Context(), zone, []string{"ns1.dns.test"})
				if err != nil {
					t.Fatal(err)
				}
				r, err := c.Zone(t.Context(), s, zone, nil)
				if err != nil {
					t.Fatal(err)
				}
				complete := method != scan.MethodQuestions
				if r.Method != method || r.Complete != complete || r.Partial || !r.Wildcard || r.NSTTL != 24*time.Hour {
					t.Errorf("%s: %s, complete %t, partial %t, wildcard %t, %s", zone, r.Method, r.Complete, r.Partial, r.Wildcard, r.NSTTL)
				}
				text := inUse
				if complete {
					text += unusual
				}
				compare(t, r.Records, visible(t, zone+".", renamed(text, zone)))
			}
		})
	}
}
