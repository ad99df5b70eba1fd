package auth

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/dmarc"
)

const rej = "v=DMARC1; p=reject"

// spfOf is what is known of a message that has no signature.
func spfOf(domain string, r Result) Verdict { return Verdict{SPF: r, SPFDomain: domain} }

// dkimOf is what is known of a message that came by way of a forwarder.
func dkimOf(sigs ...Signature) Verdict {
	return Verdict{SPF: Fail, SPFDomain: "bounce.forwarder.net", Signatures: sigs}
}

// signed stands for a signature that was verified with that result.
func signed(domain string, result Result) Signature { return Signature{Domain: domain, Result: result} }

type dmarcCase struct {
	name   string
	txt    map[string]string // by From or organisational domain; " | " parts records
	dead   string            // a name whose server fails
	from   string            // addresses, parted by commas
	have   Verdict
	rand   int
	result Result
	policy string
}

var dmarcCases = []dmarcCase{
	{name: "no record", from: "a@x.com", have: spfOf("x.com", Fail), result: None},
	{name: "SPF passes, same domain", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: spfOf("x.com", Pass), result: Pass},
	{name: "SPF passes for a subdomain, relaxed", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: spfOf("b.x.com", Pass), result: Pass},
	{name: "SPF passes for a subdomain, strict", txt: map[string]string{"x.com": rej + "; aspf=s"}, from: "a@x.com", have: spfOf("b.x.com", Pass), result: Fail, policy: "reject"},
	{name: "SPF passes for another domain", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: spfOf("evil.com", Pass), result: Fail, policy: "reject"},
	{name: "SPF softfail is no pass", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: spfOf("x.com", SoftFail), result: Fail, policy: "reject"},
	{name: "SPF neutral is no pass", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: spfOf("x.com", Neutral), result: Fail, policy: "reject"},
	{name: "SPF permerror is no pass", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: spfOf("x.com", PermError), result: Fail, policy: "reject"},
	{name: "suffix of another name is not aligned", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: spfOf("evilx.com", Pass), result: Fail, policy: "reject"},
	{name: "parent of the From domain is aligned, relaxed", txt: map[string]string{"x.com": rej}, from: "a@mail.x.com", have: spfOf("x.com", Pass), result: Pass},
	{name: "siblings are aligned, relaxed", txt: map[string]string{"x.com": rej}, from: "a@one.x.com", have: spfOf("two.x.com", Pass), result: Pass},
	{name: "forwarded, DKIM only", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: dkimOf(signed("x.com", Pass)), result: Pass},
	{name: "DKIM of a subdomain, relaxed", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: dkimOf(signed("m.x.com", Pass)), result: Pass},
	{name: "DKIM of a subdomain, strict", txt: map[string]string{"x.com": rej + "; adkim=s"}, from: "a@x.com", have: dkimOf(signed("m.x.com", Pass)), result: Fail, policy: "reject"},
	{name: "strict DKIM leaves SPF relaxed", txt: map[string]string{"x.com": rej + "; adkim=s"}, from: "a@x.com", have: spfOf("m.x.com", Pass), result: Pass},
	{name: "DKIM of the list only", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: dkimOf(signed("list.org", Pass)), result: Fail, policy: "reject"},
	{name: "second signature saves it", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: dkimOf(signed("x.com", Fail), signed("list.org", Pass), signed("x.com", Pass)), result: Pass},
	{name: "broken aligned signature", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: dkimOf(signed("x.com", Fail)), result: Fail, policy: "reject"},
	{name: "l= signature is no pass", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: dkimOf(signed("x.com", Neutral)), result: Fail, policy: "reject"},
	{name: "co.uk is a public suffix", txt: map[string]string{"a.co.uk": rej, "co.uk": "v=DMARC1; p=none"}, from: "a@a.co.uk", have: spfOf("b.co.uk", Pass), result: Fail, policy: "reject"},
	{name: "record of a.co.uk covers its subdomain", txt: map[string]string{"a.co.uk": rej}, from: "a@m.a.co.uk", have: spfOf("a.co.uk", Fail), result: Fail, policy: "reject"},
	{name: "tenants of a private suffix do not align", txt: map[string]string{"one.github.io": rej}, from: "a@one.github.io", have: dkimOf(signed("two.github.io", Pass)), result: Fail, policy: "reject"},
	{name: "From at a public suffix itself", txt: map[string]string{"co.uk": rej}, from: "a@co.uk", have: spfOf("x.co.uk", Pass), result: Fail, policy: "reject"},
	{name: "sp= for subdomains", txt: map[string]string{"x.com": rej + "; sp=quarantine"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "quarantine"},
	{name: "sp=none for subdomains", txt: map[string]string{"x.com": rej + "; sp=none"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "sp= is not for the domain itself", txt: map[string]string{"x.com": rej + "; sp=none"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "sp= of a subdomain's own record", txt: map[string]string{"x.com": rej, "m.x.com": "v=DMARC1; p=quarantine; sp=none"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "quarantine"},
	{name: "deep subdomain skips the ones between", txt: map[string]string{"x.com": "v=DMARC1; p=none", "b.x.com": rej}, from: "a@a.b.x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "p=none", txt: map[string]string{"x.com": "v=DMARC1; p=none"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "pct= takes this one", txt: map[string]string{"x.com": rej + "; pct=30"}, from: "a@x.com", have: spfOf("", None), rand: 29, result: Fail, policy: "reject"},
	{name: "pct= leaves this one to quarantine", txt: map[string]string{"x.com": rej + "; pct=30"}, from: "a@x.com", have: spfOf("", None), rand: 30, result: Fail, policy: "quarantine"},
	{name: "pct= leaves this one to none", txt: map[string]string{"x.com": "v=DMARC1; p=quarantine; pct=30"}, from: "a@x.com", have: spfOf("", None), rand: 30, result: Fail, policy: "none"},
	{name: "pct=0", txt: map[string]string{"x.com": rej + "; pct=0"}, from: "a@x.com", have: spfOf("", None), rand: 0, result: Fail, policy: "quarantine"},
	{name: "pct= beyond 100 counts as absent", txt: map[string]string{"x.com": rej + "; pct=101"}, from: "a@x.com", have: spfOf("", None), rand: 99, result: Fail, policy: "reject"},
	{name: "pct= samples the policy of sp=", txt: map[string]string{"x.com": "v=DMARC1; p=none; sp=reject; pct=50"}, from: "a@m.x.com", have: spfOf("", None), rand: 70, result: Fail, policy: "quarantine"},
	{name: "two authors of one domain", txt: map[string]string{"x.com": rej}, from: "a@x.com,b@X.COM", have: spfOf("x.com", Pass), result: Pass},
	{name: "two domains, one fails", txt: map[string]string{"x.com": rej}, from: "a@evil.com,b@x.com", have: spfOf("evil.com", Pass), result: Fail, policy: "reject"},
	{name: "two domains, strictest policy", txt: map[string]string{"x.com": "v=DMARC1; p=quarantine", "y.com": rej}, from: "a@x.com,b@y.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "two domains, both pass", txt: map[string]string{"x.com": rej, "y.com": rej}, from: "a@x.com,b@y.com", have: Verdict{SPF: Pass, SPFDomain: "x.com", Signatures: []Signature{signed("y.com", Pass)}}, result: Pass},
	{name: "pass beside a domain without record is no pass", txt: map[string]string{"x.com": rej}, from: "a@x.com,b@bank.com", have: spfOf("x.com", Pass), result: None},
	{name: "too many domains", from: "a@a.com,a@b.com,a@c.com,a@d.com,a@e.com,a@f.com,a@g.com,a@h.com,a@i.com,a@j.com,a@k.com", have: spfOf("a.com", Pass), result: PermError, policy: "reject"},
	{name: "From without a domain", from: "root", have: spfOf("x.com", Pass), result: PermError, policy: "quarantine"},
	{name: "From at an address literal", from: "a@[127.0.0.1]", have: spfOf("x.com", Pass), result: PermError, policy: "quarantine"},
	{name: "bad address keeps the policy of the good one", txt: map[string]string{"x.com": rej}, from: "a@x.com,root", have: spfOf("", None), result: PermError, policy: "reject"},
	{name: "bad address beside one that passes", txt: map[string]string{"x.com": rej}, from: "a@x.com,root", have: spfOf("x.com", Pass), result: PermError, policy: "quarantine"},
	{name: "record cannot be looked up", txt: map[string]string{"x.com": rej}, dead: "_dmarc.x.com", from: "a@x.com", have: spfOf("", None), result: TempError},
	{name: "record of the organisation cannot be looked up", dead: "_dmarc.x.com", from: "a@m.x.com", have: spfOf("", None), result: TempError},
	{name: "own record needs no organisation", txt: map[string]string{"m.x.com": rej}, dead: "_dmarc.x.com", from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "aligned SPF temperror", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: spfOf("x.com", TempError), result: TempError},
	{name: "foreign SPF temperror excuses nothing", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: spfOf("evil.com", TempError), result: Fail, policy: "reject"},
	{name: "aligned key temperror", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: dkimOf(signed("x.com", TempError)), result: TempError},
	{name: "foreign key temperror excuses nothing", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: dkimOf(signed("evil.com", TempError)), result: Fail, policy: "reject"},
	{name: "DKIM pass beside SPF temperror", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: Verdict{SPF: TempError, SPFDomain: "x.com", Signatures: []Signature{signed("x.com", Pass)}}, result: Pass},
	{name: "two records", txt: map[string]string{"x.com": rej + " | v=DMARC1; p=none"}, from: "a@x.com", have: spfOf("x.com", Pass), result: PermError},
	{name: "two records do not fall back", txt: map[string]string{"m.x.com": rej + " | " + rej, "x.com": rej}, from: "a@m.x.com", have: spfOf("", None), result: PermError},
	{name: "another text beside the record", txt: map[string]string{"x.com": "hello | " + rej}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "version of the future", txt: map[string]string{"x.com": "v=DMARC2; p=reject"}, from: "a@x.com", have: spfOf("", None), result: None},
	{name: "version not first", txt: map[string]string{"x.com": "p=reject; v=DMARC1"}, from: "a@x.com", have: spfOf("", None), result: None},
	{name: "no p=", txt: map[string]string{"x.com": "v=DMARC1"}, from: "a@x.com", have: spfOf("", None), result: PermError},
	{name: "unknown p= with a report address", txt: map[string]string{"x.com": "v=DMARC1; p=refuse; rua=mailto:d@x.com!10m"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "unknown p= with a bad report address", txt: map[string]string{"x.com": "v=DMARC1; p=refuse; rua=d@x.com"}, from: "a@x.com", have: spfOf("", None), result: PermError},
	{name: "unknown sp=", txt: map[string]string{"x.com": rej + "; sp=never"}, from: "a@x.com", have: spfOf("", None), result: PermError},
	{name: "unknown tags and bad report options", txt: map[string]string{"x.com": "v=DMARC1;p=reject;rf=iodef;ri=1d;fo=q;np=reject;x;;"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "case and spaces", txt: map[string]string{"x.com": "v = DMARC1 ; p = Reject ; aspf = S"}, from: "a@X.com", have: spfOf("m.x.com", Pass), result: Fail, policy: "reject"},
	{name: "international domain", txt: map[string]string{"xn--bcher-kva.example": rej}, from: "a@bücher.example", have: spfOf("xn--bcher-kva.example", Pass), result: Pass},
	{name: "quoted local part with an @", txt: map[string]string{"x.com": rej}, from: `"a@evil.com"@x.com`, have: spfOf("evil.com", Pass), result: PermError, policy: "reject"},
}

func (tc dmarcCase) resolver(t *testing.T) *fakeDNS {
	dns := &fakeDNS{t: t, txt: map[string][]string{}, servers: map[string]bool{tc.dead: true}}
	for domain, records := range tc.txt {
		dns.txt["_dmarc."+domain] = strings.Split(records, " | ")
	}
	return dns
}

func TestDMARCVerdicts(t *testing.T) {
	for _, tc := range slices.Concat(dmarcCases, moreDMARCCases) {
		t.Run(tc.name, func(t *testing.T) {
			v := &Verifier{Resolver: tc.resolver(t), Rand: func(n int) int {
				if n != 100 {
					t.Errorf("Rand(%d), want 100", n)
				}
				return tc.rand
			}}
			look, cancel := v.lookups(t.Context())
			defer cancel()
			from := authorsOf(strings.Split(tc.from, ","), &message{header: []byte("From: " + tc.from + "\r\n")})
			got := tc.have
			v.evaluateDMARC(&got, from, discoverAll(look, from.domains))
			if got.DMARC != tc.result || got.Policy != tc.policy {
				t.Errorf("dmarc=%s policy=%q, want %s %q", got.DMARC, got.Policy, tc.result, tc.policy)
			}
		})
	}
}

// request is a message of user@from, from an address that the table below lets send for x.com.
func request(message string, from ...string) Request {
	return Request{
		IP: netip.MustParseAddr("192.0.2.1"), Helo: "mail.x.com", MailFrom: "user@x.com", AuthservID: "mx.here.example",
		Message: strings.NewReader(message), Size: int64(len(message)), HeaderFrom: from,
	}
}

func TestFromFieldsDecide(t *testing.T) {
	dns := &fakeDNS{t: t, txt: map[string][]string{"x.com": {"v=spf1 ip4:192.0.2.1 -all"}, "_dmarc.x.com": {"v=DMARC1; p=reject"}}}
	v := &Verifier{Resolver: dns}
	for _, tc := range []struct {
		name, message string
		from          []string
		result        Result
		policy        string
	}{
		{"one field", "From: u@x.com\r\n\r\nhi\r\n", []string{"u@x.com"}, Pass, ""},
		{"none at all asks for nothing", "Subject: hi\r\n\r\nhi\r\n", nil, PermError, ""},
		{"empty message", "", nil, PermError, ""},
		{"one that holds no address", "From: undisclosed:;\r\n\r\nhi\r\n", nil, PermError, "quarantine"},
		{"two fields", "From: u@x.com\r\nFROM : v@bank.com\r\n\r\nhi\r\n", []string{"u@x.com"}, PermError, "quarantine"},
		{"no body", "From: u@x.com", []string{"u@x.com"}, Pass, ""},
		{"header without end", "From: u@x.com\r\n" + strings.Repeat("X: y\r\n", maxFields), []string{"u@x.com"}, PermError, "quarantine"},
		{"header without measure", "From: u@x.com\r\nX: " + strings.Repeat("y", maxHeader), []string{"u@x.com"}, PermError, "quarantine"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := v.Verify(t.Context(), request(tc.message, tc.from...))
			if err != nil {
				t.Fatal(err)
			}
			if got.DMARC != tc.result || got.Policy != tc.policy {
				t.Errorf("dmarc=%s policy=%q, want %s %q", got.DMARC, got.Policy, tc.result, tc.policy)
			}
		})
	}
}

func TestUnsampledPolicyIsDrawn(t *testing.T) {
	v := &Verifier{}
	seen := map[string]int{}
	for range 2000 {
		seen[v.policy(foundRecord{Record: dmarc.Record{Policy: dmarc.PolicyReject, Percent: 50}})]++
	}
	if seen[dmarc.PolicyReject] < 800 || seen[dmarc.PolicyQuarantine] < 800 || len(seen) != 2 {
		t.Errorf("pct=50 drew %v of 2000", seen)
	}
}
