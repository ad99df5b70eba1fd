package peers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// scannedConf is a BIND that lets everybody copy its zone. Its gaps are its directory and address.
const scannedConf = `options {
	directory "%[1]s";
	listen-on port 53 { %[2]s; };
	listen-on-v6 { none; };
	pid-file none;
	session-keyfile none;
	managed-keys-directory "%[1]s";
	recursion no;
	dnssec-validation no;
	notify no;
	allow-transfer { any; };
};
controls {};
zone "shop.test" { type primary; file "shop.zone"; };
`

// scannedZone is what a domain in use has: 40 records beside the SOA.
const scannedZone = `$ORIGIN shop.test.
$TTL 3600
@ SOA ns1.shop.test. hostmaster.shop.test. 1 3600 600 86400 60
@ NS ns1.shop.test.
@ NS ns2.elsewhere.test.
@ A 192.0.2.80
@ AAAA 2001:db8::80
@ MX 10 mx1.elsewhere.test.
@ MX 20 mx2.elsewhere.test.
@ TXT "v=spf1 mx ip4:192.0.2.0/24 ip6:2001:db8::/32 -all"
@ TXT "google-site-verification=abcdefghijklmnopqrstuvwxyz"
@ TXT "a \"quoted\" text; with a semicolon" " and a second string"
@ CAA 0 issue "letsencrypt.org"
@ CAA 0 iodef "mailto:security@shop.test"
ns1 A 192.0.2.53
www 300 CNAME shop.test.
blog A 192.0.2.81
blog A 192.0.2.82
blog AAAA 2001:db8::81
* A 192.0.2.99
*.preview CNAME preview.elsewhere.test.
_sip._tcp SRV 10 60 5060 sip.elsewhere.test.
_sip._tcp SRV 20 40 5060 sip2.elsewhere.test.
_matrix._tcp SRV 10 0 443 matrix.shop.test.
matrix A 192.0.2.83
s1._domainkey TXT "v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC7"
k2._domainkey CNAME dkim.sender.test.
_dmarc TXT "v=DMARC1; p=quarantine; rua=mailto:dmarc@shop.test"
bounces MX 10 feedback.sender.test.
bounces TXT "v=spf1 include:sender.test ~all"
lab NS ns1.lab.shop.test.
lab NS ns2.elsewhere.test.
ns1.lab A 192.0.2.84
lab DS 12345 13 2 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17
_443._tcp.blog TLSA 3 1 1 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17
blog SSHFP 4 2 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17
svc HTTPS 1 . alpn="h2,h3"
_dns.resolver SVCB 1 resolver.shop.test. alpn="dot"
resolver A 192.0.2.85
office LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m
_acme-challenge.old TXT "token"
deep.er.and.deeper A 192.0.2.86
`

// startScanned runs BIND with the zone shop.test until the test ends, on port 53 of 127.0.0.1, and
// returns the address.
func startScanned(t *testing.T) string {
	t.Helper()
	program, dir, ip := rig.Peer(t, "named"), t.TempDir(), "127.0.0.1"
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "53"))
	if err != nil {
		t.Skipf("name servers of others are asked on port 53, which is not free here: %v", err)
	}
	l.Close()
	for name, text := range map[string]string{"conf": fmt.Sprintf(scannedConf, dir, ip), "shop.zone": scannedZone} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-g", "-c", filepath.Join(dir, "conf"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopProgram(t, cmd)
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("named says:\n%s", text)
		}
	})
	client := dns.Client{Timeout: time.Second}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		m, _, err := client.Exchange(new(dns.Msg).SetQuestion("shop.test.", dns.TypeSOA), net.JoinHostPort(ip, "53"))
		if err == nil && m.Authoritative {
			return ip
		}
		if time.Now().After(deadline) {
			t.Fatalf("named does not start: %v", err)
		}
	}
}

// answersOf asks a server, and returns the data of the answers and of a referral, in order.
func answersOf(t *testing.T, server, name string, typ uint16) string {
	t.Helper()
	client := dns.Client{Net: "tcp", Timeout: 5 * time.Second}
	m, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, typ), server)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{dns.RcodeToString[m.Rcode]}
	add := func(kind string, rrs []dns.RR, types ...uint16) {
		for _, rr := range rrs {
			if len(types) > 0 && !slices.Contains(types, rr.Header().Rrtype) {
				continue
			}
			text := strings.TrimPrefix(rr.String(), rr.Header().String())
			if txt, ok := rr.(*dns.TXT); ok {
				text = fmt.Sprintf("%q", strings.Join(txt.Txt, ""))
			}
			out = append(out, kind+" "+strings.ToLower(rr.Header().Name)+" "+dns.TypeToString[rr.Header().Rrtype]+" "+text)
		}
	}
	add("answer", m.Answer)
	if !m.Authoritative {
		add("referral", m.Ns, dns.TypeNS)
	}
	slices.Sort(out[1:])
	return strings.Join(out, "\n")
}

// TestScannedAtBIND: a domain in use is scanned at a real BIND and imported. Then our own server
// answers each question as BIND does, but for what the answer of the import has named.
func TestScannedAtBIND(t *testing.T) {
	t.Parallel()
	ip := startScanned(t)
	i := rig.Start(t, "")
	var connected struct {
		Domains []struct {
			ID string `json:"domain_id"`
		}
	}
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"shop.test"}}, &connected)
	domain := "/v1/domains/" + connected.Domains[0].ID
	var job struct {
		ID, Status string
		Result     struct {
			Method   string
			Complete bool
			Wildcard bool
			Records  []struct {
				Name, Type string
				Values     []string
			}
		}
	}
	i.Want(202, "POST", domain+"/zone/scan", map[string]any{"nameservers": []string{ip}}, &job)
	id := job.ID
	i.Until("the scan ends", func() bool {
		i.Want(200, "GET", "/v1/jobs/"+id+"?wait=5", nil, &job)
		return job.Status == "completed"
	})
	values := 0
	for _, set := range job.Result.Records {
		values += len(set.Values)
	}
	if r := job.Result; r.Method != "axfr" || !r.Complete || !r.Wildcard || values < 38 {
		t.Fatalf("%d values: %+v", values, r)
	}
	var imported struct {
		Imported int
		Skipped  []struct{ Name, Type, Value, Reason string }
		Merged   []struct{ Name, Type, Value string }
	}
	i.Want(200, "POST", domain+"/zone/import", map[string]any{"scan": id}, &imported)
	named := map[string]bool{} // what may differ
	for _, s := range imported.Skipped {
		named[s.Name+" "+s.Type] = true
	}
	for _, m := range imported.Merged {
		named[m.Name+" "+m.Type] = true
	}
	if imported.Imported < 28 || len(imported.Merged) != 2 {
		t.Errorf("imported: %+v", imported)
	}
	asked := 0
	types := []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeCNAME, dns.TypeTXT, dns.TypeMX, dns.TypeNS, dns.TypeSRV, dns.TypeCAA, dns.TypeTLSA, dns.TypeSSHFP, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeDS, dns.TypeLOC}
	names := []string{"any", "any.preview"}
	for _, set := range job.Result.Records {
		if set.Type == "LOC" { // since it is not imported, its name is another one for the wildcard
			continue
		}
		if !strings.HasPrefix(set.Name, "*") && !slices.Contains(names, set.Name) {
			names = append(names, set.Name)
		}
	}
	for _, name := range names {
		full := name + ".shop.test."
		if name == "@" {
			full = "shop.test."
		}
		for _, typ := range types {
			asked++
			theirs, ours := answersOf(t, net.JoinHostPort(ip, "53"), full, typ), answersOf(t, i.Ready.DNS, full, typ)
			target := name // of a CNAME to a name whose records were left out
			if strings.Contains(theirs, "CNAME shop.test.") {
				target = "@"
			}
			if key := target + " " + dns.TypeToString[typ]; theirs != ours && !named[key] && !named[name+" CNAME"] && !ownType(name, typ) {
				t.Errorf("%s %s: BIND answers\n%s\nand Mailstead\n%s", full, dns.TypeToString[typ], theirs, ours)
			}
		}
	}
	if asked < 250 {
		t.Errorf("%d questions were asked", asked)
	}
}

// ownType reports whether Mailstead has records where a zone of before has none.
func ownType(name string, typ uint16) bool {
	return name == "@" && (typ == dns.TypeNS || typ == dns.TypeDS)
}
