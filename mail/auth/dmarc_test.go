package auth

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"
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
	result Result
	policy string
	former string // what RFC 7489 says, as "fail reject"; empty: the same
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
	{name: "co.uk is a public suffix", txt: map[string]string{"a.co.uk": rej, "co.uk": "v=DMARC1; p=none; psd=y"}, from: "a@a.co.uk", have: spfOf("b.co.uk", Pass), result: Fail, policy: "reject"},
	{name: "suffix that does not say so", txt: map[string]string{"a.co.uk": rej, "co.uk": "v=DMARC1; p=none"}, from: "a@a.co.uk", have: spfOf("b.co.uk", Pass), result: Pass, former: "fail reject"},
	{name: "record of a.co.uk covers its subdomain", txt: map[string]string{"a.co.uk": rej}, from: "a@m.a.co.uk", have: spfOf("a.co.uk", Fail), result: Fail, policy: "reject"},
	{name: "tenants of a private suffix do not align", txt: map[string]string{"one.github.io": rej}, from: "a@one.github.io", have: dkimOf(signed("two.github.io", Pass)), result: Fail, policy: "reject"},
	{name: "From at a public suffix itself", txt: map[string]string{"co.uk": rej + "; psd=y"}, from: "a@co.uk", have: spfOf("x.co.uk", Pass), result: Fail, policy: "reject"},
	{name: "sp= for subdomains", txt: map[string]string{"x.com": rej + "; sp=quarantine"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "quarantine"},
	{name: "sp=none for subdomains", txt: map[string]string{"x.com": rej + "; sp=none"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "sp= is not for the domain itself", txt: map[string]string{"x.com": rej + "; sp=none"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "sp= of a subdomain's own record", txt: map[string]string{"x.com": rej, "m.x.com": "v=DMARC1; p=quarantine; sp=none"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "quarantine"},
	{name: "deep subdomain skips the ones between", txt: map[string]string{"x.com": "v=DMARC1; p=none", "b.x.com": rej}, from: "a@a.b.x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "p=none", txt: map[string]string{"x.com": "v=DMARC1; p=none"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "pct= has no effect", txt: map[string]string{"x.com": rej + "; pct=30"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "pct= has no effect on a pass", txt: map[string]string{"x.com": rej + "; pct=30"}, from: "a@x.com", have: spfOf("x.com", Pass), result: Pass},
	{name: "pct= has no effect on quarantine", txt: map[string]string{"x.com": "v=DMARC1; p=quarantine; pct=30"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "quarantine"},
	{name: "pct=0", txt: map[string]string{"x.com": rej + "; pct=0"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "pct= beyond 100 has no effect", txt: map[string]string{"x.com": rej + "; pct=101"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "pct= has no effect on sp=", txt: map[string]string{"x.com": "v=DMARC1; p=none; sp=reject; pct=50"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "reject"},
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
	{name: "two records", txt: map[string]string{"x.com": rej + " | v=DMARC1; p=none"}, from: "a@x.com", have: spfOf("x.com", Pass), result: None, former: "permerror"},
	{name: "two records fall back", txt: map[string]string{"m.x.com": rej + " | " + rej, "x.com": rej}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "reject", former: "permerror"},
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

// walkCases are what RFC 9989 says and RFC 7489 did not.
var walkCases = []dmarcCase{
	{name: "a record between", txt: map[string]string{"b.x.com": rej}, from: "a@a.b.x.com", have: spfOf("", None), result: Fail, policy: "reject", former: "none"},
	{name: "a record between, of the organisation", txt: map[string]string{"b.x.com": "v=DMARC1; p=none; sp=reject"}, from: "a@a.b.x.com", have: spfOf("", None), result: Fail, policy: "reject", former: "none"},
	{name: "the record with the fewest labels", txt: map[string]string{"b.x.com": rej, "x.com": "v=DMARC1; p=none; sp=quarantine"}, from: "a@a.b.x.com", have: spfOf("", None), result: Fail, policy: "quarantine"},
	{name: "psd=n ends the walk", txt: map[string]string{"b.x.com": rej + "; psd=n", "x.com": "v=DMARC1; p=none"}, from: "a@a.b.x.com", have: spfOf("", None), result: Fail, policy: "reject", former: "fail none"},
	{name: "psd=n separates organisations", txt: map[string]string{"b.x.com": rej + "; psd=n", "x.com": rej}, from: "a@b.x.com", have: spfOf("x.com", Pass), result: Fail, policy: "reject", former: "pass"},
	{name: "psd=n of the other separates, too", txt: map[string]string{"b.x.com": "v=DMARC1; p=none; psd=n", "x.com": rej}, from: "a@x.com", have: dkimOf(signed("b.x.com", Pass)), result: Fail, policy: "reject", former: "pass"},
	{name: "within an organisation of psd=n", txt: map[string]string{"b.x.com": rej + "; psd=n"}, from: "a@c.b.x.com", have: dkimOf(signed("d.b.x.com", Pass)), result: Pass, former: "none"},
	{name: "psd=y above makes the organisation", txt: map[string]string{"pub.com": rej + "; psd=y"}, from: "a@a.x.pub.com", have: dkimOf(signed("b.x.pub.com", Pass)), result: Pass},
	{name: "psd=y separates those below", txt: map[string]string{"pub.com": rej + "; psd=y"}, from: "a@x.pub.com", have: dkimOf(signed("y.pub.com", Pass)), result: Fail, policy: "reject", former: "pass"},
	{name: "policy of the suffix for an organisation without one", txt: map[string]string{"com": "v=DMARC1; p=none; sp=quarantine; psd=y"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "quarantine", former: "none"},
	{name: "np= of the suffix", txt: map[string]string{"com": "v=DMARC1; p=none; np=reject; psd=y"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject", former: "none"},
	{name: "the organisation's record goes before the suffix's", txt: map[string]string{"x.com": "v=DMARC1; p=none", "com": rej + "; psd=y"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "np= for a subdomain that is not there", txt: map[string]string{"x.com": "v=DMARC1; p=none; sp=none; np=reject"}, from: "a@ghost.x.com", have: spfOf("", None), result: Fail, policy: "reject", former: "fail none"},
	{name: "np= where sp= is not", txt: map[string]string{"x.com": rej + "; np=none"}, from: "a@ghost.x.com", have: spfOf("", None), result: Fail, policy: "none", former: "fail reject"},
	{name: "np= is not for the domain itself", txt: map[string]string{"x.com": "v=DMARC1; p=none; np=reject"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "np= where DNS does not answer", txt: map[string]string{"x.com": "v=DMARC1; p=none; np=reject"}, dead: "ghost.x.com", from: "a@ghost.x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "unknown np= with a report address", txt: map[string]string{"x.com": rej + "; np=never; rua=mailto:d@x.com"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "t=y on reject", txt: map[string]string{"x.com": rej + "; t=y"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "quarantine", former: "fail reject"},
	{name: "t=y on quarantine", txt: map[string]string{"x.com": "v=DMARC1; p=quarantine; t=Y"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "none", former: "fail quarantine"},
	{name: "t=y on none", txt: map[string]string{"x.com": "v=DMARC1; p=none; t=y"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "t=y on sp=", txt: map[string]string{"x.com": "v=DMARC1; p=none; sp=reject; t=y"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "quarantine", former: "fail reject"},
	{name: "t=n", txt: map[string]string{"x.com": rej + "; t=n"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "rf= and ri= have no effect", txt: map[string]string{"x.com": rej + "; rf=x; ri=0"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "missing p= with a report address", txt: map[string]string{"x.com": "v=DMARC1; rua=mailto:d@x.com"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "a broken record keeps its place", txt: map[string]string{"b.x.com": "v=DMARC1; psd=n", "x.com": rej}, from: "a@a.b.x.com", have: spfOf("", None), result: PermError, former: "fail reject"},
	{name: "nine labels", txt: map[string]string{"x.com": rej}, from: "a@1.2.3.4.5.6.7.x.com", have: spfOf("x.com", Pass), result: Pass},
	{name: "a level that is passed over", txt: map[string]string{"3.4.5.6.7.x.com": rej, "2.3.4.5.6.7.x.com": "v=DMARC1; p=none; psd=n"}, from: "a@1.2.3.4.5.6.7.x.com", have: spfOf("", None), result: Fail, policy: "reject", former: "none"},
	{name: "DNS does not answer between", txt: map[string]string{"b.x.com": rej}, dead: "_dmarc.x.com", from: "a@a.b.x.com", have: spfOf("", None), result: TempError},
	{name: "DNS does not answer for com", txt: map[string]string{"x.com": rej}, dead: "_dmarc.com", from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "DNS does not answer for an aligned domain", txt: map[string]string{"x.com": rej}, dead: "_dmarc.m.x.com", from: "a@x.com", have: spfOf("m.x.com", Pass), result: TempError, former: "pass"},
	{name: "DNS does not answer for a foreign domain", txt: map[string]string{"x.com": rej}, dead: "_dmarc.evil.com", from: "a@x.com", have: spfOf("evil.com", Pass), result: Fail, policy: "reject"},
}

func (tc dmarcCase) resolver(t *testing.T) *fakeDNS {
	dns := &fakeDNS{t: t, txt: map[string][]string{}, servers: map[string]bool{tc.dead: true}}
	for domain, records := range tc.txt {
		dns.txt["_dmarc."+domain] = strings.Split(records, " | ")
	}
	return dns
}

func TestDMARCVerdicts(t *testing.T) {
	for _, tc := range slices.Concat(dmarcCases, moreDMARCCases, walkCases) {
		t.Run(tc.name, func(t *testing.T) {
			v := &Verifier{Resolver: tc.resolver(t)}
			look, cancel := v.newLookups(t.Context())
			defer cancel()
			from := authorsOf(strings.Split(tc.from, ","), &message{header: []byte("From: " + tc.from + "\r\n")})
			got := tc.have
			evaluateDMARC(newTreeWalker(look), &got, from)
			if got.DMARC != tc.result || got.Policy != tc.policy {
				t.Errorf("dmarc=%s policy=%q, want %s %q", got.DMARC, got.Policy, tc.result, tc.policy)
			}
			former := strings.TrimSpace(string(got.Former.Result) + " " + got.Former.Policy)
			if want := cmp.Or(tc.former, strings.TrimSpace(string(tc.result)+" "+tc.policy)); former != want {
				t.Errorf("by RFC 7489 %s, want %s", former, want)
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

// A walk asks for eight names at most, and for each once, whatever the message has to be compared
// with.
func TestWalksAreBounded(t *testing.T) {
	keys := newTestKeys(t)
	deep := strings.Repeat("a.", 60) + "x.com"
	for _, c := range []struct {
		from string
		most int
	}{{"x.com", 1}, {"m.x.com", 3}, {deep, 8}} {
		dns := keys.dns(t)
		delete(dns.txt, "_dmarc.x.com")
		if c.from == "x.com" {
			dns.txt["_dmarc.x.com"] = []string{rej}
		}
		head := strings.Replace(testMessage, "user@x.com", "user@"+c.from, 1)
		r := request(head, "user@"+c.from)
		r.MailFrom = "user@" + c.from
		if _, err := (&Verifier{Resolver: dns}).Verify(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		asked := map[string]int{}
		for _, name := range dns.asked {
			if strings.HasPrefix(name, "_dmarc.") {
				asked[name]++
			}
		}
		for name, n := range asked {
			if n > 1 {
				t.Errorf("%s: %s was asked for %d times", c.from, name, n)
			}
		}
		if len(asked) != c.most {
			t.Errorf("%.20s: %d names, want %d: %v", c.from, len(asked), c.most, asked)
		}
	}
}
