package auth

import (
	"context"
	"crypto"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-msgauth/authres"

	"github.com/mailstead/mailstead/mail/dmarc"
)

var spfCases = []struct {
	name, ip, helo, from string
	result               Result
	domain               string
	isHelo               bool
}{
	{"ip4", "192.0.2.1", "h.x.com", "user@x.com", Pass, "x.com", false},
	{"ip4 in IPv6 form", "::ffff:192.0.2.1", "h.x.com", "user@x.com", Pass, "x.com", false},
	{"ip6", "2001:db8::5", "h.x.com", "user@X.com.", Pass, "x.com", false},
	{"not listed", "192.0.2.2", "h.x.com", "user@x.com", Fail, "x.com", false},
	{"softfail", "192.0.2.1", "h", "user@soft.com", SoftFail, "soft.com", false},
	{"neutral", "192.0.2.1", "h", "user@neutral.com", Neutral, "neutral.com", false},
	{"empty record", "192.0.2.1", "h", "user@open.com", Neutral, "open.com", false},
	{"no record", "192.0.2.1", "h", "user@nosuch.com", None, "nosuch.com", false},
	{"a", "192.0.2.7", "h", "user@a.com", Pass, "a.com", false},
	{"mx", "192.0.2.8", "h", "user@a.com", Pass, "a.com", false},
	{"include", "192.0.2.1", "h", "user@inc.com", Pass, "inc.com", false},
	{"include of a dead name", "192.0.2.1", "h", "user@inctemp.com", TempError, "inctemp.com", false},
	{"include of itself", "192.0.2.1", "h", "user@loop.com", PermError, "loop.com", false},
	{"more than ten look-ups", "192.0.2.1", "h", "user@lookups.com", PermError, "lookups.com", false},
	{"dead name", "192.0.2.1", "h", "user@down.com", TempError, "down.com", false},
	{"two records", "192.0.2.1", "h", "user@two.com", PermError, "two.com", false},
	{"malformed record", "192.0.2.1", "h", "user@bad.com", PermError, "bad.com", false},
	{"macros", "192.0.2.1", "h", "user@macro.com", Pass, "macro.com", false},
	{"ptr", "192.0.2.1", "h", "user@ptr.com", Pass, "ptr.com", false},
	{"null sender", "192.0.2.1", "HELO.x.com", "", Pass, "helo.x.com", true},
	{"null sender, not listed", "192.0.2.2", "helo.x.com", "", Fail, "helo.x.com", true},
	{"null sender, address literal", "192.0.2.1", "[192.0.2.1]", "", None, "", true},
	{"null sender, bare address", "192.0.2.1", "192.0.2.1", "", None, "192.0.2.1", true},
	{"null sender, single label", "192.0.2.1", "localhost", "", None, "localhost", true},
	{"empty label", "192.0.2.1", "h", "user@x..com", None, "", false},
	{"long label", "192.0.2.1", "h", "user@" + strings.Repeat("x", 64) + ".com", None, "", false},
	{"international", "192.0.2.1", "h", "jürgen@bücher.example", Pass, "xn--bcher-kva.example", false},
	{"quoted @", "192.0.2.1", "h", `"a@soft.com"@x.com`, Pass, "x.com", false},
	{"no address", "", "h", "user@x.com", None, "x.com", false},
}

func TestSPFThroughOurResolver(t *testing.T) {
	dns := &fakeDNS{t: t,
		servers: map[string]bool{"down.com": true, "slow.include.com": true},
		txt: map[string][]string{
			"x.com":                 {"unrelated", "v=spf1 ip4:192.0.2.1 ip6:2001:db8::/32 -all"},
			"soft.com":              {"v=spf1 ~all"},
			"neutral.com":           {"v=spf1 ?all"},
			"open.com":              {"v=spf1"},
			"a.com":                 {"v=spf1 a mx -all"},
			"inc.com":               {"v=spf1 include:x.com -all"},
			"inctemp.com":           {"v=spf1 include:down.com -all"},
			"loop.com":              {"v=spf1 include:loop.com -all"},
			"two.com":               {"v=spf1 -all", "v=spf1 +all"},
			"bad.com":               {"v=spf1 ipv4:1.2.3.4 -all"},
			"helo.x.com":            {"v=spf1 ip4:192.0.2.1 -all"},
			"macro.com":             {"v=spf1 exists:%{l}.%{i}.macro.com -all"},
			"xn--bcher-kva.example": {"v=spf1 ip4:192.0.2.1 -all"},
			"ptr.com":               {"v=spf1 ptr -all"},
			"lookups.com": {"v=spf1 a:1.lookups.com a:2.lookups.com a:3.lookups.com a:4.lookups.com a:5.lookups.com " +
				"a:6.lookups.com a:7.lookups.com a:8.lookups.com a:9.lookups.com a:10.lookups.com a:11.lookups.com -all"},
		},
		ip: map[string][]string{
			"a.com": {"192.0.2.7"}, "mx.a.com": {"192.0.2.8"}, "user.192.0.2.1.macro.com": {"127.0.0.2"},
			"host.ptr.com": {"192.0.2.1"},
		},
		mx:  map[string][]string{"a.com": {"mx.a.com."}},
		ptr: map[string][]string{"192.0.2.1": {"host.ptr.com."}},
	}
	for _, n := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"} {
		dns.ip[n+".lookups.com"] = []string{"192.0.2.200"}
	}
	for _, tc := range spfCases {
		t.Run(tc.name, func(t *testing.T) {
			ip, _ := netip.ParseAddr(tc.ip)
			look, cancel := (&Verifier{Resolver: dns}).newLookups(t.Context())
			defer cancel()
			result, domain, isHelo, _ := checkSPF(look, Request{IP: ip, Helo: tc.helo, MailFrom: tc.from})
			if result != tc.result || domain != tc.domain || isHelo != tc.isHelo {
				t.Errorf("spf=%s %q helo=%v, want %s %q %v", result, domain, isHelo, tc.result, tc.domain, tc.isHelo)
			}
		})
	}
}

func TestVerdictOfSignedMessage(t *testing.T) {
	keys := newTestKeys(t)
	dns := keys.dns(t)
	dns.txt["x.com"] = []string{"v=spf1 ip4:192.0.2.1 -all"}
	v := &Verifier{Resolver: dns}
	sigs, err := Sign(strings.NewReader(testMessage), SignOptions{Keys: []Key{{"x.com", "rsa", keys.rsa}, {"x.com", "ed", keys.ed}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.Verify(t.Context(), request(string(sigs)+testMessage, "user@x.com"))
	if err != nil {
		t.Fatal(err)
	}
	if got.SPF != Pass || got.SPFDomain != "x.com" || got.DKIM != Pass || got.DMARC != Pass || got.Policy != "" ||
		got.FromDomain != "x.com" {
		t.Errorf("verdict %+v", got)
	}
	for i, selector := range []string{"rsa", "ed"} {
		if s := got.Signatures[i]; s.Domain != "x.com" || s.Selector != selector || s.Result != Pass || !s.Aligned {
			t.Errorf("signature %d: %+v", i, s)
		}
	}
	checkField(t, got.Header)
	for _, part := range []string{"Authentication-Results: mx.here.example;", "spf=pass smtp.mailfrom=x.com",
		"dkim=pass header.d=x.com header.s=rsa header.a=rsa-sha256 header.b=", "header.a=ed25519-sha256", "dmarc=pass header.from=x.com\r\n"} {
		if !strings.Contains(strings.ReplaceAll(got.Header, "\r\n\t", " "), strings.TrimSuffix(part, "\r\n")) {
			t.Errorf("no %q in\n%s", part, got.Header)
		}
	}
}

// checkField reads a field back with the parser of another package, and holds it to RFC 5322.
func checkField(t *testing.T, text string) []authres.Result {
	t.Helper()
	if !strings.HasSuffix(text, "\r\n") || strings.Contains(text, "\r\n\r\n") || strings.Count(text, "\n") != strings.Count(text, "\r\n") {
		t.Errorf("line ends of %q", text)
	}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\r\n"), "\r\n") {
		if len(line) > 998 || i > 0 && line[0] != '\t' || !isASCII(line) || strings.TrimSpace(line) == "" {
			t.Errorf("line %q", line)
		}
	}
	value, ok := strings.CutPrefix(text, "Authentication-Results:")
	if !ok {
		t.Fatalf("field %q", text)
	}
	id, results, err := authres.Parse(strings.ReplaceAll(value, "\r\n", ""))
	if err != nil || id != "mx.here.example" {
		t.Errorf("read back %q of %q: %v", id, text, err)
	}
	return results
}

func TestResultsFieldCannotBeBrokenOut(t *testing.T) {
	keys := newTestKeys(t)
	dns := keys.dns(t)
	v := &Verifier{Resolver: dns}
	long := strings.Repeat("a.", 120) + "com"
	for _, sig := range []string{
		`DKIM-Signature: v=1; a=rsa-sha256(; d=x.com) dmarc=pass; s="; h=From; bh=AA; b=A"A(`,
		"DKIM-Signature: v=1; a=rsa-\x00sha; d=\u212Aelvin.com; s=\xff; h=From; bh=AA; b==+/=",
		"DKIM-Signature: v=1; a=rsa-sha256; d=" + long + "; s=" + long + "; h=From; bh=AA; b=AAAAAAAAAA",
		"DKIM-Signature: \"\\(",
		"DKIM-Signature:",
	} {
		r := request(sig+"\r\n"+testMessage, "user@x.com")
		r.MailFrom = "user@" + long
		got, err := v.Verify(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		results := checkField(t, got.Header)
		passes := 0
		for _, res := range results {
			if d, ok := res.(*authres.DMARCResult); ok && d.Value == authres.ResultPass {
				passes++
			}
		}
		if len(results) != 3 || passes > 0 {
			t.Errorf("%d results, %d passes from %q:\n%s", len(results), passes, sig, got.Header)
		}
	}
}

func TestResultsFieldOfFailures(t *testing.T) {
	got := resultsField("mx.here.example", &Verdict{SPF: None, DKIM: None, DMARC: Fail, Policy: dmarc.PolicyReject, SPFDomain: "h.x.com", FromDomain: "x.com", SPFHelo: true})
	want := "Authentication-Results: mx.here.example;\r\n\tspf=none smtp.helo=h.x.com;\r\n\tdkim=none;\r\n\tdmarc=fail policy.dmarc=reject header.from=x.com\r\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got = signatureField(Signature{Domain: "x.com", Result: TempError, Reason: "key unavailable", hint: "ab/+"})
	want = `dkim=temperror reason="key unavailable" header.d=x.com header.b="ab/+"`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func signatureField(s Signature) string { return strings.Join(signatureInfo(s), " ") }

func TestDeadResolverIsTempErrorInTime(t *testing.T) {
	keys := newTestKeys(t)
	msg := handSign(t, keys.rsa, crypto.SHA256, " v=1; a=rsa-sha256; c=relaxed/relaxed; d=x.com; h=From; s=rsa") + testMessage
	for _, tc := range []struct {
		name string
		dns  deadDNS
		most time.Duration
	}{
		{"silent", deadDNS{}, 20 * time.Second},
		{"refusing", deadDNS{errRefused}, 0},
		{"refusing by DNSError", deadDNS{&net.DNSError{Err: "server misbehaving"}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &Verifier{Resolver: tc.dns}
				start := time.Now()
				got, err := v.Verify(t.Context(), request(msg, "user@x.com"))
				if err != nil {
					t.Fatal(err)
				}
				if got.SPF != TempError || got.DKIM != TempError || got.DMARC != TempError || got.Policy != "" {
					t.Errorf("spf=%s dkim=%s dmarc=%s policy=%q", got.SPF, got.DKIM, got.DMARC, got.Policy)
				}
				if took := time.Since(start); took > tc.most {
					t.Errorf("took %s, want at most %s", took, tc.most)
				}
				checkField(t, got.Header)
			})
		})
	}
}

// slowNames leaves the names of one domain unanswered.
type slowNames struct {
	*fakeDNS
	suffix string
}

func (s slowNames) LookupTXT(ctx context.Context, name string) ([]string, error) {
	if strings.HasSuffix(name, s.suffix) {
		return nil, deadDNS{}.wait(ctx)
	}
	return s.fakeDNS.LookupTXT(ctx, name)
}

// A forger must not get off by having its own names time out.
func TestSlowNamesOfAForgerExcuseNothing(t *testing.T) {
	keys := newTestKeys(t)
	dns := keys.dns(t)
	forged := handSign(t, keys.short, crypto.SHA256, " v=1; a=rsa-sha256; c=relaxed/relaxed; d=x.com; h=From; s=rsa")
	slow := handSign(t, keys.rsa, crypto.SHA256, " v=1; a=rsa-sha256; c=relaxed/relaxed; d=evil.com; h=From; s=rsa")
	synctest.Test(t, func(t *testing.T) {
		v := &Verifier{Resolver: slowNames{dns, "evil.com."}, LookupTimeout: time.Minute}
		r := request(slow+forged+slow+testMessage, "user@x.com")
		r.MailFrom = "user@evil.com"
		got, err := v.Verify(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if got.DMARC != Fail || got.Policy != dmarc.PolicyReject || got.SPF != TempError {
			t.Errorf("spf=%s dmarc=%s policy=%q, want temperror fail reject: %+v", got.SPF, got.DMARC, got.Policy, got.Signatures)
		}
	})
}

func TestAuthservIDMustBeAHost(t *testing.T) {
	for _, id := range []string{"", "a b", "x;y", "a\r\nb", "a..b"} {
		r := request(testMessage, "user@x.com")
		r.AuthservID = id
		if _, err := (&Verifier{Resolver: deadDNS{errRefused}}).Verify(t.Context(), r); !errors.Is(err, ErrAuthservID) {
			t.Errorf("%q: %v, want %v", id, err, ErrAuthservID)
		}
		if err := StripResults(&strings.Builder{}, strings.NewReader(testMessage), id); !errors.Is(err, ErrAuthservID) {
			t.Errorf("strip %q: %v, want %v", id, err, ErrAuthservID)
		}
	}
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}
