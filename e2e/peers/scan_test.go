package peers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// zoneInUse is what a domain in use has: 40 records beside the SOA. Its gap is the domain.
// Questions find all of them, since docs/scan.md lists their names, or other records lead to them.
const zoneInUse = `$ORIGIN %s.
$TTL 3600
@ SOA ns1 hostmaster 1 3600 600 86400 60
@ NS ns1
@ NS ns2.elsewhere.test.
@ 300 A 192.0.2.80
@ 300 AAAA 2001:db8::80
@ MX 10 mx1.elsewhere.test.
@ MX 20 mx2.elsewhere.test.
@ TXT "v=spf1 mx include:_spf.office.test include:_spf.news.test include:_spf.crm.test include:_spf.desk.test ip4:192.0.2.0/24 -all"
@ TXT "google-site-verification=abcdefghijklmnopqrstuvwxyz"
@ TXT "a \"quoted\" text; with a semicolon" " and a second string"
@ CAA 0 issue "letsencrypt.org"
@ CAA 0 iodef "mailto:security@elsewhere.test"
ns1 A 192.0.2.53
www 300 CNAME @
blog A 192.0.2.81
blog A 192.0.2.82
blog AAAA 2001:db8::81
blog SSHFP 4 2 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17
* 7200 A 192.0.2.99
_sip._tcp SRV 10 60 5060 sip.elsewhere.test.
_sip._tcp SRV 20 40 5060 sip2.elsewhere.test.
_matrix._tcp SRV 10 0 443 matrix
matrix A 192.0.2.83
s1._domainkey TXT "v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC7"
k2._domainkey CNAME dkim.sender.test.
_dmarc TXT "v=DMARC1; p=quarantine; rua=mailto:dmarc@elsewhere.test"
bounces MX 10 feedback.sender.test.
bounces TXT "v=spf1 include:sender.test ~all"
lab NS ns1.lab
lab NS ns2.elsewhere.test.
ns1.lab A 192.0.2.84
lab DS 12345 13 2 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17
_443._tcp.www TLSA 3 1 1 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17
shop HTTPS 1 . alpn="h2,h3"
_dns SVCB 1 resolver.elsewhere.test. alpn="dot"
docs CNAME docs.elsewhere.test.
mail A 192.0.2.25
autodiscover CNAME autodiscover.elsewhere.test.
_github-pages-challenge TXT "0123456789abcdef"
vpn A 192.0.2.86
status CNAME status.elsewhere.test.
`

// unusualRecords are those that only a whole zone shows.
const unusualRecords = `svc HTTPS 1 . alpn="h2"
*.preview CNAME preview.elsewhere.test.
_dns.resolver SVCB 1 resolver.elsewhere.test. alpn="dot"
office LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m
_443._tcp.blog TLSA 3 1 1 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17
_acme-challenge.old TXT "token"
deep.er.and.deeper A 192.0.2.87
`

// askedTypes are those of all questions that compare two servers.
var askedTypes = []uint16{
	dns.TypeA, dns.TypeAAAA, dns.TypeCNAME, dns.TypeTXT, dns.TypeMX, dns.TypeNS, dns.TypeSRV, dns.TypeCAA, dns.TypeTLSA, dns.TypeSSHFP, dns.TypeHTTPS, dns.TypeSVCB,
	dns.TypeDS, dns.TypeLOC, dns.TypeNAPTR, dns.TypeURI,
}

// namesOf returns the names of a zone's records, and names that its wildcards and its delegation
// have.
func namesOf(t *testing.T, zone, text string) []string {
	t.Helper()
	names := []string{"any." + zone + ".", "any.preview." + zone + ".", "host.lab." + zone + "."}
	for p := dns.NewZoneParser(strings.NewReader(text), "", ""); ; {
		rr, ok := p.Next()
		if !ok {
			if p.Err() != nil {
				t.Fatal(p.Err())
			}
			return names
		}
		if name := rr.Header().Name; !strings.HasPrefix(name, "*") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
}

// A question is what is asked for: a name and a type.
type question struct {
	name string
	typ  uint16
}

// answersOf asks a server for each type of names. An answer has the response code, and then, in
// order, the records of the answer and those of a referral as "name type TTL data".
func answersOf(t *testing.T, server string, names []string) map[question][]string {
	t.Helper()
	conn, err := dns.DialTimeout("tcp", server, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out := map[question][]string{}
	for _, name := range names {
		for _, typ := range askedTypes {
			m, _, err := new(dns.Client).ExchangeWithConn(new(dns.Msg).SetQuestion(name, typ), conn)
			if err != nil {
				t.Fatal(err)
			}
			answer := []string{dns.RcodeToString[m.Rcode]}
			records := m.Answer
			if !m.Authoritative {
				records = slices.Concat(m.Answer, m.Ns, m.Extra)
			}
			for _, rr := range records {
				text := strings.TrimPrefix(rr.String(), rr.Header().String())
				if txt, ok := rr.(*dns.TXT); ok {
					text = fmt.Sprintf("%q", strings.Join(txt.Txt, ""))
				}
				answer = append(answer, fmt.Sprintf("%s %s %d %s", strings.ToLower(rr.Header().Name), dns.TypeToString[rr.Header().Rrtype], rr.Header().Ttl, text))
			}
			slices.Sort(answer[1:])
			out[question{name, typ}] = answer
		}
	}
	return out
}

// compareAnswers fails the test for each record that is in an answer before and not after, or the
// other way round, unless its name and type are among those that may differ. It counts the
// questions.
func compareAnswers(t *testing.T, before, after map[question][]string, mayDiffer func(name, typ string) bool) (asked int) {
	t.Helper()
	for q, was := range before {
		asked++
		is := after[q]
		for _, lines := range [][2][]string{{was, is}, {is, was}} {
			for _, line := range lines[0] {
				name, rest, isRecord := strings.Cut(line, " ")
				typ, _, _ := strings.Cut(rest, " ")
				if !isRecord {
					name, typ = q.name, dns.TypeToString[q.typ]
				}
				if !slices.Contains(lines[1], line) && !mayDiffer(name, typ) {
					t.Errorf("%s %s: before\n%s\nand after\n%s", q.name, dns.TypeToString[q.typ], strings.Join(was, "\n"), strings.Join(is, "\n"))
				}
			}
		}
	}
	return asked
}

// textsOf returns the TXT records of a domain itself, without the SPF records and those alone.
func textsOf(answers map[question][]string, zone string) (others, spf []string) {
	for _, line := range answers[question{zone + ".", dns.TypeTXT}] {
		if strings.Contains(line, `"v=spf1`) {
			spf = append(spf, line)
		} else {
			others = append(others, line)
		}
	}
	return others, spf
}

// worldOfTheZone is a resolver that knows the nameservers of a zone in use, and what its SPF
// record includes.
func worldOfTheZone(t *testing.T, zone string, servers []string) *rig.FakeResolver {
	t.Helper()
	world := rig.NewFakeResolver(t)
	if len(servers) > 0 {
		for n, host := range []string{"ns1." + zone, "ns2.elsewhere.test"} {
			world.Set(t, host, "A", servers[4*n:4*n+4]...)
			world.Set(t, host, "AAAA")
		}
	}
	for n, host := range []string{"_spf.office.test", "_spf.news.test", "_spf.crm.test", "_spf.desk.test"} {
		world.Set(t, host, "TXT", fmt.Sprintf(`"v=spf1 ip4:198.51.100.%d ~all"`, n))
	}
	return world
}

// A scannedZone has the fields of a scan's result that tests read.
type scannedZone struct {
	Method             string
	Complete, Wildcard bool
	Records            []struct {
		Name, Type string
		Values     []string
	}
}

// values returns how many records were found.
func (z scannedZone) values() (n int) {
	for _, set := range z.Records {
		n += len(set.Values)
	}
	return n
}

// A zoneMove is a domain in use whose DNS comes to the program.
type zoneMove struct {
	*rig.Instance
	zone, mx, path  string            // mx is where its mail is; path is that of the domain
	skipped, merged map[string]string // by name and type: why a record was not imported, and what it has become
}

// A scanJob is the job of a scan.
type scanJob struct {
	ID, Status string
	Result     scannedZone
}

// connect connects the domain, and waits for the scan that this begins.
func (m *zoneMove) connect() (job scanJob) {
	m.T.Helper()
	var connected struct {
		Domains []struct {
			ID string `json:"domain_id"`
		}
	}
	m.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{m.zone}, "mx": m.mx}, &connected)
	m.path = "/v1/domains/" + connected.Domains[0].ID
	m.Want(202, "POST", m.path+"/zone/scan", map[string]any{}, &job)
	id := job.ID
	m.Until("the scan ends", func() bool {
		m.Want(200, "GET", "/v1/jobs/"+id+"?wait=5", nil, &job)
		return job.Status == "completed"
	})
	return job
}

// importScan imports the scan, and returns how many records were imported.
func (m *zoneMove) importScan(id string) int {
	m.T.Helper()
	if found := m.issues(); !slices.Contains(found, "not_imported") {
		m.T.Errorf("before the import the issues are %q", found)
	}
	var out struct {
		Imported int
		Skipped  []struct{ Name, Type, Reason string }
		Merged   []struct{ Name, Type, Value string }
	}
	m.Want(200, "POST", m.path+"/zone/import", map[string]any{"scan": id}, &out)
	m.skipped, m.merged = map[string]string{}, map[string]string{}
	for _, r := range out.Skipped {
		m.skipped[r.Name+" "+r.Type] = r.Reason
	}
	for _, r := range out.Merged {
		m.merged[r.Name+" "+r.Type] = r.Value
	}
	const theirs = " a:mx1.elsewhere.test a:mx2.elsewhere.test include:_spf.office.test include:_spf.news.test include:_spf.crm.test include:_spf.desk.test ip4:192.0.2.0/24 -all"
	if spf := m.merged["@ TXT"]; len(m.merged) != 2 || !strings.HasPrefix(spf, "v=spf1 mx ") || !strings.HasSuffix(spf, theirs) || m.merged["_dmarc TXT"] == "" {
		m.T.Errorf("merged are %v", m.merged)
	}
	if reason := m.skipped["@ MX"]; !strings.HasPrefix(reason, "mx: ") || strings.Contains(reason, "until the mail comes here") != (m.mx == "elsewhere") {
		m.T.Errorf("the MX records are skipped for %q", reason)
	}
	if found := m.issues(); slices.Contains(found, "not_imported") {
		m.T.Errorf("after the import the issues are %q", found)
	}
	return out.Imported
}

// goesOn waits until the domain goes on after the change of its nameservers: to its end, or until
// its mail comes here.
func (m *zoneMove) goesOn() {
	m.T.Helper()
	m.Want(200, "POST", "/v1/domains/check-ns", map[string]any{"domains": []string{m.zone}}, nil)
	var d struct {
		Status string
		Apex   struct {
			Mode      string
			Addresses []string
		}
		Previous []string `json:"previous_nameservers"`
	}
	m.Until("the domain goes on", func() bool {
		m.Want(200, "GET", m.path, nil, &d)
		return d.Status == map[string]string{"here": "complete", "elsewhere": "pending_dns_records"}[m.mx]
	})
	if !slices.Equal(d.Previous, []string{"ns1." + m.zone, "ns2.elsewhere.test"}) || d.Apex.Mode != "elsewhere" || !slices.Equal(d.Apex.Addresses, []string{"192.0.2.80", "2001:db8::80"}) {
		m.T.Errorf("the domain is %+v", d)
	}
}

// mayDiffer reports whether the answer of the import has named the records of a name and type.
func (m *zoneMove) mayDiffer(name, typ string) bool {
	label := strings.TrimSuffix(strings.TrimSuffix(name, m.zone+"."), ".")
	if label == "" {
		label = "@"
	}
	if typ == "MX" && label == "@" && m.mx == "elsewhere" { // skipped, since they are here already
		return false
	}
	// Where a LOC record was skipped, nothing keeps the wildcard from its name any more.
	return m.skipped[label+" "+typ] != "" || m.merged[label+" "+typ] != "" || m.skipped[label+" LOC"] != ""
}

// issues returns the codes of the issues of the domain.
func (m *zoneMove) issues() (codes []string) {
	m.T.Helper()
	var d struct {
		Health struct{ Issues []struct{ Code string } } `json:"dns_health"`
	}
	m.Want(200, "GET", m.path, nil, &d)
	for _, issue := range d.Health.Issues {
		codes = append(codes, issue.Code)
	}
	return codes
}

// TestScannedAtBIND: a domain in use is connected, scanned at a real BIND in each of the three
// ways, imported, and delegated to our server. Then that answers each question as BIND did, but for
// what the answer of the import has named.
func TestScannedAtBIND(t *testing.T) {
	for n, way := range []struct {
		method, clause string // of the zone
		complete       bool
		mx             string // where the mail is
	}{
		{"axfr", "allow-transfer { any; };", true, "here"},
		{"nsec", `dnssec-policy chain; inline-signing yes;`, true, "elsewhere"},
		{"questions", "", false, "here"},
	} {
		t.Run(way.method, func(t *testing.T) {
			t.Parallel()
			zone := way.method + "-shop.test"
			text := fmt.Sprintf(zoneInUse, zone)
			whole := text + unusualRecords
			bind := startBIND(t, fmt.Sprintf("zone %q { type primary; file \"%[1]s.zone\"; %s };\n", zone, way.clause), map[string]string{zone: whole})
			world := worldOfTheZone(t, zone, passOn(t, n+1, bind))
			world.Delegate(bind)
			i := rig.Start(t, rig.GenerousLimits, "--resolver", world.Addr)
			if way.method == "nsec" {
				i.Until("the zone is signed", func() bool {
					m, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion(zone+".", dns.TypeNSEC), bind)
					return err == nil && len(m.Answer) > 0
				})
			}
			names := namesOf(t, zone, whole)
			if !way.complete {
				names = namesOf(t, zone, text)
				names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "any.preview.") })
			}
			before := answersOf(t, bind, names)

			m := &zoneMove{Instance: i, zone: zone, mx: way.mx}
			scan := m.connect()
			most := 40
			if way.complete {
				most += strings.Count(unusualRecords, "\n")
			}
			if r := scan.Result; r.Method != way.method || r.Complete != way.complete || !r.Wildcard || r.values() != most {
				t.Errorf("the scan has %d records, not %d: %+v", r.values(), most, r)
			}
			n := m.importScan(scan.ID)
			unknown := 0
			if m.skipped["office LOC"] != "" {
				unknown = 1
			}
			// All but two MX and two NS records come, two of them merged, and two are here since
			// the domain was connected: the addresses of its website.
			if want := most - 4 - 2 - 2 - unknown; n != want || len(m.skipped) != 2+unknown || way.complete != (unknown > 0) {
				t.Errorf("imported %d, not %d, skipped %v", n, want, m.skipped)
			}
			world.Delegate(i.Ready.DNS)
			m.goesOn()
			after := answersOf(t, i.Ready.DNS, names)
			if asked := compareAnswers(t, before, after, m.mayDiffer); asked < 20*len(askedTypes) {
				t.Errorf("%d questions were asked", asked)
			}
			was, _ := textsOf(before, zone)
			is, spf := textsOf(after, zone)
			if !slices.Equal(was, is) || len(spf) != 1 || !strings.HasSuffix(spf[0], fmt.Sprintf(" %q", m.merged["@ TXT"])) {
				t.Errorf("the texts were %q and are %q; the SPF record is %q, merged was %q", was, is, spf, m.merged["@ TXT"])
			}
			if policy := fmt.Sprint(after[question{"_dmarc." + zone + ".", dns.TypeTXT}]); !strings.Contains(policy, `"v=DMARC1; p=quarantine; rua=mailto:dmarc@elsewhere.test"`) {
				t.Errorf("the policy is %s", policy)
			}
		})
	}
}
