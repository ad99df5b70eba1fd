package peers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/handlers/dnsd"
	"github.com/mailstead/mailstead/internal/lookup/lookuptest"
	"github.com/miekg/dns"
)

// servedZones lets dnsd answer from builtin zones.
type servedZones struct{ *builtin.Zones }

func (z servedZones) Zone(name string) (dnsd.Answerer, bool) {
	zone, ok := z.Zones.Zone(name)
	return zone, ok
}

const oddText = `quote " backslash \ both \" umlaut ü kanji 漢字 \065`

// dnsSpec is a domain that holds its own servers, so that a resolver needs nothing but it.
func dnsSpec() dnsprov.Spec {
	custom := func(name, typ, value string) dnsprov.Record {
		return dnsprov.Record{Name: name + ".example.test", Type: typ, Value: value, TTL: 300}
	}
	return dnsprov.Spec{
		Domain: "example.test", MailHost: "mail.example.test", Nameservers: []string{"ns1.example.test", "ns2.example.test"},
		IPv4: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, IPv6: []netip.Addr{netip.MustParseAddr("2001:db8::1")},
		DKIM: []dnsprov.DKIMKey{
			{Selector: "r1", Record: "v=DKIM1; k=rsa; p=" + strings.Repeat("QUJD", 98)},
			{Selector: "e1", Record: "v=DKIM1; k=ed25519; p=" + strings.Repeat("QUJD", 11)},
		},
		Custom: []dnsprov.Record{
			custom("odd", "TXT", oddText), custom("long", "TXT", strings.Repeat(`0123456789"\ü`, 300)),
			custom("www", "CNAME", "example.test"), custom("a.b", "A", "192.0.2.9"),
		},
	}
}

// serveDNS serves the zone of spec on the loopback until the test ends.
func serveDNS(t *testing.T, spec dnsprov.Spec) (addr string) {
	t.Helper()
	zone, err := builtin.NewZone(spec.Domain, dnsprov.Wanted(spec, dnsprov.Builtin), builtin.Options{Nameservers: spec.Nameservers, Serial: 42})
	if err != nil {
		t.Fatal(err)
	}
	var zones builtin.Zones
	zones.Put(zone)
	packets, tcp := lookuptest.SamePort(t)
	udp, ok := packets.(*net.UDPConn)
	if !ok {
		t.Fatalf("%T is no UDP socket", packets)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- (&dnsd.Server{Zones: servedZones{&zones}}).Run(ctx, udp, tcp) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("dnsd: %v", err)
		}
	})
	return tcp.Addr().String()
}

// program finds a program of the system; in CI it must be there.
func program(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed", names[0])
	}
	t.Skipf("%s is not installed", names[0])
	return ""
}

func TestDigAgainstDNSD(t *testing.T) {
	dig := program(t, "dig")
	spec := dnsSpec()
	for _, set := range []struct{ name, typ, value string }{
		{"shop", "HTTPS", `1 . alpn="h2,h3" ipv4hint=192.0.2.7`}, {"_dns", "SVCB", "1 dns.elsewhere.test alpn=dot"}, {"team", "NS", "ns1.team.example.test"},
		{"ns1.team", "A", "192.0.2.8"}, {"team", "DS", "12345 13 2 " + strings.Repeat("0a", 32)}, {"host", "SSHFP", "4 2 " + strings.Repeat("0b", 32)},
		{"_443._tcp", "TLSA", "3 1 1 " + strings.Repeat("0c", 32)}, {"old", "MX", "0 ."}, {"old", "CAA", `0 issue ";"`},
	} {
		records, err := dnsprov.CustomSet(spec.Domain, set.name+"."+spec.Domain, set.typ, 300, []string{set.value})
		if err != nil {
			t.Fatal(err)
		}
		spec.Custom = append(spec.Custom, records...)
	}
	host, port, err := net.SplitHostPort(serveDNS(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"example.test SOA", "status: NOERROR"},
		{"example.test SOA", "ns1.example.test. hostmaster.example.test. 42 "},
		{"example.test SOA", "flags: qr aa rd;"},
		{"example.test NS", "ns2.example.test.\t3600\tIN\tA\t127.0.0.1"},
		{"example.test MX", "MX\t10 mail.example.test."},
		{"example.test AAAA", "AAAA\t2001:db8::1"},
		{"www.example.test A", "CNAME\texample.test."},
		{"_dmarc.example.test TXT", `"v=DMARC1; p=reject"`},
		{"no.example.test A", "status: NXDOMAIN"},
		{"no.example.test A", "AUTHORITY: 1"},
		{"b.example.test A", "status: NOERROR"},
		{"b.example.test A", "AUTHORITY: 1"},
		{"ExAmPlE.tEsT MX", "ExAmPlE.tEsT.\t\t3600\tIN\tMX"},
		{"example.test ANY", `HINFO	"RFC8482" ""`},
		{"other.test A", "status: REFUSED"},
		{"example.test AXFR", "Transfer failed."},
		{"+noednsneg +edns=1 example.test A", "status: BADVERS"},
		{"+opcode=NOTIFY example.test SOA", "status: NOTIMP"},
		{"+ignore long.example.test TXT", "flags: qr aa tc rd;"},
		{"long.example.test TXT", "ANSWER: 1"}, // dig has come again over TCP
		{"+tcp +keepopen example.test MX example.test A", "A\t127.0.0.1"},
		{"shop.example.test HTTPS", `HTTPS	1 . alpn="h2,h3" ipv4hint=192.0.2.7`},
		{"_dns.example.test SVCB", `SVCB	1 dns.elsewhere.test. alpn="dot"`},
		{"host.example.test SSHFP", "SSHFP\t4 2 0B0B0B"},
		{"_443._tcp.example.test TLSA", "TLSA\t3 1 1 0C0C0C"},
		{"old.example.test MX", "MX\t0 ."},
		{"old.example.test CAA", `CAA	0 issue ";"`},
		{"www.team.example.test A", "team.example.test.\t300\tIN\tNS\tns1.team.example.test."},
		{"www.team.example.test A", "ns1.team.example.test.\t300\tIN\tA\t192.0.2.8"},
		{"www.team.example.test A", "flags: qr rd;"},
		{"team.example.test DS", "DS\t12345 13 2 0A0A0A"},
		{"team.example.test DS", "flags: qr aa rd;"},
		{"odd.example.test TXT", `"quote \" backslash \\ both \\\" umlaut \195\188 kanji \230\188\162\229\173\151 \\065"`},
	} {
		args := append([]string{"@" + host, "-p", port, "+time=2", "+tries=1"}, strings.Fields(tc.args)...)
		out, err := exec.CommandContext(t.Context(), dig, args...).CombinedOutput()
		if !strings.Contains(string(out), tc.want) {
			t.Errorf("dig %s: %v\n%s\nwant %q", tc.args, err, out, tc.want)
		}
		if strings.Contains(string(out), "WARNING: Message") || strings.Contains(string(out), "malformed") {
			t.Errorf("dig %s complains:\n%s", tc.args, out)
		}
	}
}

// checkThrough looks at every record of a domain through a resolver.
func checkThrough(t *testing.T, r dnsprov.Resolver, spec dnsprov.Spec) {
	t.Helper()
	for _, c := range dnsprov.Verify(t.Context(), r, dnsprov.Wanted(spec, dnsprov.Builtin)) {
		if !c.Verified {
			t.Errorf("%s %s: %s, actual %q", c.Record.Name, c.Record.Type, c.Error, c.Actual)
		}
	}
	d, err := dnsprov.CheckDelegation(t.Context(), r, spec.Domain, spec.Nameservers)
	if err != nil || !d.Verified || !slices.Equal(d.Current, spec.Nameservers) {
		t.Errorf("delegation %+v, %v", d, err)
	}
}

// goResolver is Go's own, which asks one server.
func goResolver(addr string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
}

// What is wanted is served, and what is served is verified: through Go's resolver, which is not our
// code.
func TestDomainVerifiesAgainstItsOwnServer(t *testing.T) {
	spec := dnsSpec()
	addr := serveDNS(t, spec)
	r := goResolver(addr)
	checkThrough(t, r, spec)
	texts, err := r.LookupTXT(t.Context(), "odd.example.test.")
	if err != nil || len(texts) != 1 || texts[0] != oddText {
		t.Errorf("text %q, %v", texts, err)
	}
	other := spec
	other.DMARC, other.DKIM = "v=DMARC1; p=quarantine", []dnsprov.DKIMKey{{Selector: "r9", Record: "v=DKIM1; p=AA"}}
	var wrong []string
	for _, c := range dnsprov.Verify(t.Context(), r, dnsprov.Wanted(other, dnsprov.Builtin)) {
		if !c.Verified {
			wrong = append(wrong, c.Record.Name+" "+c.Error)
		}
	}
	if want := []string{"r9._domainkey.example.test missing", "_dmarc.example.test mismatch"}; !slices.Equal(wrong, want) {
		t.Errorf("wrong records %q, want %q", wrong, want)
	}
	if d, err := dnsprov.CheckDelegation(t.Context(), r, "other.test", spec.Nameservers); err == nil {
		t.Errorf("a refused lookup gave %+v", d)
	}
}

// unboundConf binds unbound to an address of the loopback that no other test uses, so that its port
// stays free, and gives it our server for a root, so that it cannot ask anybody else. Its three
// gaps are its port and twice our address, IP@port.
const unboundConf = `server:
  interface: 127.53.0.53
  port: %s
  outgoing-interface: 127.0.0.1
  do-ip6: no
  do-not-query-localhost: no
  use-caps-for-id: yes
  module-config: "iterator"
  local-zone: "test." nodefault
  target-fetch-policy: "0 0 0 0 0"
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
  name: "."
  stub-addr: %s
stub-zone:
  name: "example.test."
  stub-addr: %s
`

// startUnbound runs unbound until the test ends and returns its address.
func startUnbound(t *testing.T, ours string) (addr string) {
	t.Helper()
	ours = strings.Replace(ours, ":", "@", 1)
	return runUnbound(t, func(port string) string { return fmt.Sprintf(unboundConf, port, ours, ours) })
}

// runUnbound runs unbound with a configuration for a port of 127.53.0.53 until the test ends, and
// returns its address.
func runUnbound(t *testing.T, config func(port string) string) (addr string) {
	t.Helper()
	unbound := program(t, "unbound", "/usr/sbin/unbound")
	port := rig.FreePortOn(t, "127.53.0.53")
	addr = net.JoinHostPort("127.53.0.53", port)
	conf := filepath.Join(t.TempDir(), "unbound.conf")
	if err := os.WriteFile(conf, []byte(config(port)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, unbound, "-d", "-c", conf)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = filepath.Dir(conf), &log, &log, 5*time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("unbound says:\n%s", &log)
		}
	})
	return addr
}

// A real recursive resolver, with 0x20 and all, gets the same from us.
func TestUnboundResolvesThroughDNSD(t *testing.T) {
	spec := dnsSpec()
	addr := startUnbound(t, serveDNS(t, spec))
	c := dns.Client{Timeout: 100 * time.Millisecond}
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		m, _, err := c.Exchange(new(dns.Msg).SetQuestion("example.test.", dns.TypeSOA), addr)
		if err == nil && m.Rcode == dns.RcodeSuccess {
			break
		}
		if time.Since(start) > 5*time.Second {
			t.Fatal("unbound does not resolve the zone")
		}
	}
	checkThrough(t, goResolver(addr), spec)
	c.Timeout = 2 * time.Second
	for name, want := range map[string]int{"no.example.test.": dns.RcodeNameError, "b.example.test.": dns.RcodeSuccess} {
		m, _, err := c.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), addr)
		if err != nil || m.Rcode != want || len(m.Answer) != 0 {
			t.Errorf("%s through unbound: %v, %v", name, m, err)
		}
	}
}

// A rootServer is the root of a small DNS, which delegates one domain to the nameservers of a
// sandbox.
type rootServer struct{ domain, at string }

func (r rootServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	name := strings.ToLower(q.Question[0].Name)
	glue := &dns.A{Hdr: dns.RR_Header{Name: "ns1.mailstead.test.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(r.at)}
	switch {
	case dns.IsSubDomain(r.domain, name):
		m.Ns = []dns.RR{&dns.NS{Hdr: dns.RR_Header{Name: r.domain, Rrtype: dns.TypeNS, Class: dns.ClassINET, Ttl: 60}, Ns: glue.Hdr.Name}}
		m.Extra = []dns.RR{glue}
	case name == glue.Hdr.Name && q.Question[0].Qtype == dns.TypeA:
		m.Authoritative, m.Answer = true, []dns.RR{glue}
	case name == "." && q.Question[0].Qtype == dns.TypeNS:
		m.Authoritative = true
		m.Answer = []dns.RR{&dns.NS{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeNS, Class: dns.ClassINET, Ttl: 60}, Ns: "root.mailstead.test."}}
	default: // a part of a name that goes on
		m.Authoritative = true
	}
	_ = w.WriteMsg(m)
}

// TestUnboundFollowsTheDelegation: a resolver that knows nothing but a root finds the domain by its
// delegation and glue. Nameservers are asked at port 53, so that the test needs the right to
// listen there.
func TestUnboundFollowsTheDelegation(t *testing.T) {
	t.Parallel()
	const root, ours = "127.53.9.1", "127.53.9.2"
	program(t, "unbound", "/usr/sbin/unbound")
	pc, err := net.ListenPacket("udp", root+":53")
	if err != nil {
		t.Skip(err)
	}
	served := &dns.Server{PacketConn: pc, Handler: rootServer{"signed.test.", ours}}
	go func() { _ = served.ActivateAndServe() }()
	t.Cleanup(func() { _ = served.Shutdown() })
	i := rig.Start(t, "", "--dns", ours+":53")
	addSigned(i, "signed.test")
	hints := filepath.Join(t.TempDir(), "hints")
	if err := os.WriteFile(hints, []byte(". 3600 NS root.mailstead.test.\nroot.mailstead.test. 3600 A "+root+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := runUnbound(t, func(port string) string {
		conf := fmt.Sprintf(unboundConf, port, root, root)
		conf, _, _ = strings.Cut(conf, "stub-zone:")
		return strings.Replace(conf, "server:\n", "server:\n\troot-hints: \""+hints+"\"\n", 1)
	})
	c := dns.Client{Timeout: 2 * time.Second}
	var m *dns.Msg
	i.Until("the domain is found", func() bool {
		m, _, err = c.Exchange(new(dns.Msg).SetQuestion("signed.test.", dns.TypeMX), addr)
		return err == nil && m.Rcode == dns.RcodeSuccess && len(m.Answer) == 1
	})
	if mx := m.Answer[0].(*dns.MX); mx.Mx != "mail.mailstead.test." {
		t.Errorf("found %v", m)
	}
	m, _, err = c.Exchange(new(dns.Msg).SetQuestion("nothing.signed.test.", dns.TypeA), addr)
	if err != nil || m.Rcode != dns.RcodeNameError {
		t.Errorf("what is not there: %v, %v", m, err)
	}
}

// The sandbox registrar's books outlive the process: what it has sold is taken, and whose it is
// stays known.
func TestSandboxRegistrarOutlivesAKill(t *testing.T) {
	i := rig.Start(t, "http = \"127.0.0.1:0\"\nsmtp = \"off\"\nsubmission = \"off\"\nimap = \"off\"\ndns = \"127.0.0.1:0\"\n[registrar]\nsandbox = {}\n")
	offer := func() (out struct {
		Available  bool
		Price      float64
		Registrar  string
		CheckedVia string `json:"checked_via"`
	}) {
		i.Want(200, "GET", "/v1/domains/search?q=bakery.com", nil, &out)
		return out
	}
	buy := func() (id string) {
		var job struct {
			JobID    string `json:"job_id"`
			Status   string
			Resource struct{ ID string }
		}
		i.Want(202, "POST", "/v1/domains/setup", map[string]any{"domain": "bakery.com", "register": true, "price": 11}, &job)
		i.Until("the setup has ended", func() bool {
			i.Want(200, "GET", "/v1/jobs/"+job.JobID+"?wait=5", nil, &job)
			return job.Status == "completed"
		})
		var d struct{ Status, Source, Registrar string }
		i.Want(200, "GET", "/v1/domains/"+job.Resource.ID, nil, &d)
		if d.Status != "complete" || d.Source != "registered" || d.Registrar != "sandbox" {
			t.Errorf("domain %+v", d)
		}
		return job.Resource.ID
	}
	if o := offer(); !o.Available || o.Price != 11 || o.Registrar != "sandbox" || o.CheckedVia != "registrar" {
		t.Fatalf("offer %+v", o)
	}
	id := buy()
	i.Kill()
	i.Start()
	if o := offer(); o.Available {
		t.Errorf("after the kill it is for sale again: %+v", o)
	}
	if again := buy(); again != id {
		t.Errorf("another domain: %s, then %s", id, again)
	}
}
